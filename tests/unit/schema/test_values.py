from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewire.errors import (
    EmailInvalid,
    IdMalformed,
    NumberOutOfRange,
    PicklistValueInvalid,
    RequestError,
    TextTooLong,
    ValueMalformed,
)
from tidewire.events import Value
from tidewire.schema import fields
from tidewire.schema.field_types import FieldType
from tidewire.schema.layout import custom_object
from tidewire.schema.model import Field, PicklistValue
from tidewire.schema.standard.access import USER
from tidewire.schema.standard.accounts import ACCOUNT, CONTACT
from tidewire.schema.values import join_person_name, parse_value, render_compound, render_value

TEXT = fields.text("Name", "Account Name", 10)
EMAIL = fields.email("Email", "Email", 80)
INTEGER = fields.integer("Employees", "Employees", 8)
DOUBLE = fields.double("Score__c", "Score", 5, 2)
CURRENCY = fields.currency("Amount", "Amount", 18, 2)
CHECKBOX = fields.checkbox("IsActive", "Active")
DATE = fields.date("CloseDate", "Close Date")
DATETIME = fields.datetime("When__c", "When")
TIME = Field(name="At__c", label="At", type=FieldType.TIME)
LOOKUP = fields.lookup("AccountId", "Account ID", "Account", "Account")
OPEN_LIST = fields.picklist("Industry", "Industry", "Banking;Other")
CLOSED_LIST = Field(
    name="Status__c",
    label="Status",
    type=FieldType.PICKLIST,
    length=255,
    restricted=True,
    picklist=(PicklistValue("Open", "Open"), PicklistValue("Old", "Old", is_active=False)),
)
EVERY_FIELD = (
    TEXT,
    EMAIL,
    INTEGER,
    DOUBLE,
    CURRENCY,
    CHECKBOX,
    DATE,
    DATETIME,
    TIME,
    LOOKUP,
    OPEN_LIST,
    CLOSED_LIST,
    fields.long_text("Description", "Description"),
    fields.rich_text("Body__c", "Body"),
    fields.multi_picklist("Colours__c", "Colours", "Red;Green;Blue", restricted=True),
    *fields.address("Billing"),
    *fields.location("Place__c", "Place"),
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.text("0123456789-:.TZ+eE", max_size=30),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize(
    "field, raw, stored",
    [
        (TEXT, "  Acme \t\r\n", "Acme"),
        (TEXT, " \n", None),
        (TEXT, "a\nb", "a\nb"),
        (TEXT, "😀" * 10, "😀" * 10),
        (EMAIL, "ada@example.com", "ada@example.com"),
        (EMAIL, "a.b+c'd@mail.example.co.uk", "a.b+c'd@mail.example.co.uk"),
        (INTEGER, 12, 12),
        (INTEGER, "-12", -12),
        (INTEGER, 12.0, 12),
        (INTEGER, "99999999", 99_999_999),
        (DOUBLE, 1, 1.0),
        (DOUBLE, "54.0", 54.0),
        (DOUBLE, 1.005, 1.01),
        (DOUBLE, -1.005, -1.01),
        (DOUBLE, 2.675, 2.68),
        (DOUBLE, "1e2", 100.0),
        (DOUBLE, 999.994, 999.99),
        (DOUBLE, "1e-300", 0.0),
        (CURRENCY, "9999999999999999", 9_999_999_999_999_999.0),
        (CHECKBOX, None, False),
        (CHECKBOX, "", False),
        (CHECKBOX, True, True),
        (CHECKBOX, "TRUE", True),
        (CHECKBOX, "false", False),
        (DATE, "1970-01-02", 86_400_000),
        (DATE, "1969-12-31", -86_400_000),
        (DATE, "2024-02-29", 1_709_164_800_000),
        (DATETIME, "1970-01-01T00:00:00Z", 0),
        (DATETIME, "1970-01-01T00:00:00.123+0000", 123),
        (DATETIME, "1970-01-01T02:00:00.5+02:00", 500),
        (DATETIME, "1970-01-01T00:00:00-0130", 5_400_000),
        (DATETIME, "1970-01-01T01:00+01", 0),
        (DATETIME, "1969-12-31T23:59:59.999999999Z", -1),
        (TIME, "00:00:01Z", 1000),
        (TIME, "23:59:59.999Z", 86_399_999),
        (TIME, "12:30", 45_000_000),
        (LOOKUP, "001TW0000000001", "001TW0000000001YAA"),
        (LOOKUP, "001tw0000000001yaa", "001TW0000000001YAA"),
        (OPEN_LIST, "Anything", "Anything"),
        (CLOSED_LIST, "Open", "Open"),
    ],
)
def test_fitting_value_is_stored_in_its_normal_form(field: Field, raw: object, stored: Value) -> None:
    parsed = parse_value(field, raw)
    assert parsed == stored
    assert type(parsed) is type(stored)


@pytest.mark.parametrize("field", [f for f in EVERY_FIELD if f is not CHECKBOX], ids=lambda f: f.name)
def test_null_and_empty_text_are_stored_as_null(field: Field) -> None:
    assert parse_value(field, None) is None
    assert parse_value(field, "") is None


def test_number_of_any_size_is_refused_without_writing_it_out() -> None:
    with pytest.raises(NumberOutOfRange):
        parse_value(DOUBLE, 10**5000)


def test_negative_zero_is_stored_as_zero() -> None:
    assert str(parse_value(DOUBLE, -0.001)) == "0.0"


@pytest.mark.parametrize(
    "field, raw, error, message",
    [
        (TEXT, "x" * 11, TextTooLong, f"Account Name: data value too large: {'x' * 11} (max length=10)"),
        (
            CLOSED_LIST,
            "Shut",
            PicklistValueInvalid,
            "Status__c: bad value for restricted picklist field: Shut",
        ),
        (CLOSED_LIST, "Old", PicklistValueInvalid, "Status__c: bad value for restricted picklist field: Old"),
        (LOOKUP, "nobody", IdMalformed, "Account ID: id value of incorrect type: nobody"),
        (
            LOOKUP,
            "001TW0000000001AA9",
            IdMalformed,
            "Account ID: id value of incorrect type: 001TW0000000001AA9",
        ),
        (EMAIL, "ada", EmailInvalid, "Email: invalid email address: ada"),
        (EMAIL, "ada@localhost", EmailInvalid, "Email: invalid email address: ada@localhost"),
        (EMAIL, "a b@example.com", EmailInvalid, "Email: invalid email address: a b@example.com"),
        (
            INTEGER,
            100_000_000,
            NumberOutOfRange,
            "Employees: value outside of valid range on numeric field: 100000000",
        ),
        (DOUBLE, 1000, NumberOutOfRange, "Score: value outside of valid range on numeric field: 1000"),
        (DOUBLE, 999.995, NumberOutOfRange, "Score: value outside of valid range on numeric field: 999.995"),
        (DOUBLE, "1e999", NumberOutOfRange, "Score: value outside of valid range on numeric field: 1e999"),
        (
            DOUBLE,
            1 << 300,
            NumberOutOfRange,
            "Score: value outside of valid range on numeric field: of more than 256 bits",
        ),
        (
            DATE,
            "2024-02-30",
            ValueMalformed,
            "Cannot deserialize instance of date from VALUE_STRING value 2024-02-30 "
            "or request may be missing a required field",
        ),
        (
            DATETIME,
            {"a": 1},
            ValueMalformed,
            "Cannot deserialize instance of datetime from START_OBJECT value { "
            "or request may be missing a required field",
        ),
        (
            TEXT,
            5,
            ValueMalformed,
            "Cannot deserialize instance of string from VALUE_NUMBER_INT value 5 "
            "or request may be missing a required field",
        ),
    ],
)
def test_unfitting_value_is_refused_in_the_words_of_the_protocol(
    field: Field, raw: object, error: type[RequestError], message: str
) -> None:
    with pytest.raises(error) as caught:
        parse_value(field, raw)
    assert caught.value.message == message
    assert caught.value.details["fields"] == [field.name]


@pytest.mark.parametrize(
    "field, raw",
    [
        (TEXT, "a\0b"),
        (TEXT, "\ud800"),
        (TEXT, True),
        (TEXT, 1.5),
        (TEXT, ["a"]),
        (INTEGER, 1.5),
        (INTEGER, True),
        (INTEGER, "1x"),
        (DOUBLE, "NaN"),
        (DOUBLE, "Infinity"),
        (DOUBLE, float("nan")),
        (DOUBLE, float("inf")),
        (DOUBLE, "1_000"),
        (DOUBLE, "٣"),
        (DOUBLE, False),
        (CHECKBOX, 1),
        (CHECKBOX, "yes"),
        (DATE, "2024-1-1"),
        (DATE, "1699-12-31"),
        (DATE, 20240101),
        (DATE, "2024-01-01T00:00:00Z"),
        (DATETIME, "2024-01-01"),
        (DATETIME, "2024-01-01T00:00:00"),
        (DATETIME, "2024-01-01T24:00:00Z"),
        (DATETIME, "2024-01-01T00:00:00+99:00"),
        (DATETIME, 0),
        (TIME, "25:00:00Z"),
        (TIME, "noon"),
        (LOOKUP, 1),
        (ACCOUNT.by_name["billingaddress"], {"city": "Rome"}),
    ],
)
def test_malformed_value_is_refused(field: Field, raw: object) -> None:
    with pytest.raises(ValueMalformed) as caught:
        parse_value(field, raw)
    assert caught.value.details["fields"] == [field.name]


@pytest.mark.parametrize("name, raw", [("BillingLatitude", 90.5), ("BillingLongitude", -180.5)])
def test_place_outside_the_globe_is_refused(name: str, raw: float) -> None:
    with pytest.raises(NumberOutOfRange):
        parse_value(ACCOUNT.by_name[name.lower()], raw)


@given(st.sampled_from(EVERY_FIELD), JSON_VALUES)
def test_any_json_value_is_stored_or_refused(field: Field, raw: object) -> None:
    try:
        stored = parse_value(field, raw)
    except RequestError as e:
        refused = e
    else:
        # What a caller reads back and sends again must not change the record.
        assert parse_value(field, render_value(field, stored, "+0000")) == stored
        return
    assert refused.details["fields"] == [field.name]
    assert refused.message.encode()


@pytest.mark.parametrize(
    "field, stored, suffix, shown",
    [
        (DATETIME, 1_700_000_000_123, "+0000", "2023-11-14T22:13:20.123+0000"),
        (DATETIME, 1_700_000_000_000, "Z", "2023-11-14T22:13:20.000Z"),
        (DATETIME, -1, "Z", "1969-12-31T23:59:59.999Z"),
        (DATE, 1_709_164_800_000, "Z", "2024-02-29"),
        (TIME, 45_000_001, "Z", "12:30:00.001Z"),
        (INTEGER, 12, "Z", 12),
        (DOUBLE, 50000, "Z", 50000.0),
        (CHECKBOX, None, "Z", False),
        (CHECKBOX, 1, "Z", True),
        (TEXT, None, "Z", None),
        (TEXT, "x", "Z", "x"),
    ],
)
def test_stored_value_is_shown_in_its_wire_form(
    field: Field, stored: Value, suffix: str, shown: object
) -> None:
    rendered = render_value(field, stored, suffix)
    assert rendered == shown
    assert type(rendered) is type(shown)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_datetime_is_shown_as_the_calendar_has_it(epoch_ms: int) -> None:
    shown = render_value(DATETIME, epoch_ms, "+00:00")
    seconds, ms = divmod(epoch_ms, 1000)
    expected = datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000)
    assert shown == expected.isoformat(timespec="milliseconds")


@pytest.mark.parametrize("epoch_ms", [1 << 62, -(1 << 62)])
def test_moment_beyond_the_calendar_is_shown_at_its_edge(epoch_ms: int) -> None:
    # Publishers fill CreatedDate themselves and nothing checks it.
    shown = str(render_value(DATETIME, epoch_ms, "Z"))
    assert shown[:10] == ("9999-12-31" if epoch_ms > 0 else "0001-01-01")
    assert render_value(DATE, epoch_ms, "Z") == shown[:10]


def test_address_is_shown_with_all_its_parts_in_order() -> None:
    row: dict[str, Value] = {"BillingCity": "Rome", "BillingLatitude": 41.9}
    shown = render_compound(ACCOUNT, ACCOUNT.by_name["billingaddress"], row, "+0000")
    assert isinstance(shown, dict)
    assert list(shown.items()) == [
        ("city", "Rome"),
        ("country", None),
        ("geocodeAccuracy", None),
        ("latitude", 41.9),
        ("longitude", None),
        ("postalCode", None),
        ("state", None),
        ("street", None),
    ]


def test_address_without_any_part_is_null() -> None:
    row: dict[str, Value] = {"BillingCity": None, "ShippingCity": "Rome"}
    assert render_compound(ACCOUNT, ACCOUNT.by_name["billingaddress"], row, "+0000") is None


@pytest.mark.parametrize(
    "row, shown",
    [
        ({"Salutation": "Dr.", "FirstName": "Ada", "LastName": "Lovelace"}, "Ada Lovelace"),
        ({"FirstName": None, "LastName": "Lovelace"}, "Lovelace"),
        ({}, None),
    ],
)
def test_person_name_is_shown_as_first_and_last_name(row: dict[str, Value], shown: str | None) -> None:
    assert render_compound(CONTACT, CONTACT.by_name["name"], row, "Z") == shown
    assert render_compound(USER, USER.by_name["name"], row, "Z") == shown


COLOURS = fields.multi_picklist("Colours__c", "Colours", "Red;Green;Blue", restricted=True)
PLACE = fields.location("Place__c", "Place")


@pytest.mark.parametrize(
    "raw, stored",
    [
        ("Blue;Red", "Red;Blue"),
        (" Green ; Red;Green;", "Red;Green"),
        ("Blue", "Blue"),
        (";;", None),
        ("", None),
        (None, None),
    ],
)
def test_multi_picklist_holds_each_choice_once_in_the_order_of_definition(
    raw: str | None, stored: str | None
) -> None:
    assert parse_value(COLOURS, raw) == stored


def test_multi_picklist_with_one_bad_choice_is_refused_if_restricted() -> None:
    with pytest.raises(
        PicklistValueInvalid, match="Colours__c: bad value for restricted picklist field: Pink"
    ):
        parse_value(COLOURS, "Red;Pink")
    with pytest.raises(ValueMalformed, match="multipicklist"):
        parse_value(COLOURS, ["Red"])


def test_multi_picklist_that_is_open_keeps_other_values_after_the_defined_ones() -> None:
    colours = fields.multi_picklist("Colours__c", "Colours", "Red;Green")
    assert parse_value(colours, "Pink;Green;Mauve;Red") == "Red;Green;Pink;Mauve"
    with pytest.raises(PicklistValueInvalid, match="more than 500"):
        parse_value(colours, ";".join(str(n) for n in range(501)))


@pytest.mark.parametrize("part, raw", [(1, 90.1), (1, -91), (2, 180.5), (2, "-181")])
def test_location_off_the_globe_is_refused(part: int, raw: object) -> None:
    assert isinstance(parse_value(PLACE[part], 89.123456789012345), float)
    with pytest.raises(NumberOutOfRange):
        parse_value(PLACE[part], raw)


def test_location_is_shown_whole_and_set_by_its_parts() -> None:
    obj = custom_object("Shop__c", "Shop", "Shops", "a00", 1001, None, PLACE)
    row: dict[str, Value] = {"Place__Latitude__s": 52.5, "Place__Longitude__s": 13.25}
    assert render_compound(obj, PLACE[0], row, "Z") == {"latitude": 52.5, "longitude": 13.25}
    assert render_compound(obj, PLACE[0], {}, "Z") is None
    with pytest.raises(ValueMalformed, match="location"):
        parse_value(PLACE[0], {"latitude": 52.5})


@pytest.mark.parametrize(
    "row, name",
    [
        ({"FirstName": "Ada", "LastName": "Byron"}, "Ada Byron"),
        ({"Salutation": "Ms.", "LastName": "Byron"}, "Byron"),
        ({"FirstName": None, "LastName": None}, None),
    ],
)
def test_person_name_is_joined_from_first_and_last(row: dict[str, Value], name: str | None) -> None:
    assert join_person_name(row) == name
