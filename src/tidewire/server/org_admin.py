"""Create, list and remove the orgs of a data directory.

All functions work on the locations, whether or not a server runs on them: a server finds a new org at the
first login to it, and closes one whose location is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidewire.access.passwords import draw_password
from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.errors import ConfigInvalid
from tidewire.ids import try_normalise_id
from tidewire.schema.text_keys import fold_key
from tidewire.server.bootstrap import NewOrg
from tidewire.server.core import open_core
from tidewire.server.org_locations import (
    OrgInspection,
    additional_org_settings,
    creating_location,
    find_settings,
    inspect_org,
    list_additional_orgs,
    list_settings,
    remove_location,
    try_inspect_org,
    unknown_org,
)
from tidewire.storage.archive import open_archive

_MAX_NAME = 80


@dataclass(frozen=True, slots=True)
class OrgSummary:
    """An org as an operator sees it."""

    org_id: str
    name: str
    is_first: bool
    users: int
    apps: int
    layout: int
    place: str  # a key of the JSON that `tidewire org list` prints


async def create_additional_org(
    settings: Settings, clock: Clock, name: str, username: str
) -> tuple[str, str]:
    """Create an additional org with an administrator; returns its id and the password.

    The password cannot be read later. Raises ConfigInvalid if the name is invalid, the user name is taken, or
    there is no first org yet.
    """
    if not name.strip() or len(name) > _MAX_NAME:
        raise ConfigInvalid(f"the name of an org must have 1 to {_MAX_NAME} characters", setting="name")
    if "@" not in username.strip("@") or not username.isprintable():
        raise ConfigInvalid("a user name must have the form of an email address", setting="username")
    inspect_org(settings)  # raises if there is no first org: a server could not start there
    key = fold_key(username)
    if any(key in inspection.username_keys for _, inspection in _inspections(settings)):
        raise ConfigInvalid(f"the user name {username} is already in use on this server", setting="username")
    new = NewOrg(username, draw_password(), name.strip())
    with creating_location(settings, new.org_id) as location:
        core = await open_core(location, clock, new=new)
        await core.close()
    return new.org_id, new.password


def list_orgs(settings: Settings) -> list[OrgSummary]:
    """List every readable org, beginning with the first."""
    return [_summarise(settings, location, inspection) for location, inspection in _inspections(settings)]


def show_org(settings: Settings, org_id: str) -> OrgSummary:
    """Return one org. Raises ConfigInvalid if there is none with this id."""
    location = find_settings(settings, org_id)
    return _summarise(settings, location, inspect_org(location))


def remove_org(settings: Settings, org_id: str) -> None:
    """Delete an additional org and everything in it. Raises ConfigInvalid or StoreLocked."""
    wanted = try_normalise_id(org_id)
    if wanted is None or wanted not in list_additional_orgs(settings):
        first = try_inspect_org(settings)
        if first is not None and first.org_id == wanted:
            raise ConfigInvalid(
                "the first org cannot be removed; delete its data directory instead", setting="org"
            )
        raise unknown_org(org_id)
    remove_location(settings, wanted)


def settings_for_restore(settings: Settings, file: Path, org_id: str) -> Settings:
    """Return the settings for restoring an additional org.

    Raises ConfigInvalid if it is another org, or exists.
    """
    with open_archive(file) as archive:
        held = archive.manifest.org_id
    if try_normalise_id(org_id) != held:
        raise ConfigInvalid(f"{file} is a backup of the org {held}", setting="org")
    first = try_inspect_org(settings)
    if first is None:
        raise ConfigInvalid(f"{settings.data} contains no first org; restore without --org", setting="data")
    if held == first.org_id or held in list_additional_orgs(settings):
        raise ConfigInvalid(f"the org {held} already exists; a restore does not overwrite it", setting="org")
    return additional_org_settings(settings, held)


def _summarise(settings: Settings, location: Settings, inspection: OrgInspection) -> OrgSummary:
    where = location.data if location.store == "sqlite" else location.store.rpartition("schema=")[2]
    return OrgSummary(
        inspection.org_id,
        inspection.name,
        location is settings,
        len(inspection.username_keys),
        len(inspection.client_ids),
        inspection.layout,
        where,
    )


def _inspections(settings: Settings) -> Iterator[tuple[Settings, OrgInspection]]:
    """Yield the location and the content of every readable org, beginning with the first."""
    for location in list_settings(settings):
        inspection = try_inspect_org(location)
        if inspection is not None:
            yield location, inspection
