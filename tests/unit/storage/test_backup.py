"""Backup and restore of a real org without sockets: what comes back, what is refused, what is left behind."""

from __future__ import annotations

import os
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tidewire.clock import ManualClock
from tidewire.config import Settings
from tidewire.errors import ConfigInvalid, LogCorrupt
from tidewire.events import Event, Family
from tidewire.server.backup import make_backup, restore_backup
from tidewire.storage.archive import (
    FORMAT,
    SQLITE_MEMBER,
    Archive,
    Manifest,
    measure_file,
    open_archive,
    write_archive,
    written_bytes,
)
from tidewire.storage.migrations import LAYOUT_VERSION
from tidewire.storage.store import Reader

ACCOUNTS = frozenset({"AccountChangeEvent"})
BLOCK_BYTES = 512
LEAD = {"LastName": "L", "Company": "C"}


def settings_of(directory: Path, store: str = "sqlite") -> Settings:
    return Settings(data=str(directory), store=store)


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def read_changes(org: TestOrg) -> list[Event]:
    """Every change event of an account, from the earliest on."""
    log = org.core.log

    def read(reader: Reader) -> list[Event]:
        after = log.read_bounds(reader, Family.CHANGE).trimmed_through
        return list(log.read_after(reader, Family.CHANGE, ACCOUNTS, after, 1000, 1 << 20).events)

    return await org.core.records.read(read)


async def last_position(org: TestOrg) -> int:
    return (await read_changes(org))[-1].position


@pytest.fixture
async def backup(org: TestOrg, tmp_path: Path) -> Path:
    """A backup of an open org with one account."""
    await org.make_account("Kept")
    make_backup(settings_of(tmp_path / "org"), org.clock, tmp_path / "org.backup", with_tls=False)
    return tmp_path / "org.backup"


async def test_restored_org_has_records_and_events_up_to_the_backup(
    org: TestOrg, backup: Path, tmp_path: Path
) -> None:
    kept = await read_changes(org)
    await org.make_account("Lost")
    restore_backup(backup, settings_of(tmp_path / "new"), org.clock)
    async with open_org(tmp_path / "new", org.clock) as restored:
        assert await read_changes(restored) == kept
        found = await restored.gate.query(restored.admin, "SELECT Name FROM Account")
        assert [row["Name"] for row in found.rows] == ["Kept"]


async def test_position_assigned_after_the_backup_is_unknown_after_a_quick_restore(
    org: TestOrg, backup: Path, tmp_path: Path
) -> None:
    kept = await last_position(org)
    await org.make_account("Lost")
    lost = await last_position(org)
    restored_to = restore_backup(backup, settings_of(tmp_path / "new"), org.clock)
    async with open_org(tmp_path / "new", org.clock) as restored:
        await restored.make_account("New")
        new = await last_position(restored)
        assert new == restored_to.first_position > lost > kept
        known = [await restored.link.is_position_known(p) for p in (kept, lost, new - 1, new, new + 1)]
    assert known == [True, False, True, True, False]


async def test_record_ids_assigned_after_the_backup_are_not_reused_after_a_restore(
    org: TestOrg, backup: Path, tmp_path: Path
) -> None:
    definition: dict[str, object] = {"objects": {"Late__c": {}}}
    await org.apply(**definition)
    lost = [await org.make_account("Lost") for _ in range(300)]
    lost.append(await org.gate.create(org.call, "Case", {"Subject": "first case"}))  # none was in the backup
    lost.append(await org.gate.create(org.call, "Late__c", {"Name": "object of the other life"}))
    restore_backup(backup, settings_of(tmp_path / "second"), org.clock)
    async with open_org(tmp_path / "second", org.clock) as second:
        await second.apply(**definition)
        fresh = [await second.make_account("New") for _ in range(3)]
        fresh.append(await second.gate.create(second.call, "Case", {"Subject": "x"}))
        fresh.append(await second.gate.create(second.call, "Late__c", {"Name": "x"}))
        assert not {i[:15] for i in lost} & {i[:15] for i in fresh}
        make_backup(settings_of(tmp_path / "second"), org.clock, tmp_path / "2.backup", with_tls=False)
        lost = [await second.make_account("Lost again"), await second.gate.create(second.call, "Lead", LEAD)]
    restore_backup(tmp_path / "2.backup", settings_of(tmp_path / "third"), org.clock)
    async with open_org(tmp_path / "third", org.clock) as third:
        assert await third.make_account("New") > max(lost[0], *fresh[:3])
        assert await third.gate.create(third.call, "Lead", LEAD) > lost[1]


async def test_backup_of_a_restored_org_restores_above_all_three_lives(
    org: TestOrg, backup: Path, tmp_path: Path
) -> None:
    first = restore_backup(backup, settings_of(tmp_path / "second"), org.clock).first_position
    async with open_org(tmp_path / "second", org.clock) as second:
        make_backup(settings_of(tmp_path / "second"), org.clock, tmp_path / "2.backup", with_tls=False)
        await second.make_account("Lost")
        lost = await last_position(second)
    again = restore_backup(tmp_path / "2.backup", settings_of(tmp_path / "third"), org.clock)
    assert again.first_position > lost >= first
    async with open_org(tmp_path / "third", org.clock) as third:
        assert await third.link.is_position_known(first - 1)
        assert not await third.link.is_position_known(lost)


async def test_restored_org_has_no_login_sessions(org: TestOrg, backup: Path, tmp_path: Path) -> None:
    restore_backup(backup, settings_of(tmp_path / "new"), org.clock)
    with sqlite3.connect(tmp_path / "new" / SQLITE_MEMBER) as database:
        assert database.execute("SELECT COUNT(*) FROM login_sessions").fetchall() == [(0,)]
    database.close()


async def test_manifest_tells_org_layout_head_and_time(org: TestOrg, backup: Path) -> None:
    with open_archive(backup) as archive:
        manifest = archive.manifest
    assert (manifest.format, manifest.layout, manifest.schema) == (FORMAT, LAYOUT_VERSION, "")
    assert manifest.org_id == org.core.logins.org_id
    assert manifest.created_ms == org.clock.now_ms()
    assert manifest.head == await last_position(org)
    assert list(manifest.files) == [SQLITE_MEMBER]


async def test_backup_and_restore_leave_nothing_beside_their_files(
    org: TestOrg, backup: Path, tmp_path: Path
) -> None:
    restore_backup(backup, settings_of(tmp_path / "new"), org.clock)
    assert names_in(tmp_path) == {"org", "org.backup", "new"}
    assert names_in(tmp_path / "new") == {SQLITE_MEMBER, "org.lock"}
    assert os.stat(backup).st_mode & 0o077 == 0


async def test_certificates_come_back_if_they_were_asked_for(org: TestOrg, tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "org")
    with pytest.raises(ConfigInvalid, match="no certificates"):
        make_backup(settings, org.clock, tmp_path / "b", with_tls=True)
    (tmp_path / "org/tls").mkdir()
    (tmp_path / "org/tls/ca-key.pem").write_text("key")
    make_backup(settings, org.clock, tmp_path / "b", with_tls=True)
    restore_backup(tmp_path / "b", settings_of(tmp_path / "new"), org.clock)
    key = tmp_path / "new/tls/ca-key.pem"
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("key", 0o600)


async def test_backup_never_overwrites(org: TestOrg, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("precious")
    with pytest.raises(ConfigInvalid, match="overwrites nothing"):
        make_backup(settings_of(tmp_path / "org"), org.clock, tmp_path / "b", with_tls=False)
    assert (tmp_path / "b").read_text() == "precious"


def test_backup_of_nothing_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="holds no org"):
        make_backup(settings_of(tmp_path / "none"), ManualClock(), tmp_path / "b", with_tls=False)
    assert names_in(tmp_path) == set()


async def test_restore_into_a_directory_with_anything_in_it_is_refused(
    org: TestOrg, backup: Path, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/note").write_text("precious")
    with pytest.raises(ConfigInvalid, match="not empty"):
        restore_backup(backup, settings_of(tmp_path / "new"), org.clock)
    assert names_in(tmp_path / "new") == {"note"}


def damage_file(path: Path, damage: Callable[[bytes], bytes]) -> None:
    whole = path.read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    path.write_bytes(damaged)


def flip_in_the_middle(whole: bytes) -> bytes:
    # The database is by far the largest member, and the archive's end is padding: the middle is always its own.
    place = len(whole) // 2
    return whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(flip_in_the_middle, id="database"),
        pytest.param(lambda whole: whole.replace(b'"org_id": "00D', b'"org_id": "00E', 1), id="manifest"),
        pytest.param(lambda whole: whole[: len(whole) // 2], id="truncated"),
        pytest.param(lambda whole: whole[: 3 * BLOCK_BYTES], id="only-manifest"),
    ],
)
async def test_damaged_backup_is_refused_and_leaves_no_directory(
    org: TestOrg, backup: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    damage_file(backup, damage)
    with pytest.raises(LogCorrupt, match="damaged"):
        restore_backup(backup, settings_of(tmp_path / "new"), org.clock)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("content", [b"", b"no tar at all"])
def test_file_that_is_no_backup_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b").write_bytes(content)
    with pytest.raises(ConfigInvalid, match="not a backup"):
        restore_backup(tmp_path / "b", settings_of(tmp_path / "new"), ManualClock())


def test_tar_of_something_else_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with tarfile.open(tmp_path / "b", "w") as tar:
        tar.add(tmp_path / "x", "x")
    with pytest.raises(ConfigInvalid, match="not a backup"):
        restore_backup(tmp_path / "b", settings_of(tmp_path / "new"), ManualClock())


def write_made_up(directory: Path, **changes: object) -> Path:
    """A backup file with a manifest of the test's own."""
    scratch = directory / "scratch"
    scratch.mkdir()
    (scratch / "content").write_text("content")
    values: dict[str, object] = {
        "format": FORMAT,
        "tidewire": "0",
        "layout": 1,
        "org_id": "00D",
        "head": 1,
        "created_ms": 1,
        "schema": "",
        "files": {SQLITE_MEMBER: measure_file(scratch / "content")},
    }
    manifest = Manifest(**{**values, **changes})  # type: ignore[arg-type]
    write_archive(directory / "b", manifest, dict.fromkeys(manifest.files, scratch / "content"), scratch)
    return directory / "b"


def test_backup_that_names_a_file_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("content")
    path = write_made_up(tmp_path, files={"../outside": measure_file(tmp_path / "x")})
    with pytest.raises(LogCorrupt):
        restore_backup(path, settings_of(tmp_path / "new"), ManualClock())
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("field", ["format", "layout"])
def test_backup_of_a_newer_release_is_refused(tmp_path: Path, field: str) -> None:
    path = write_made_up(tmp_path, **{field: 99})
    with pytest.raises(ConfigInvalid, match="newer Tidewire"):
        restore_backup(path, settings_of(tmp_path / "new"), ManualClock())


def test_backup_whose_database_is_none_is_refused_and_leaves_no_directory(tmp_path: Path) -> None:
    path = write_made_up(tmp_path)
    with pytest.raises(LogCorrupt, match="cannot be read"):
        restore_backup(path, settings_of(tmp_path / "new"), ManualClock())
    assert not (tmp_path / "new").exists()


def test_extracted_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("precious")
    with open_archive(write_made_up(tmp_path)) as archive:
        assert isinstance(archive, Archive)
        with pytest.raises(FileExistsError):
            archive.extract(SQLITE_MEMBER, tmp_path / "there")
    assert (tmp_path / "there").read_text() == "precious"


async def test_postgres_org_comes_back_in_a_new_incarnation(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.make_url()
    schema = url.rpartition("=")[2]
    settings = settings_of(tmp_path / "new", url)
    path = tmp_path / "b"
    clock = ManualClock()
    async with open_org(tmp_path / "org", clock, store=url) as org:
        await org.make_account("Kept")
        kept = await read_changes(org)
        manifest = make_backup(settings_of(tmp_path / "org", url), clock, path, with_tls=False)
        lost_id = await org.make_account("Lost")
        lost = await last_position(org)
    assert (manifest.schema, manifest.head) == (schema, kept[-1].position)
    with pytest.raises(ConfigInvalid, match="exists; a restore overwrites nothing"):
        restore_backup(path, settings, clock)
    with postgres.connect() as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
    restored_to = restore_backup(path, settings, clock)
    async with open_org(tmp_path / "new", clock, store=url) as restored:
        assert await read_changes(restored) == kept
        assert await restored.make_account("New") > lost_id
        assert await last_position(restored) == restored_to.first_position > lost
        assert not await restored.link.is_position_known(lost)
    assert names_in(tmp_path / "new") == {"org.lock"}


async def test_postgres_backup_without_pg_dump_is_refused(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigInvalid, match="pg_dump is needed"):
        make_backup(settings_of(tmp_path, postgres.make_url()), ManualClock(), tmp_path / "b", with_tls=False)
    assert names_in(tmp_path) == set()


async def test_backup_of_an_empty_postgres_schema_is_refused(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with pytest.raises(ConfigInvalid, match="holds no org"):
        make_backup(settings_of(tmp_path, postgres.make_url()), ManualClock(), tmp_path / "b", with_tls=False)


async def test_backup_of_one_kind_of_store_is_refused_by_the_other(
    org: TestOrg, backup: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    with pytest.raises(ConfigInvalid, match="same kind of store"):
        restore_backup(backup, settings_of(tmp_path / "new", postgres.make_url()), org.clock)


def test_what_is_written_to_a_place_that_no_disk_can_hold_is_nothing(tmp_path: Path) -> None:
    assert written_bytes(tmp_path / ("x" * 300) / "monday.backup") == 0
