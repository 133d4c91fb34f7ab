"""The stage itself: from a transaction's changes to its events, inside the transaction.

Called by records' hook on the writer thread. Everything it decides with is a snapshot that only changes after
a commit; everything it computes
is done by the pure functions of this package.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidewire.capture.change_events import change_events
from tidewire.capture.push_topics import PushTopicIndex, compile_push_topic, notifications, try_compile
from tidewire.eventlog.log import EventLog
from tidewire.events import Change, CommitContext
from tidewire.records.table import read_all_rows
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.storage.store import Reader


class CaptureStage:
    """One org's capture. `push_topics` is replaced, never changed."""

    def __init__(self, log: EventLog, types: Types) -> None:
        self._log = log
        self._types = types
        self.push_topics = PushTopicIndex()

    def load(self, reader: Reader) -> None:
        """Compile the push topics that the store holds."""
        catalog = self._types.catalog
        rows = read_all_rows(reader, catalog.object("PushTopic"))
        compiled = [try_compile(row, catalog) for row in rows if not row["IsDeleted"]]
        self.push_topics = PushTopicIndex([t for t in compiled if t is not None])

    def on_changes(self, unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        """Append the events that these changes cause. A raise undoes the whole request."""
        self._follow_push_topics(unit, changes)
        schemas = self._types.schemas_of(unit.catalog)
        drafts = change_events(changes, context, unit.catalog, schemas)
        if context.has_notifications:
            drafts += notifications(changes, context, self.push_topics)
        if drafts:
            self._log.append(unit.tx, drafts, context.commit_ms)

    def _follow_push_topics(self, unit: UnitOfWork, changes: Sequence[Change]) -> None:
        own = [c for c in changes if c.entity == "PushTopic"]
        if not own:
            return
        fresh = [compile_push_topic(c.after, unit.catalog) for c in own if c.after is not None]
        gone = frozenset(c.record_id for c in own)
        index = self.push_topics.replaced(gone, fresh)
        unit.tx.after_commit(lambda: setattr(self, "push_topics", index))
        # Subscribers hold grants that name topics; a new query or a closed topic must reach them.
        unit.tx.progress.access_generation += 1
