"""`upgrade`: an org of an older layout, or with fewer standard fields, comes through with its data."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tidewire.access.apps import check_secret, try_read_app
from tidewire.clock import ManualClock
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, Settings
from tidewire.errors import ConfigInvalid, StoreLocked
from tidewire.server.upgrade import upgrade_org
from tidewire.storage.migrations import _STEPS, LAYOUT_VERSION


def settings_of(directory: Path, store: str = "sqlite") -> Settings:
    return Settings(data=str(directory), store=store)


def make_layout(version: int, newest: Path, target: Path) -> None:
    """A database made by the first steps alone, with an org's rows copied in from one of the newest layout."""
    target.parent.mkdir()
    with closing(sqlite3.connect(target, isolation_level=None)) as database:
        for statement in (statement for step in _STEPS[:version] for statement in step):
            database.execute(statement)
        first_tables = [n for (n,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        database.execute("ATTACH ? AS newest", (str(newest),))
        # Records and events have tables of their own, which no step makes.
        own = database.execute(
            "SELECT name, sql FROM newest.sqlite_master WHERE type = 'table' AND name GLOB '[eo][0-9]*'"
        ).fetchall()
        for _, sql in own:
            database.execute(sql)
        for name in [*first_tables, *(name for name, _ in own)]:
            columns = ", ".join(row[1] for row in database.execute(f"PRAGMA main.table_info({name})"))
            database.execute(f"INSERT INTO main.{name} ({columns}) SELECT {columns} FROM newest.{name}")
        database.execute(f"PRAGMA user_version = {version}")


def take_column_away(path: Path, table: str, column: str) -> None:
    """What the database of an earlier release, without this standard field, looks like."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for (index,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql LIKE ?",
            (table, f"%({column})"),
        ).fetchall():
            database.execute(f"DROP INDEX {index}")
        database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        ((columns,),) = database.execute(
            "SELECT definition FROM types WHERE kind = 'layout' AND name = ?", (table,)
        )
        kept = ",".join(c for c in columns.split(",") if c != column)
        database.execute("UPDATE types SET definition = ? WHERE kind = 'layout' AND name = ?", (kept, table))


async def read_names(org: TestOrg) -> list[object]:
    found = await org.gate.query(org.admin, "SELECT Name FROM Account ORDER BY Name")
    return [row["Name"] for row in found.rows]


@pytest.mark.parametrize("version", range(1, LAYOUT_VERSION))
async def test_older_layout_is_migrated_with_its_data_and_only_once(tmp_path: Path, version: int) -> None:
    clock = ManualClock()
    async with open_org(tmp_path / "newest", clock) as org:
        await org.make_account("Acme")
        head = org.core.writer.progress.next_position - 1
        org_id = org.core.logins.org_id
    make_layout(version, tmp_path / "newest/org.db", tmp_path / "old/org.db")
    done = await upgrade_org(settings_of(tmp_path / "old"), clock)
    assert (done.org_id, done.from_layout, done.to_layout) == (org_id, version, LAYOUT_VERSION)
    assert not done.is_empty
    assert (await upgrade_org(settings_of(tmp_path / "old"), clock)).is_empty
    async with open_org(tmp_path / "old", clock) as org:
        assert await read_names(org) == ["Acme"]
        assert await org.link.is_position_known(head)
        created = await org.make_account("Bolt")
        await org.gate.delete(org.call, "Account", created)  # the recycle bin is of a later step
        assert await read_names(org) == ["Acme"]


async def test_connected_app_of_an_older_layout_still_signs_in_with_passwords(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_org(tmp_path / "newest", clock):
        pass
    make_layout(2, tmp_path / "newest/org.db", tmp_path / "old/org.db")
    async with open_org(tmp_path / "old", clock) as org:
        app = await org.core.records.read(lambda reader: try_read_app(reader, DEV_CLIENT_ID))
    assert app is not None
    app = check_secret(app, DEV_CLIENT_SECRET)
    assert (app.flows, app.scopes) == (frozenset({"password"}), frozenset({"api"}))


async def test_standard_field_that_a_release_added_gets_its_column(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_org(tmp_path / "org", clock) as org:
        await org.make_account("Acme", NumberOfEmployees=7)
        account = org.core.records.types.catalog.object("Account")
    take_column_away(tmp_path / "org/org.db", account.table, account.by_name["numberofemployees"].column)
    done = await upgrade_org(settings_of(tmp_path / "org"), clock)
    assert (done.from_layout, dict(done.columns)) == (LAYOUT_VERSION, {"Account": 1})
    async with open_org(tmp_path / "org", clock) as org:
        assert await read_names(org) == ["Acme"]


async def test_upgrade_beside_a_server_is_rejected(org: TestOrg, tmp_path: Path) -> None:
    with pytest.raises(StoreLocked):
        await upgrade_org(settings_of(tmp_path / "org"), org.clock)


async def test_upgrade_without_an_org_is_rejected_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="holds no org"):
        await upgrade_org(settings_of(tmp_path / "none"), ManualClock())
    assert not (tmp_path / "none").is_dir()


async def test_postgres_org_that_is_up_to_date_is_left_alone(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.make_url()
    with pytest.raises(ConfigInvalid, match="holds no org"):
        await upgrade_org(settings_of(tmp_path, url), ManualClock())
    async with open_org(tmp_path, store=url):
        pass
    assert (await upgrade_org(settings_of(tmp_path, url), ManualClock())).is_empty
