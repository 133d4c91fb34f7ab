"""What a channel name covers for one user."""

from __future__ import annotations

import pytest

from tidewire.access.grants import Grants, ObjectGrant
from tidewire.capture.push_topics import compile_push_topic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.errors import ChannelForbidden, ChannelInvalid, ChannelUnknown
from tidewire.events import Family, Value
from tidewire.ids import make_id
from tidewire.matching.channels import ChannelView, view_channel
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import EventType
from tidewire.schema.standard import STANDARD_OBJECTS

EVENT = EventType(name="Order__e", label="Order", label_plural="Orders", key_prefix="e00", fields=())
CATALOG = Catalog(1, STANDARD_OBJECTS, (EVENT,), frozenset({"Account", "Contact"}))
TOPIC = make_id("0IF", 1)
TOPICS = PushTopicIndex(
    [
        compile_push_topic(
            {
                "Id": TOPIC,
                "Name": "Accounts",
                "Query": "SELECT Id, Name, Phone FROM Account WHERE Fax = '1'",
                "ApiVersion": 50.0,
                "IsActive": True,
            },
            CATALOG,
        )
    ]
)
ADMIN = Grants(frozenset({"ModifyAllData"}))
VIEWER = Grants(frozenset({"ViewAllData"}))
NOBODY = Grants(frozenset())


def reader(*fields: str, view_all: bool = True) -> Grants:
    grant = ObjectGrant(can_read=True, can_view_all=view_all)
    objects = {"Account": grant, "PushTopic": ObjectGrant(can_read=True)}
    return Grants(frozenset(), objects, frozenset(("Account", f) for f in fields))


def view(channel: str, grants: Grants) -> ChannelView:
    return view_channel(channel, CATALOG, TOPICS, grants)


def test_administrator_sees_everything_uncut() -> None:
    changes = frozenset({"AccountChangeEvent", "ContactChangeEvent"})
    assert view("/data/ChangeEvents", ADMIN) == ChannelView(Family.CHANGE, changes)
    assert view("/data/AccountChangeEvent", ADMIN) == ChannelView(
        Family.CHANGE, frozenset({"AccountChangeEvent"})
    )
    assert view("/event/Order__e", ADMIN) == ChannelView(Family.PLATFORM, frozenset({"Order__e"}))
    assert view("/topic/Accounts", ADMIN) == ChannelView(Family.PUSH_TOPIC, frozenset({TOPIC}))


@pytest.mark.parametrize(
    "channel",
    [
        "/topic/Nope",
        "/topic/accounts",
        "/data/OpportunityChangeEvent",
        "/data/accountChangeEvent",
        "/data/Nope__ChangeEvent",
        "/data/ChangeEvent",
        "/event/Nope__e",
        "/event/order__e",
        "/data/*",
        "/topic/Accounts?Name='x'",
        "/u/anything",
    ],
)
def test_unknown_channel_is_named_in_the_refusal(channel: str) -> None:
    with pytest.raises(ChannelUnknown) as caught:
        view(channel, ADMIN)
    assert caught.value.message == f"The channel you requested to subscribe to does not exist {{{channel}}}"


@pytest.mark.parametrize("channel", ["", "topic/Accounts", "/topic/", "/nope/x", "/data"])
def test_impossible_name_is_invalid(channel: str) -> None:
    with pytest.raises(ChannelInvalid):
        view(channel, ADMIN)


def test_all_changes_need_view_all_data() -> None:
    assert view("/data/ChangeEvents", VIEWER).topics
    with pytest.raises(ChannelForbidden, match="View All Data"):
        view("/data/ChangeEvents", reader())


def test_all_changes_need_view_all_users_once_users_are_among_them() -> None:
    catalog = CATALOG.with_captured({"User", "Account"})
    with pytest.raises(ChannelForbidden):
        view_channel("/data/ChangeEvents", catalog, TOPICS, VIEWER)
    grants = Grants(frozenset({"ViewAllData", "ViewAllUsers"}))
    assert "UserChangeEvent" in view_channel("/data/ChangeEvents", catalog, TOPICS, grants).topics


def test_one_objects_changes_need_view_all_on_it() -> None:
    assert view("/data/AccountChangeEvent", reader()).topics == {"AccountChangeEvent"}
    for grants in (NOBODY, reader(view_all=False)):
        with pytest.raises(ChannelForbidden):
            view("/data/AccountChangeEvent", grants)


def test_unreadable_fields_are_hidden_per_topic() -> None:
    ((topic, hidden),) = view("/data/AccountChangeEvent", reader("Phone", "BillingCity")).hidden
    assert topic == "AccountChangeEvent"
    assert {"Fax", "BillingStreet", "ShippingAddress"} <= hidden
    assert not {"Phone", "BillingCity", "BillingAddress", "Name", "LastModifiedDate", "OwnerId"} & hidden


def test_push_topic_needs_its_object_and_its_where_fields() -> None:
    with pytest.raises(ChannelForbidden, match="User not enabled for streaming"):
        view("/topic/Accounts", Grants(frozenset(), {"Account": ObjectGrant(can_read=True)}))
    with pytest.raises(ChannelForbidden, match="access to the entity"):
        view("/topic/Accounts", Grants(frozenset(), {"PushTopic": ObjectGrant(can_read=True)}))
    with pytest.raises(ChannelForbidden, match="where clause"):
        view("/topic/Accounts", reader("Phone"))
    ((topic, hidden),) = view("/topic/Accounts", reader("Fax", view_all=False)).hidden
    assert (topic, "Phone" in hidden, "Fax" in hidden) == (TOPIC, True, False)


def test_push_topic_hides_also_what_its_query_no_longer_selects() -> None:
    ((_, hidden),) = view("/topic/Accounts", reader("Fax", "Phone")).hidden
    assert "Website" in hidden
    assert view("/topic/Accounts", ADMIN).hidden == ()


def test_push_topic_hides_the_parts_of_an_address_that_may_not_be_read() -> None:
    row: dict[str, Value] = {"Id": TOPIC, "Name": "Where", "ApiVersion": 50.0, "IsActive": True}
    query = "SELECT Id, Name, BillingAddress FROM Account"
    topics = PushTopicIndex([compile_push_topic(row | {"Query": query}, CATALOG)])
    ((_, hidden),) = view_channel("/topic/Where", CATALOG, topics, reader("BillingCity")).hidden
    assert {"BillingStreet", "BillingPostalCode"} <= hidden
    assert not {"BillingAddress", "BillingCity", "Name"} & hidden


def test_platform_event_needs_read() -> None:
    with pytest.raises(ChannelForbidden):
        view("/event/Order__e", NOBODY)
    granted = Grants(frozenset(), {"Order__e": ObjectGrant(can_read=True)})
    assert view("/event/Order__e", granted).family is Family.PLATFORM
