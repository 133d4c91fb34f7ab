"""Numbers that only rise: record numbers, and the counters of auto-number fields."""

from __future__ import annotations

import re

from tidewire.ids import make_id
from tidewire.schema.values import render_date
from tidewire.storage.store import Transaction

_NEXT = "SELECT next FROM numbers WHERE name = ?"
_PER_SECOND_BITS = 17
_FIRST_RECORD = "first record"  # the row a restore leaves: where records of an object without any begin
_PLACEHOLDER = re.compile(r"\{(0+|YYYY|YY|MM|DD)\}")


def take_number(tx: Transaction, name: str, first: int = 1) -> int:
    """Return the next number under `name`. It is reused if the transaction fails.

    A group of transactions reads the stored number once and writes it once, at its end: an org has one
    writer, so nobody else takes numbers meanwhile.
    """
    numbers = tx.progress.numbers
    number = numbers.get(name)
    if number is None:
        rows = tx.execute_skipping_buffer(_NEXT, (name,))
        number = int(rows[0][0]) if rows else first
    numbers[name] = number + 1
    return number


def take_record_id(tx: Transaction, key_prefix: str) -> str:
    """A record id that was never used before, not even by an org of which this one is a restored copy."""
    name = "id:" + key_prefix
    number = take_number(tx, name)
    if number == 1:  # the object's first record, so this is asked once
        rows = tx.execute_skipping_buffer(_NEXT, (_FIRST_RECORD,))
        if rows:
            number = int(rows[0][0])
            tx.progress.numbers[name] = number + 1
    return make_id(key_prefix, number)


def auto_number_key(entity: str, field_name: str) -> str:
    """Return the name under which an auto-number field is counted."""
    return f"auto:{entity}.{field_name}"


def move_number(tx: Transaction, old: str, new: str, first: int) -> None:
    """Count on under another name; the old one begins anew."""
    tx.progress.numbers[new] = take_number(tx, old, first)
    tx.progress.numbers[old] = first


def restore_statements(taken_ms: int, now_ms: int) -> tuple[str, ...]:
    """Return SQL that lifts the record numbers of a copy above all that its origin can have used since.

    The copy was taken at `taken_ms`. The text is complete, without parameters, as `eventlog.log.EventLog` has
    it.

    The bound: an object gets fewer than 2^17 records a second on average, some ten times what the writer can
    do. Nine base-62 digits last for three thousand years of that. Objects without records in the copy start
    above the bound too: their first records may have been created since.
    """
    elapsed_s = max(0, now_ms // 1000 - taken_ms // 1000)
    # One second more than counted: each of the two times may lie anywhere in its second.
    margin = (elapsed_s + 2) << _PER_SECOND_BITS
    return (
        f"UPDATE numbers SET next = next + {margin:d} WHERE name LIKE 'id:%' OR name = '{_FIRST_RECORD}'",  # noqa: S608  # a number
        f"INSERT INTO numbers (name, next) VALUES ('{_FIRST_RECORD}', {margin + 1:d})"  # noqa: S608
        " ON CONFLICT (name) DO NOTHING",
    )


def render_auto_number(display_format: str, number: int, made_ms: int) -> str:
    """`INV-{YYYY}-{0000}` and 7 give `INV-2026-0007`; a number with more digits than zeros is shown whole.

    `{YYYY}`, `{YY}`, `{MM}` and `{DD}` stand for the day of `made_ms` in UTC.
    """
    year, month, day = render_date(made_ms).split("-")
    dates = {"YYYY": year, "YY": year[2:], "MM": month, "DD": day}
    return _PLACEHOLDER.sub(
        lambda match: dates.get(match[1]) or str(number).zfill(len(match[1])), display_format
    )
