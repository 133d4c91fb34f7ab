"""Plans what follows from a write to a task, an event or one of their relations.

A recurring event is a series, with GroupEventType 3, and one more event for each occurrence; recurring tasks
and classic recurring events name their series in RecurrenceActivityId. A change of the pattern, its start or
its zone deletes the future occurrences and creates new ones; past ones stay as they are. Any other change is
copied to the future occurrences.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tidewire.crm.activity_accounts import find_account
from tidewire.crm.activity_rows import (
    Row,
    group_by,
    is_occurrence,
    is_series,
    join_deletes,
    join_edits,
    read_by,
    read_occurrences,
)
from tidewire.crm.event_times import EVENT_TIMES, align_times
from tidewire.crm.invitees import (
    MIRRORED,
    PATTERN_FIELDS,
    copy_edits,
    group_edits,
    invite,
)
from tidewire.crm.recurrence import PATTERN
from tidewire.crm.series import CLASSIC_FIELDS, SERIES_PREFIX, check_regeneration, expand_series, regenerate
from tidewire.crm.shared_activities import (
    LINK_OF,
    Relinked,
    copy_people,
    count_first,
    is_related,
    is_shared,
    refresh,
    relate,
    relink,
)
from tidewire.errors import FieldNotWriteable
from tidewire.events import Value
from tidewire.records.cascade import RowEdit, plan_delete
from tidewire.records.numbers import take_record_id
from tidewire.records.object_rules import NewRow, WritePlan
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.schema.values import DAY_MS
from tidewire.storage.store import Transaction

_CRITICAL = frozenset({PATTERN, "Recurrence2PatternTimeZone", *CLASSIC_FIELDS, "IsAllDayEvent"})
_TIMES = frozenset({*EVENT_TIMES, "IsAllDayEvent"})


def plan_create(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row) -> WritePlan:
    """Plan the create of a task or event whose checked row has its id.

    Raises ValueMalformed, RequiredFieldMissing, FieldsInconsistent or NumberOutOfRange for a time or a
    recurrence.
    """
    if obj.name == "Event":
        if row.get("IsRecurrence") and row.get("StartDateTime") is None:
            row["StartDateTime"] = row.get("RecurrenceStartDateTime")
        row |= align_times(row, [name for name in EVENT_TIMES if row.get(name) is not None])
        row["GroupEventType"] = "0"
    else:
        check_regeneration(row)
    has_relations = is_related(row) and is_shared(tx)
    if is_related(row):
        row["AccountId"] = find_account(tx, catalog, row)
    if has_relations:
        row |= count_first(row)
    activities = [row]
    if row.get("IsRecurrence") or row.get(PATTERN) is not None:
        values, occurrences = expand_series(tx, obj, row)
        row |= values
        activities += occurrences
    created: list[NewRow] = [(obj, activity) for activity in activities]
    if has_relations:
        created += relate(tx, catalog, obj, activities)
    return WritePlan(created=tuple(created))


def plan_update(
    tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row, changed: Row, now_ms: int
) -> WritePlan | None:
    """Plan the update of a task or event; None if nothing changes.

    Raises as `plan_create` does, and FieldNotWriteable for fields that an occurrence has from its series or
    an invitee copy from its event.
    """
    if not changed:
        return None
    _check_own(before, changed)
    values: Row = {}
    if obj.name == "Event":
        if before.get("IsRecurrence") and "RecurrenceStartDateTime" in changed:
            values["StartDateTime"] = changed.get("StartDateTime", changed["RecurrenceStartDateTime"])
        if _TIMES & {*changed, *values}:
            values |= align_times({**before, **changed, **values}, {*changed, *values})
    else:
        check_regeneration(before | changed)
    relinked = Relinked()
    if changed.keys() & {"WhoId", "WhatId"}:
        if is_shared(tx):
            relinked = relink(tx, catalog, obj, [(before, before | changed)])
            values |= relinked.values.get(str(before["Id"]), {})
        values["AccountId"] = find_account(tx, catalog, before | changed | values)
    after = before | changed | values
    plan = _plan_series(tx, catalog, obj, before, after, values, relinked, now_ms)
    if plan is None:
        plan = _plan_single(tx, catalog, obj, before, after, values, now_ms)
    return _with_relinked(tx, plan, relinked)


def plan_relations(tx: Transaction, catalog: Catalog, relations: Sequence[RowEdit]) -> tuple[RowEdit, ...]:
    """Plan the edits of activities after these relations of one object were deleted or undeleted.

    They concern group events, and activities whose first person or record was one of the relations.
    """
    return join_edits(_iter_related_edits(tx, catalog, relations))


def _iter_related_edits(tx: Transaction, catalog: Catalog, relations: Sequence[RowEdit]) -> Iterator[RowEdit]:
    obj = relations[0].obj
    link = LINK_OF[obj.name]
    activity = catalog.object(link.removesuffix("Id"))
    ids = list(dict.fromkeys(str(edit.row[link]) for edit in relations))
    held = read_by(tx, obj, link, ids)
    rows = read_by(tx, activity, "Id", ids)
    if activity.name == "Event":
        yield from group_edits(activity, rows, {row[link] for row in held if row.get("IsInvitee")})
    if is_shared(tx):
        after: list[Row] = []
        now, touched = group_by(held, link), group_by([dict(edit.row) for edit in relations], link)
        for row in rows:
            lost = {relation["RelationId"] for relation in touched[row["Id"]]}
            values = refresh(tx, catalog, activity, row, now[row["Id"]], lost)
            if values:
                after.append(row | values)
                yield RowEdit(activity, row, values)
        if activity.name == "Event":
            yield from copy_edits(tx, activity, after, MIRRORED)


def _check_own(before: Row, changed: Mapping[str, Value]) -> None:
    refused: list[str] = []
    if before.get("IsChild"):
        refused = [name for name in changed if name in MIRRORED or name == "OwnerId"]
    elif is_occurrence(before):
        refused = [name for name in changed if name in PATTERN_FIELDS]
    if refused:
        whose = "the event that they are invited to" if before.get("IsChild") else "the series"
        raise FieldNotWriteable(
            f"Unable to create/update fields: {', '.join(refused)}. They are those of {whose}.",
            fields=refused,
        )


def _plan_series(
    tx: Transaction,
    catalog: Catalog,
    obj: ObjectType,
    before: Row,
    after: Row,
    values: Row,
    relinked: Relinked,
    now_ms: int,
) -> WritePlan | None:
    """Plan the update of a series; None if the record neither is nor was one.

    Adds the relations of occurrences to `relinked`.
    """
    fresh = {name for name in after if after[name] != before.get(name)}
    has_pattern = after.get(PATTERN) is not None and (is_series(before) or PATTERN in fresh)
    is_still_series = has_pattern or bool(after.get("IsRecurrence"))
    critical = _CRITICAL | {"StartDateTime"} if has_pattern else _CRITICAL
    if (is_series(before) or is_still_series) and fresh & critical:
        return _plan_anew(tx, catalog, obj, before, after, values, now_ms, is_still_series=is_still_series)
    if not is_still_series:
        return None
    edits = join_edits(_future_edits(tx, obj, after, fresh, now_ms))
    if fresh & {"WhoId", "WhatId"} and is_shared(tx):
        of_occurrences = relink(
            tx,
            catalog,
            obj,
            [(dict(e.row), {**e.row, **e.values}) for e in edits if not e.row.get("IsChild")],
        )
        for edit in edits:
            edit.values.update(of_occurrences.values.get(edit.record_id, {}))
        relinked.gone += of_occurrences.gone
        relinked.edited += of_occurrences.edited
        relinked.created += of_occurrences.created
    return WritePlan(values, cascaded=edits)


def _plan_single(
    tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row, after: Row, values: Row, now_ms: int
) -> WritePlan:
    """Plan the update of an activity that is not a series."""
    if obj.name == "Event":
        if is_occurrence(before) and before.get("IsRecurrence2"):
            values["IsRecurrence2Exception"] = True
        fresh = {name for name in after if after[name] != before.get(name)}
        return WritePlan(values, cascaded=tuple(copy_edits(tx, obj, [after], fresh)))
    successor = regenerate(tx, obj, before, after, now_ms)
    if successor is None:
        return WritePlan(values)
    done, row = successor
    created: list[NewRow] = [(obj, row)]
    if is_related(row) and is_shared(tx):
        created += copy_people(tx, catalog, obj, after, [row])
    return WritePlan(values | done, created=tuple(created))


def _with_relinked(tx: Transaction, plan: WritePlan, relinked: Relinked) -> WritePlan:
    gone = tuple(edit for edit in relinked.gone if edit.record_id not in {e.record_id for e in plan.gone})
    return WritePlan(
        plan.values,
        gone=(*plan.gone, *gone),
        cleared=plan.cleared,
        cascaded=join_edits((*plan.cascaded, *relinked.edited)),
        created=(*plan.created, *relinked.created),
        # Not the id of a record: nobody can take back such a delete as a whole.
        bin_root=plan.bin_root or (take_record_id(tx, SERIES_PREFIX) if gone else ""),
    )


def _plan_anew(
    tx: Transaction,
    catalog: Catalog,
    obj: ObjectType,
    before: Row,
    after: Row,
    values: Row,
    now_ms: int,
    *,
    is_still_series: bool,
) -> WritePlan:
    """Replace the future occurrences, by none if the record is no longer a series.

    Past ones stay: past events, which with a pattern are marked as no longer following it, and closed tasks.
    """
    values = values | {"RecurrenceActivityId": None}
    is_event = obj.name == "Event"
    if is_event:
        values |= {
            "GroupEventType": "1" if before.get("IsGroupEvent") else "0",
            "IsRecurrence2": False,
            "Recurrence2PatternStartDate": None,
            "ActivityRecurrence2Id": None,
        }
    old = read_occurrences(tx, obj, before)
    over = [row for row in old if _is_over(obj, row, now_ms)]
    occurrences: list[Row] = []
    if is_still_series:
        taken = {row.get("StartDateTime" if is_event else "ActivityDate") for row in over}
        fresh, occurrences = expand_series(
            tx, obj, after | values, after_ms=now_ms if is_event and over else None, taken=taken
        )
        values |= fresh
    coming = [row for row in old if not _is_over(obj, row, now_ms)]
    gone, cleared = join_deletes(plan_delete(tx, catalog, obj, row) for row in coming)
    created: list[NewRow] = [(obj, row) for row in occurrences]
    if is_related(after) and is_shared(tx):
        created += copy_people(tx, catalog, obj, after, occurrences)
    if is_event:
        created += invite(tx, catalog, before, occurrences)
    historical = [row for row in over if row.get("IsRecurrence2") and not row.get("IsRecurrence2Exclusion")]
    return WritePlan(
        values,
        gone=gone,
        cleared=cleared,
        cascaded=tuple(RowEdit(obj, row, {"IsRecurrence2Exclusion": True}) for row in historical),
        created=tuple(created),
        bin_root=str(before.get("ActivityRecurrence2Id") or take_record_id(tx, SERIES_PREFIX)),
    )


def _is_over(obj: ObjectType, row: Mapping[str, Value], now_ms: int) -> bool:
    if obj.name == "Task":
        return bool(row.get("IsClosed"))
    start = row.get("StartDateTime")
    return isinstance(start, int) and start < now_ms


def _future_edits(
    tx: Transaction, obj: ObjectType, series: Row, fresh: Collection[str], now_ms: int
) -> Iterator[RowEdit]:
    """Yield the edits that copy new values of a series to its future occurrences and their invitee copies."""
    names = [f.name for f in obj.stored_fields if f.name in fresh and not f.unique]
    values = {name: series[name] for name in names if name not in EVENT_TIMES and name not in PATTERN_FIELDS}
    values.pop("ReminderDateTime", None)
    is_longer = "DurationInMinutes" in fresh
    first_ms = now_ms if obj.name == "Event" else now_ms - now_ms % DAY_MS
    coming: list[Row] = []
    for row in read_occurrences(tx, obj, series):
        start = row.get("StartDateTime" if obj.name == "Event" else "ActivityDate")
        is_past = not isinstance(start, int) or start < first_ms or _is_over(obj, row, now_ms)
        if is_past or row.get("IsRecurrence2Exception"):
            continue
        own = dict(values)
        if is_longer:
            duration: Row = {"DurationInMinutes": series["DurationInMinutes"]}
            own |= align_times(row | duration, duration.keys())
        if own:
            yield RowEdit(obj, row, own)
            coming.append(row | own)
    if obj.name == "Event":
        yield from copy_edits(tx, obj, coming, {*values, *(EVENT_TIMES if is_longer else ())})
