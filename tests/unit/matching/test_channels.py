"""What a channel name covers for one user."""

from __future__ import annotations

import pytest

from tidewire.access.grants import Grants, ObjectGrant
from tidewire.capture.push_topics import compile_push_topic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.errors import ChannelForbidden, ChannelInvalid, ChannelUnknown, FilterInvalid
from tidewire.events import Family, Value
from tidewire.ids import make_id
from tidewire.matching.channels import ChannelView, view_channel
from tidewire.matching.filters import FilterTerm, NotificationFilter
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import ChannelMember, CustomChannel
from tidewire.schema.model import EventType
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.schema.standard.flag_lists import FLAG_LISTS

EVENT = EventType(name="Order__e", label="Order", label_plural="Orders", key_prefix="e00", fields=())
CATALOG = Catalog(1, STANDARD_OBJECTS, (EVENT,)).with_captured({"Account", "Contact"})
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
    assert view("/topic/Accounts", ADMIN) == ChannelView(
        Family.PUSH_TOPIC, frozenset({TOPIC}), notification_filter=NotificationFilter("001")
    )


def test_filter_is_part_of_the_view() -> None:
    wanted = view("/topic/Accounts?Name='x'", ADMIN).notification_filter
    assert wanted == NotificationFilter("001", (FilterTerm("Name", '"x"', is_text=True),))
    with pytest.raises(FilterInvalid, match="do not exist on the topic entity"):
        view("/topic/Accounts?Phone='x'", reader("Fax"))


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
        "/topic/Nope?Name='x'",
        "/event/Order__e?Name='x'",
        "/data/AccountChangeEvent?Name='x'",
        "/u/anything",
    ],
)
def test_unknown_channel_is_named_in_the_error(channel: str) -> None:
    with pytest.raises(ChannelUnknown) as caught:
        view(channel, ADMIN)
    assert caught.value.message == f"The channel you requested to subscribe to does not exist {{{channel}}}"


@pytest.mark.parametrize("channel", ["", "topic/Accounts", "/topic/", "/nope/x", "/data"])
def test_impossible_name_is_invalid(channel: str) -> None:
    with pytest.raises(ChannelInvalid):
        view(channel, ADMIN)


def test_all_changes_show_objects_that_the_reader_may_view_all_of() -> None:
    assert view("/data/ChangeEvents", VIEWER).topics == {"AccountChangeEvent", "ContactChangeEvent"}
    assert view("/data/ChangeEvents", reader()).topics == {"AccountChangeEvent"}
    assert view("/data/ChangeEvents", NOBODY).topics == frozenset()


def test_changes_of_users_need_view_all_users() -> None:
    catalog = CATALOG.with_captured({"User", "Account"})
    assert view_channel("/data/ChangeEvents", catalog, TOPICS, VIEWER).topics == {"AccountChangeEvent"}
    grants = Grants(frozenset({"ViewAllUsers"}))
    assert view_channel("/data/ChangeEvents", catalog, TOPICS, grants).topics == {"UserChangeEvent"}
    assert view_channel("/data/UserChangeEvent", catalog, TOPICS, grants).topics == {"UserChangeEvent"}
    with pytest.raises(ChannelForbidden):
        view_channel("/data/UserChangeEvent", catalog, TOPICS, VIEWER)


def test_list_of_flags_is_hidden_with_any_flag_in_it() -> None:
    catalog = CATALOG.with_captured({"User"})
    preferences = [f.name for f in catalog.object("User").fields if f.name.startswith("EmailPreferences")]
    permissions = ["UserPermissionsMarketingUser", "UserPermissionsOfflineUser"]
    readable = frozenset(("User", name) for name in [*preferences, *permissions])
    grants = Grants(frozenset({"ViewAllUsers"}), readable=readable)
    ((_, hidden),) = view_channel("/data/UserChangeEvent", catalog, TOPICS, grants).hidden
    assert hidden & set(FLAG_LISTS) == {"UserPermissions", "UserPreferences"}
    assert not view_channel("/data/UserChangeEvent", catalog, TOPICS, ADMIN).hidden


def test_changes_of_activities_need_view_all_data() -> None:
    catalog = CATALOG.with_captured({"Task", "Account"})
    grants = Grants(frozenset(), {"Task": ObjectGrant(can_read=True, can_view_all=True)})
    with pytest.raises(ChannelForbidden, match="View All Data"):
        view_channel("/data/TaskChangeEvent", catalog, TOPICS, grants)
    assert view_channel("/data/TaskChangeEvent", catalog, TOPICS, VIEWER).topics == {"TaskChangeEvent"}


SALES = CustomChannel("Sales__chn", "Sales", "data")
ORDERS = CustomChannel("Orders__chn", "Orders", "event")
CHANNELS = CATALOG.with_selection(
    CATALOG.selection.with_channel(SALES)
    .with_channel(ORDERS)
    .with_member(ChannelMember("Sales_Account", SALES.name, "AccountChangeEvent", ("Industry",)))
    .with_member(ChannelMember("Sales_Lead", SALES.name, "LeadChangeEvent"))
    .with_member(ChannelMember("Orders_Order", ORDERS.name, "Order__e"))
)


def test_custom_channel_shows_its_own_members() -> None:
    seen = view_channel("/data/Sales__chn", CHANNELS, TOPICS, ADMIN)
    assert seen.topics == {"AccountChangeEvent", "LeadChangeEvent"}
    assert seen.enriched == (("AccountChangeEvent", ("Industry",)),)
    assert view_channel("/event/Orders__chn", CHANNELS, TOPICS, ADMIN) == ChannelView(
        Family.PLATFORM, frozenset({"Order__e"})
    )


def test_member_of_a_custom_channel_opens_its_own_channel_and_no_other() -> None:
    assert view_channel("/data/LeadChangeEvent", CHANNELS, TOPICS, ADMIN).topics == {"LeadChangeEvent"}
    standard = view_channel("/data/ChangeEvents", CHANNELS, TOPICS, ADMIN)
    assert standard.topics == {"AccountChangeEvent", "ContactChangeEvent"}
    assert standard.enriched == ()
    assert view_channel("/data/AccountChangeEvent", CHANNELS, TOPICS, ADMIN).enriched == ()


def test_custom_channel_shows_each_user_the_members_they_may_see() -> None:
    assert view_channel("/data/Sales__chn", CHANNELS, TOPICS, reader()).topics == {"AccountChangeEvent"}
    assert view_channel("/data/Sales__chn", CHANNELS, TOPICS, NOBODY).topics == frozenset()
    assert view_channel("/event/Orders__chn", CHANNELS, TOPICS, NOBODY).topics == frozenset()


@pytest.mark.parametrize(
    "channel", ["/event/Sales__chn", "/data/Orders__chn", "/data/sales__chn", "/data/Sales", "/data/No__chn"]
)
def test_custom_channel_under_another_name_is_unknown(channel: str) -> None:
    with pytest.raises(ChannelUnknown):
        view_channel(channel, CHANNELS, TOPICS, ADMIN)


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


def test_push_topic_hides_fields_that_its_query_no_longer_selects() -> None:
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
