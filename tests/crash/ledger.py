"""What the client side of a crash test knows: every attempted change, and whether the server acknowledged it.

A change whose answer never came is *in doubt*: it may be there or not, but never in part and never twice.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """What was attempted, in the words of the change event that it must cause."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempted change of one record. `marker` is unique in the run; a delete carries none."""

    kind: Kind
    marker: str
    is_acknowledged: bool


@dataclass(slots=True)
class Ledger:
    """All attempts of a run. Writers add to it from threads of their own; read it when they rest.

    `histories` lists, per record id, the attempts in the order in which its one writer made them. Creates
    whose answer never came have no id: `doubtful_creates` holds their markers.
    """

    histories: dict[str, list[Attempt]] = field(default_factory=dict)
    doubtful_creates: set[str] = field(default_factory=set)
    refusals: list[str] = field(default_factory=list)
    acknowledged: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, record_id: str, kind: Kind, marker: str, *, is_acknowledged: bool) -> None:
        """Add an attempt on a record whose id is known."""
        with self.changed:
            self.histories.setdefault(record_id, []).append(Attempt(kind, marker, is_acknowledged))
            if is_acknowledged:
                self.acknowledged += 1
                self.changed.notify_all()

    def note_doubtful_create(self, marker: str) -> None:
        """Add a create whose answer never came."""
        with self.changed:
            self.doubtful_creates.add(marker)

    def note_refusal(self, text: str) -> None:
        """Add an answer that no writer of this harness should ever get."""
        with self.changed:
            self.refusals.append(text)
            self.changed.notify_all()

    def wait_acknowledged(self, count: int, timeout_s: float) -> bool:
        """Wait until so many attempts are acknowledged; False if time ran out or something was refused."""
        with self.changed:
            self.changed.wait_for(lambda: self.acknowledged >= count or bool(self.refusals), timeout_s)
            return self.acknowledged >= count
