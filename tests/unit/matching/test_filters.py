"""Filters in channel names: how they are read, whom they let through, what they refuse."""

from __future__ import annotations

import pytest

from tidewire.access.grants import Grants, ObjectGrant
from tidewire.capture.push_topics import compile_push_topic
from tidewire.errors import ChannelInvalid, FilterInvalid, PlatformError
from tidewire.ids import make_id
from tidewire.matching.filters import MAX_CONDITIONS, MAX_LENGTH, NotificationFilter, parse_filter
from tidewire.schema.catalog import Catalog
from tidewire.schema.standard import STANDARD_OBJECTS

ADMIN = Grants(frozenset({"ModifyAllData"}))
ACCOUNT = make_id("001", 7)
OWNER = make_id("005", 1)
RECORD = {
    "Id": ACCOUNT,
    "Name": "A & B's \\ Ltd",
    "Industry": "Energy",
    "ShippingCity": "San Francisco",
    "NumberOfEmployees": 1200,
    "AnnualRevenue": 2.5,
    "OwnerId": OWNER,
    "IsDeleted": False,
    "CreatedDate": "2024-01-02T03:04:05.000Z",
    "Phone": None,
}
TOPIC = compile_push_topic(
    {
        "Id": make_id("0IF", 1),
        "Name": "Accounts",
        "Query": f"SELECT {', '.join(RECORD)}, ShippingAddress FROM Account WHERE Fax = '1'",
        "ApiVersion": 50.0,
        "IsActive": True,
    },
    Catalog(1, STANDARD_OBJECTS, ()),
)


def passes(expression: str, record: dict[str, object] = RECORD, grants: Grants = ADMIN) -> bool:
    wanted = NotificationFilter("001", parse_filter(f"/topic/Accounts?{expression}", TOPIC, grants))
    return wanted.passes({"sobject": record})


def refusal(expression: str, grants: Grants = ADMIN) -> PlatformError:
    with pytest.raises((ChannelInvalid, FilterInvalid)) as caught:
        passes(expression, grants=grants)
    return caught.value


@pytest.mark.parametrize(
    "expression, is_told",
    [
        ("Industry='Energy'&ShippingCity='San Francisco'", True),
        ("Industry='Energy'&ShippingCity='Paris'", True),
        ("Industry='Media'&ShippingCity='San Francisco'", True),
        ("Industry='Media'&ShippingCity='Paris'", False),
        ("Industry=Energy", True),
        ("ShippingCity=San Francisco", True),
        ("industry='ENERGY'", True),
        ("Industry='Energ'", False),
        (r"Name='A & B\'s \\ Ltd'", True),
        (r"Name='A & B'", False),
        ("NumberOfEmployees=1200", True),
        ("NumberOfEmployees='1200'", True),
        ("NumberOfEmployees=12", False),
        ("AnnualRevenue=2.50", True),
        ("IsDeleted=false", True),
        ("IsDeleted=true", False),
        ("CreatedDate=2024-01-02T04:04:05+01:00", True),
        ("CreatedDate=2024-01-02T03:04:06Z", False),
        (f"OwnerId={OWNER}", True),
        (f"OwnerId='{OWNER.lower()}'", False),
        (f"Id='{ACCOUNT}'", True),
        ("Phone=null", True),
        ("Phone=''", True),
        ("Phone='null'", False),
        ("Industry=null", False),
        ("Industry='a=b'", False),
    ],
)
def test_notification_passes_if_any_condition_holds(expression: str, is_told: bool) -> None:
    assert passes(expression) is is_told


def test_channel_without_filter_lets_every_record_of_its_object_through() -> None:
    assert parse_filter("/topic/Accounts", TOPIC, ADMIN) == ()
    assert NotificationFilter("001").passes({"sobject": RECORD})
    assert not NotificationFilter("003").passes({"sobject": RECORD})


def test_deleted_record_is_filtered_by_its_last_values() -> None:
    terms = parse_filter("/topic/Accounts?Industry='Energy'", TOPIC, ADMIN)
    deleted = {"sobject": {"Id": ACCOUNT}, "record": RECORD}
    assert NotificationFilter("001", terms).passes(deleted)
    assert not NotificationFilter("001", terms).passes({**deleted, "record": {**RECORD, "Industry": "Media"}})


def test_notification_from_before_the_field_was_selected_does_not_pass() -> None:
    assert not passes("Phone=null", {"Id": ACCOUNT, "Name": "Old"})


@pytest.mark.parametrize(
    "expression, fields",
    [
        ("Nope='1'", "Nope"),
        ("Website='x'", "Website"),
        ("Nope='1'&Industry='Energy'&AlsoNope=2", "Nope, AlsoNope"),
        ("Industry", "Industry"),
        ("NumberOfEmployees>5", "NumberOfEmployees>5"),
        ("NumberOfEmployees>=5", "NumberOfEmployees>"),
        ("ShippingAddress='x'", "ShippingAddress"),
        ("Industry!='Energy'", "Industry!"),
        ("Owner.Name='x'", "Owner.Name"),
    ],
)
def test_field_outside_the_query_is_rejected_in_the_guides_words(expression: str, fields: str) -> None:
    error = refusal(expression)
    assert error.message == f"Query fields {{{fields}}} do not exist on the topic entity"


@pytest.mark.parametrize(
    "expression",
    ["", "&", "Industry='Energy'&", "='x'", "Industry='Energy", "Industry='a'b", "Industry='a' OR Name='b'"],
)
def test_malformed_expression_names_no_channel(expression: str) -> None:
    error = refusal(expression)
    assert isinstance(error, ChannelInvalid)
    assert error.message == (
        f"The channel you requested to subscribe to does not exist {{/topic/Accounts?{expression}}}"
    )


def test_filter_of_too_many_conditions_is_rejected() -> None:
    assert passes("&".join(["Industry='Energy'"] * MAX_CONDITIONS))
    assert isinstance(refusal("&".join(["Industry='Energy'"] * (MAX_CONDITIONS + 1))), ChannelInvalid)
    assert isinstance(refusal(f"Industry='{'x' * MAX_LENGTH}'"), ChannelInvalid)


@pytest.mark.parametrize(
    "expression, message",
    [
        (f"Id='{ACCOUNT[:15]}'", f"Query field {{Id}} needs an ID of 18 characters, not {{{ACCOUNT[:15]}}}"),
        ("NumberOfEmployees=many", "Query field {NumberOfEmployees} cannot have the value {many}"),
        ("IsDeleted=perhaps", "Query field {IsDeleted} cannot have the value {perhaps}"),
        ("CreatedDate=yesterday", "Query field {CreatedDate} cannot have the value {yesterday}"),
    ],
)
def test_filter_value_that_the_field_cannot_have_is_rejected(expression: str, message: str) -> None:
    assert refusal(expression).message == message


def test_field_that_the_subscriber_may_not_read_does_not_exist() -> None:
    objects = {"Account": ObjectGrant(can_read=True), "PushTopic": ObjectGrant(can_read=True)}
    reader = Grants(frozenset(), objects, frozenset({("Account", "Industry")}))
    assert passes("Industry='Energy'", grants=reader)
    assert refusal("Phone='1'", reader).message == "Query fields {Phone} do not exist on the topic entity"
