"""The table of field types: one frozen row per type with all that the protocols, the store and SOQL need to know.

A new type is a new member of FieldType with its row. Code elsewhere asks the row, or dispatches on the row's
`kind`, and keeps no list of types of its own; tests/unit/schema/test_field_types.py checks both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class ValueKind(Enum):
    """How values are represented: what is stored, parsed, compared and rendered alike is of one kind."""

    TEXT = "text"
    CHOICES = "choices"  # several picklist values, joined by `;`
    ID = "id"
    INTEGER = "integer"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    COMPOUND = "compound"  # a view over other fields

    # Kinds are looked up for every value; Enum's own hash is Python code.
    __hash__ = object.__hash__


class FormulaKind(Enum):
    """What an expression of a formula yields; the value is the word for it in messages."""

    NUMBER = "number"
    TEXT = "text"
    TRUTH = "true or false"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    PICKLIST = "picklist"
    MULTI_PICKLIST = "multi-select picklist"
    NULL = "null"  # the literal, which fits every kind


class ConversionClass(Enum):
    """Types that convert to others alike; `tidewire.records.conversion` has the rules between the classes."""

    FIXED = "fixed"  # never converted
    TEXT = "text"
    TEXT_AREA = "text area"
    LONG_TEXT = "long text"
    FORMATTED_TEXT = "formatted text"
    PICKLIST = "picklist"
    AUTO_NUMBER = "auto number"
    NUMBER = "number"
    OTHER = "other"  # values are lost in any conversion


class ListOperator(Enum):
    """The SOQL operator, negated or not, that tests a field against a list of values."""

    IN = "IN"
    INCLUDES = "INCLUDES"
    NONE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTypeRow:
    """All facts about one type. Defaults are those of most types."""

    # Words
    name: str  # in org definitions, and in the Metadata API unless `metadata_words` differ
    word: str  # `type` of REST and SOAP describes, ValueTypeId of the Tooling API, and error texts
    soap_type: str  # `soapType` of describes, and the type of the element in a WSDL
    apex_type: str = "String"  # `apexType` of a query's column metadata
    metadata_words: tuple[str, ...] = ()  # of the Metadata API, the one that is rendered first; empty: `name`
    extra_type_info: str | None = None  # `extraTypeInfo` of describes
    currency_sign: str = ""  # before the number in FORMAT()
    number_suffix: str = ""  # after the number in FORMAT()

    # Representation
    kind: ValueKind
    sql_type: str  # of the column; SQLite and PostgreSQL take the same words
    avro_type: str  # a primitive type, or the name of a compound's record
    avro_doc: str  # the word in the doc of the Avro field, as in `Data:Text:00N...`
    formula_kind: FormulaKind | None  # what a reference yields; None if formulas cannot read the type
    has_column: bool = True
    is_never_null: bool = False

    # SOQL
    is_filterable: bool = True  # in WHERE; what follows counts for filterable fields only
    is_sortable: bool = True  # in ORDER BY
    is_groupable: bool = True  # in GROUP BY
    is_aggregatable: bool = True  # by COUNT_DISTINCT, MIN and MAX
    is_ordered: bool = True  # < and > compare it; if not, only = and != do
    list_operator: ListOperator = ListOperator.IN
    has_text_key: bool = False  # compared by its folded text, kept in a column of its own
    is_place: bool = False  # DISTANCE measures from it

    # Definitions
    is_custom_type: bool = True  # orgs may define fields of it
    is_event_type: bool = False  # on platform events too
    is_formula_result: bool = False
    is_summary_result: bool = False
    has_choices: bool = False
    can_be_key: bool = False  # unique or an external id
    states_length: bool = False  # a definition in the Metadata API names the length
    default_length: int = 0
    length_range: tuple[int, int] | None = None  # of custom fields
    visible_lines: int = 0  # of the Metadata API
    conversion_class: ConversionClass = ConversionClass.OTHER

    # Behaviour
    is_enrichable: bool = True  # change events may carry it though it did not change
    is_truncatable: bool = False  # cut to its length if a SOAP client asks for that

    @property
    def metadata_word(self) -> str:
        """The word with which the Metadata API renders the type."""
        return self.metadata_words[0] if self.metadata_words else self.name


_TEXT = FieldTypeRow(
    name="Text",
    word="string",
    soap_type="xsd:string",
    kind=ValueKind.TEXT,
    sql_type="TEXT",
    avro_type="string",
    avro_doc="Text",
    formula_kind=FormulaKind.TEXT,
    has_text_key=True,
    is_event_type=True,
    is_formula_result=True,
    can_be_key=True,
    states_length=True,
    default_length=255,
    length_range=(1, 255),
    conversion_class=ConversionClass.TEXT,
    is_truncatable=True,
)
_FORMATTED_TEXT = replace(
    _TEXT,
    is_event_type=False,
    is_formula_result=False,
    can_be_key=False,
    states_length=False,
    conversion_class=ConversionClass.FORMATTED_TEXT,
)
_LONG_TEXT = replace(
    _TEXT,
    name="LongTextArea",
    word="textarea",
    avro_doc="StringPlusClob",
    extra_type_info="plaintextarea",
    formula_kind=None,
    has_text_key=False,
    is_filterable=False,
    is_sortable=False,
    is_groupable=False,
    is_aggregatable=False,
    is_formula_result=False,
    can_be_key=False,
    default_length=32_768,
    length_range=(256, 131_072),
    visible_lines=3,
    conversion_class=ConversionClass.LONG_TEXT,
    is_enrichable=False,
)
_ID = FieldTypeRow(
    name="Id",
    word="id",
    soap_type="tns:ID",
    apex_type="Id",
    kind=ValueKind.ID,
    sql_type="TEXT",
    avro_type="string",
    avro_doc="EntityId",
    formula_kind=FormulaKind.TEXT,
    is_custom_type=False,
    conversion_class=ConversionClass.FIXED,
    is_enrichable=False,
)
_NUMBER = FieldTypeRow(
    name="Number",
    word="double",
    soap_type="xsd:double",
    apex_type="Double",
    kind=ValueKind.DOUBLE,
    sql_type="REAL",
    avro_type="double",
    avro_doc="Double",
    formula_kind=FormulaKind.NUMBER,
    is_groupable=False,
    is_event_type=True,
    is_formula_result=True,
    is_summary_result=True,
    can_be_key=True,
    conversion_class=ConversionClass.NUMBER,
)
_DATE = FieldTypeRow(
    name="Date",
    word="date",
    soap_type="xsd:date",
    apex_type="Date",
    kind=ValueKind.DATE,
    sql_type="INTEGER",
    avro_type="long",
    avro_doc="DateOnly",
    formula_kind=FormulaKind.DATE,
    is_event_type=True,
    is_formula_result=True,
    is_summary_result=True,
)
_PICKLIST = replace(
    _FORMATTED_TEXT,
    name="Picklist",
    word="picklist",
    avro_doc="DynamicEnum",
    formula_kind=FormulaKind.PICKLIST,
    has_choices=True,
    conversion_class=ConversionClass.PICKLIST,
)
_COMPOUND = FieldTypeRow(
    name="Address",
    word="address",
    soap_type="urn:address",
    apex_type="Address",
    kind=ValueKind.COMPOUND,
    sql_type="TEXT",
    avro_type="Address",
    avro_doc="Address",
    formula_kind=None,
    has_column=False,
    is_filterable=False,
    is_sortable=False,
    is_groupable=False,
    is_aggregatable=False,
    is_place=True,
    is_custom_type=False,
    conversion_class=ConversionClass.FIXED,
)


class FieldType(Enum):
    """What a field holds. A member's value is its row's name, the word used in org definitions."""

    ID = _ID
    REFERENCE = replace(
        _ID,
        name="Lookup",
        word="reference",
        metadata_words=("Lookup", "MasterDetail", "Hierarchy"),
        is_custom_type=True,
        default_length=18,
        is_enrichable=True,
    )
    TEXT = _TEXT
    TEXT_AREA = replace(
        _FORMATTED_TEXT,
        name="TextArea",
        word="textarea",
        extra_type_info="plaintextarea",
        conversion_class=ConversionClass.TEXT_AREA,
        is_enrichable=False,
    )
    LONG_TEXT = _LONG_TEXT
    RICH_TEXT = replace(
        _LONG_TEXT,
        name="RichTextArea",
        metadata_words=("Html",),
        avro_doc="HtmlStringPlusClob",
        extra_type_info="richtextarea",
        is_event_type=False,
        visible_lines=25,
    )
    EMAIL = replace(
        _FORMATTED_TEXT,
        name="Email",
        word="email",
        avro_doc="Email",
        can_be_key=True,
        default_length=80,
        length_range=(1, 80),
    )
    PHONE = replace(
        _FORMATTED_TEXT,
        name="Phone",
        word="phone",
        avro_doc="Phone",
        default_length=40,
        length_range=(1, 40),
    )
    URL = replace(_FORMATTED_TEXT, name="Url", word="url", avro_doc="Url", is_truncatable=False)
    # Standard whole-number fields only; custom Number fields are doubles.
    INTEGER = replace(
        _NUMBER,
        name="Integer",
        word="int",
        soap_type="xsd:int",
        apex_type="Integer",
        kind=ValueKind.INTEGER,
        sql_type="INTEGER",
        avro_type="int",
        avro_doc="Integer",
        is_groupable=True,
        is_custom_type=False,
        is_event_type=False,
        is_formula_result=False,
        is_summary_result=False,
        can_be_key=False,
        conversion_class=ConversionClass.FIXED,
    )
    NUMBER = _NUMBER
    CURRENCY = replace(
        _NUMBER,
        name="Currency",
        word="currency",
        avro_doc="Currency",
        currency_sign="$",
        is_event_type=False,
        is_enrichable=False,
    )
    PERCENT = replace(
        _NUMBER, name="Percent", word="percent", avro_doc="Percent", number_suffix="%", is_event_type=False
    )
    CHECKBOX = FieldTypeRow(
        name="Checkbox",
        word="boolean",
        soap_type="xsd:boolean",
        apex_type="Boolean",
        kind=ValueKind.BOOLEAN,
        sql_type="INTEGER",
        avro_type="boolean",
        avro_doc="Boolean",
        formula_kind=FormulaKind.TRUTH,
        is_never_null=True,
        is_aggregatable=False,
        is_ordered=False,
        list_operator=ListOperator.NONE,
        is_event_type=True,
        is_formula_result=True,
    )
    DATE = _DATE
    DATETIME = replace(
        _DATE,
        name="DateTime",
        word="datetime",
        soap_type="xsd:dateTime",
        apex_type="Datetime",
        kind=ValueKind.DATETIME,
        avro_doc="DateTime",
        formula_kind=FormulaKind.DATETIME,
        is_groupable=False,
    )
    TIME = replace(
        _DATE,
        name="Time",
        word="time",
        soap_type="xsd:time",
        apex_type="Time",
        kind=ValueKind.TIME,
        avro_doc="TimeOnly",
        formula_kind=FormulaKind.TIME,
        is_event_type=False,
        is_summary_result=False,
    )
    PICKLIST = _PICKLIST
    # The chosen values joined by `;`, in the order of definition.
    MULTI_PICKLIST = replace(
        _PICKLIST,
        name="MultiselectPicklist",
        word="multipicklist",
        kind=ValueKind.CHOICES,
        avro_doc="MultiEnum",
        formula_kind=FormulaKind.MULTI_PICKLIST,
        is_sortable=False,
        is_groupable=False,
        is_aggregatable=False,
        is_ordered=False,
        list_operator=ListOperator.INCLUDES,
        has_text_key=False,
        default_length=4099,
        length_range=None,
        visible_lines=4,
        conversion_class=ConversionClass.OTHER,
        is_enrichable=False,
        is_truncatable=False,
    )
    AUTO_NUMBER = replace(
        _FORMATTED_TEXT,
        name="AutoNumber",
        is_never_null=True,
        can_be_key=True,
        default_length=30,
        length_range=None,
        conversion_class=ConversionClass.AUTO_NUMBER,
        is_truncatable=False,
    )
    ADDRESS = _COMPOUND
    LOCATION = replace(
        _COMPOUND,
        name="Geolocation",
        word="location",
        soap_type="urn:location",
        apex_type="Location",
        metadata_words=("Location",),
        avro_type="Location",
        avro_doc="Location",
        is_custom_type=True,
    )
    # Filterable only where the object was laid out with a column for the joined name (`Field.is_filterable`).
    PERSON_NAME = replace(
        _COMPOUND,
        name="PersonName",
        word="string",
        soap_type="xsd:string",
        apex_type="String",
        avro_type="PersonName",
        avro_doc="PersonName",
        formula_kind=FormulaKind.TEXT,
        has_column=True,
        is_sortable=True,
        is_groupable=True,
        is_aggregatable=True,
        is_place=False,
    )

    _value_: str
    row: FieldTypeRow
    kind: ValueKind  # the row's, one step nearer: it is asked for every value

    def __new__(cls, row: FieldTypeRow) -> FieldType:
        member = object.__new__(cls)
        member._value_ = row.name
        member.row = row
        member.kind = row.kind
        return member

    # Types are looked up for every value; Enum's own hash is Python code.
    __hash__ = object.__hash__


def _of_kinds(*kinds: ValueKind) -> frozenset[FieldType]:
    return frozenset(each for each in FieldType if each.kind in kinds)


ID_TYPES = _of_kinds(ValueKind.ID)
DOUBLE_TYPES = _of_kinds(ValueKind.DOUBLE)
NUMBER_TYPES = _of_kinds(ValueKind.DOUBLE, ValueKind.INTEGER)
DATE_TYPES = _of_kinds(ValueKind.DATE, ValueKind.DATETIME)
"""Types that relative date literals and date functions fit."""
COMPOUND_TYPES = _of_kinds(ValueKind.COMPOUND)
PICKLIST_TYPES = frozenset(each for each in FieldType if each.row.has_choices)
LONG_TEXT_TYPES = _of_kinds(ValueKind.TEXT) & {each for each in FieldType if not each.row.is_filterable}
"""Text that can be neither filtered nor sorted."""
DOC_KINDS = {each.row.avro_doc: each.kind for each in FieldType}
"""The kind of value behind each word in the docs of Avro fields."""


def doc_kind(doc: str) -> ValueKind | None:
    """The kind of value that the doc of an Avro field names, as in `Data:DateOnly:00N...`; None for other docs."""
    words = doc.split(":", 2)
    return DOC_KINDS.get(words[1]) if len(words) > 1 else None
