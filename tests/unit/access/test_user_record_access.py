"""UserRecordAccess: a user's access to single records, without revealing which ids exist."""

from __future__ import annotations

import pytest

from tests.unit.access.test_sharing import People
from tests.unit.access.test_sharing import people as people  # the fixture
from tidewire.access.principal import Principal
from tidewire.errors import AccessDenied, FieldUnknown, FilterInvalid
from tidewire.ids import make_id

_FIELDS = "RecordId, HasReadAccess, HasEditAccess, HasDeleteAccess, MaxAccessLevel"


async def _ask(people: People, who: Principal, about: Principal, *record_ids: str, rest: str = "") -> object:
    listed = ", ".join(f"'{each}'" for each in record_ids)
    soql = (
        f"SELECT {_FIELDS} FROM UserRecordAccess WHERE UserId = '{about.user_id}'"
        f" AND RecordId IN ({listed}) {rest}"
    )
    rows = (await people.org.gate.query(who, soql)).rows
    return {row["RecordId"]: (row["HasEditAccess"], row["MaxAccessLevel"]) for row in rows}


async def test_record_access_agrees_with_every_other_path(people: People) -> None:
    own = await people.make(people.ann, "Account", Name="Own")
    other = await people.make(people.zoe, "Account", Name="Other")
    shared = await people.make(people.zoe, "Account", Name="Shared")
    values = {"AccountId": shared, "UserOrGroupId": people.ann.user_id, "AccountAccessLevel": "Edit"}
    await people.make(people.zoe, "AccountShare", **values)
    case = await people.make(people.zoe, "Case", Subject="Help")
    assert await _ask(people, people.ann, people.ann, own, other, shared, case) == {
        own: (True, "All"),
        other: (False, "None"),
        shared: (True, "Edit"),
        case: (False, "Read"),
    }
    assert await _ask(people, people.org.admin, people.ann, own[:15]) == {own: (True, "All")}


async def test_record_access_is_the_same_for_missing_and_hidden_records(
    people: People,
) -> None:
    hidden = await people.make(people.zoe, "Account", Name="Hidden")
    absent = make_id("001", 999_999)
    answer = await _ask(people, people.ann, people.ann, hidden, absent)
    assert answer == {hidden: (False, "None"), absent: (False, "None")}


async def test_record_access_is_filtered_sorted_and_counted(people: People) -> None:
    own = await people.make(people.ann, "Account", Name="Own")
    other = await people.make(people.zoe, "Account", Name="Other")
    only = await _ask(people, people.ann, people.ann, other, own, rest="AND HasReadAccess = true")
    assert only == {own: (True, "All")}
    first = await _ask(people, people.ann, people.ann, own, other, rest="ORDER BY HasReadAccess LIMIT 1")
    assert first == {other: (False, "None")}
    soql = (
        f"SELECT COUNT() FROM UserRecordAccess WHERE UserId = '{people.ann.user_id}' AND RecordId = '{own}'"
    )
    assert (await people.org.gate.query(people.ann, soql)).count == 1


async def test_record_access_of_others_needs_manage_users(people: People) -> None:
    own = await people.make(people.ann, "Account", Name="Own")
    with pytest.raises(AccessDenied):
        await _ask(people, people.ann, people.zoe, own)


@pytest.mark.parametrize(
    "where",
    ["", "WHERE UserId = '{user}'", "WHERE UserId = '{user}' OR RecordId = '{user}'"],
    ids=["none", "no record", "either"],
)
async def test_record_access_without_its_filters_is_refused(people: People, where: str) -> None:
    soql = f"SELECT RecordId FROM UserRecordAccess {where.format(user=people.ann.user_id)}"
    with pytest.raises(FilterInvalid):
        await people.org.gate.query(people.ann, soql)


async def test_record_access_reaches_no_other_object(people: People) -> None:
    own = await people.make(people.ann, "Account", Name="Own")
    soql = (
        f"SELECT User.Name FROM UserRecordAccess WHERE UserId = '{people.ann.user_id}' AND RecordId = '{own}'"
    )
    with pytest.raises(FieldUnknown):
        await people.org.gate.query(people.ann, soql)
