"""The replication example as a child of a test, and the comparison of its copy with the source."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.running import API, Json, Rest
from tests.wire.replication_load import FIELDS
from tidewire.testing import ServerProcess

EXAMPLE = Path(__file__).parents[2] / "examples" / "replicate.py"
UNTOLD = "LastModifiedDate"
"""An update that sets fields to what they are moves it, and is no change that anybody is told of."""


class Replica:
    """The example in a process of its own, and its file."""

    def __init__(self, server: ServerProcess, path: Path) -> None:
        self._path = path
        self._env = {**os.environ, "TIDEWIRE_URL": server.http, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = self._start()

    def restart(self) -> None:
        """Kill it at this very moment, and start it again."""
        self._end()
        self._process = self._start()

    def wait_for(self, entity: str, record_id: str) -> dict[str, dict[str, Json]]:
        """Let it go on until it has a record and nothing else to do; all that it has, by entity and id."""
        assert self._process.stdout is not None
        for _ in self._process.stdout:  # one line whenever it has caught up
            copy = self._read()
            if record_id in copy.get(entity, {}):
                return copy
        raise AssertionError(f"the example ended with {self._process.wait(timeout=120)}")

    def close(self) -> None:
        """Kill it."""
        self._end()

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(EXAMPLE), str(self._path), *FIELDS]
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=self._env, text=True)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(timeout=120)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> dict[str, dict[str, Json]]:
        copy: dict[str, dict[str, Json]] = {}
        db = sqlite3.connect(self._path)
        for entity, record_id, fields in db.execute("SELECT entity, id, fields FROM record"):
            copy.setdefault(entity, {})[record_id] = json.loads(fields)
        db.close()
        return copy


def read_source(rest: Rest, entity: str, names: list[str]) -> dict[str, Json]:
    """Every living record of an entity, in the form of the copy."""
    soql = f"SELECT Id, {', '.join(names)} FROM {entity} WHERE IsDeleted = false"
    page = rest.call("GET", f"{API}/queryAll?q={soql.replace(' ', '+')}")
    records = list(page["records"])
    while not page["done"]:
        page = rest.call("GET", page["nextRecordsUrl"])
        records += page["records"]
    return {row["Id"]: {name: _plain(row[name]) for name in names} for row in records}


def differences(entity: str, copy: dict[str, Json], source: dict[str, Json]) -> list[str]:
    """What the copy of an entity has wrong, in words."""
    found = [f"{entity} {i}: only in the source" for i in source.keys() - copy.keys()]
    found += [f"{entity} {i}: only in the copy" for i in copy.keys() - source.keys()]
    for record_id in source.keys() & copy.keys():
        ours, theirs = copy[record_id], source[record_id]
        found += [
            f"{entity} {record_id}.{name}: {ours[name]!r:.60}, not {theirs[name]!r:.60}"
            for name in theirs
            if ours[name] != theirs[name] and name != UNTOLD
        ]
    return found


def find_differences(rest: Rest, copy: dict[str, dict[str, Json]]) -> list[str]:
    """What a whole copy has wrong, in words."""
    found: list[str] = []
    for entity, fields in FIELDS.items():
        records = copy.get(entity, {})
        names = list(next(iter(records.values()), fields))
        assert set(fields) <= set(names)
        found += differences(entity, records, read_source(rest, entity, names))
    return found


def _plain(value: Json) -> Json:
    return value.replace("+0000", "Z") if isinstance(value, str) and value.endswith("+0000") else value
