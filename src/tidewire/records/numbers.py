"""Numbers that only rise: record numbers, and the counters of auto-number fields."""

from __future__ import annotations

import re

from tidewire.ids import make_id
from tidewire.storage.store import Transaction

_PLACEHOLDER = re.compile(r"\{(0+)\}")


def take_number(tx: Transaction, name: str, first: int = 1) -> int:
    """The next number under `name`. Given back if the transaction fails."""
    ((number,),) = tx.execute(
        "INSERT INTO numbers (name, next) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET next = numbers.next + 1"
        " RETURNING next - 1",
        (name, first + 1),
    )
    return int(number)


def take_record_id(tx: Transaction, key_prefix: str) -> str:
    """A record id that was never used before."""
    return make_id(key_prefix, take_number(tx, "id:" + key_prefix))


def render_auto_number(display_format: str, number: int) -> str:
    """`INV-{0000}` and 7 give `INV-0007`; a number with more digits than zeros is shown whole."""
    return _PLACEHOLDER.sub(lambda match: str(number).zfill(len(match[1])), display_format)
