"""The stage itself: from a transaction's changes to its events, inside the transaction.

Called by records' hook on the writer thread. Everything it decides with is a snapshot that only changes after
a commit; everything it computes
is done by the pure functions of this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from tidewire.capture.change_events import MAX_CHANGES, iter_change_events
from tidewire.capture.generic import CHANNEL_OBJECT, GenericChannels, check_channel_name
from tidewire.capture.notifications import iter_notifications
from tidewire.capture.push_topics import PushTopic, compile_push_topic, try_compile
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.capture.untracked_changes import group_untracked, untracked_changes_of
from tidewire.crm.org_calendar import ORGANIZATION, calendar_after, first_calendar
from tidewire.errors import LimitExceeded
from tidewire.eventlog.log import EventLog
from tidewire.events import Change, CommitContext, EventDraft, Value
from tidewire.records.conversion import ConversionNote
from tidewire.records.table import read_all_rows
from tidewire.records.touched import changes_of
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.soql.dates import UTC_CALENDAR
from tidewire.storage.store import Reader, Transaction

_DEFINING = ("Query", "ApiVersion", "NotifyForFields")


class CaptureStage:
    """One org's capture. `push_topics` and `calendar` are replaced, never changed.

    There may be at most `max_topics` active push topics and `max_channels` streaming channels; with
    `has_pilot_objects` push topics may watch those too.
    """

    def __init__(
        self,
        log: EventLog,
        types: Types,
        *,
        max_topics: int | None = None,
        max_channels: int | None = None,
        has_pilot_objects: bool = False,
    ) -> None:
        self._log = log
        self._types = types
        self._max_topics = max_topics
        self._max_channels = max_channels
        self._has_pilot_objects = has_pilot_objects
        self.push_topics = PushTopicIndex()
        self.channels = GenericChannels()
        self.calendar = UTC_CALENDAR
        self.max_changes = MAX_CHANGES  # of one transaction; what follows them is told by overflow events

    def load(self, reader: Reader) -> None:
        """Compile the push topics that the store holds."""
        catalog = self._types.catalog
        rows = read_all_rows(reader, catalog.object("PushTopic"))
        compiled = [self._try_compile(row, catalog) for row in rows if not row["IsDeleted"]]
        self.push_topics = PushTopicIndex([t for t in compiled if t is not None])
        self.channels.load(read_all_rows(reader, catalog.object(CHANNEL_OBJECT)))
        self.calendar = first_calendar(read_all_rows(reader, catalog.object(ORGANIZATION)))

    def check_push_topic(
        self, tx: Transaction, catalog: Catalog, row: Mapping[str, Value], before: Mapping[str, Value] | None
    ) -> None:
        """Raise what is wrong with a push topic before it is stored. A topic that is as it was, but for its name or
        for being active, is not judged again: its object may have changed since.
        """
        if before is None or any(row.get(name) != before.get(name) for name in _DEFINING):
            compile_push_topic(row, catalog, has_pilot_objects=self._has_pilot_objects)
        becomes_active = row.get("IsActive") and not (before or {}).get("IsActive")
        if self._max_topics is not None and becomes_active:
            rows = read_all_rows(tx, catalog.object("PushTopic"))
            if sum(bool(r["IsActive"]) and not r["IsDeleted"] for r in rows) >= self._max_topics:
                raise LimitExceeded(
                    f"The maximum number of active push topics, {self._max_topics}, has been reached",
                    limit=self._max_topics,
                )

    def check_channel(
        self, tx: Transaction, catalog: Catalog, row: Mapping[str, Value], before: Mapping[str, Value] | None
    ) -> None:
        """Raise what is wrong with a streaming channel before it is stored."""
        check_channel_name(str(row.get("Name")))
        if self._max_channels is None or before is not None:
            return
        obj = catalog.object(CHANNEL_OBJECT)
        living = f"{obj.by_name['isdeleted'].column} = 0"
        # Names come from the catalog only.
        ((count,),) = tx.execute(f"SELECT COUNT(*) FROM {obj.table} WHERE {living}")  # noqa: S608
        if count >= self._max_channels:
            raise LimitExceeded(
                f"The maximum number of streaming channels, {self._max_channels}, has been reached",
                limit=self._max_channels,
            )

    def on_changes(self, unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        """Append the events that these changes cause. A raise undoes the whole request."""
        topics = self._follow_push_topics(unit, changes)
        self._follow_channels(unit, changes)
        calendar = calendar_after(self.calendar, changes)
        if calendar is not self.calendar:
            unit.tx.after_commit(lambda: setattr(self, "calendar", calendar))
        schemas = self._types.schemas_of(unit.catalog)
        drafts: Iterator[EventDraft]
        if unit.database_key:
            untracked_changes = chain(unit.untracked_changes, group_untracked(changes, unit.database_key))
            drafts = iter_change_events((), context, unit.catalog, schemas, untracked_changes)
        else:
            drafts = iter_change_events(
                changes, context, unit.catalog, schemas, unit.untracked_changes, max_changes=self.max_changes
            )
        if context.has_notifications:
            drafts = chain(drafts, iter_notifications(changes, context, topics, calendar))
        self._log.append_paged(unit.tx, drafts, context.commit_ms)

    def on_conversion(self, unit: UnitOfWork, note: ConversionNote) -> None:
        """Note what subscribers learn of a converted field; it is told with the changes of the transaction."""
        unit.untracked_changes += untracked_changes_of(note, unit.tx, unit.catalog)

    def _follow_push_topics(self, unit: UnitOfWork, changes: Sequence[Change]) -> PushTopicIndex:
        """The push topics as these changes leave them, which the rest of the transaction is held against."""
        own = list(changes_of(changes, "PushTopic"))
        if not own:
            return self.push_topics
        fresh = [self._try_compile(c.after, unit.catalog) for c in own if c.after is not None]
        gone = frozenset(c.record_id for c in own)
        index = self.push_topics.replaced(gone, [topic for topic in fresh if topic is not None])
        unit.tx.after_commit(lambda: setattr(self, "push_topics", index))
        # Subscribers hold grants that name topics; a new query or a closed topic must reach them.
        unit.tx.progress.access_generation += 1
        return index

    def _follow_channels(self, unit: UnitOfWork, changes: Sequence[Change]) -> None:
        own = list(changes_of(changes, CHANNEL_OBJECT))
        if own:
            unit.tx.after_commit(lambda: self.channels.follow(own))
        if any(c.after is None for c in own):
            unit.tx.progress.access_generation += 1  # those who listen to a deleted channel hold grants on it

    def _try_compile(self, row: Mapping[str, Value], catalog: Catalog) -> PushTopic | None:
        return try_compile(row, catalog, has_pilot_objects=self._has_pilot_objects)
