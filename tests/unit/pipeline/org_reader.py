"""The records API of a simulated org: its current records at the current position of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.pipeline.histories import PREFIXES, SCHEMAS
from tests.unit.pipeline.oracle import ENTITIES, Org
from tidewire.errors import PlatformError
from tidewire.pipeline.lake.columns import parse_kinds
from tidewire.pipeline.source.records_reader import EntityDescription, RecordsPage


class OrgReader:
    """Answers as RecordsReader does. `refuse` may raise for ids that are asked for; with `tells` off no answer has
    a position, as of servers that are not ours.
    """

    def __init__(self, org: Org, *, tells: bool = True) -> None:
        self.org = org
        self.tells = tells
        self.reads = 0
        self.refuse: Callable[[str, Iterable[str]], PlatformError | None] = lambda entity, ids: None

    def entities(self) -> list[str]:
        return list(ENTITIES)

    def describe(self, entity: str, *, renew: bool = False) -> EntityDescription:
        schema = SCHEMAS[entity][self.org.version["Bill__c"] if entity == "Bill__c" else -1]
        kinds = parse_kinds(schema.json)
        return EntityDescription(entity, PREFIXES[entity], schema.schema_id, schema.json, kinds, ())

    def read_ids(self, entity: str, ids: Iterable[str]) -> RecordsPage:
        wanted = sorted(set(ids))
        self._check(entity, wanted)
        rows = self.org.rows_at(entity, self.org.history.position)
        found = [record_id for record_id in wanted if record_id in rows]
        missing = [record_id for record_id in wanted if record_id not in rows]
        return self._page(entity, found, missing, "")

    def read_range(self, entity: str, lo: str, hi: str, limit: int) -> RecordsPage:
        rows = self.org.rows_at(entity, self.org.history.position)
        wanted = sorted(record_id for record_id in rows if lo < record_id and (not hi or record_id <= hi))
        self._check(entity, wanted)
        through = hi if len(wanted) < limit else wanted[limit - 1]
        return self._page(entity, wanted[:limit], [], through)

    def count(self, entity: str, lo: str = "", hi: str = "") -> int:
        return len(self.org.rows_at(entity, self.org.history.position))

    def _check(self, entity: str, ids: Iterable[str]) -> None:
        self.reads += 1
        error = self.refuse(entity, ids)
        if error is not None:
            raise error

    def _page(self, entity: str, ids: list[str], missing: list[str], through: str) -> RecordsPage:
        position = self.org.history.position
        rows = self.org.rows_at(entity, position)
        fence = position if self.tells else None
        columns = tuple(self.describe(entity).kinds)
        return RecordsPage(
            [{"Id": each, **rows[each]} for each in ids], missing, fence, fence, through, columns
        )
