"""Read records through the public REST API, with the columns and values of a replica.

Our server returns with every response the log position of its rows (`Tidewire-Position`): all events up to it
are in the rows and none after it. So each page carries its fence. Later pages of one query would have other
positions and are never fetched: reading continues by id, with a new query.

Columns are those of the object's change events, named as in columns.py, and values are as Avro encodes them.
So a row that was read and a row that was built from events compare equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from typing import Any
from urllib.parse import quote

from tidewire.client.login import Login
from tidewire.clock import SystemClock
from tidewire.errors import LogCorrupt, ObjectUnknown, TopicUnknown
from tidewire.ids import try_normalise_id
from tidewire.names import (
    ALL_CHANGES,
    ChannelKind,
    change_event_name,
    entity_of_change_event,
    is_api_name,
    parse_channel,
)
from tidewire.pipeline.lake.columns import RECORD_ID, Kind, Native, component_column, parse_kinds
from tidewire.pipeline.source.bus import Bus, BusSettings
from tidewire.pipeline.source.server_http import ServerHttp
from tidewire.schema.field_types import DOC_KINDS, ValueKind

API = "/services/data/v67.0"
POSITION = "tidewire-position"
IDS_AT_ONCE = 200
_SELECT_CHARACTERS = 8_000  # servers reject URLs longer than about 16,000
_DAY_MS = 86_400_000
_CHANNEL_SUFFIX = "__chn"


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """One column of a replica and its source in a record: one field, or the checkboxes of a list."""

    name: str
    fields: tuple[str, ...]
    parse: Callable[[Any], Native]
    list_prefix: str = ""


@dataclass(frozen=True, slots=True)
class EntityDescription:
    """An object, as described by its change events and the REST API together."""

    entity: str
    key_prefix: str
    schema_id: str
    schema_json: str
    kinds: Mapping[str, Kind]
    columns: tuple[ReadColumn, ...]


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """Rows that were read together, ordered by Id.

    `missing` are requested records that do not exist. All events up to `fence` are in the rows and none after
    `settled`; both are None if the server does not report them. `through` is the id up to which a range is
    covered. `columns` are those that were read: each row has all of them, and the user can see no others.
    """

    rows: list[dict[str, Native]]
    missing: list[str]
    fence: int | None
    settled: int | None
    through: str = ""
    columns: tuple[str, ...] = ()


class RecordsReader:
    """Reads records as one user, for one thread. Blocks; retries for `retry_s` of the settings."""

    def __init__(self, settings: BusSettings, session: Login | None = None) -> None:
        self._settings = settings
        self._bus = Bus(settings, SystemClock(), session)
        self._web = ServerHttp(self._bus)
        self._described: dict[str, EntityDescription] = {}

    @property
    def session(self) -> Login:
        """Return the current login."""
        return self._bus.session()

    def try_ask(self, path: str) -> Any:
        """Return another JSON resource of the server; None if it has none for this user."""
        return self._web.try_get_json(path)

    def close(self) -> None:
        """Close the connections."""
        self._web.close()
        self._bus.close()

    def entities(self) -> list[str]:
        """Return the objects whose changes the configured channel carries."""
        channel = parse_channel(self._settings.topic)
        entity = entity_of_change_event(channel.name)
        if channel.kind is not ChannelKind.CHANGE_EVENT:
            return []
        if self._settings.topic != ALL_CHANGES and not channel.name.endswith(_CHANNEL_SUFFIX) and entity:
            return [entity]
        event_channel = channel.name
        if channel.name.endswith(_CHANNEL_SUFFIX):
            name = channel.name.removesuffix(_CHANNEL_SUFFIX)
            found = self._tooling(f"SELECT Id FROM PlatformEventChannel WHERE DeveloperName = '{name}'")  # noqa: S608
            event_channel = found[0]["Id"] if found else ""
        members = self._tooling(
            "SELECT SelectedEntity, MasterLabel FROM PlatformEventChannelMember "  # noqa: S608
            f"WHERE EventChannel = '{event_channel}'"
        )
        # There a custom object's event is named by an id, and its label holds the API name.
        events = [entity_of_change_event(str(row[key])) for row in members for key in row if key in _NAMED]
        return sorted({entity for entity in events if entity})

    def describe(self, entity: str, *, renew: bool = False) -> EntityDescription:
        """Describe an object's replica and where its values come from. Cached unless `renew`.

        Raises ObjectUnknown.
        """
        if renew or entity not in self._described:
            self._described[entity] = self._describe(entity)
        return self._described[entity]

    def read_ids(self, entity: str, ids: Iterable[str]) -> RecordsPage:
        """Read these records; deleted or unknown ones are `missing`."""
        wanted = sorted({try_normalise_id(record_id) or record_id for record_id in ids})
        askable = [record_id for record_id in wanted if try_normalise_id(record_id) is not None]
        first, *rest = _column_groups(self.describe(entity).columns)
        page = self._add_columns(entity, self._read_group(entity, askable, first), rest)
        seen = {row[RECORD_ID] for row in page.rows}
        return replace(page, missing=[record_id for record_id in wanted if record_id not in seen])

    def read_range(self, entity: str, lo: str, hi: str, limit: int) -> RecordsPage:
        """Read the first records with lo < Id <= hi, at most `limit`. An empty bound is open.

        The page covers the range up to its `through`; pass that as `lo` to read on.
        """
        first, *rest = _column_groups(self.describe(entity).columns)
        soql = f"SELECT {_select(first)} FROM {entity}{_where(_range(lo, hi))} ORDER BY Id LIMIT {limit:d}"  # noqa: S608
        position, answer = self._query(soql)
        records = answer["records"]
        is_whole = answer["done"] and len(records) < limit
        page = RecordsPage(
            [_row(record, first) for record in records],
            [],
            position,
            position,
            hi if is_whole or not records else str(records[-1]["Id"]),
            self._names(entity),
        )
        return self._add_columns(entity, page, rest)

    def count(self, entity: str, lo: str = "", hi: str = "") -> int:
        """Count the records with lo < Id <= hi."""
        self.describe(entity)
        _, answer = self._query(f"SELECT COUNT(Id) n FROM {entity}{_where(_range(lo, hi))}")  # noqa: S608
        return int(answer["records"][0]["n"])

    def bounds(self, entity: str, lo: str = "", hi: str = "") -> tuple[str, str] | None:
        """Return the lowest and highest id with lo < Id <= hi; None if there are no records."""
        self.describe(entity)
        where = _where(_range(lo, hi))
        found = [
            self._query(f"SELECT Id FROM {entity}{where} ORDER BY Id {order} LIMIT 1")[1]["records"]  # noqa: S608
            for order in ("ASC", "DESC")
        ]
        return (found[0][0]["Id"], found[1][0]["Id"]) if all(found) else None

    def _names(self, entity: str) -> tuple[str, ...]:
        return tuple(column.name for column in self.describe(entity).columns)

    def _read_group(self, entity: str, ids: Sequence[str], group: Sequence[ReadColumn]) -> RecordsPage:
        rows: list[dict[str, Native]] = []
        positions: list[int | None] = []
        left = list(ids)
        while left:
            asked = left[:IDS_AT_ONCE]
            listed = ", ".join(f"'{record_id}'" for record_id in asked)
            soql = f"SELECT {_select(group)} FROM {entity} WHERE Id IN ({listed}) ORDER BY Id"  # noqa: S608
            position, answer = self._query(soql)
            positions.append(position)
            rows += [_row(record, group) for record in answer["records"]]
            is_whole = answer["done"] or not answer["records"]
            last = str(rows[-1][RECORD_ID]) if rows else ""
            left = left[len(asked) :] if is_whole else [each for each in left if each > last]
        return RecordsPage(rows, [], *_extent(positions), columns=self._names(entity))

    def _add_columns(
        self, entity: str, page: RecordsPage, groups: Iterable[Sequence[ReadColumn]]
    ) -> RecordsPage:
        """Complete a page. Records deleted meanwhile are dropped from it: an event reports them."""
        for group in groups:
            if not page.rows:
                break
            more = self._read_group(entity, [str(row[RECORD_ID]) for row in page.rows], group)
            by_id = {row[RECORD_ID]: row for row in more.rows}
            rows = [row | by_id[row[RECORD_ID]] for row in page.rows if row[RECORD_ID] in by_id]
            fence, settled = _join_fences([page, more])
            page = replace(page, rows=rows, fence=fence, settled=settled)
        return _settle_persons(entity, page)

    def _query(self, soql: str) -> tuple[int | None, Any]:
        head, answer = self._web.get_json(f"{API}/query?q={quote(soql)}")
        position = head.headers.get(POSITION, "")
        return int(position) if position.isdecimal() else None, answer

    def _tooling(self, soql: str) -> list[dict[str, Any]]:
        path = f"{API}/tooling/query?q={quote(soql)}"
        records: list[dict[str, Any]] = []
        while path:
            _, answer = self._web.get_json(path)
            records += answer["records"]
            path = "" if answer["done"] else answer["nextRecordsUrl"]
        return records

    def _describe(self, entity: str) -> EntityDescription:
        if not is_api_name(entity):
            raise ObjectUnknown(f"{entity[:80]!r} is not the name of an object", entity=entity[:80])
        with self._bus.connect() as client:
            try:
                topic = client.get_topic(f"/data/{change_event_name(entity)}")
            except TopicUnknown as error:
                raise ObjectUnknown(
                    f"{entity} has no change events: {error.message}", entity=entity
                ) from error
        schema_json = self._bus.schema_json(topic.schema_id)
        _, described = self._web.get_json(f"{API}/sobjects/{entity}/describe")
        return EntityDescription(
            entity,
            described["keyPrefix"] or "",
            topic.schema_id,
            schema_json,
            parse_kinds(schema_json),
            tuple(_find_columns(schema_json, [field["name"] for field in described["fields"]])),
        )


_NAMED = ("SelectedEntity", "MasterLabel")


def _find_columns(schema_json: str, names: Sequence[str]) -> Iterable[ReadColumn]:
    """Return the columns of a schema that the API has fields for."""
    known = set(names)
    kinds = parse_kinds(schema_json)
    yield ReadColumn(RECORD_ID, ("Id",), _as_is)
    for field in json.loads(schema_json)["fields"]:
        name, word = field["name"], [*field.get("doc", "").split(":"), ""][1]
        if name in ("ChangeEventHeader", RECORD_ID):
            continue
        if word == "BitVector":
            boxes = tuple(found for found in names if found.startswith(name) and found != name)
            if boxes:
                yield ReadColumn(name, boxes, _as_is, list_prefix=name)
            continue
        if name in kinds and name in known:
            yield ReadColumn(name, (name,), _parser_of(word, kinds[name]))
        for column in kinds:
            component = column.removeprefix(name + "_")
            if component == column or column != component_column(name, component):
                continue
            found = next((each for each in _component_names(name, component) if each in known), None)
            if found is not None and column not in known:
                yield ReadColumn(column, (found,), _parser_of("", kinds[column]))


def _component_names(compound: str, component: str) -> tuple[str, ...]:
    """Return the names that the API may use for a component of a compound field."""
    if compound.endswith("__c"):
        return (f"{compound[:-3]}__{component}__s",)
    if compound.endswith("Address"):
        return (compound.removesuffix("Address") + component,)
    return (component,)


def _parser_of(word: str, kind: Kind) -> Callable[[Any], Native]:
    if DOC_KINDS.get(word) is ValueKind.TIME:
        return _parse_time
    match kind:
        case Kind.TIMESTAMP:
            return parse_datetime
        case Kind.DATE:
            return _parse_date
        case Kind.DOUBLE:
            return float
        case Kind.WHOLE:
            return int
        case _:
            return _as_is


def _as_is(value: Any) -> Native:
    native: Native = value
    return native


def parse_datetime(text: str) -> int:
    """Return a time of the REST API in milliseconds. Raises ValueError."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _parse_date(text: str) -> int:
    return (
        datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ).days * _DAY_MS


def _parse_time(text: str) -> int:
    parsed = time.fromisoformat(text.removesuffix("Z"))
    return ((parsed.hour * 60 + parsed.minute) * 60 + parsed.second) * 1000 + parsed.microsecond // 1000


def _row(record: Mapping[str, Any], columns: Sequence[ReadColumn]) -> dict[str, Native]:
    row: dict[str, Native] = {RECORD_ID: record["Id"]}
    for column in columns:
        if column.list_prefix:
            flags = [name.removeprefix(column.list_prefix) for name in column.fields if record[name]]
            row[column.name] = ";".join(flags)
            continue
        value = record[column.fields[0]]
        try:
            row[column.name] = None if value is None else column.parse(value)
        except (ValueError, TypeError, AttributeError) as error:
            raise LogCorrupt(
                f"the server's value of {column.fields[0]} in {record['Id']} is not of its type"
            ) from error
    return row


def _settle_persons(entity: str, page: RecordsPage) -> RecordsPage:
    """Align accounts with their events: a person's name by component, no Person fields for a business."""
    if entity != "Account" or "IsPersonAccount" not in page.columns:
        return page
    for row in page.rows:
        if row["IsPersonAccount"]:
            row["Name"] = None
            continue
        for name in row:
            if name.startswith("Name_") or (name.startswith("Person") and name != "PersonContactId"):
                row[name] = None
    return page


def _column_groups(columns: Sequence[ReadColumn]) -> list[list[ReadColumn]]:
    """Divide columns into groups that each fit into one query; there is at least one."""
    groups: list[list[ReadColumn]] = [[]]
    size = 0
    for column in columns:
        size += sum(len(name) + 4 for name in column.fields)
        if size > _SELECT_CHARACTERS and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append(column)
    return groups


def _select(columns: Sequence[ReadColumn]) -> str:
    return ", ".join(dict.fromkeys(["Id", *(name for column in columns for name in column.fields)]))


def _range(lo: str, hi: str) -> str:
    for bound in (lo, hi):
        if bound and not (bound.isascii() and bound.isalnum()):
            raise ObjectUnknown(f"{bound[:40]!r} is not a record id")
    bounds = [f"Id > '{lo}'"] * bool(lo) + [f"Id <= '{hi}'"] * bool(hi)
    return " AND ".join(bounds)


def _where(condition: str) -> str:
    return f" WHERE {condition}" if condition else ""


def _extent(positions: Iterable[int | None]) -> tuple[int | None, int | None]:
    known = list(positions)
    reported = [position for position in known if position is not None]
    return (min(reported), max(reported)) if reported and len(reported) == len(known) else (None, None)


def _join_fences(pages: Sequence[RecordsPage]) -> tuple[int | None, int | None]:
    fences = _extent(page.fence for page in pages)
    return fences[0], _extent(page.settled for page in pages)[1]
