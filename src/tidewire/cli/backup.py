"""`tidewire backup`, `restore` and `upgrade`: what an operator does to an org from outside the server.

The server's modules are loaded when one of them runs, so that help and completion do not wait for them.
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
    "--org", "org_id", default="", help="the org's id; the data directory's first org if left out"
)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=examples("tidewire backup --data ./data/server --to ./tidewire-monday.backup"))
@_DATA
@_STORE
@_ORG
@click.option("--to", "target", required=True, type=_FILE, help="the file to make; it must not exist")
@click.option("--with-tls", is_flag=True, help="also keep the certificates and their private keys")
def backup(data: str | None, store: str | None, org_id: str, target: Path, with_tls: bool) -> None:
    """Copy an org into one file. The server may be running."""
    from tidewire.server.backup import make_backup
    from tidewire.server.org_locations import find_settings
    from tidewire.storage.archive import SQLITE_MEMBER, written_bytes

    settings = find_settings(load_settings({"data": data, "store": store}), org_id)
    # The database is copied, then put into the file.
    total_bytes = 2 * _size_of(Path(settings.data) / SQLITE_MEMBER) if settings.store == "sqlite" else 0
    with working("copying the org", total_bytes, lambda: written_bytes(target)):
        manifest = make_backup(settings, SystemClock(), target, with_tls=with_tls)
    click.echo(f"org {manifest.org_id}, up to replay id {manifest.head}, is in {target}")


@click.command(epilog=examples("tidewire restore ./tidewire-monday.backup --data ./data/restored"))
@click.argument("file", type=_FILE)
@click.option("--data", default=None, help="the data directory to make; it must be empty or missing")
@_STORE
@click.option(
    "--org", "org_id", default="", help="put the org with this id beside the others of the directory"
)
def restore(file: Path, data: str | None, store: str | None, org_id: str) -> None:
    """Make an org again from a backup, in an empty directory or beside other orgs.

    Replay ids that were given out after the backup are refused from then on, and everybody signs in again.
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
    click.echo(f"org {manifest.org_id} is restored up to replay id {manifest.head}")
    click.echo(f"new events begin at replay id {restored.first_position}")


@click.command(epilog=examples("tidewire upgrade --data ./data/server"))
@_DATA
@_STORE
@click.option("--org", "org_id", default="", help="the id of one org; all orgs if left out")
def upgrade(data: str | None, store: str | None, org_id: str) -> None:
    """Bring a stopped server's orgs to what this release expects, and say what that was. Safe to repeat."""
    from tidewire.server.org_locations import find_settings, list_settings
    from tidewire.server.upgrade import upgrade_org

    settings = load_settings({"data": data, "store": store, "dev": False})
    places = [find_settings(settings, org_id)] if org_id else list_settings(settings)
    for number, place in enumerate(places, 1):
        with working(f"looking through org {number} of {len(places)}"):
            done = asyncio.run(upgrade_org(place, SystemClock()))
        _show_upgrade(done)


def _size_of(file: Path) -> int:
    """0 if there is none, for the command itself to say so."""
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
