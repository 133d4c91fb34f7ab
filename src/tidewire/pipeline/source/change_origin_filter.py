"""Filter changes by origin, so that a program can skip the changes that it made itself.

A program that writes what it reads back into the org would otherwise react to its own changes in a loop. A
change event names its origin (`changeOrigin`): the API with its version and, if the program sends
`Sforce-Call-Options: client=NAME`, that name, as in `com/salesforce/api/rest/67.0;client=NAME`. A reader
skips changes by that name or by the whole text. The archive and the history keep all changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tidewire.errors import PayloadInvalid, SchemaUnknown
from tidewire.pipeline.source.headers import HeaderReader

if TYPE_CHECKING:
    from pyspark.sql import Column

_CLIENT = r";\s*client=([^;]*)"
_find_client = re.compile(_CLIENT).search


def parse_origins(text: str) -> frozenset[str]:
    """Parse a comma-separated list of origins or client names."""
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def has_origin(origin: str | None, names: frozenset[str]) -> bool:
    """Return whether an origin equals one of the names, or names one of them as its client."""
    if not origin:
        return False
    client = _find_client(origin)
    return origin in names or (client is not None and client[1].strip().rstrip("/") in names)


def matches_origin(names: Iterable[str]) -> Column:
    """Return `has_origin` of the column `origin` as a Spark column."""
    from pyspark.sql import functions as f

    wanted = sorted(names)
    client = f.regexp_replace(f.trim(f.regexp_extract(f.col("origin"), _CLIENT, 1)), "/+$", "")
    return f.coalesce(f.col("origin").isin(wanted) | client.isin(wanted), f.lit(False))


class OriginFilter:
    """Drops changes of some origins from rows of the source. For one task; loads each schema once."""

    def __init__(self, names: frozenset[str], load_schema: Callable[[str], str]) -> None:
        self._names = names
        self._load_schema = load_schema
        self._readers: dict[str, HeaderReader | None] = {}

    def filter_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches without changes of these origins. Events without a readable header are kept."""
        for batch in batches:
            schemas, payloads = batch["schema_id"].to_pylist(), batch["payload"].to_pylist()
            kept = [
                schema_id is None or payload is None or not self._is_own(schema_id, payload)
                for schema_id, payload in zip(schemas, payloads, strict=True)
            ]
            if all(kept):
                yield batch
            elif any(kept):
                yield batch.filter(pa.array(kept, pa.bool_()))

    def _is_own(self, schema_id: str, payload: bytes) -> bool:
        if schema_id not in self._readers:
            self._readers[schema_id] = self._try_reader(schema_id)
        reader = self._readers[schema_id]
        if reader is None:
            return False
        try:
            _, _, _, origin, *_ = reader.read(payload)
        except PayloadInvalid:
            return False
        return has_origin(origin, self._names)

    def _try_reader(self, schema_id: str) -> HeaderReader | None:
        try:
            return HeaderReader(self._load_schema(schema_id))
        except SchemaUnknown:
            return None
