"""The Spark data source `tidewire-records`: all records of an object as a batch DataFrame, read in parallel.

    spark.dataSource.register(RecordsSource)
    spark.read.format("tidewire-records").option("entity", "Account").option("login_url", ...)

Options: those of the source `tidewire` for the server and the login (topic is optional), entity,
rows_per_partition, page_rows, and id_after and id_through for a range of ids. Columns are those of a replica
(columns.py), then `_fence` and `_settled`: all events up to `_fence` are in the row, and none after `_settled`.
With a Tidewire server the two are equal; they are null if the server does not report them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tidewire.client.login import Login
from tidewire.errors import ConfigInvalid
from tidewire.ids import ALPHABET, case_suffix, try_normalise_id
from tidewire.names import change_event_name
from tidewire.pipeline.lake.columns import ARROW, RECORD_ID, Kind, render_column
from tidewire.pipeline.source.bus import (
    SERVER_OPTIONS,
    BusSettings,
    check_names,
    parse_number,
    parse_settings,
)
from tidewire.pipeline.source.records_reader import EntityDescription, RecordsPage, RecordsReader

FENCE = "_fence"
SETTLED = "_settled"
_MAX_PAGE_ROWS = 2_000
_MAX_PARTITIONS = 1_000
OPTIONS = SERVER_OPTIONS | {"entity", "id_after", "id_through", "rows_per_partition", "page_rows"}
_DIGITS = {digit: value for value, digit in enumerate(ALPHABET)}


@dataclass(frozen=True, slots=True)
class RecordsSettings:
    """Which records to read and in what page size. Bounds are ids; empty ones are open."""

    entity: str
    id_after: str = ""
    id_through: str = ""
    rows_per_partition: int = 20_000
    page_rows: int = _MAX_PAGE_ROWS


@dataclass(frozen=True)
class RecordsPartition(InputPartition):
    """A range of ids, `id_after` < Id <= `id_through`, and the login to read it with."""

    id_after: str
    id_through: str
    session: Login


def parse_records_settings(options: Mapping[str, str]) -> RecordsSettings:
    """Parse reader options. Raises ConfigInvalid."""
    check_names(options, OPTIONS)
    if not options.get("entity"):
        raise ConfigInvalid("the option 'entity' is needed", setting="entity")
    bounds = {}
    for name in ("id_after", "id_through"):
        given = options.get(name, "")
        bounds[name] = try_normalise_id(given) if given else ""
        if bounds[name] is None:
            raise ConfigInvalid(f"the option {name!r} must be a record id, not {given!r}", setting=name)
    return RecordsSettings(
        options["entity"],
        bounds["id_after"] or "",
        bounds["id_through"] or "",
        max(1, int(parse_number(options, "rows_per_partition", 20_000))),
        max(1, min(_MAX_PAGE_ROWS, int(parse_number(options, "page_rows", _MAX_PAGE_ROWS)))),
    )


def records_schema(described: EntityDescription) -> pa.Schema:
    """Return the columns of an object's DataFrame."""
    kinds = _kinds(described)
    own = [(FENCE, pa.int64()), (SETTLED, pa.int64())]
    return pa.schema([*((name, ARROW[kind]) for name, kind in kinds.items()), *own])


def _kinds(described: EntityDescription) -> dict[str, Kind]:
    kinds = {column.name: described.kinds.get(column.name, Kind.TEXT) for column in described.columns}
    return {RECORD_ID: Kind.TEXT} | kinds


def divide_ids(bounds: tuple[str, str], count: int, settings: RecordsSettings) -> list[tuple[str, str]]:
    """Divide the ids between two bounds into ranges.

    Ids are assigned in sequence, so ranges of equal width hold about equally many records.
    """
    parts = min(_MAX_PARTITIONS, max(1, -(-count // settings.rows_per_partition)))
    low, high = (_number(bound[:15]) for bound in bounds)
    cuts = sorted({low + (high - low) * i // parts for i in range(1, parts)} - {low, high})
    ends = [_id(cut) for cut in cuts]
    return list(zip([settings.id_after, *ends], [*ends, settings.id_through], strict=True))


def _number(id15: str) -> int:
    value = 0
    for digit in id15:
        value = value * 62 + _DIGITS[digit]
    return value


def _id(number: int) -> str:
    digits = ""
    for _ in range(15):
        number, digit = divmod(number, 62)
        digits = ALPHABET[digit] + digits
    return digits + case_suffix(digits)


def render_page(page: RecordsPage, kinds: Mapping[str, Kind], schema: pa.Schema) -> pa.RecordBatch:
    """Return a page as an Arrow batch; columns that the object no longer has are null."""
    own = {FENCE: page.fence, SETTLED: page.settled}
    arrays: list[pa.Array] = []
    for field in schema:
        if field.name in own:
            arrays.append(pa.array([own[field.name]] * len(page.rows), field.type))
        elif field.name in kinds:
            values = [row.get(field.name) for row in page.rows]
            arrays.append(render_column(values, kinds[field.name]).cast(field.type))
        else:
            arrays.append(pa.nulls(len(page.rows), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class RecordsBatchReader(DataSourceReader):
    """Divides an object by id in the driver; `read` runs on executors."""

    def __init__(self, bus_settings: BusSettings, settings: RecordsSettings, schema: pa.Schema) -> None:
        self._bus_settings = bus_settings
        self._settings = settings
        self._schema = schema

    def partitions(self) -> Sequence[RecordsPartition]:
        """Divide the object. Called in the driver."""
        settings = self._settings
        with closing(RecordsReader(self._bus_settings)) as reader:
            bounds = reader.bounds(settings.entity, settings.id_after, settings.id_through)
            if bounds is None:
                return []
            count = reader.count(settings.entity, settings.id_after, settings.id_through)
            return [
                RecordsPartition(after, through, reader.session)
                for after, through in divide_ids(bounds, count, settings)
            ]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Read one range. Called on an executor."""
        if not isinstance(partition, RecordsPartition):
            return
        settings = self._settings
        with closing(RecordsReader(self._bus_settings, partition.session)) as reader:
            kinds = _kinds(reader.describe(settings.entity))
            after = partition.id_after
            while True:
                page = reader.read_range(settings.entity, after, partition.id_through, settings.page_rows)
                if page.rows:
                    yield render_page(page, kinds, self._schema)
                if page.through == partition.id_through:
                    return
                after = page.through


class RecordsSource(DataSource):
    """The data source `tidewire-records`."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return "tidewire-records"

    def schema(self) -> StructType:
        """Return the columns of the object. Asks the server."""
        settings = parse_records_settings(self.options)
        with closing(RecordsReader(self._bus_settings(settings))) as reader:
            return from_arrow_schema(records_schema(reader.describe(settings.entity)))

    def reader(self, schema: StructType) -> RecordsBatchReader:
        """Return the reader for `spark.read`."""
        settings = parse_records_settings(self.options)
        return RecordsBatchReader(
            self._bus_settings(settings), settings, to_arrow_schema(schema, timezone="UTC")
        )

    def _bus_settings(self, settings: RecordsSettings) -> BusSettings:
        topic = f"/data/{change_event_name(settings.entity)}"
        return parse_settings({"topic": topic, **self.options})
