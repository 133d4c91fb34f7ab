"""Push topic notifications of record changes.

A notification's payload is JSON: `{"type": ..., "createdDate": ..., "sobject": {...}}`, with every selected field in
the streaming protocol's form. For a deleted record `sobject` has only the id; `record` holds its last values, which
filters are tested against but nobody receives. Delivery adds the replay id, because the log assigns it later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import orjson

from tidewire.capture.push_topics import PushTopic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.events import Change, ChangeType, CommitContext, EventDraft, Family, Value
from tidewire.records.touched import changes_of
from tidewire.schema.values import render_compound, render_datetime, render_value
from tidewire.soql.dates import UTC_CALENDAR, Calendar

_EVENT_TYPES = {
    ChangeType.CREATE: "created",
    ChangeType.UPDATE: "updated",
    ChangeType.DELETE: "deleted",
    ChangeType.UNDELETE: "undeleted",
}


def iter_notifications(
    changes: Sequence[Change],
    context: CommitContext,
    index: PushTopicIndex,
    calendar: Calendar = UTC_CALENDAR,
) -> Iterator[EventDraft]:
    """Yield the notifications of one transaction, in order. The calendar is the org's."""
    for change in changes_of(changes, *index.entities):
        if change.suppress_notifications:
            continue
        topics = index.concerned_by(change, context.commit_ms, calendar)
        if not topics:
            continue
        rendered: dict[str, object] = {}
        for topic in topics:
            notification: dict[str, object] = {
                "type": _EVENT_TYPES[change.type],
                "createdDate": render_datetime(context.commit_ms, "Z"),
            }
            if change.type is ChangeType.DELETE or change.after is None:
                notification["sobject"] = {"Id": change.record_id}
                notification["record"] = _values(topic, change.before or {}, rendered)
            else:
                notification["sobject"] = _values(topic, change.after, rendered)
            payload = orjson.dumps(notification)
            yield EventDraft(topic.record_id, Family.PUSH_TOPIC, payload, context.commit_ms)


def _values(topic: PushTopic, row: Mapping[str, Value], rendered: dict[str, object]) -> dict[str, object]:
    """Return the values that a topic selects. `rendered` caches them over all topics of one change."""
    out: dict[str, object] = {}
    for column in topic.columns:
        name = column.name
        if name not in rendered:
            rendered[name] = (
                render_compound(topic.obj, column, row, "Z")
                if column.is_compound
                else render_value(column, row.get(name), "Z")
            )
        out[name] = rendered[name]
    return out
