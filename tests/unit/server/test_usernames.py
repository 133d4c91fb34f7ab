"""A user name belongs to one org of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tidewire.config import DEV_USERNAME
from tidewire.errors import DuplicateValue
from tidewire.server.usernames import Usernames, read_username_keys

pytestmark = pytest.mark.anyio


class Pair:
    """Two orgs that share a directory. Both have the development users, which the first owns."""

    def __init__(self, one: TestOrg, two: TestOrg, names: Usernames) -> None:
        self.one, self.two, self.names = one, two, names


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    names = Usernames()
    async with open_org(tmp_path / "one") as one, open_org(tmp_path / "two") as two:
        for org in (one, two):
            names.set_names(org.admin.org_id, await org.core.store.read(read_username_keys))
            org.core.records.add_hook(names.follow(org.admin.org_id))
        yield Pair(one, two, names)


async def test_names_are_found_in_any_case_and_the_first_org_keeps_its_own(pair: Pair) -> None:
    assert pair.names.try_find(DEV_USERNAME.upper()) == pair.one.admin.org_id
    assert pair.names.try_find("nobody@example.org") is None


async def test_name_that_another_org_has_is_rejected_and_nothing_is_stored(pair: Pair) -> None:
    await pair.one.apply(users={"ann@example.org": {}})
    before = await pair.two.core.store.read(read_username_keys)
    with pytest.raises(DuplicateValue) as caught:
        await pair.two.apply(users={"Ann@Example.org": {}})
    assert caught.value.details["fields"] == ["Username"]
    assert await pair.two.core.store.read(read_username_keys) == before
    assert pair.names.try_find("ann@example.org") == pair.one.admin.org_id


async def test_name_of_an_undone_transaction_is_free_again(pair: Pair) -> None:
    await pair.one.apply(users={"taken@example.org": {}})
    with pytest.raises(DuplicateValue):
        await pair.two.apply(users={"new@example.org": {}, "taken@example.org": {}})
    assert pair.names.try_find("new@example.org") is None
    await pair.one.apply(users={"new@example.org": {}})
    assert pair.names.try_find("new@example.org") == pair.one.admin.org_id


async def test_renamed_user_frees_the_old_name(pair: Pair) -> None:
    await pair.one.apply(users={"ann@example.org": {}})
    user_id = await pair.one.core.logins.try_find_user("ann@example.org")
    assert user_id is not None
    await pair.one.gate.update(pair.one.call, "User", user_id, {"Username": "ann.b@example.org"})
    assert pair.names.try_find("ann@example.org") is None
    await pair.two.apply(users={"ann@example.org": {}})
    assert pair.names.try_find("ann@example.org") == pair.two.admin.org_id
    assert pair.names.try_find("ann.b@example.org") == pair.one.admin.org_id


async def test_dropped_org_frees_all_its_names(pair: Pair) -> None:
    pair.names.drop_org(pair.one.admin.org_id)
    assert pair.names.try_find(DEV_USERNAME) is None
    assert pair.names.set_names(pair.two.admin.org_id, [DEV_USERNAME]) == 0
    assert pair.names.set_names(pair.one.admin.org_id, [DEV_USERNAME]) == 1
