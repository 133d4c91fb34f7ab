"""PK chunking: splits a query of the older API into many, each over a range of ids and each a batch.

The batch with the original query is not processed itself. Its ranges are queued and it is marked NotProcessed in one
transaction, so a crash leaves either both or neither.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

from tidewire.errors import JobInvalid
from tidewire.ids import try_normalise_id
from tidewire.jobs import store
from tidewire.jobs.batch_context import BatchContext
from tidewire.jobs.model import BatchState, Operation
from tidewire.jobs.query import check_query, result_columns
from tidewire.records.query import QueryRunner, RowIds
from tidewire.soql.ast import And, Comparison, Condition, FieldPath, Operator, Query, StringLiteral
from tidewire.soql.bound import BoundQuery
from tidewire.soql.parser import parse_query
from tidewire.soql.render import render_query
from tidewire.storage.store import Reader, Transaction

MAX_CHUNKS = 10_000
_FIRST_ID = "0" * 12
_KEY = "Id"


class ChunkingRun:
    """One query batch to split. A single `step` does all of it."""

    def __init__(self, context: BatchContext, soql: str) -> None:
        self._context = context
        self._soql = soql

    async def step(self) -> bool:
        """Queue the ranges. Raises what binding the query raises, and JobInvalid."""
        context = self._context
        check_query(self._soql)
        query = parse_query(self._soql)
        if query.order_by or query.limit is not None or query.group_by is not None or query.is_count:
            raise JobInvalid(
                "PK chunking takes queries that have no clauses but WHERE", reason="FeatureNotEnabled"
            )
        now_ms = context.clock.now_ms()
        bound = await context.gate.bind(context.principal, self._soql, now_ms)
        result_columns(bound)
        parent = context.job.request.chunk_parent or bound.entity.name
        walked = await context.gate.bind(context.principal, f"SELECT Id FROM {parent} ORDER BY Id", now_ms)  # noqa: S608
        key = self._key(bound, walked)
        is_all = context.job.request.operation is Operation.QUERY_ALL

        def read(reader: Reader) -> RowIds:
            context.check_owner(reader)
            return QueryRunner(reader, is_all, now_ms).read_ids(walked)

        ids = await context.gate.records.read(read)
        ranges = [render_query(part) for part in self._iter_parts(query, key, walked.entity.key_prefix, ids)]
        await context.gate.records.write_plain(lambda tx: self._queue(tx, ranges))
        return True

    def _key(self, bound: BoundQuery, walked: BoundQuery) -> str:
        """Return the field that ranges apply to: the id, or for a share object its lookup to the shared record."""
        if walked.entity.name == bound.entity.name:
            return _KEY
        parent = walked.entity.name
        found = next((f.name for f in bound.entity.fields if parent in f.reference_to), None)
        if found is None or not bound.entity.name.endswith("Share"):
            raise JobInvalid(
                f"{bound.entity.name} is not a sharing object of {parent}", reason="InvalidBatch"
            )
        return found

    def _iter_parts(self, query: Query, key: str, prefix: str, ids: RowIds) -> Iterator[Query]:
        """Yield the query for each range. The last range is open-ended, so that it includes new records."""
        request = self._context.job.request
        start = try_normalise_id(request.chunk_start or prefix + _FIRST_ID)
        if start is None or not start.startswith(prefix):
            raise JobInvalid(
                f"startRow must be an id that begins with {prefix}: {request.chunk_start[:18]}",
                reason="InvalidBatch",
            )
        first = bisect_left(range(len(ids)), start, key=lambda place: ids.between(place, place + 1)[0])
        size = request.chunk_rows
        if (len(ids) - first) // size >= MAX_CHUNKS:
            raise JobInvalid(f"The query has more than {MAX_CHUNKS} chunks", reason="ExceededQuota")
        for place in range(first, max(len(ids), first + 1), size):
            begin = start if place == first else ids.between(place, place + 1)[0]
            conditions: list[Condition] = [_compare(key, Operator.GE, begin)]
            if place + size < len(ids):
                (end,) = ids.between(place + size, place + size + 1)
                conditions.append(_compare(key, Operator.LT, end))
            if query.where is not None:
                conditions.insert(0, query.where)
            yield replace(query, where=conditions[0] if len(conditions) == 1 else And(tuple(conditions)))

    def _queue(self, tx: Transaction, ranges: list[str]) -> None:
        context = self._context
        original = context.require(tx, BatchState.UNSPLIT)
        now_ms = context.clock.now_ms()
        for soql in ranges:
            text = soql.encode()
            batch = store.insert_batch(tx, context.job.job_id, BatchState.QUEUED, len(text), now_ms)
            store.append_part(tx, batch.batch_id, 0, text)
        store.set_batch_state(tx, original.batch_id, BatchState.NOT_PROCESSED, now_ms)


def _compare(key: str, operator: Operator, record_id: str) -> Comparison:
    return Comparison(FieldPath((key,)), operator, StringLiteral(record_id))
