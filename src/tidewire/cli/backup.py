"""`tidewire backup`, `restore` and `upgrade`.

They import the server's modules when they run, so that help and completion stay fast.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidewire.cli.output import examples, working
from tidewire.clock import SystemClock
from tidewire.config import load_settings

if TYPE_CHECKING:
    from tidewire.server.upgrade import Upgrade

_DATA = click.option("--data", default=None, help="the server's data directory")
_STORE = click.option("--store", default=None, help="sqlite or postgresql://..., as `serve` takes it")
_ORG = click.option(
    "--org", "org_id", default="", help="the org's id (default: the first org of the data directory)"
)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=examples("tidewire backup --data ./data/server --to ./tidewire-monday.backup"))
@_DATA
@_STORE
@_ORG
@click.option("--to", "target", required=True, type=_FILE, help="the backup file; it must not exist yet")
@click.option("--with-tls", is_flag=True, help="include the certificates and their private keys")
def backup(data: str | None, store: str | None, org_id: str, target: Path, with_tls: bool) -> None:
    """Back up an org to one file, while the server runs."""
    from tidewire.server.backup import make_backup
    from tidewire.server.org_locations import find_settings
    from tidewire.storage.archive import SQLITE_MEMBER, written_bytes

    settings = find_settings(load_settings({"data": data, "store": store}), org_id)
    # The database is written twice: copied first, then packed.
    total_bytes = 2 * _size_of(Path(settings.data) / SQLITE_MEMBER) if settings.store == "sqlite" else 0
    with working("backing up the org", total_bytes, lambda: written_bytes(target)):
        manifest = make_backup(settings, SystemClock(), target, with_tls=with_tls)
    click.echo(f"org {manifest.org_id} backed up to {target}, up to replay id {manifest.head}")


@click.command(epilog=examples("tidewire restore ./tidewire-monday.backup --data ./data/restored"))
@click.argument("file", type=_FILE)
@click.option("--data", default=None, help="the data directory to create; it must be empty or missing")
@_STORE
@click.option(
    "--org", "org_id", default="", help="id of the org; adds it to the orgs of an existing data directory"
)
def restore(file: Path, data: str | None, store: str | None, org_id: str) -> None:
    """Restore an org from a backup, in an empty directory or next to other orgs.

    Replay ids issued after the backup become invalid, and all users must sign in again.
    """
    from tidewire.server.backup import restore_backup
    from tidewire.server.org_admin import settings_for_restore

    settings = load_settings({"data": data, "store": store})
    if org_id:
        settings = settings_for_restore(settings, file, org_id)
    total_bytes = _size_of(file) if settings.store == "sqlite" else 0
    with working("restoring the org", total_bytes, lambda: _directory_bytes(Path(settings.data))):
        restored = restore_backup(file, settings, SystemClock())
    manifest = restored.manifest
    click.echo(f"org {manifest.org_id} restored up to replay id {manifest.head}")
    click.echo(f"new events start at replay id {restored.first_position}")


@click.command(epilog=examples("tidewire upgrade --data ./data/server"))
@_DATA
@_STORE
@click.option("--org", "org_id", default="", help="upgrade only the org with this id")
def upgrade(data: str | None, store: str | None, org_id: str) -> None:
    """Upgrade the orgs of a stopped server to this release and print the changes. Idempotent."""
    from tidewire.server.org_locations import find_settings, list_settings
    from tidewire.server.upgrade import upgrade_org

    settings = load_settings({"data": data, "store": store, "dev": False})
    locations = [find_settings(settings, org_id)] if org_id else list_settings(settings)
    for number, location in enumerate(locations, 1):
        with working(f"upgrading org {number} of {len(locations)}"):
            done = asyncio.run(upgrade_org(location, SystemClock()))
        _show_upgrade(done)


def _size_of(file: Path) -> int:
    """Return 0 for a missing file; the command itself reports it."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _directory_bytes(directory: Path) -> int:
    try:
        return sum(_size_of(path) for path in directory.iterdir())
    except OSError:
        return 0


def _show_upgrade(done: Upgrade) -> None:
    if done.from_layout != done.to_layout:
        click.echo(f"layout {done.from_layout} -> {done.to_layout}")
    for name in done.new_objects:
        click.echo(f"new object {name}")
    for name, count in done.columns.items():
        click.echo(f"{name}: {count} new columns")
    if done.new_schemas:
        click.echo(f"{done.new_schemas} new event schemas")
    click.echo(f"org {done.org_id} {'was' if done.is_empty else 'is'} up to date")
