"""The capture stage: turns a transaction's changes into events inside the transaction.

Called on the writer thread by a hook of `records`. Its state is a snapshot that changes only after a commit; the pure
functions of this package compute everything.
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
    """One org's capture. `push_topics` and `calendar` are replaced as a whole, never modified.

    `max_topics` limits active push topics, `max_channels` streaming channels. `has_pilot_objects` lets push topics
    watch the pilot's objects.
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
        self.max_changes = MAX_CHANGES  # per transaction; later ones become overflow events

    def load(self, reader: Reader) -> None:
        """Load push topics, streaming channels and the org's calendar."""
        catalog = self._types.catalog
        rows = read_all_rows(reader, catalog.object("PushTopic"))
        compiled = [self._try_compile(row, catalog) for row in rows if not row["IsDeleted"]]
        self.push_topics = PushTopicIndex([t for t in compiled if t is not None])
        self.channels.load(read_all_rows(reader, catalog.object(CHANNEL_OBJECT)))
        self.calendar = first_calendar(read_all_rows(reader, catalog.object(ORGANIZATION)))

    def check_push_topic(
        self, tx: Transaction, catalog: Catalog, row: Mapping[str, Value], before: Mapping[str, Value] | None
    ) -> None:
        """Reject an invalid push topic before it is stored.

        Unless its definition changes, a topic is not compiled again: its object may have changed since.
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
        """Reject an invalid streaming channel before it is stored."""
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
        """Append the events of these changes. A raise rolls back the whole request."""
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
        """Add the untracked changes of a converted field to the transaction."""
        unit.untracked_changes += untracked_changes_of(note, unit.tx, unit.catalog)

    def _follow_push_topics(self, unit: UnitOfWork, changes: Sequence[Change]) -> PushTopicIndex:
        """Return the push topics as these changes leave them; the transaction is matched against those."""
        own = list(changes_of(changes, "PushTopic"))
        if not own:
            return self.push_topics
        fresh = [self._try_compile(c.after, unit.catalog) for c in own if c.after is not None]
        gone = frozenset(c.record_id for c in own)
        index = self.push_topics.replaced(gone, [topic for topic in fresh if topic is not None])
        unit.tx.after_commit(lambda: setattr(self, "push_topics", index))
        # Open grants name topics: they must be renewed after a new query or a deactivation.
        unit.tx.progress.access_generation += 1
        return index

    def _follow_channels(self, unit: UnitOfWork, changes: Sequence[Change]) -> None:
        own = list(changes_of(changes, CHANNEL_OBJECT))
        if own:
            unit.tx.after_commit(lambda: self.channels.follow(own))
        if any(c.after is None for c in own):
            unit.tx.progress.access_generation += 1  # open grants on a deleted channel must be renewed

    def _try_compile(self, row: Mapping[str, Value], catalog: Catalog) -> PushTopic | None:
        return try_compile(row, catalog, has_pilot_objects=self._has_pilot_objects)
