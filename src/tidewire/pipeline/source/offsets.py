"""How far a query has read, as Spark keeps it in a checkpoint.

Version 2 is `{"v": 2, "replay": "<position>", "incarnation": "<id>"}`. The incarnation names the life of the
log that the position belongs to; of a server that does not tell, the org (`00D...`). It is empty in offsets of
version 1, which had none. Position 0 stands before the oldest event.
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
    """A position, and the incarnation it was given out in if that is known."""

    position: int
    incarnation: str = ""


def render_offset(position: int, incarnation: str = "") -> dict[str, Any]:
    """A position as Spark stores it. Text, because JSON readers may round large numbers."""
    return {"v": OFFSET_VERSION, "replay": str(position), "incarnation": incarnation}


def parse_offset(offset: Mapping[str, Any]) -> Offset:
    """A stored offset. Raises ConfigInvalid for one that another version wrote, or that is damaged."""
    if offset.get("v") not in _READABLE:
        raise ConfigInvalid(
            f"the checkpoint holds an offset of version {offset.get('v')!r}; "
            f"this release reads {' and '.join(map(str, _READABLE))}",
            setting="checkpoint",
        )
    replay, incarnation = str(offset.get("replay", "")), offset.get("incarnation", "")
    if not replay.isascii() or not replay.isdecimal() or not isinstance(incarnation, str):
        raise ConfigInvalid(f"the checkpoint holds an offset that is none: {offset}", setting="checkpoint")
    return Offset(int(replay), incarnation)
