"""Offsets of a query, as Spark stores them in a checkpoint.

Version 2 is `{"v": 2, "replay": "<position>", "incarnation": "<id>"}`. The incarnation identifies the log
that assigned the position; for servers without incarnations it is the org id (`00D...`). It is empty in
offsets of version 1. Position 0 precedes the oldest event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidewire.errors import ConfigInvalid

OFFSET_VERSION = 2
_READABLE = (1, OFFSET_VERSION)


@dataclass(frozen=True, slots=True)
class Offset:
    """A position, and the incarnation that assigned it, if known."""

    position: int
    incarnation: str = ""


def render_offset(position: int, incarnation: str = "") -> dict[str, Any]:
    """Return a position as Spark stores it: as text, because JSON readers may round large numbers."""
    return {"v": OFFSET_VERSION, "replay": str(position), "incarnation": incarnation}


def parse_offset(offset: Mapping[str, Any]) -> Offset:
    """Parse a stored offset. Raises ConfigInvalid if it is damaged or of an unknown version."""
    if offset.get("v") not in _READABLE:
        raise ConfigInvalid(
            f"the checkpoint holds an offset of version {offset.get('v')!r}; "
            f"this release reads {' and '.join(map(str, _READABLE))}",
            setting="checkpoint",
        )
    replay, incarnation = str(offset.get("replay", "")), offset.get("incarnation", "")
    if not replay.isascii() or not replay.isdecimal() or not isinstance(incarnation, str):
        raise ConfigInvalid(f"the checkpoint holds an invalid offset: {offset}", setting="checkpoint")
    return Offset(int(replay), incarnation)
