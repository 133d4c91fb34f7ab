"""The table `schemas`: every Avro schema that a row of the lake needs, kept because the server may forget them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tidewire.errors import StoreClosed, WriteConflict
from tidewire.names import entity_of_change_event
from tidewire.pipeline.lake.files import read_rows
from tidewire.pipeline.lake.tables import Lake, OpenTable, append_counted, load_shared_table

_ATTEMPTS = 5
_schemas: dict[str, tuple[OpenTable, dict[str, str]]] = {}


def load_schemas(lake: Lake, at_least: int = -1) -> dict[str, str]:
    """Return all archived Avro schemas by id. Read once per version of the table.

    Raises StoreClosed if the table is older than version `at_least`, which another process has seen: a shared
    file system may lag.
    """
    table = load_shared_table(lake, "schemas")
    if at_least > (table.delta.version() if table is not None else -1):
        raise StoreClosed(f"version {at_least} of the table schemas is not visible here yet; retry")
    if table is None:
        return {}
    known = _schemas.get(lake.path)
    if known is None or known[0] is not table:
        rows = read_rows(table)
        texts = dict(zip(rows["schema_id"].to_pylist(), rows["schema_json"].to_pylist(), strict=True))
        known = _schemas[lake.path] = (table, texts)
    return dict(known[1])


class LakeSchemas(Mapping[str, str]):
    """The schemas of a lake, read on the first miss and shared by tasks of one process."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._known = _known_schemas.setdefault(lake.path, {})
        self._is_read = False

    def __getitem__(self, schema_id: str) -> str:
        if schema_id not in self._known and not self._is_read:
            self._is_read = True
            self._known |= load_schemas(self._lake)
        return self._known[schema_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


_known_schemas: dict[str, dict[str, str]] = {}


def append_schemas(lake: Lake, schemas: Mapping[str, tuple[str, int]], epoch: int) -> None:
    """Append schemas that the lake lacks. Raises WriteConflict.

    After a crash one may be listed twice, which readers accept.
    """
    rows = [
        {
            "schema_id": schema_id,
            "schema_json": text,
            "entity": entity_of_change_event(str(json.loads(text).get("name", ""))),
            "first_replay_id": replay_id,
        }
        for schema_id, (text, replay_id) in sorted(schemas.items())
    ]
    # Reads of records append schemas too, and the archive takes no lock: on a conflict it retries.
    for attempt in range(_ATTEMPTS):
        try:
            append_counted(lake, "schemas", rows, epoch, "archive")
        except WriteConflict:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return
