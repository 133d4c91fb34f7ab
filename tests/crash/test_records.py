"""Crashes under a load of collections and cascades: transactions are whole, roll-ups right, events equal to rows.

Each writer owns crates, which are masters, and packs parcels into them, always `SIZE` in one transaction that gives
all of them one new mark. A crate whose last answer never came is left alone from then on: it must be as before or
as after, and stay so.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests.crash.powercut import PowerCut
from tests.crash.verdict import find_rewritten_history
from tests.running import API, InDoubt, Json, Refused, Rest, SeenEvent, call_metadata, read_topic
from tests.stores import STORES
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow]

SIZE = 4
WRITERS = 4
CRATES_PER_WRITER = 3
ACK_TIMEOUT_S = 240.0
ROLL_UP = {"child": "Parcel__c", "child_field": "Crate__c"}
DEFINITION = {
    "objects": {
        "Crate__c": {
            "name": {"type": "Text"},
            "capture": True,
            "fields": {
                "Parcels__c": {"type": "Number", "scale": 0, "roll_up": {**ROLL_UP, "function": "COUNT"}},
                "Total__c": {
                    "type": "Number",
                    "scale": 0,
                    "roll_up": {**ROLL_UP, "function": "SUM", "field": "Weight__c"},
                },
            },
        },
        "Parcel__c": {
            "name": {"type": "Text"},
            "capture": True,
            "fields": {
                "Crate__c": {"type": "MasterDetail", "references": "Crate__c"},
                "Weight__c": {"type": "Number", "scale": 0},
                "Mark__c": {"type": "Text"},
            },
        },
    }
}

Contents = dict[str, tuple[int, ...]]
"""What is in a crate: for each mark, the weights of its parcels, sorted."""


@dataclass(slots=True)
class Crate:
    """One crate by its unique name. `allowed` is what it may hold now; None stands for no such crate."""

    name: str
    record_id: str = ""
    allowed: list[Contents | None] = field(default_factory=lambda: [None])
    parcel_ids: dict[str, list[str]] = field(default_factory=dict)

    def attempt(self, after: Contents | None, call: Callable[[], Json]) -> Json:
        """Make a call that leaves `after`. Raises InDoubt with both states allowed."""
        (before,) = self.allowed
        self.allowed = [before, after]
        answer = call()
        self.allowed = [after]
        return answer


class Writer:
    """One client with crates of its own."""

    def __init__(self, rest: Rest, number: int, seed: int) -> None:
        self._rest = rest
        self._number = number
        self._rng = random.Random(seed + number)
        self._count = 0
        self.crates: list[Crate] = []
        self.refusals: list[str] = []
        self.acknowledged = 0

    def write(self, stopping: threading.Event, progress: threading.Condition) -> None:
        """Write until told to stop or until no answer comes."""
        while not stopping.is_set():
            try:
                self._step()
            except InDoubt:
                break
            except Refused as refused:
                self.refusals.append(str(refused))
                break
            with progress:
                self.acknowledged += 1
                progress.notify_all()
        self._rest.close()

    def _step(self) -> None:
        mine = [c for c in self.crates if c.record_id and len(c.allowed) == 1 and c.allowed[0] is not None]
        choice = self._rng.random()
        if not mine or (choice < 0.2 and len(mine) < CRATES_PER_WRITER):
            self._new_crate()
            return
        crate = self._rng.choice(mine)
        if choice < 0.35:
            crate.attempt(None, lambda: self._rest.delete("Crate__c", crate.record_id))
        elif crate.parcel_ids and choice < 0.65:
            self._weigh_again(crate)
        else:
            self._pack(crate)

    def _new_mark(self) -> tuple[str, list[int]]:
        self._count += 1
        return f"{self._number}-{self._count}", [self._rng.randrange(1, 100) for _ in range(SIZE)]

    def _new_crate(self) -> None:
        crate = Crate(f"crate {self._new_mark()[0]}")
        self.crates.append(crate)
        crate.record_id = crate.attempt({}, lambda: self._rest.create("Crate__c", {"Name": crate.name}))

    def _pack(self, crate: Crate) -> None:
        mark, weights = self._new_mark()
        records = [
            {
                "attributes": {"type": "Parcel__c"},
                "Name": mark,
                "Crate__c": crate.record_id,
                "Weight__c": weight,
                "Mark__c": mark,
            }
            for weight in weights
        ]
        after = {**(crate.allowed[0] or {}), mark: tuple(sorted(weights))}
        results = crate.attempt(after, lambda: self._collection("POST", records))
        crate.parcel_ids[mark] = [result["id"] for result in results]

    def _weigh_again(self, crate: Crate) -> None:
        old = self._rng.choice(sorted(crate.parcel_ids))
        mark, weights = self._new_mark()
        ids = crate.parcel_ids.pop(old)
        records = [
            {"attributes": {"type": "Parcel__c"}, "id": record_id, "Weight__c": weight, "Mark__c": mark}
            for record_id, weight in zip(ids, weights, strict=True)
        ]
        after = {**(crate.allowed[0] or {}), mark: tuple(sorted(weights))}
        del after[old]
        crate.attempt(after, lambda: self._collection("PATCH", records))
        crate.parcel_ids[mark] = ids

    def _collection(self, method: str, records: list[Json]) -> Json:
        results = self._rest.call(
            method, f"{API}/composite/sobjects", {"allOrNone": True, "records": records}
        )
        if not all(result["success"] for result in results):
            raise Refused(200, repr(results).encode())
        return results


class RecordsTrial:
    """A server with crates, its writers, and what an earlier reader has seen."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        self.server = server
        self.rng = random.Random(seed)
        self._token = server.login()
        rest = self._connect()
        rest.call("POST", "/services/tidewire/v1/apply", DEFINITION)
        rest.close()
        self.writers = [Writer(self._connect(), number, seed) for number in range(WRITERS)]
        self._progress = threading.Condition()
        self._seen: dict[str, list[SeenEvent]] = {}
        self._inspections = 0

    @property
    def acknowledged(self) -> int:
        """How many requests were answered with yes so far."""
        return sum(writer.acknowledged for writer in self.writers)

    def round(self, die: Callable[[], None]) -> list[str]:
        """One death under load, and a while of load after it; returns every broken promise."""
        for end in (die, lambda: None):
            stopping = threading.Event()
            threads = [
                threading.Thread(target=writer.write, args=(stopping, self._progress), daemon=True)
                for writer in self.writers
            ]
            for thread in threads:
                thread.start()
            self._wait_progress(self.rng.randrange(15, 40))
            # A moment within a request rather than right after an answer.
            threading.Event().wait(self.rng.uniform(0, 0.03))
            end()
            stopping.set()
            for thread in threads:
                thread.join()
            if not self.server.is_running:
                self.server.restart()
        return self.inspect()

    def _wait_progress(self, changes: int) -> None:
        target = self.acknowledged + changes
        with self._progress:
            self._progress.wait_for(lambda: self.acknowledged >= target, ACK_TIMEOUT_S)
        assert self.acknowledged >= target, [writer.refusals for writer in self.writers]

    def inspect(self) -> list[str]:
        """Every promise broken so far. Call it while no writer runs."""
        self._inspections += 1
        rest = self._connect()
        last = f"inspection {self._inspections}"
        own_id = rest.create("Crate__c", {"Name": f"{last} with a parcel"})
        rest.create("Parcel__c", {"Name": last, "Crate__c": own_id, "Weight__c": 1, "Mark__c": last})
        rest.create("Crate__c", {"Name": last})
        crates = rest.query("SELECT Id, Name, Total__c, Parcels__c FROM Crate__c")
        parcels = rest.query("SELECT Id, Crate__c, Weight__c, Mark__c FROM Parcel__c")
        rest.close()
        crate_events = self._read("Crate__ChangeEvent", lambda event: event.payload["Name"] == last)
        parcel_events = self._read("Parcel__ChangeEvent", lambda event: event.payload["Mark__c"] == last)
        found = [f"refused: {text}" for writer in self.writers for text in writer.refusals]
        found += self._find_lost(crates, parcels)
        found += find_wrong_roll_ups(crates, parcels)
        found += find_halves(parcel_events)
        found += find_differences(crate_events, crates, ("Name", "Total__c", "Parcels__c"))
        found += find_differences(parcel_events, parcels, ("Crate__c", "Weight__c", "Mark__c"))
        for events in (crate_events, parcel_events):
            topic = events[0].header["entityName"]
            found += find_rewritten_history(self._seen.get(topic, []), events)
            found += [f"{b} follows {a}" for a, b in pairwise(e.replay_id for e in events) if b <= a]
            self._seen[topic] = events
        return found

    def _find_lost(self, crates: list[Json], parcels: list[Json]) -> list[str]:
        contents: dict[str, dict[str, list[int]]] = {row["Id"]: {} for row in crates}
        found = []
        for row in parcels:
            if row["Crate__c"] not in contents:
                found.append(f"parcel {row['Id']} has outlived its crate")
                continue
            contents[row["Crate__c"]].setdefault(row["Mark__c"], []).append(int(row["Weight__c"]))
        actual = {
            row["Name"]: {mark: tuple(sorted(weights)) for mark, weights in contents[row["Id"]].items()}
            for row in crates
        }
        known = {crate.name for writer in self.writers for crate in writer.crates}
        found += [f"{n} was never asked for" for n in actual if n not in known and "inspection" not in n]
        for crate in (crate for writer in self.writers for crate in writer.crates):
            now = actual.get(crate.name)
            if now not in crate.allowed:
                found.append(f"{crate.name} holds {now}, not one of {crate.allowed}")
            if len(crate.allowed) > 1:
                # Whatever became of the request in doubt is what it must stay; nobody writes to it again.
                crate.allowed = [now]
                crate.record_id = ""
        return found

    def _read(self, event: str, is_last: Callable[[SeenEvent], bool]) -> list[SeenEvent]:
        metadata = call_metadata(self._token, self.server.http, self.server.org_id)
        return read_topic(self.server.grpc, metadata, f"/data/{event}", is_last)

    def _connect(self) -> Rest:
        return Rest(self.server.http, self._token)


def find_wrong_roll_ups(crates: list[Json], parcels: list[Json]) -> list[str]:
    """Crates whose count or total is not that of their parcels."""
    counts = Counter(row["Crate__c"] for row in parcels)
    totals: Counter[str] = Counter()
    for row in parcels:
        totals[row["Crate__c"]] += row["Weight__c"]
    return [
        f"{row['Name']} says {row['Parcels__c']} parcels of {row['Total__c']}"
        for row in crates
        if (row["Parcels__c"] or 0, row["Total__c"] or 0) != (counts[row["Id"]], totals[row["Id"]])
    ]


def find_halves(events: list[SeenEvent]) -> list[str]:
    """Transactions that marked fewer or more parcels than a writer ever does at once."""
    told: Counter[tuple[str, str]] = Counter()
    for event in events[:-1]:
        mark = event.payload["Mark__c"]
        if event.header["changeType"] != "DELETE" and "inspection" not in mark:
            told[event.header["transactionKey"], mark] += len(event.header["recordIds"])
    marks = Counter(mark for _, mark in told)
    found = [f"{mark}: told of {size} records in {key}" for (key, mark), size in told.items() if size != SIZE]
    return found + [f"{mark} was told in {count} transactions" for mark, count in marks.items() if count > 1]


def find_differences(events: list[SeenEvent], rows: list[Json], names: tuple[str, ...]) -> list[str]:
    """Records that are not what their change events add up to."""
    folded: dict[str, dict[str, Json]] = {}
    found = []
    for record_id, event in iter_records(events):
        kind = event.header["changeType"]
        if (kind == "CREATE") is (record_id in folded):
            found.append(f"{record_id}: {kind} in the wrong place")
        if kind == "DELETE":
            folded.pop(record_id, None)
            continue
        # No field of these is ever set to null, so a value that is not there has not changed.
        values = {name: event.payload[name] for name in names if event.payload[name] is not None}
        folded[record_id] = {**folded.get(record_id, {}), **values}
    held = {row["Id"]: {name: row[name] for name in names} for row in rows}
    for record_id in sorted(folded.keys() | held.keys()):
        told, is_there = folded.get(record_id), held.get(record_id)
        complete = None if told is None else {name: told.get(name) for name in names}
        if _plain(complete) != _plain(is_there):
            found.append(f"{record_id}: its events say {complete}, the record says {is_there}")
    return found


def iter_records(events: list[SeenEvent]) -> Iterator[tuple[str, SeenEvent]]:
    """Every record of every event, oldest first."""
    for event in events:
        for record_id in event.header["recordIds"]:
            yield record_id, event


def _plain(values: dict[str, Json] | None) -> dict[str, Json] | None:
    """Roll-ups over nothing may be null or zero."""
    return values and {name: value or 0 for name, value in values.items()}


@pytest.fixture(params=STORES)
def stored_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of this test's own, on every store in turn."""
    options: tuple[str, ...] = ()
    if request.param == "postgres":
        options = ("--store", request.getfixturevalue("postgres").make_url())
    with ServerProcess(tmp_path / "data", options=options) as process:
        yield process


@pytest.mark.timeout(900)
def test_records_after_kills_are_whole_and_equal_to_their_events(
    stored_server: ServerProcess, kills: int, seed: int
) -> None:
    trial = RecordsTrial(stored_server, seed)
    for _ in range(kills):
        assert trial.round(stored_server.kill) == []
    assert trial.acknowledged > 20 * kills


@pytest.mark.timeout(900)
def test_records_after_power_cuts_are_whole_and_equal_to_their_events(
    tmp_path: Path, kills: int, seed: int
) -> None:
    data = tmp_path / "data"
    power = PowerCut(data, tmp_path / "scratch")
    rng = random.Random(seed)
    with ServerProcess(data, env=power.env(keep_percent=0, seed=seed)) as server:
        trial = RecordsTrial(server, seed)

        def lose_power() -> None:
            server.kill()
            assert power.counts().syncs > 0
            power.cut()
            server.env.update(power.env(rng.choice([0, 0, 30, 70]), rng.randrange(1 << 30)))

        for _ in range(kills):
            assert trial.round(lose_power) == []
