"""What follows from a write to a task, an event or an invitation. Plans only: reading, checking, never writing.

A recurring event is a series, with GroupEventType 3, and one more event for each occurrence; recurring tasks and
classic recurring events name their series in RecurrenceActivityId. A change of the pattern, its start or its
zone deletes the occurrences and makes new ones; any other change reaches those still to come. An invitee is an
EventRelation; one who is a user also gets an event of their own, the child, that mirrors the one they are
invited to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidewire.errors import (
    DuplicateValue,
    FieldNotWriteable,
    NumberOutOfRange,
    ReferenceWrongType,
)
from tidewire.events import Value
from tidewire.records.bin import BinStep
from tidewire.records.cascade import DeletePlan, RowEdit, plan_delete
from tidewire.records.numbers import take_record_id
from tidewire.records.recurrence import PATTERN
from tidewire.records.series import (
    CLASSIC_FIELDS,
    EVENT_TIMES,
    SERIES,
    SERIES_PREFIX,
    Row,
    align_times,
    copy_values,
    expand_series,
)
from tidewire.records.table import read_rows
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.schema.values import DAY_MS
from tidewire.storage.store import Transaction

MAX_INVITATIONS = 20_000
"""How many invitations to single occurrences a series may have."""

_CHUNK = 500  # ids in one statement
_PATTERN_FIELDS = frozenset(
    {PATTERN, "Recurrence2PatternTimeZone", "Recurrence2PatternVersion", *CLASSIC_FIELDS}
)
_CRITICAL = frozenset({PATTERN, "Recurrence2PatternTimeZone", *CLASSIC_FIELDS, "IsAllDayEvent"})
_MIRRORED = frozenset(
    {"Subject", "Location", "Description", "WhoId", "WhatId", "IsAllDayEvent", *EVENT_TIMES, *_PATTERN_FIELDS}
)
"""What a child has from its event. The rest, such as reminders, is the invitee's own."""


@dataclass(frozen=True, slots=True)
class ActivityPlan:
    """What a write leads to, in the order in which it is carried out.

    `values` join those of the written record. `created` rows have their ids; a new record's plan has it among
    them, at its place. What is `gone` is kept in the recycle bin under `bin_root`.
    """

    values: Row = field(default_factory=dict)
    gone: tuple[RowEdit, ...] = ()
    cleared: tuple[RowEdit, ...] = ()
    edited: tuple[RowEdit, ...] = ()
    created: tuple[tuple[ObjectType, Row], ...] = ()
    bin_root: str = ""

    def steps(self) -> Iterator[BinStep]:
        """What is gone, as the recycle bin keeps it."""
        return DeletePlan(self.gone, self.cleared).steps()


def plan_create(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row) -> ActivityPlan | None:
    """What creating this record, checked and with its id, means; None if nothing but its row.

    Raises ValueMalformed, RequiredFieldMissing or NumberOutOfRange for a recurrence, DuplicateValue or
    ReferenceWrongType for an invitation.
    """
    if obj.name == "EventRelation":
        return _plan_invitation(tx, catalog, obj, row)
    if obj.name not in ("Event", "Task"):
        return None
    if obj.name == "Event":
        if row.get("IsRecurrence") and row.get("StartDateTime") is None:
            row["StartDateTime"] = row.get("RecurrenceStartDateTime")
        row |= align_times(row, [name for name in EVENT_TIMES if row.get(name) is not None])
        row["GroupEventType"] = "0"
    if not row.get("IsRecurrence") and row.get(PATTERN) is None:
        return ActivityPlan(created=((obj, row),))
    values, occurrences = expand_series(tx, obj, row)
    row |= values
    return ActivityPlan(created=((obj, row), *((obj, occurrence) for occurrence in occurrences)))


def plan_update(
    tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row, changed: Row, now_ms: int
) -> ActivityPlan | None:
    """What these new values of a living record mean; None if nothing more. Raises as `plan_create` does, and
    FieldNotWriteable for what an occurrence has from its series or a child from its event.
    """
    if obj.name == "EventRelation":
        has_answered = "Status" in changed and changed["Status"] not in (None, "New", "Uninvited")
        is_dated = not has_answered or "RespondedDate" in changed
        return None if is_dated else ActivityPlan({"RespondedDate": now_ms - now_ms % 1000})
    if obj.name not in ("Event", "Task") or not changed:
        return None
    _check_own(before, changed)
    values: Row = {}
    if obj.name == "Event":
        if before.get("IsRecurrence") and "RecurrenceStartDateTime" in changed:
            values["StartDateTime"] = changed.get("StartDateTime", changed["RecurrenceStartDateTime"])
        values |= align_times({**before, **changed, **values}, {*changed, *values})
    after = before | changed | values
    fresh = {name for name in after if after[name] != before.get(name)}
    was_series = before.get("GroupEventType") == SERIES or bool(before.get("IsRecurrence"))
    has_pattern = after.get(PATTERN) is not None and (was_series or PATTERN in fresh)
    is_series = has_pattern or bool(after.get("IsRecurrence"))
    critical = _CRITICAL | {"StartDateTime"} if has_pattern else _CRITICAL
    if (was_series or is_series) and fresh & critical:
        return _plan_anew(tx, catalog, obj, before, after, values, is_series=is_series)
    if is_series:
        edits = _future_edits(tx, obj, after, fresh, now_ms)
        return ActivityPlan(values, edited=tuple(edits))
    if _is_occurrence(before) and "isrecurrence2exception" in obj.by_name and before.get("IsRecurrence2"):
        values["IsRecurrence2Exception"] = True
    if obj.name == "Task":
        return None
    return ActivityPlan(values, edited=tuple(_child_edits(tx, obj, [after], fresh)))


def with_invitations(tx: Transaction, catalog: Catalog, plan: DeletePlan) -> DeletePlan:
    """A delete, with what goes along if it is an invitation: the invitee's child and, in a series, the
    invitations to its occurrences.
    """
    relation = plan.gone[0]
    if relation.obj.name != "EventRelation" or not relation.row.get("IsInvitee"):
        return plan
    event = catalog.object("Event")
    invitee = relation.row["RelationId"]
    events = read_rows(tx, event, "Id", [relation.row["EventId"]])
    events += [one for series in events if _is_series(series) for one in _occurrences(tx, event, series)]
    ids = [str(one["Id"]) for one in events]
    gone = {edit.record_id: edit for edit in plan.gone}
    for row in _read_by(tx, relation.obj, "EventId", ids):
        if row["RelationId"] == invitee:
            gone.setdefault(str(row["Id"]), RowEdit(relation.obj, row, {"IsDeleted": True}))
    cleared = list(plan.cleared)
    for child in _read_by(tx, event, "ParentEventId", ids):
        if child.get("IsChild") and child["OwnerId"] == invitee:
            below = plan_delete(tx, catalog, event, child)
            gone |= {edit.record_id: edit for edit in below.gone}
            cleared += below.cleared
    return DeletePlan(tuple(gone.values()), tuple(cleared))


def plan_regroup(tx: Transaction, catalog: Catalog, edits: Iterable[RowEdit]) -> tuple[RowEdit, ...]:
    """The events that became or ceased to be group events because these invitations went or came back."""
    relations = [edit for edit in edits if edit.obj.name == "EventRelation"]
    if not relations:
        return ()
    ids = list(dict.fromkeys(str(edit.row["EventId"]) for edit in relations))
    invited = {
        row["EventId"] for row in _read_by(tx, relations[0].obj, "EventId", ids) if row.get("IsInvitee")
    }
    event = catalog.object("Event")
    rows = _read_by(tx, event, "Id", ids)
    return tuple(_group_edits(event, rows, invited))


def _check_own(before: Row, changed: Mapping[str, Value]) -> None:
    refused: list[str] = []
    if before.get("IsChild"):
        refused = [name for name in changed if name in _MIRRORED or name == "OwnerId"]
    elif _is_occurrence(before):
        refused = [name for name in changed if name in _PATTERN_FIELDS]
    if refused:
        whose = "the event that they are invited to" if before.get("IsChild") else "the series"
        raise FieldNotWriteable(
            f"Unable to create/update fields: {', '.join(refused)}. They are those of {whose}.",
            fields=refused,
        )


def _is_series(row: Mapping[str, Value]) -> bool:
    return row.get("GroupEventType") == SERIES or bool(row.get("IsRecurrence"))


def _is_occurrence(row: Mapping[str, Value]) -> bool:
    series = row.get("ParentEventId") or row.get("RecurrenceActivityId")
    return not row.get("IsChild") and series is not None and series != row["Id"]


def _occurrences(tx: Transaction, obj: ObjectType, series: Row) -> list[Row]:
    link = "RecurrenceActivityId" if series.get("IsRecurrence") else "ParentEventId"
    found = read_rows(tx, obj, link, [series["Id"]])
    return [row for row in found if not row.get("IsChild") and row["Id"] != series["Id"]]


def _read_by(tx: Transaction, obj: ObjectType, name: str, ids: list[str]) -> list[Row]:
    chunks = (ids[at : at + _CHUNK] for at in range(0, len(ids), _CHUNK))
    return [row for chunk in chunks for row in read_rows(tx, obj, name, chunk)]


def _plan_anew(
    tx: Transaction,
    catalog: Catalog,
    obj: ObjectType,
    before: Row,
    after: Row,
    values: Row,
    *,
    is_series: bool,
) -> ActivityPlan:
    """The old occurrences go, and new ones come if the record is still a series."""
    values = values | {"RecurrenceActivityId": None}
    occurrences: list[Row] = []
    if obj.name == "Event":
        values |= {
            "GroupEventType": "1" if before.get("IsGroupEvent") else "0",
            "IsRecurrence2": False,
            "Recurrence2PatternStartDate": None,
            "ActivityRecurrence2Id": None,
        }
    if is_series:
        fresh, occurrences = expand_series(tx, obj, after | values)
        values |= fresh
    gone: dict[str, RowEdit] = {}
    cleared: dict[str, RowEdit] = {}
    for row in _occurrences(tx, obj, before) if _is_series(before) else ():
        plan = plan_delete(tx, catalog, obj, row)
        gone |= {edit.record_id: edit for edit in plan.gone}
        for edit in plan.cleared:
            cleared.setdefault(edit.record_id, edit).values.update(edit.values)
    created = [(obj, row) for row in occurrences]
    if obj.name == "Event":
        relation = catalog.object("EventRelation")
        invited = [row for row in read_rows(tx, relation, "EventId", [before["Id"]]) if row.get("IsInvitee")]
        _check_invitations(len(invited) * len(occurrences))
        for one in invited:
            for row in occurrences:
                created += _invitation(tx, catalog, one, row)
    return ActivityPlan(
        values,
        gone=tuple(gone.values()),
        cleared=tuple(edit for edit in cleared.values() if edit.record_id not in gone),
        created=tuple(created),
        # Not the id of a record: nobody can take this delete back as a whole.
        bin_root=str(before.get("ActivityRecurrence2Id") or take_record_id(tx, SERIES_PREFIX)),
    )


def _future_edits(
    tx: Transaction, obj: ObjectType, series: Row, fresh: Collection[str], now_ms: int
) -> Iterator[RowEdit]:
    """A series' new values in the occurrences still to come that follow it, and in their children."""
    names = [f.name for f in obj.stored_fields if f.name in fresh and not f.unique]
    values = {name: series[name] for name in names if name not in EVENT_TIMES and name not in _PATTERN_FIELDS}
    values.pop("ReminderDateTime", None)
    is_longer = "DurationInMinutes" in fresh
    first_ms = now_ms if obj.name == "Event" else now_ms - now_ms % DAY_MS
    coming: list[Row] = []
    for row in _occurrences(tx, obj, series):
        start = row.get("StartDateTime" if obj.name == "Event" else "ActivityDate")
        if not isinstance(start, int) or start < first_ms or row.get("IsRecurrence2Exception"):
            continue
        own = dict(values)
        if is_longer:
            duration: Row = {"DurationInMinutes": series["DurationInMinutes"]}
            own |= align_times(row | duration, duration.keys())
        if own:
            yield RowEdit(obj, row, own)
            coming.append(row | own)
    if obj.name == "Event":
        yield from _child_edits(tx, obj, coming, {*values, *(EVENT_TIMES if is_longer else ())})


def _child_edits(
    tx: Transaction, obj: ObjectType, events: list[Row], fresh: Collection[str]
) -> Iterator[RowEdit]:
    names = _MIRRORED & set(fresh)
    by_id = {str(event["Id"]): event for event in events if event.get("IsGroupEvent")}
    for child in _read_by(tx, obj, "ParentEventId", list(by_id)) if names else ():
        if child.get("IsChild"):
            event = by_id[str(child["ParentEventId"])]
            yield RowEdit(obj, child, {name: event[name] for name in names})


def _plan_invitation(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row) -> ActivityPlan | None:
    if row.get("IsParent") or row.get("IsWhat"):
        return None
    event = catalog.object("Event")
    (invited_to,) = read_rows(tx, event, "Id", [row["EventId"]])
    if invited_to.get("IsChild"):
        raise ReferenceWrongType("an invitee's own event has no invitees", fields=["EventId"])
    row["IsInvitee"] = True
    occurrences = _occurrences(tx, event, invited_to) if _is_series(invited_to) else []
    ids = [str(one["Id"]) for one in (invited_to, *occurrences)]
    relations = _read_by(tx, obj, "EventId", ids)
    _check_invitations(len(relations) + len(occurrences))
    taken = {held["EventId"]: held for held in relations if held["RelationId"] == row["RelationId"]}
    if (held := taken.get(invited_to["Id"])) is not None:
        raise DuplicateValue(
            f"duplicate value found: RelationId duplicates value on record with id: {str(held['Id'])[:15]}",
            fields=["RelationId"],
            record_id=held["Id"],
        )
    created: list[tuple[ObjectType, Row]] = []
    if not _is_series(invited_to):
        created += _child(tx, catalog, row, invited_to)
    created.append((obj, row))
    for one in occurrences:
        if one["Id"] not in taken:
            created += _invitation(tx, catalog, row, one)
    edits = _group_edits(event, [invited_to, *occurrences], ids)
    return ActivityPlan(edited=tuple(edits), created=tuple(created))


def _invitation(tx: Transaction, catalog: Catalog, relation: Row, event: Row) -> list[tuple[ObjectType, Row]]:
    """The child and the relation that invite to an occurrence whom `relation` invites to its series."""
    obj = catalog.object("EventRelation")
    row = copy_values(obj, relation) | {"Id": take_record_id(tx, obj.key_prefix), "EventId": event["Id"]}
    return [*_child(tx, catalog, relation, event), (obj, row)]


def _child(tx: Transaction, catalog: Catalog, relation: Row, event: Row) -> list[tuple[ObjectType, Row]]:
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


def _group_edits(obj: ObjectType, events: Iterable[Row], invited: Collection[Value]) -> Iterator[RowEdit]:
    for row in events:
        is_group = row["Id"] in invited
        if bool(row.get("IsGroupEvent")) != is_group:
            kind: Row = {} if row.get("GroupEventType") == SERIES else {"GroupEventType": str(int(is_group))}
            yield RowEdit(obj, row, {"IsGroupEvent": is_group, **kind})


def _check_invitations(count: int) -> None:
    if count > MAX_INVITATIONS:
        raise NumberOutOfRange(
            f"the series has more than {MAX_INVITATIONS} invitations to its occurrences", fields=[PATTERN]
        )
