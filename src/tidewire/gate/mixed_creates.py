"""Creates of records and platform events in one call.

Records are one transaction. Events that publish after the commit are part of it and vanish if it is rolled back;
events that publish immediately stay. Without any record, all-or-none does not apply: each event fails alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidewire.errors import PlatformError
from tidewire.gate.gate import Gate
from tidewire.gate.publishing import Published
from tidewire.gate.requests import Call, Write
from tidewire.gate.shared_transaction import run_in_transaction

Created = str | Published | PlatformError
"""The id of a record, a published event, or the error."""


async def create_mixed(
    gate: Gate, call: Call, writes: Sequence[Write], *, all_or_none: bool
) -> tuple[list[Created], bool]:
    """Run creates; returns the result of each in order, and whether the transaction was rolled back.

    After a rollback, successful results describe what would have been created.
    """
    is_event = [gate.catalog.try_any_event(write.entity) is not None for write in writes]
    if not any(is_event):
        done = await gate.write_together(call, writes, all_or_none=all_or_none)
        return list(done), all_or_none and any(isinstance(r, PlatformError) for r in done)
    if all(is_event):
        return [await _publish(gate, call, write) for write in writes], False
    records = [i for i, is_one in enumerate(is_event) if not is_one]

    async def create_all(inner: Gate) -> list[Created]:
        made = await inner.write_together(call, [writes[i] for i in records], all_or_none=all_or_none)
        results: dict[int, Created] = dict(zip(records, made, strict=True))
        for i, write in enumerate(writes):
            if is_event[i]:
                results[i] = await _publish(inner, call, write)
        return [results[i] for i in range(len(writes))]

    def is_kept(results: list[Created]) -> bool:
        return not (all_or_none and any(isinstance(r, PlatformError) for r in results))

    results = await run_in_transaction(gate, call, create_all, is_kept)
    return results, not is_kept(results)


async def _publish(gate: Gate, call: Call, write: Write) -> Created:
    try:
        return await gate.publisher.publish(call, write.entity, write.values or {})
    except PlatformError as error:
        return error
