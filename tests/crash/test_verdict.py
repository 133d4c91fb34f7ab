"""The judge itself: each kind of broken promise, planted by hand, is found."""

from __future__ import annotations

import pytest

from tests.crash.ledger import Kind, Ledger
from tests.crash.verdict import MARKER_FIELD, find_rewritten_history, find_violations
from tests.running import SeenEvent

A, B = "001000000000001AAA", "001000000000002AAA"


def event(replay_id: int, record_id: str, kind: str, marker: str) -> SeenEvent:
    header = {"recordIds": [record_id], "changeType": kind}
    return SeenEvent(replay_id, f"e{replay_id}", {"ChangeEventHeader": header, MARKER_FIELD: marker})


@pytest.fixture
def ledger() -> Ledger:
    """A: created and updated, acknowledged; then updated in doubt."""
    made = Ledger()
    made.note(A, Kind.CREATE, "a1", is_acknowledged=True)
    made.note(A, Kind.UPDATE, "a2", is_acknowledged=True)
    made.note(A, Kind.UPDATE, "a3", is_acknowledged=False)
    return made


CREATED = event(1, A, "CREATE", "a1")
UPDATED = event(2, A, "UPDATE", "a2")
IN_DOUBT = event(3, A, "UPDATE", "a3")


def test_kept_promises_with_or_without_the_doubtful_change_are_no_violation(ledger: Ledger) -> None:
    assert find_violations(ledger, [CREATED, UPDATED], {A: "a2"}) == []
    assert find_violations(ledger, [CREATED, UPDATED, IN_DOUBT], {A: "a3"}) == []


def test_lost_acknowledged_change_is_found(ledger: Ledger) -> None:
    assert "a2 lost" in find_violations(ledger, [CREATED], {A: "a1"})[0]


def test_repeated_event_is_found(ledger: Ledger) -> None:
    found = find_violations(ledger, [CREATED, UPDATED, event(3, A, "UPDATE", "a2")], {A: "a2"})
    assert any("seen twice" in text for text in found)


def test_events_out_of_order_are_found(ledger: Ledger) -> None:
    found = find_violations(ledger, [CREATED, IN_DOUBT, event(4, A, "UPDATE", "a2")], {A: "a2"})
    assert any("a2 lost" in text for text in found)


def test_replay_ids_that_do_not_rise_are_found(ledger: Ledger) -> None:
    found = find_violations(ledger, [event(2, A, "CREATE", "a1"), event(2, A, "UPDATE", "a2")], {A: "a2"})
    assert "replay id 2 follows 2" in found


def test_record_without_its_event_is_found(ledger: Ledger) -> None:
    found = find_violations(ledger, [CREATED, UPDATED], {A: "a3"})
    assert found == [f"{A}: its events say a2, the record says a3"]


def test_event_without_its_record_is_found(ledger: Ledger) -> None:
    assert find_violations(ledger, [CREATED, UPDATED], {}) == [
        f"{A}: its events say a2, the record says None"
    ]


def test_event_that_nobody_caused_is_found(ledger: Ledger) -> None:
    found = find_violations(ledger, [CREATED, UPDATED, event(5, B, "CREATE", "b1")], {A: "a2", B: "b1"})
    assert any("nobody asked for" in text for text in found)


def test_doubtful_create_may_be_there_whole(ledger: Ledger) -> None:
    ledger.note_doubtful_create("b1")
    assert find_violations(ledger, [CREATED, UPDATED, event(5, B, "CREATE", "b1")], {A: "a2", B: "b1"}) == []


def test_reused_replay_id_is_found() -> None:
    assert find_rewritten_history([CREATED], [event(1, B, "CREATE", "b1")]) != []
    assert find_rewritten_history([CREATED], [CREATED, UPDATED]) == []
