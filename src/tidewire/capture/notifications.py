"""Notifications: what record changes make known on push topics.

A notification's payload is JSON: `{"type": ..., "createdDate": ..., "sobject": {...}}`, with the values of
every selected field as the streaming protocol spells them. The replay id is not in it, because the log gives
positions later; delivery adds it.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from tidewire.capture.push_topics import PushTopic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.events import Change, ChangeType, CommitContext, EventDraft, Family
from tidewire.schema.values import render_compound, render_datetime, render_value

_EVENT_TYPES = {
    ChangeType.CREATE: "created",
    ChangeType.UPDATE: "updated",
    ChangeType.DELETE: "deleted",
    ChangeType.UNDELETE: "undeleted",
}


def notifications(
    changes: Sequence[Change], context: CommitContext, index: PushTopicIndex
) -> list[EventDraft]:
    """What the changes of one transaction make known, in order."""
    drafts: list[EventDraft] = []
    for change in changes:
        if change.is_quiet:
            continue
        topics = index.concerned_by(change)
        if not topics:
            continue
        rendered: dict[str, object] = {}
        for topic in topics:
            payload = orjson.dumps(
                {
                    "type": _EVENT_TYPES[change.type],
                    "createdDate": render_datetime(context.commit_ms, "Z"),
                    "sobject": _sobject(topic, change, rendered),
                }
            )
            drafts.append(EventDraft(topic.record_id, Family.PUSH_TOPIC, payload, context.commit_ms))
    return drafts


def _sobject(topic: PushTopic, change: Change, rendered: dict[str, object]) -> dict[str, object]:
    """The values that a topic shows; `rendered` are those that another topic has shown of the same change."""
    row = change.after
    if change.type is ChangeType.DELETE or row is None:
        return {"Id": change.record_id}
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
