"""Invitees of events: their invitations, their own copies of the event, and their answers.

An invitation is an EventRelation with IsInvitee. An invited user also gets an event of their own, the invitee
copy, that mirrors the original; contacts, leads and resources do not. An invitation to a series is one to
each of its occurrences. An uninvited user keeps the invitation, as a record of it, and loses the copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tidewire.crm.activity_rows import (
    SERIES,
    Row,
    copy_values,
    is_series,
    join_deletes,
    join_edits,
    read_by,
    read_occurrences,
    read_with_occurrences,
)
from tidewire.crm.event_times import EVENT_TIMES
from tidewire.crm.recurrence import PATTERN
from tidewire.crm.series import CLASSIC_FIELDS, SERIES_PREFIX
from tidewire.crm.shared_activities import duplicate_relation, is_shared, plan_parent, refresh
from tidewire.errors import (
    FieldNotWriteable,
    FieldsInconsistent,
    NumberOutOfRange,
    ObjectUnknown,
    ReferenceWrongType,
)
from tidewire.events import Value
from tidewire.records.cascade import DeletePlan, RowEdit, plan_delete
from tidewire.records.numbers import take_record_id
from tidewire.records.object_rules import NewRow, WritePlan
from tidewire.records.object_rules import Row as StoredRow
from tidewire.records.table import read_rows
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Transaction

MAX_INVITEES = 1000
MAX_SERIES_INVITEES = 100
"""The maximum number of invitees of an event, and of a series."""

MAX_INVITATIONS = 20_000
"""The maximum number of invitations to single occurrences of a series."""

PATTERN_FIELDS = frozenset(
    {PATTERN, "Recurrence2PatternTimeZone", "Recurrence2PatternVersion", *CLASSIC_FIELDS}
)
MIRRORED = frozenset(
    {
        "Subject",
        "Location",
        "Description",
        "WhoId",
        "WhatId",
        "AccountId",
        "WhoCount",
        "WhatCount",
        "IsAllDayEvent",
        *EVENT_TIMES,
        *PATTERN_FIELDS,
    }
)
"""The fields that an invitee copy takes from its event. Others, such as reminders, are the invitee's own."""


def plan_relation(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row) -> WritePlan:
    """Plan the create of a TaskRelation or EventRelation."""
    is_event = obj.name == "EventRelation"
    is_parent = not is_event or bool(row.get("IsParent") or row.get("IsWhat"))
    if is_parent and not is_shared(tx):
        if not is_event:
            raise ObjectUnknown(f"sObject type '{obj.name}' is not supported.", entity=obj.name)
        names = [name for name in ("IsParent", "IsWhat") if row.get(name)]
        raise FieldNotWriteable(
            f"Unable to create/update fields: {', '.join(names)}. Shared Activities are not enabled.",
            fields=names,
        )
    activity = catalog.object("Event" if is_event else "Task")
    (related_to,) = read_rows(tx, activity, "Id", [row["EventId" if is_event else "TaskId"]])
    if related_to.get("IsChild"):
        raise ReferenceWrongType("an invitee's own event has no invitees", fields=["EventId"])
    occurrences = read_occurrences(tx, activity, related_to)
    if not is_parent:
        return _plan_invitation(tx, catalog, obj, row, related_to, occurrences)
    edits, created = plan_parent(tx, catalog, obj, row, [related_to, *occurrences])
    if row.get("IsInvitee"):
        edits += group_edits(activity, [related_to], [related_to["Id"]])
    if is_event:
        joined = join_edits(edits)
        after = [{**edit.row, **edit.values} for edit in joined if edit.obj is activity]
        edits += copy_edits(tx, activity, after, MIRRORED & {n for e in edits for n in e.values})
    return WritePlan(cascaded=join_edits(edits), created=tuple(created))


def invite(tx: Transaction, catalog: Catalog, series: Row, occurrences: list[Row]) -> list[NewRow]:
    """Return invitations to new occurrences for everybody who is invited to the series."""
    relation = catalog.object("EventRelation")
    invited = [row for row in read_rows(tx, relation, "EventId", [series["Id"]]) if row.get("IsInvitee")]
    _check_invitations(len(invited) * len(occurrences))
    return [new for one in invited for row in occurrences for new in _invitation(tx, catalog, one, row)]


def plan_answer(
    tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row, changed: Row, now_ms: int
) -> WritePlan | None:
    """Plan the update of an EventRelation: an answer gets a date, and holds for the whole series."""
    if changed.keys() & {"IsInvitee", "IsParent", "IsWhat"}:
        return _plan_roles(tx, catalog, obj, before, changed)
    if "Status" not in changed:
        return None
    status = changed["Status"]
    has_answered = status not in (None, "New", "Uninvited")
    answered_ms = now_ms - now_ms % 1000 if has_answered else None
    values: Row = {"RespondedDate": changed.get("RespondedDate", answered_ms)}
    event = catalog.object("Event")
    events = read_with_occurrences(tx, event, before["EventId"])
    ids = [str(one["Id"]) for one in events]
    alike = [
        row
        for row in read_by(tx, obj, "EventId", ids)
        if row["RelationId"] == before["RelationId"]
        and row["Id"] != before["Id"]
        and row.get("Status") == before.get("Status")
    ]
    edited = tuple(RowEdit(obj, row, {"Status": status} | values) for row in alike)
    if "Uninvited" not in (status, before.get("Status")):
        return WritePlan(values, cascaded=edited)
    answered = {before["EventId"], *(row["EventId"] for row in alike)}
    concerned = [one for one in events if one["Id"] in answered]
    copies = _read_copies(tx, event, [str(one["Id"]) for one in concerned], before["RelationId"])
    if status == "Uninvited":
        gone, cleared = join_deletes(plan_delete(tx, catalog, event, copy) for copy in copies)
        root = take_record_id(tx, SERIES_PREFIX)
        return WritePlan(values, gone=gone, cleared=cleared, cascaded=edited, bin_root=root)
    have = {copy["ParentEventId"] for copy in copies}
    lack = [one for one in concerned if one["Id"] not in have and not is_series(one)]
    created = [new for one in lack for new in _invitee_copy(tx, catalog, before, one)]
    return WritePlan(values, cascaded=edited, created=tuple(created))


def check_task_relation(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: StoredRow, before: StoredRow | None
) -> None:
    """Reject an update that makes a person of a task its record, or the other way round."""
    if before is not None and before.get("IsWhat") != row.get("IsWhat"):
        raise FieldNotWriteable("Unable to create/update fields: IsWhat.", fields=["IsWhat"])


def with_relations(tx: Transaction, catalog: Catalog, plan: DeletePlan) -> DeletePlan:
    """Extend the delete of a relation by those to the occurrences of a series and by the invitee's copies."""
    root = plan.gone[0]
    link = "EventId" if root.obj.name == "EventRelation" else "TaskId"
    activity = catalog.object(link.removesuffix("Id"))
    ids = [str(one["Id"]) for one in read_with_occurrences(tx, activity, root.row[link])]
    deletes = [plan]
    for row in read_by(tx, root.obj, link, ids):
        is_alike = row.get("IsInvitee") == root.row.get("IsInvitee")
        if row["RelationId"] == root.row["RelationId"] and is_alike:
            deletes.append(DeletePlan((RowEdit(root.obj, row, {"IsDeleted": True}),)))
    if root.row.get("IsInvitee"):
        copies = _read_copies(tx, activity, ids, root.row["RelationId"])
        deletes += [plan_delete(tx, catalog, activity, copy) for copy in copies]
    return DeletePlan(*join_deletes(deletes))


def copy_edits(
    tx: Transaction, obj: ObjectType, events: list[Row], fresh: Collection[str]
) -> Iterator[RowEdit]:
    """Yield the edits that copy changed fields of these events to their invitee copies."""
    names = MIRRORED & set(fresh)
    by_id = {str(event["Id"]): event for event in events if event.get("IsGroupEvent")}
    for copy in read_by(tx, obj, "ParentEventId", list(by_id)) if names else ():
        if copy.get("IsChild"):
            event = by_id[str(copy["ParentEventId"])]
            values = {name: event.get(name) for name in names if copy.get(name) != event.get(name)}
            if values:
                yield RowEdit(obj, copy, values)


def group_edits(obj: ObjectType, events: Iterable[Row], invited: Collection[Value]) -> Iterator[RowEdit]:
    """Yield the edits of events that become or cease to be group events; those in `invited` have invitees."""
    for row in events:
        is_group = row["Id"] in invited
        if bool(row.get("IsGroupEvent")) != is_group:
            kind: Row = {} if row.get("GroupEventType") == SERIES else {"GroupEventType": str(int(is_group))}
            yield RowEdit(obj, row, {"IsGroupEvent": is_group, **kind})


def _plan_invitation(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, invited_to: Row, occurrences: list[Row]
) -> WritePlan:
    row["IsInvitee"] = True
    event = catalog.object("Event")
    ids = [str(one["Id"]) for one in (invited_to, *occurrences)]
    relations = read_by(tx, obj, "EventId", ids)
    invited = [held["EventId"] for held in relations if held.get("IsInvitee")]
    _check_invitations(len(invited) + len(occurrences))
    _check_invitees(invited.count(invited_to["Id"]), invited_to)
    taken = {held["EventId"]: held for held in relations if held["RelationId"] == row["RelationId"]}
    if (held := taken.get(invited_to["Id"])) is not None:
        raise duplicate_relation(held)
    created: list[NewRow] = []
    if not is_series(invited_to):
        created += _invitee_copy(tx, catalog, row, invited_to)
    created.append((obj, row))
    for one in occurrences:
        if one["Id"] not in taken:
            created += _invitation(tx, catalog, row, one)
    edits = group_edits(event, [invited_to, *occurrences], ids)
    return WritePlan(cascaded=tuple(edits), created=tuple(created))


def _plan_roles(tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row, changed: Row) -> WritePlan:
    """Plan that a person related to an event is now also invited to it, or the other way round."""
    after = before | changed
    if "IsWhat" in changed or ("IsParent" in changed and not is_shared(tx)):
        names = [name for name in ("IsWhat", "IsParent") if name in changed]
        raise FieldNotWriteable(f"Unable to create/update fields: {', '.join(names)}.", fields=names)
    is_user = str(before["RelationId"]).startswith(catalog.object("User").key_prefix)
    if not (after["IsInvitee"] or after["IsParent"]) or (is_user and after["IsParent"]):
        raise FieldsInconsistent(
            "a user is an invitee; anybody else is an invitee, related, or both", fields=["IsInvitee"]
        )
    event = catalog.object("Event")
    (related_to,) = read_rows(tx, event, "Id", [before["EventId"]])
    held = [r for r in read_rows(tx, obj, "EventId", [before["EventId"]]) if r["Id"] != before["Id"]]
    held.append(after)
    invited = [related_to["Id"]] if any(row.get("IsInvitee") for row in held) else []
    edits = list(group_edits(event, [related_to], invited))
    if is_shared(tx):
        lost = () if after["IsParent"] else (before["RelationId"],)
        edits.append(RowEdit(event, related_to, refresh(tx, catalog, event, related_to, held, lost)))
    return WritePlan(cascaded=join_edits(edit for edit in edits if edit.values))


def _invitation(tx: Transaction, catalog: Catalog, relation: Row, event: Row) -> list[NewRow]:
    """Return the invitee copy and the relation for an occurrence of the series of `relation`."""
    obj = catalog.object("EventRelation")
    row = copy_values(obj, relation) | {"Id": take_record_id(tx, obj.key_prefix), "EventId": event["Id"]}
    is_uninvited = relation.get("Status") == "Uninvited"
    return [*([] if is_uninvited else _invitee_copy(tx, catalog, relation, event)), (obj, row)]


def _invitee_copy(tx: Transaction, catalog: Catalog, relation: Row, event: Row) -> list[NewRow]:
    invitee = str(relation["RelationId"])
    if not invitee.startswith(catalog.object("User").key_prefix) or invitee == event.get("OwnerId"):
        return []
    obj = catalog.object("Event")
    own: Row = {
        "Id": take_record_id(tx, obj.key_prefix),
        "OwnerId": invitee,
        "ParentEventId": event["Id"],
        "IsChild": True,
        "IsGroupEvent": True,
        "GroupEventType": "1",
    }
    return [(obj, copy_values(obj, event) | own)]


def _read_copies(tx: Transaction, event: ObjectType, ids: list[str], invitee: Value) -> list[Row]:
    found = read_by(tx, event, "ParentEventId", ids)
    return [row for row in found if row.get("IsChild") and row["OwnerId"] == invitee]


def _check_invitations(count: int) -> None:
    if count > MAX_INVITATIONS:
        raise NumberOutOfRange(
            f"the series has more than {MAX_INVITATIONS} invitations to its occurrences", fields=[PATTERN]
        )


def _check_invitees(count: int, event: StoredRow) -> None:
    limit = MAX_SERIES_INVITEES if is_series(event) else MAX_INVITEES
    if count >= limit:
        raise NumberOutOfRange(f"the event has more than {limit} invitees", fields=["EventId"])
