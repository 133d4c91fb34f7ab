"""The match bench: which push topics each record change concerns, beside one closure per topic.

    python benchmarks/match.py [--json] [--topics 100 10000] [--changes 300] [--pairs 3]

Both sides get the same compiled topics and the same changes, and must name the same topics for each. Ours asks the
index; the peer calls every topic's closure, which tests the operation, the watched fields and the compiled
condition, in the order in which a change fails soonest. Turns alternate in one run. What a notification says
is not made on either side.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from measuring import FOREIGN_LIMIT, Window

from tidewire.capture.event_bodies import AUDIT_STAMPS
from tidewire.capture.push_topics import PushTopic, compile_push_topic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.events import Change, ChangeType, Value
from tidewire.ids import make_id
from tidewire.schema.catalog import Catalog
from tidewire.schema.standard import STANDARD_OBJECTS

CATALOG = Catalog(1, STANDARD_OBJECTS)
ACCOUNT = CATALOG.object("Account")
PEER = "one closure per topic"
RECORDS = 20_000
INDUSTRIES = ("Agriculture", "Apparel", "Banking", "Energy", "Media", "Retail", "Shipping", "Utilities")
_MIN_TURN_S = 0.3
Match = Callable[[Change], list[str]]


def make_topics(count: int, dice: random.Random) -> list[PushTopic]:
    """Topics as lists, detail pages, territories and alarms make them, on one object."""
    return [compile_push_topic(_row(number, count, dice), CATALOG) for number in range(count)]


def _row(number: int, count: int, dice: random.Random) -> dict[str, Value]:
    owner = make_id("005", 1 + dice.randrange(max(count // 3, 1)))
    record = make_id("001", 1 + dice.randrange(RECORDS))
    revenue = 1_000_000 - dice.randrange(2_000)
    wheres = (
        f"OwnerId = '{owner}'",
        f"OwnerId = '{owner}' AND AnnualRevenue > {dice.randrange(1_000_000)}",
        f"Industry = '{dice.choice(INDUSTRIES)}' AND BillingCity = 'City {dice.randrange(count)}'",
        f"Id IN ('{record}', '{make_id('001', 1 + dice.randrange(RECORDS))}')",
        f"AnnualRevenue > {revenue}",
        f"Name LIKE 'Account {dice.randrange(1_000, 9_999)}%'",
        f"Phone = '{dice.randrange(count)}' OR Fax = '{dice.randrange(count)}'",
    )
    row: dict[str, Value] = {
        "Id": make_id("0IF", 1 + number),
        "Name": f"T{number}",
        "Query": f"SELECT Id, Name, Phone FROM Account WHERE {wheres[number % len(wheres)]}",
        "ApiVersion": 60.0,
        "IsActive": True,
        "NotifyForFields": ("Referenced", "All", "Where", "Select")[number // len(wheres) % 4],
    }
    if row["NotifyForFields"] == "Where" and "WHERE Id" in str(row["Query"]):
        row["NotifyForFields"] = "All"
    return row | {f"NotifyForOperation{kind.value.title()}": True for kind in ChangeType}


def make_changes(count: int, topics: int, dice: random.Random) -> list[Change]:
    """Mostly updates of one to three fields."""
    changes = []
    for number in range(count):
        record_id = make_id("001", 1 + dice.randrange(RECORDS))
        before = _account(record_id, topics, dice)
        after = before | {"LastModifiedDate": 2}
        fresh = _account(record_id, topics, dice)
        for name in dice.sample(("Name", "Phone", "Industry", "AnnualRevenue", "Rating"), dice.randint(1, 3)):
            after[name] = fresh[name]
        changed = tuple(name for name, value in after.items() if before[name] != value)
        kind = dice.choices(list(ChangeType), (2, 7, 1, 0))[0]
        changes.append(
            Change(
                "Account",
                record_id,
                kind,
                None if kind is ChangeType.CREATE else before,
                None if kind is ChangeType.DELETE else after,
                changed if kind is ChangeType.UPDATE else (),
                number + 1,
            )
        )
    return changes


def _account(record_id: str, topics: int, dice: random.Random) -> dict[str, Value]:
    empty: dict[str, Value] = {f.name: None for f in ACCOUNT.stored_fields}
    return empty | {
        "Id": record_id,
        "OwnerId": make_id("005", 1 + dice.randrange(max(topics // 3, 1))),
        "Name": f"Account {dice.randrange(1_000, 9_999)} Inc.",
        "Phone": str(dice.randrange(topics)),
        "Fax": str(dice.randrange(topics)),
        "Industry": dice.choice(INDUSTRIES),
        "BillingCity": f"City {dice.randrange(topics)}",
        "AnnualRevenue": float(dice.randrange(1_000_000)),
        "Rating": dice.choice(("Hot", "Warm", "Cold")),
        "LastModifiedDate": 1,
    }


def closure_of(topic: PushTopic) -> Callable[[Change], bool]:
    """The topic as one function of a change."""
    operations, watched, matches = topic.operations, topic.watched, topic.matches

    def is_concerned(change: Change) -> bool:
        if change.type not in operations:
            return False
        if change.type is ChangeType.UPDATE:
            if watched is None:
                if AUDIT_STAMPS.issuperset(change.changed):
                    return False
            elif watched.isdisjoint(change.changed):
                return False
        row = change.before if change.type is ChangeType.DELETE else change.after
        return row is not None and matches(row)

    return is_concerned


def by_index(topics: list[PushTopic]) -> Match:
    """Our side."""
    index = PushTopicIndex(topics)
    return lambda change: [topic.record_id for topic in index.concerned_by(change)]


def by_closures(topics: list[PushTopic]) -> Match:
    """The peer's side."""
    closures = [(topic.record_id, closure_of(topic)) for topic in topics]
    return lambda change: [record_id for record_id, is_concerned in closures if is_concerned(change)]


def rate(match: Match, changes: list[Change]) -> float:
    """Changes per second of CPU time, over all changes as often as a turn needs."""
    done, started = 0, time.process_time()
    while True:
        for change in changes:
            match(change)
        done += len(changes)
        elapsed = time.process_time() - started
        if elapsed >= _MIN_TURN_S:
            return done / elapsed


def measure(topic_count: int, change_count: int, pairs: int) -> dict[str, Any]:
    """One row: both sides over the same topics and changes."""
    dice = random.Random(topic_count)
    topics = make_topics(topic_count, dice)
    changes = make_changes(change_count, topic_count, dice)
    ours, peer = by_index(topics), by_closures(topics)
    found = [ours(change) for change in changes]
    if found != [peer(change) for change in changes]:
        raise SystemExit("the two sides name different topics")
    window = Window([])
    turns = [(rate(ours, changes), rate(peer, changes)) for _ in range(pairs)]
    reading = window.close()
    return {
        "metric": f"changes against {topic_count} topics",
        "unit": "changes/s",
        "ours": round(statistics.median(a for a, _ in turns)),
        "peers": {PEER: round(statistics.median(b for _, b in turns))},
        "ratio": {PEER: round(statistics.median(a / b for a, b in turns), 1)},
        "cpu_ratio": {},
        "concerned_per_change": round(sum(map(len, found)) / len(found), 2),
        "is_equal": True,
        "foreign_part": round(reading.foreign_part, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--topics", type=int, nargs="+", default=[100, 10_000], help="how many push topics")
    parser.add_argument("--changes", type=int, default=300, help="how many different changes")
    parser.add_argument("--pairs", type=int, default=3, help="turns of each side")
    options = parser.parse_args()
    rows = [measure(count, options.changes, options.pairs) for count in options.topics]
    if options.json:
        is_clean = all(row["foreign_part"] < FOREIGN_LIMIT for row in rows)
        durability = "none: nothing is written on either side"
        print(json.dumps({"bench": "match", "results": rows, "durability": durability, "clean": is_clean}))
        return
    print(f"push-topic matching, results equal on both sides; peer: {PEER}")
    for row in rows:
        print(
            f"{row['metric']:>30}: {row['ours']:>9,} {row['unit']}, peer {row['peers'][PEER]:>9,},"
            f" ratio {row['ratio'][PEER]}"
            f" ({row['concerned_per_change']} topics told per change)"
        )


if __name__ == "__main__":
    main()
