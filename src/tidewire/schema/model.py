"""Field, object and platform-event types.

A compound field (a postal address, a person's name) is listed among the object's fields but holds no value: its
components name it in `compound` and carry the values. Stored values are described in `tidewire.events.Value`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tidewire.schema.field_types import FieldType, ValueKind

# Fields that name a record of most objects, the first that an object has; setup objects have a MasterLabel.
_NAME_FIELDS = ("name", "masterlabel")


@dataclass(frozen=True, slots=True)
class StatusCategory:
    """What a status or stage means for the records that have it.

    `code` groups the statuses of contracts and orders; `probability` and `forecast_category_name` belong to
    the stages of opportunities.
    """

    is_closed: bool = False
    is_won: bool = False
    is_converted: bool = False
    code: str = ""
    probability: float = 0.0
    forecast_category_name: str = ""


@dataclass(frozen=True, slots=True)
class PicklistValue:
    """One choice of a picklist. `category` is set where the org overrides the standard category of a status."""

    value: str
    label: str
    is_default: bool = False
    is_active: bool = True
    category: StatusCategory | None = None


ROLL_UP_FUNCTIONS = ("COUNT", "SUM", "MIN", "MAX")
FILTER_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class RollUp:
    """What a roll-up summary adds up: records of `child` whose master-detail `child_field` is this record.

    `function` is one of ROLL_UP_FUNCTIONS; `summed_field` is empty for COUNT. `filters` are (field, one of
    FILTER_OPERATORS, literal), all of which must hold.
    """

    child: str
    child_field: str
    function: str
    summed_field: str = ""
    filters: tuple[tuple[str, str, str | int | float | bool | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of an object or event.

    `type` of a formula or roll-up is the type of its result; both have a column that records keeps up to
    date. `column` is the physical column (empty for most compounds, events and fields not stored); a text
    field's folded key stands beside it in `key_column`. A person's Name, though a compound, has a column too:
    the joined text, by which it is filtered and sorted. `field_id` is the 00N id of a custom field.
    """

    name: str
    label: str
    type: FieldType
    length: int = 0
    precision: int = 0
    scale: int = 0
    required: bool = False
    createable: bool = True
    updateable: bool = True
    custom: bool = False
    unique: bool = False
    external_id: bool = False
    case_sensitive: bool = False
    reference_to: tuple[str, ...] = ()
    relationship_name: str = ""
    child_relationship_name: str = ""
    picklist: tuple[PicklistValue, ...] = ()
    restricted: bool = False
    default: str | int | float | bool | None = None
    compound: str = ""
    component: str = ""  # the part's name inside its compound: BillingStreet is `Street` of BillingAddress
    display_format: str = ""  # of auto numbers, such as `INV-{0000}`
    start_number: int = 1  # of auto numbers
    is_master_detail: bool = False  # of lookups: the record lives and dies with its master
    delete_constraint: str = "SetNull"  # of lookups: SetNull, Restrict or Cascade
    formula: str = ""
    roll_up: RollUp | None = None
    is_system: bool = False  # set by the platform, never by users
    in_change_events: bool = True
    column: str = ""
    field_id: str = ""
    help_text: str = ""  # for people who fill the field in
    description: str = ""  # for administrators

    @property
    def is_compound(self) -> bool:
        """Whether the field is only a view over its components."""
        return self.type.kind is ValueKind.COMPOUND

    @property
    def is_filterable(self) -> bool:
        """Whether WHERE, ORDER BY and indexes may use it."""
        return self.type.row.is_filterable or self._is_stored_name

    @property
    def is_text(self) -> bool:
        """Whether it is compared by its folded key."""
        return self.type.row.has_text_key or self._is_stored_name

    @property
    def _is_stored_name(self) -> bool:
        return self.type is FieldType.PERSON_NAME and bool(self.column)

    @property
    def key_column(self) -> str:
        """The column with the folded form of a text field: `c7` -> `k7`."""
        return "k" + self.column[1:]


@dataclass(frozen=True, kw_only=True)
class ObjectType:
    """One kind of record. `fields` are in canonical order, compounds included."""

    name: str
    label: str
    label_plural: str
    key_prefix: str
    fields: tuple[Field, ...]
    table: str = ""  # physical table, such as `o12_0`
    custom: bool = False
    createable: bool = True
    updateable: bool = True
    deletable: bool = True
    is_setup: bool = False  # metadata-like objects: never captured, writes commit alone
    description: str = ""
    internal_sharing: str = "ReadWrite"  # the org-wide default; also Private, Read and ControlledByParent
    uses_hierarchy: bool = True  # whether people above a record's owner have the owner's access
    named_by: str = (
        ""  # of standard objects: the field that names a record, if it is not one of the usual ones
    )
    id_lookup: str = (
        ""  # of standard objects: the field that can stand for an id without being an external id
    )
    shares: str = ""  # of share objects: the entity whose records their rows open

    # Types key caches on hot paths: hashing every field, or comparing them with an older version of the same
    # type, would cost more than what is cached. Equal types that are not the same object may hash apart.
    __hash__ = object.__hash__

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """Fields by lower-case name."""
        return {f.name.lower(): f for f in self.fields}

    @cached_property
    def stored_fields(self) -> tuple[Field, ...]:
        """The fields that have a column, in order."""
        return tuple(f for f in self.fields if f.column)

    @cached_property
    def name_field(self) -> Field | None:
        """The field that names a record to people."""
        names = (self.named_by.lower(), *_NAME_FIELDS)
        return next((self.by_name[name] for name in names if name in self.by_name), None)

    @cached_property
    def keys(self) -> frozenset[str]:
        """The fields that identify records in upserts: the id, external ids, and one that the platform adds."""
        own = {f.name for f in self.fields if f.external_id or f.type is FieldType.ID}
        return frozenset(own | {self.id_lookup or "Id"})

    def try_field(self, name: str) -> Field | None:
        """Return the field of that name in any letter case, or None."""
        return self.by_name.get(name.lower())

    def components(self, compound: str) -> tuple[Field, ...]:
        """Return the parts of a compound field, in order."""
        return tuple(f for f in self.fields if f.compound == compound)


@dataclass(frozen=True, kw_only=True)
class EventType:
    """One kind of platform event; CreatedDate and CreatedById come with every event.

    One that `publishes_immediately` stays published if the transaction that published it is rolled back. An event
    that is not `custom` belongs to the platform: only the server publishes it.
    """

    name: str
    label: str
    label_plural: str
    key_prefix: str
    fields: tuple[Field, ...]
    description: str = ""
    custom: bool = True
    is_high_volume: bool = True
    publishes_immediately: bool = False
