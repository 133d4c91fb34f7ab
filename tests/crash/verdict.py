"""The judge of a crash test: pure functions from what was promised and what is there to a list of broken
promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tests.crash.ledger import Attempt, Kind, Ledger
from tests.running import SeenEvent

MARKER_FIELD = "Phone"
"""The field of Account that carries the marker of the last change: free text, and part of any query."""


def find_violations(ledger: Ledger, events: Sequence[SeenEvent], records: Mapping[str, str]) -> list[str]:
    """Every broken promise, in words.

    `events` is the whole topic, oldest first; `records` maps each living record to its marker.
    """
    changes = _changes_by_record(events)
    found = [f"refused: {text}" for text in ledger.refusals]
    found += _order_violations(events)
    found += _repetitions(changes)
    for record_id, history in ledger.histories.items():
        found += _history_violations(record_id, history, changes.get(record_id, []))
    for record_id, seen in changes.items():
        if record_id not in ledger.histories and not _is_doubtful_create(ledger, seen):
            found.append(f"{record_id}: events {seen} that nobody asked for")
    found += _state_violations(changes, records)
    return found


def find_rewritten_history(before: Sequence[SeenEvent], after: Sequence[SeenEvent]) -> list[str]:
    """Events that a reader saw once and that a later reader of the same log does not see just so again."""
    again = {event.replay_id: event for event in after}
    return [
        f"replay id {event.replay_id} was {event.event_id}, is now {again.get(event.replay_id)}"
        for event in before
        if again.get(event.replay_id) != event
    ]


def _changes_by_record(events: Sequence[SeenEvent]) -> dict[str, list[tuple[str, str]]]:
    changes: dict[str, list[tuple[str, str]]] = {}
    for event in events:
        for record_id in event.header["recordIds"]:
            change = (event.header["changeType"], event.payload.get(MARKER_FIELD) or "")
            changes.setdefault(record_id, []).append(change)
    return changes


def _order_violations(events: Sequence[SeenEvent]) -> list[str]:
    found = [
        f"replay id {later.replay_id} follows {earlier.replay_id}"
        for earlier, later in pairwise(events)
        if later.replay_id <= earlier.replay_id
    ]
    ids = [event.event_id for event in events]
    if len(set(ids)) != len(ids):
        found.append(f"{len(ids) - len(set(ids))} event ids occur twice")
    return found


def _repetitions(changes: Mapping[str, list[tuple[str, str]]]) -> list[str]:
    seen: set[str] = set()
    found: list[str] = []
    for record_id, record_changes in changes.items():
        for change_type, marker in record_changes:
            if marker and marker in seen:
                found.append(f"{record_id}: {change_type} {marker} seen twice")
            seen.add(marker)
    return found


def _history_violations(
    record_id: str, history: Sequence[Attempt], seen: Sequence[tuple[str, str]]
) -> list[str]:
    """The events must be the attempts in order; only attempts in doubt may be missing."""
    at = 0
    for attempt in history:
        if at < len(seen) and seen[at] == (attempt.kind.value, attempt.marker):
            at += 1
        elif attempt.is_acknowledged:
            where = seen[at] if at < len(seen) else "nothing"
            return [
                f"{record_id}: acknowledged {attempt.kind.value} {attempt.marker} lost, {where} in its place"
            ]
    return [] if at == len(seen) else [f"{record_id}: unexpected {seen[at:]} after its last attempt"]


def _is_doubtful_create(ledger: Ledger, seen: Sequence[tuple[str, str]]) -> bool:
    return len(seen) == 1 and seen[0][0] == Kind.CREATE.value and seen[0][1] in ledger.doubtful_creates


def _state_violations(changes: Mapping[str, list[tuple[str, str]]], records: Mapping[str, str]) -> list[str]:
    """Folding a record's events must give the record: neither may exist without the other."""
    folded = {
        record_id: record_changes[-1][1]
        for record_id, record_changes in changes.items()
        if record_changes[-1][0] != Kind.DELETE.value
    }
    return [
        f"{record_id}: its events say {folded.get(record_id)}, the record says {records.get(record_id)}"
        for record_id in sorted(folded.keys() | records.keys())
        if folded.get(record_id) != records.get(record_id)
    ]
