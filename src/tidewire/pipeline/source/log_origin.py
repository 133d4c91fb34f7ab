"""The log that a lake is filled from: its org, channel, and the incarnation of the last position.

Positions of two logs cannot share a lake, and records of two orgs cannot share a replica. So the first run
stores its source in `<lake>/_origin.json`, and every later run compares. A server without incarnations is
identified by its org alone.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tidewire.errors import ConfigInvalid, DiskFull, ReplayIdInvalid
from tidewire.pipeline.lake.files import replace_file
from tidewire.pipeline.lake.spans import START
from tidewire.pipeline.lake.tables import Lake, try_committed, try_open_table
from tidewire.pipeline.source.log_export import LogExport, LogPlan, find_export

if TYPE_CHECKING:
    from tidewire.pipeline.source.bus import Bus

FILE = "_origin.json"
_AGAIN = "Start a new lake with --lake; it begins with a copy of all records."


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a lake; empty where unknown."""

    org_id: str = ""
    topic: str = ""
    incarnation: str = ""


def check_origin(lake: Lake, bus: Bus) -> None:
    """Check that the bus serves the log that the lake was filled from, and store its origin. Blocks.

    Raises ConfigInvalid for another org or channel, ReplayIdInvalid for another log of the same org,
    DiskFull, and any error of reaching the server.
    """
    settings = bus.settings
    kept = load_origin(lake)
    org_id = bus.session().org_id or settings.org_id
    if _is_other_org(kept.org_id, org_id):
        raise ConfigInvalid(
            f"the lake {lake.path} is a copy of org {kept.org_id}, and the server is that of org {org_id}. "
            f"{_AGAIN}",
            setting="lake",
        )
    if kept.topic and kept.topic != settings.topic:
        raise ConfigInvalid(
            f"the lake {lake.path} keeps the channel {kept.topic}, not {settings.topic}. {_AGAIN}",
            setting="topic",
        )
    state = _ask_state(bus)
    incarnation = kept.incarnation
    if state is not None:
        incarnation = _check_position(
            lake.path, kept.incarnation, try_committed(lake, "bronze") or START, state
        )
    found = Origin(org_id or kept.org_id, settings.topic, incarnation)
    if found != kept:
        _save(lake, found)


def check_archive(lake: Lake, bus: Bus) -> None:
    """Check that the lake's archive can replace the bus.

    Raises ConfigInvalid if it is known to be of another channel, org or pipeline.
    """
    kept, org_id = load_origin(lake), bus.session().org_id
    if kept.topic and kept.topic != bus.settings.topic:
        raise ConfigInvalid(
            f"the lake {lake.path} is an archive of the channel {kept.topic}, not of {bus.settings.topic}",
            setting="archive",
        )
    if _is_other_org(kept.org_id, org_id):
        raise ConfigInvalid(
            f"the lake {lake.path} is an archive of org {kept.org_id}, and the login leads to org {org_id}",
            setting="archive",
        )
    bronze = try_open_table(lake, "bronze")
    if bronze is not None and bronze.committed is None and bronze.delta.file_uris():
        raise ConfigInvalid(
            f"no pipeline called {lake.pipeline} has written the archive in the lake {lake.path}",
            setting="archive_pipeline",
        )


def load_origin(lake: Lake) -> Origin:
    """Return the stored origin; an empty one if the file is missing or damaged."""
    try:
        with open(os.path.join(lake.path, FILE), "rb") as file:
            kept = json.load(file)
        return Origin(**{name: str(kept[name]) for name in ("org_id", "topic", "incarnation")})
    except (OSError, ValueError, KeyError, TypeError):
        return Origin()


def _is_other_org(kept: str, found: str) -> bool:
    """Return whether both orgs are known and differ. The last three letters of an id only repeat its case."""
    return bool(kept and found) and kept[:15] != found[:15]


def _ask_state(bus: Bus) -> LogPlan | None:
    url = find_export(bus)
    if url is None:
        return None
    with closing(LogExport(bus, url)) as export:
        return export.try_state()


def _check_position(lake_path: str, incarnation: str, archived: int, state: LogPlan) -> str:
    """Return the incarnation of the last position in the lake, or the current one for an empty lake."""
    known = [each.id for each in state.incarnations]
    if incarnation and incarnation not in known:
        raise ReplayIdInvalid(
            f"the lake is a copy of incarnation {incarnation} of a log, and this server has {', '.join(known)}: its "
            f"data was recreated. {_AGAIN}",
            replay_id=archived,
            lake=lake_path,
        )
    if archived == START:
        return known[-1] if known else ""
    found = state.incarnation_of(archived)
    if not found or archived > state.head:
        raise ReplayIdInvalid(
            f"the lake holds events up to {archived}, which this server's log has never assigned: it is another log, "
            f"or was restored from a backup without the last events. {_AGAIN}",
            replay_id=archived,
            lake=lake_path,
        )
    return found


def _save(lake: Lake, origin: Origin) -> None:
    try:
        os.makedirs(lake.path, exist_ok=True)
        replace_file(os.path.join(lake.path, FILE), json.dumps(asdict(origin)))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFull(f"no space is left in {lake.path}") from error
