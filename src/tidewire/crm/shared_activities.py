"""Shared Activities: an activity with several people, each in a relation record.

If an org has them enabled, every contact or lead of an activity, and the record it is about, has a
TaskRelation or an EventRelation with IsParent. WhoId is the first of the people; if it goes, the next takes
its place. Otherwise there are only WhoId and WhatId.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from tidewire.crm.activity_accounts import find_account, find_account_of
from tidewire.crm.activity_rows import Row, group_by, read_by
from tidewire.errors import DuplicateValue, FieldsInconsistent, NumberOutOfRange, ReferenceWrongType
from tidewire.events import Value
from tidewire.records.cascade import RowEdit
from tidewire.records.numbers import take_record_id
from tidewire.records.object_rules import NewRow
from tidewire.records.settings import read_settings
from tidewire.records.submitted import defaults
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.activities import PEOPLE
from tidewire.storage.store import Transaction

MAX_PEOPLE = 50
"""The maximum number of contacts of an activity; a lead excludes all others."""

RELATION_OF = {"Task": "TaskRelation", "Event": "EventRelation"}
LINK_OF = {"TaskRelation": "TaskId", "EventRelation": "EventId"}


@dataclass(slots=True)
class Relinked:
    """Changes of relations after new values of WhoId and WhatId; `values` by the activity's id."""

    values: dict[str, Row] = field(default_factory=dict)
    gone: list[RowEdit] = field(default_factory=list)
    edited: list[RowEdit] = field(default_factory=list)
    created: list[NewRow] = field(default_factory=list)


def is_shared(tx: Transaction) -> bool:
    """Return whether the org has Shared Activities enabled."""
    # Settings are never among the buffered inserts, which therefore need not be flushed first.
    return read_settings(tx.stored).shared_activities


def is_related(row: Mapping[str, Value]) -> bool:
    """Return whether an activity has a WhoId or WhatId."""
    return row.get("WhoId") is not None or row.get("WhatId") is not None


def count_first(row: Mapping[str, Value]) -> Row:
    """Return the counters of a new activity."""
    return {
        "WhoCount": int(row.get("WhoId") is not None),
        "WhatCount": int(row.get("WhatId") is not None),
    }


def relate(tx: Transaction, catalog: Catalog, obj: ObjectType, activities: Iterable[Row]) -> list[NewRow]:
    """Return the relations of new activities to the records in their WhoId and WhatId."""
    return [
        _relation(tx, catalog, obj, activity, str(activity[name]), is_what=name == "WhatId")
        for activity in activities
        for name in ("WhoId", "WhatId")
        if activity.get(name) is not None
    ]


def copy_people(
    tx: Transaction, catalog: Catalog, obj: ObjectType, source: Row, activities: list[Row]
) -> list[NewRow]:
    """Return the relations of new activities that copy those of `source`."""
    held = [r for r in _read_relations(tx, catalog, obj, [str(source["Id"])]) if is_parent(r)]
    ids = {str(r["RelationId"]): bool(r.get("IsWhat")) for r in held}
    ids |= {
        str(source[name]): name == "WhatId" for name in ("WhoId", "WhatId") if source.get(name) is not None
    }
    return [
        _relation(tx, catalog, obj, activity, relation_id, is_what=is_what)
        for activity in activities
        for relation_id, is_what in ids.items()
    ]


def is_parent(relation: Mapping[str, Value]) -> bool:
    """Return whether a relation is to a person or record of the activity, and not only an invitation."""
    return "TaskId" in relation or bool(relation.get("IsParent"))


def _peers(relations: Iterable[Row], *, is_what: bool) -> list[Row]:
    """Return the relations to the record that an activity is about, or those to its people."""
    return [row for row in relations if is_parent(row) and bool(row.get("IsWhat")) == is_what]


def relink(
    tx: Transaction, catalog: Catalog, obj: ObjectType, pairs: Collection[tuple[Row, Row]]
) -> Relinked:
    """Plan new values of WhoId and WhatId, for each activity before and after.

    A new person replaces the one in WhoId unless it is related already; if WhoId is set to null, the next
    person takes its place.
    """
    result = Relinked()
    relation = catalog.object(RELATION_OF[obj.name])
    pairs = [(b, a) for b, a in pairs if any(b.get(n) != a.get(n) for n in ("WhoId", "WhatId"))]
    held = _read_relations(tx, catalog, obj, [str(before["Id"]) for before, _ in pairs])
    by_activity = group_by(held, LINK_OF[relation.name])
    for before, after in pairs:
        own = by_activity[before["Id"]]
        values: Row = {}
        for name, count in (("WhoId", "WhoCount"), ("WhatId", "WhatCount")):
            is_what = name == "WhatId"
            peers = _peers(own, is_what=is_what)
            old, new = before.get(name), after.get(name)
            if old != new and new not in [row["RelationId"] for row in peers]:
                for row in [row for row in peers if row["RelationId"] == old]:
                    # The relation ends, but not the invitation of the same person.
                    if row.get("IsInvitee"):
                        result.edited.append(RowEdit(relation, row, {"IsParent": False}))
                    else:
                        result.gone.append(RowEdit(relation, row, {"IsDeleted": True}))
                    peers.remove(row)
                if new is not None:
                    _check_people(catalog, [*(str(row["RelationId"]) for row in peers), str(new)])
                    invited = [row for row in own if row["RelationId"] == new]
                    if invited:
                        result.edited.append(RowEdit(relation, invited[0], {"IsParent": True}))
                    else:
                        result.created.append(_relation(tx, catalog, obj, after, str(new), is_what=is_what))
                elif peers:
                    values[name] = peers[0]["RelationId"]
                values[count] = len(peers) + (new is not None)
            elif old != new:
                values[count] = len(peers)
        result.values[str(before["Id"])] = values
    return result


def plan_parent(
    tx: Transaction, catalog: Catalog, relation: ObjectType, row: Row, activities: list[Row]
) -> tuple[list[RowEdit], list[NewRow]]:
    """Plan a new relation to the first of these activities; the others are its occurrences.

    Completes `row`, the new relation. Raises FieldsInconsistent, NumberOutOfRange, DuplicateValue or
    ReferenceWrongType.
    """
    relation_id = str(row["RelationId"])
    is_what = _is_what(catalog, relation_id)
    row |= {"IsWhat": is_what, "AccountId": find_account_of(tx, catalog, relation_id)}
    obj = catalog.object("Task" if relation.name == "TaskRelation" else "Event")
    if obj.name == "Event":
        row["IsParent"] = True
        if not row.get("IsInvitee"):
            row["Status"] = None
    held = _read_relations(tx, catalog, obj, [str(activity["Id"]) for activity in activities])
    by_activity = group_by(held, LINK_OF[relation.name])
    edits: list[RowEdit] = []
    created: list[NewRow] = [(relation, row)]
    for activity in activities:
        own = by_activity[activity["Id"]]
        same = [r for r in own if r["RelationId"] == relation_id]
        if same and activity is activities[0]:
            raise duplicate_relation(same[0])
        peers = [str(r["RelationId"]) for r in _peers(own, is_what=is_what)]
        name, count = ("WhatId", "WhatCount") if is_what else ("WhoId", "WhoCount")
        first = activity.get(name)
        others = list(dict.fromkeys([*peers, *([str(first)] if first is not None else [])]))
        if activity is activities[0]:
            _check_room(catalog, others, relation_id, is_what=is_what)
        elif relation_id in others or (is_what and others):
            continue
        elif same:
            edits.append(RowEdit(relation, same[0], {"IsParent": True}))
        else:
            created.append(_relation(tx, catalog, obj, activity, relation_id, is_what=is_what))
        values: Row = {count: len({*others, relation_id})}
        if first is None:
            values[name] = relation_id
        values["AccountId"] = find_account(tx, catalog, activity | values)
        edits.append(RowEdit(obj, activity, values))
    return edits, created


def refresh(
    tx: Transaction,
    catalog: Catalog,
    obj: ObjectType,
    activity: Row,
    held: list[Row],
    lost: Collection[Value],
) -> Row:
    """Return the new values of an activity after its relations changed.

    `held` are its relations now, `lost` the records that it is no longer related to.
    """
    values: Row = {}
    for name, count in (("WhoId", "WhoCount"), ("WhatId", "WhatCount")):
        peers = [r["RelationId"] for r in _peers(held, is_what=name == "WhatId")]
        first = activity.get(name)
        if first is None or (first in lost and first not in peers):
            first = peers[0] if peers else None
        values[name] = first
        values[count] = len({*peers, first} - {None})
    if (values["WhoId"], values["WhatId"]) != (activity.get("WhoId"), activity.get("WhatId")):
        values["AccountId"] = find_account(tx, catalog, activity | values)
    return {name: value for name, value in values.items() if activity.get(name) != value}


def duplicate_relation(held: Mapping[str, Value]) -> DuplicateValue:
    """Return the error for a second relation between the same two records."""
    return DuplicateValue(
        f"duplicate value found: RelationId duplicates value on record with id: {str(held['Id'])[:15]}",
        fields=["RelationId"],
        record_id=held["Id"],
    )


def _read_relations(tx: Transaction, catalog: Catalog, obj: ObjectType, ids: list[str]) -> list[Row]:
    relation = catalog.object(RELATION_OF[obj.name])
    return read_by(tx, relation, LINK_OF[relation.name], ids)


def _relation(
    tx: Transaction, catalog: Catalog, obj: ObjectType, activity: Row, relation_id: str, *, is_what: bool
) -> NewRow:
    relation = catalog.object(RELATION_OF[obj.name])
    row = defaults(relation) | {
        "Id": take_record_id(tx, relation.key_prefix),
        LINK_OF[relation.name]: activity["Id"],
        "RelationId": relation_id,
        "IsWhat": is_what,
        "AccountId": find_account_of(tx, catalog, relation_id),
    }
    return relation, row | ({"IsParent": True, "Status": None} if obj.name == "Event" else {})


def _is_what(catalog: Catalog, relation_id: str) -> bool:
    related = catalog.try_object_of_id(relation_id)
    if related is None or related.name == "User":
        raise ReferenceWrongType("a user can only be invited", fields=["RelationId"])
    return related.name not in PEOPLE


def _check_room(catalog: Catalog, others: list[str], relation_id: str, *, is_what: bool) -> None:
    if is_what and others and others != [relation_id]:
        raise FieldsInconsistent("an activity is about one record only", fields=["RelationId"])
    if not is_what:
        _check_people(catalog, [*others, relation_id])


def _check_people(catalog: Catalog, people: list[str]) -> None:
    different = set(people)
    if len(different) > MAX_PEOPLE:
        raise NumberOutOfRange(f"an activity has more than {MAX_PEOPLE} contacts", fields=["RelationId"])
    lead = catalog.object("Lead").key_prefix
    if len(different) > 1 and any(person.startswith(lead) for person in different):
        raise FieldsInconsistent("an activity is with contacts or with one lead", fields=["RelationId"])
