"""A live server under random writes, and what it holds in the end, by SOQL alone."""

from __future__ import annotations

import random
import threading
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from tests.running import Refused, Rest
from tidewire.pipeline.replicas import read_replica
from tidewire.pipeline.tables import Lake
from tidewire.testing import ServerProcess

_TOOLING = "/services/data/v62.0/tooling"
_PAUSE_S = 0.02  # between writes: fewer than a pipeline keeps up with on a busy machine
OBJECTS: dict[str, dict[str, str]] = {
    "Account": {"Name": "Name", "Phone": "Phone", "BillingCity": "BillingAddress_City"},
    "Contact": {"LastName": "Name_LastName", "Title": "Title", "Description": "Description"},
    "Lead": {"LastName": "Name_LastName", "Company": "Company", "Description": "Description"},
    "Opportunity": {"Name": "Name", "Amount": "Amount", "CloseDate": "CloseDate", "StageName": "StageName"},
    "Case": {"Subject": "Subject", "Description": "Description"},
    "Campaign": {"Name": "Name", "Description": "Description"},
    "Product2": {"Name": "Name", "Description": "Description", "IsActive": "IsActive"},
    "Task": {"Subject": "Subject", "Description": "Description"},
}
"""Eight objects: the fields written and compared, and the columns of the replica that have them."""


def select_objects(rest: Rest) -> None:
    """Let the server capture changes of all eight."""
    found = rest.call("GET", f"{_TOOLING}/query?q=SELECT+SelectedEntity+FROM+PlatformEventChannelMember")
    selected = {row["SelectedEntity"] for row in found["records"]}
    for entity in OBJECTS:
        event = f"{entity}ChangeEvent"
        if event not in selected:
            member = {"eventChannel": "ChangeEvents", "selectedEntity": event, "enrichedFields": []}
            body = {"FullName": f"ChangeEvents_{event}", "Metadata": member}
            rest.call("POST", f"{_TOOLING}/sobjects/PlatformEventChannelMember", body)


class Writer(threading.Thread):
    """Writes at random until told to stop. `count` is how many writes have been answered."""

    def __init__(self, server: ServerProcess, seed: int) -> None:
        super().__init__(name="writer")
        self._rest = Rest(server.http, server.login())
        self._random = random.Random(seed)
        self._live: dict[str, list[str]] = {entity: [] for entity in OBJECTS}
        self.stopped = threading.Event()
        self.failure: BaseException | None = None
        self.count = 0

    def run(self) -> None:
        try:
            while not self.stopped.wait(_PAUSE_S):
                self._write()
                self.count += 1
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            self.failure = error
        finally:
            self._rest.close()

    def _write(self) -> None:
        entity = self._random.choice(list(OBJECTS))
        live = self._live[entity]
        choice = self._random.random()
        if not live or choice < 0.5:
            live.append(self._rest.create(entity, self._values(entity, whole=True)))
        elif choice < 0.85:
            self._rest.update(entity, self._random.choice(live), self._values(entity, whole=False))
        else:
            place = self._random.randrange(len(live))
            try:
                self._rest.delete(entity, live[place])
            except Refused:
                return
            live.pop(place)

    def _values(self, entity: str, *, whole: bool) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in OBJECTS[entity]:
            if not whole and self._random.random() < 0.5:
                continue
            match name:
                case "Amount":
                    values[name] = self._random.randrange(10_000) / 4
                case "CloseDate":
                    values[name] = f"2027-0{self._random.randint(1, 9)}-15"
                case "StageName":
                    values[name] = self._random.choice(["Prospecting", "Closed Won"])
                case "IsActive":
                    values[name] = self._random.random() < 0.5
                case "Description":
                    # Long enough for events to carry the difference only.
                    line = f"line {self._random.randrange(1_000)}\n"
                    values[name] = (
                        None if self._random.random() < 0.2 else line * self._random.randint(1, 200)
                    )
                case _:
                    values[name] = f"{entity} {self._random.randrange(1_000_000)}"
        # A write that changes nothing moves the record's times and makes no event: every one changes something.
        values[next(iter(OBJECTS[entity]))] = f"{entity} {self.count} {self._random.randrange(1_000_000)}"
        return values


def source_rows(rest: Rest, entity: str) -> dict[str, tuple[Any, ...]]:
    """The records that SOQL shows."""
    fields = list(OBJECTS[entity])
    rows = rest.query(f"SELECT Id, SystemModstamp, {', '.join(fields)} FROM {entity}")
    return {row["Id"]: (row["SystemModstamp"], *(row[name] for name in fields)) for row in rows}


def replica_rows(lake: Lake, entity: str) -> dict[str, tuple[Any, ...]]:
    """The records that the replica shows, in the same form."""
    rows = read_replica(lake, entity)
    columns = ["LastModifiedDate", *OBJECTS[entity].values()]
    return {
        row["Id"]: tuple(_as_json(row[name]) for name in columns)
        for row in rows.select(["Id", *columns]).to_pylist()
    }


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000+0000")
    return value.isoformat() if isinstance(value, date) else value


def changed_pairs(bronze: pa.Table) -> list[tuple[str, int, str]]:
    """(object, replay id, record id) of every change that the archive tells of."""
    return sorted(
        (row["entity"], row["replay_id"], record_id)
        for row in bronze.select(["entity", "replay_id", "record_ids"]).to_pylist()
        if row["entity"] is not None
        for record_id in row["record_ids"]
    )
