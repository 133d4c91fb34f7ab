"""A live server under random writes of every kind, and its final records, read by SOQL alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from tests.running import API, Refused, Rest
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.testing import LocalServer

_TOOLING = "/services/data/v62.0/tooling"
_DATABASE = "/services/tidewire/v1/database"
_PAUSE_S = 0.04  # between writes: fewer than a pipeline keeps up with on a busy machine
_RECENT = 300
MAX_CHANGES = 20
"""What a transaction may tell before it overflows, on a server made for this."""
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
COMPARED = {
    "Contact": ("AccountId",),
    "Opportunity": ("AccountId",),
    "Case": ("AccountId",),
    "Lead": ("IsConverted", "ConvertedAccountId", "ConvertedContactId", "ConvertedOpportunityId"),
}
"""Further fields that are compared: what cascades, merges and conversions touch."""


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


def make_one_of_each(rest: Rest) -> None:
    """A record of every object."""
    for entity in OBJECTS:
        rest.create(entity, random_values(random.Random(entity), entity, 1, whole=True))


def random_values(choose: random.Random, entity: str, number: int, *, whole: bool) -> dict[str, Any]:
    """Fields for a new record (`whole`), or some for a change."""
    values: dict[str, Any] = {}
    for name in OBJECTS[entity]:
        if not whole and choose.random() < 0.5:
            continue
        match name:
            case "Amount":
                values[name] = choose.randrange(10_000) / 4
            case "CloseDate":
                values[name] = f"2027-0{choose.randint(1, 9)}-15"
            case "StageName":
                values[name] = choose.choice(["Prospecting", "Closed Won"])
            case "IsActive":
                values[name] = choose.random() < 0.5
            case "Description":
                # Long enough for events to carry the difference only.
                line = f"line {choose.randrange(1_000)}\n"
                values[name] = None if choose.random() < 0.2 else line * choose.randint(1, 200)
            case _:
                values[name] = f"{entity} {choose.randrange(1_000_000)}"
    # A write that changes nothing moves the record's times and makes no event: every one changes something.
    values[next(iter(OBJECTS[entity]))] = f"{entity} {number} {choose.randrange(1_000_000)}"
    return values


class Load:
    """Some writers at the same time, on records that they share."""

    def __init__(self, server: LocalServer, seed: int, writers: int = 2) -> None:
        self.known: dict[str, list[str]] = {entity: [] for entity in OBJECTS}
        self.stopped = threading.Event()
        self.done: dict[str, int] = {}
        self._writers = [_Writer(self, server, f"{seed}/{number}") for number in range(writers)]

    @property
    def count(self) -> int:
        """How many writes have been answered."""
        return sum(self.done.copy().values())

    def start(self) -> None:
        """Begin to write."""
        for writer in self._writers:
            writer.start()

    def has_done_everything(self) -> bool:
        """Whether there were writes of every kind since `done` was cleared last."""
        return self.done.keys() == {kind.__name__ for kind in self._writers[0].kinds}

    def check(self) -> None:
        """Raises what a writer has failed with."""
        for writer in self._writers:
            if writer.failure is not None:
                raise writer.failure

    def stop(self) -> None:
        """Write no more."""
        self.stopped.set()
        for writer in self._writers:
            if writer.ident is not None:
                writer.join()


class _Writer(threading.Thread):
    """Writes at random until told to stop."""

    def __init__(self, load: Load, server: LocalServer, seed: str) -> None:
        super().__init__(name=f"writer {seed}")
        self._load = load
        self._address = urlsplit(server.http).netloc
        self._token = server.login()
        self._rest = Rest(server.http, self._token)
        self._random = random.Random(seed)
        self._number = 0
        self.failure: BaseException | None = None
        self.kinds: dict[Callable[[], None], int] = {
            self._create: 300,
            self._update: 300,
            self._update_several: 40,
            self._remove: 80,
            self._undelete: 40,
            self._convert: 10,
            self._merge: 8,
            self._change_below: 20,
            self._remove_below: 5,
            self._overflow: 2,
        }

    def run(self) -> None:
        try:
            while not self._load.stopped.wait(_PAUSE_S):
                self._number += 1
                (write,) = self._random.choices(list(self.kinds), list(self.kinds.values()))
                try:
                    write()
                except Refused as refused:
                    # Another writer has deleted, merged or converted the record.
                    if refused.status >= 500:
                        raise
                else:
                    name = write.__name__
                    self._load.done[name] = self._load.done.get(name, 0) + 1
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            self.failure = error
        finally:
            self._rest.close()

    def _create(self) -> None:
        entity = self._entity()
        values = random_values(self._random, entity, self._number, whole=True)
        if "AccountId" in COMPARED.get(entity, ()) and self._random.random() < 0.5:
            values["AccountId"] = self._pick("Account")
        self._load.known[entity].append(self._rest.create(entity, values))

    def _update(self) -> None:
        entity = self._entity()
        self._rest.update(
            entity, self._pick(entity), random_values(self._random, entity, self._number, whole=False)
        )

    def _update_several(self) -> None:
        entity = self._entity()
        self._patch(entity, self._pick_several(entity, MAX_CHANGES // 2))

    def _overflow(self) -> None:
        entity = max(OBJECTS, key=lambda each: len(self._load.known[each]))
        self._patch(entity, self._pick_several(entity, 3 * MAX_CHANGES))

    def _patch(self, entity: str, ids: list[str]) -> None:
        """One transaction, of which some events have several records."""
        alike = random_values(self._random, entity, self._number, whole=False)
        records = [
            {"attributes": {"type": entity}, "id": record_id}
            | (
                alike
                if self._random.random() < 0.5
                else random_values(self._random, entity, self._number, whole=False)
            )
            for record_id in ids
        ]
        self._rest.call("PATCH", f"{API}/composite/sobjects", {"allOrNone": False, "records": records})

    def _remove(self) -> None:
        entity = self._entity()
        self._rest.delete(entity, self._pick(entity))

    def _undelete(self) -> None:
        ids = "".join(f"<ids>{each}</ids>" for each in self._pick_several(self._entity(), 10))
        self._soap(f"<undelete>{ids}</undelete>")

    def _convert(self) -> None:
        self._soap(
            f"<convertLead><leadConverts><leadId>{self._pick('Lead')}</leadId><doNotCreateOpportunity>false"
            "</doNotCreateOpportunity><convertedStatus>Closed - Converted</convertedStatus></leadConverts>"
            "</convertLead>"
        )

    def _merge(self) -> None:
        self._soap(
            f"<merge><request><masterRecord><type>Account</type><Id>{self._pick('Account')}</Id></masterRecord>"
            f"<recordToMergeIds>{self._pick('Account')}</recordToMergeIds></request></merge>"
        )

    def _change_below(self) -> None:
        """Brings about a gap event."""
        entity = self._entity()
        job = {"operation": "update", "entity": entity, "ids": [self._pick(entity)]}
        self._rest.call(
            "POST",
            _DATABASE,
            job | {"values": random_values(self._random, entity, self._number, whole=False)},
        )

    def _remove_below(self) -> None:
        entity = self._entity()
        job = {"operation": "delete", "entity": entity, "ids": [self._pick(entity)]}
        self._rest.call("POST", _DATABASE, job)

    def _soap(self, operation: str) -> None:
        envelope = (
            '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns="urn:partner.soap.sforce.com">'
            f"<e:Header><SessionHeader><sessionId>{self._token}</sessionId></SessionHeader></e:Header>"
            f"<e:Body>{operation}</e:Body></e:Envelope>"
        )
        connection = HTTPConnection(self._address, timeout=120)
        try:
            headers = {"Content-Type": "text/xml; charset=UTF-8", "SOAPAction": '""'}
            connection.request("POST", "/services/Soap/u/62.0", envelope.encode(), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status != 200 or b"<success>true</success>" not in text:
            raise Refused(400, text)

    def _entity(self) -> str:
        return self._random.choice(list(OBJECTS))

    def _pick(self, entity: str) -> str:
        return self._pick_several(entity, 1)[0]

    def _pick_several(self, entity: str, count: int) -> list[str]:
        """Some recent records, deleted ones too; one is made if there are none."""
        known = self._load.known[entity]
        if not known:
            known.append(
                self._rest.create(entity, random_values(self._random, entity, self._number, whole=True))
            )
        recent = known[-_RECENT:]
        return self._random.sample(recent, min(count, len(recent)))


def source_rows(rest: Rest, entity: str) -> dict[str, tuple[Any, ...]]:
    """The records that SOQL shows."""
    fields = ["LastModifiedDate", *OBJECTS[entity], *COMPARED.get(entity, ())]
    rows = rest.query(f"SELECT Id, {', '.join(fields)} FROM {entity}")
    return {row["Id"]: tuple(row[name] for name in fields) for row in rows}


def replica_rows(lake: Lake, entity: str) -> dict[str, tuple[Any, ...]]:
    """The records that the replica shows, in the same form."""
    rows = read_replica(lake, entity)
    columns = ["LastModifiedDate", *OBJECTS[entity].values(), *COMPARED.get(entity, ())]
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


def assert_lake_is_true(rest: Rest, lake: Lake) -> None:
    """The replicas are the server's records, and history is the archive, each change once."""
    for entity in OBJECTS:
        assert replica_rows(lake, entity) == source_rows(rest, entity) != {}
    bronze = try_open_table(lake, "bronze")
    assert bronze is not None
    told_changes = changed_pairs(read_rows(bronze))
    kept: list[tuple[str, int, str]] = []
    for name in lake.names("history"):
        table = try_open_table(lake, name)
        assert table is not None
        rows = read_rows(table, ["replay_id", "record_id"])
        entity = name.partition("/")[2]
        kept += [(entity, row["replay_id"], row["record_id"]) for row in rows.to_pylist()]
    assert sorted(kept) == told_changes
    assert len(set(kept)) == len(kept)
