"""Finds the push topics that a change matches without testing every topic.

Topics are grouped by object and operation. If a topic's condition needs a field to have one of a few values, to begin
with a text or to lie beyond a bound, the topic is found by that field's value, and only then is the rest of its
condition tested. Other topics, and those with relative dates, are filtered by the fields that changed. A change thus
costs as much as the topics that it could match, however many others there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tidewire.capture.event_bodies import AUDIT_STAMPS
from tidewire.capture.push_topics import PushTopic
from tidewire.events import Change, ChangeType, Value
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field
from tidewire.schema.text_keys import fold_key
from tidewire.soql.ast import Operator
from tidewire.soql.bound import BoundAnd, BoundCompare, BoundCondition, BoundIn, BoundLike, BoundOr, Column
from tidewire.soql.condition_binder import conjuncts
from tidewire.soql.dates import UTC_CALENDAR, Calendar

Row = Mapping[str, Value]
_ORDERINGS = frozenset({Operator.LT, Operator.LE, Operator.GT, Operator.GE})
_MAX_MASKS = 64  # sets of changed fields that are cached; an org's writers use few
# A set of changed fields is a bit mask. Bit 0 means that anything but audit stamps changed; each watched field has one
# of the higher bits. Creates, deletes and undeletes count as a change of every field.
_ANY_FIELD = 1
_EVERY_BIT = -1


class PushTopicIndex:
    """An org's push topics. Immutable, except that the lookup of an object is built on first use."""

    def __init__(self, topics: Iterable[PushTopic] = ()) -> None:
        self.by_name: dict[str, PushTopic] = {}
        self.by_id: dict[str, PushTopic] = {}
        self._by_entity: dict[str, list[PushTopic]] = {}
        self._made: dict[str, _EntityTopics] = {}
        for topic in topics:
            self.by_name[topic.name] = topic
            self.by_id[topic.record_id] = topic
            if topic.is_active:
                self._by_entity.setdefault(topic.obj.name, []).append(topic)

    @property
    def entities(self) -> tuple[str, ...]:
        """The objects of active topics."""
        return tuple(self._by_entity)

    def replaced(self, gone: frozenset[str], fresh: Iterable[PushTopic]) -> PushTopicIndex:
        """Return a new index without the topics whose record ids are in `gone`, and with the fresh ones."""
        added = list(fresh)
        index = PushTopicIndex([*(t for t in self.by_id.values() if t.record_id not in gone), *added])
        touched = {self.by_id[i].obj.name for i in gone if i in self.by_id} | {t.obj.name for t in added}
        # Lookups of other objects are still valid: building one takes milliseconds when an org has many topics.
        index._made = {entity: made for entity, made in self._made.items() if entity not in touched}
        return index

    def concerned_by(
        self, change: Change, now_ms: int = 0, calendar: Calendar = UTC_CALENDAR
    ) -> list[PushTopic]:
        """Return the active topics that a change matches, in a fixed order.

        Relative dates count from `now_ms` in the org's calendar.
        """
        topics = self._by_entity.get(change.entity)
        if topics is None:
            return []
        made = self._made.get(change.entity)
        if made is None:
            made = self._made[change.entity] = _EntityTopics(topics)
        return made.concerned_by(change, now_ms, calendar)


class _Entry(NamedTuple):
    """A topic in a lookup. `mask` is the set of fields it watches; `test` is None if being found is enough."""

    order: int
    mask: int
    test: Callable[[Row], bool] | None
    topic: PushTopic


class _Exact(NamedTuple):
    """A key: the condition can hold only for these folded values of the field."""

    field: Field
    values: frozenset[Value]


class _Prefix(NamedTuple):
    """A key: the condition can hold only for folded values with this prefix."""

    field: Field
    text: str


class _Bound(NamedTuple):
    """A key: the condition can hold only on one side of a value."""

    field: Field
    operator: Operator
    value: Value


class _EntityTopics:
    """The topics on one object, with a lookup per operation."""

    def __init__(self, topics: Sequence[PushTopic]) -> None:
        watched = sorted({name for topic in topics for name in topic.watched or ()})
        self._bits = {name: 2 << place for place, name in enumerate(watched)}
        # How many topics need a value: each topic is filed under its rarest one. Thousands of topics like
        # "Status = 'Open' AND Owner = X" must not all be found by every open record.
        self._topic_counts: Counter[tuple[str, Value]] = Counter()
        for topic in topics:
            for key in _exact_keys(conjuncts(topic.where)):
                self._topic_counts.update((key.field.name, value) for value in key.values)
        self._lookups = {kind: self._lookup(topics, kind) for kind in ChangeType}

    def _lookup(self, topics: Sequence[PushTopic], kind: ChangeType) -> _Lookup:
        lookup = _Lookup(self._topic_counts)
        for order, topic in enumerate(topics):
            if kind in topic.operations:
                lookup.add(order, topic, self._mask(topic))
        lookup.seal()
        return lookup

    def _mask(self, topic: PushTopic) -> int:
        if topic.watched is None:
            return _ANY_FIELD
        return sum(self._bits[name] for name in topic.watched)

    def concerned_by(self, change: Change, now_ms: int, calendar: Calendar) -> list[PushTopic]:
        # A deleted record is matched as it last was; no field "changed", so every watched field counts.
        row = change.before if change.type is ChangeType.DELETE else change.after
        if row is None:
            return []
        mask = _EVERY_BIT
        if change.type is ChangeType.UPDATE:
            mask = 0 if AUDIT_STAMPS.issuperset(change.changed) else _ANY_FIELD
            for name in change.changed:
                mask |= self._bits.get(name, 0)
        return self._lookups[change.type].find(row, mask, now_ms, calendar) if mask else []


class _Lookup:
    """The topics on one object and operation, each filed under keys taken from its condition."""

    def __init__(self, topic_counts: Counter[tuple[str, Value]]) -> None:
        self._topic_counts = topic_counts
        self._exact: dict[Field, dict[Value, list[_Entry]]] = {}
        self._prefixes: dict[Field, dict[int, dict[str, list[_Entry]]]] = {}
        self._bounds: dict[tuple[Field, Operator], list[tuple[Any, _Entry]]] = {}
        self._sorted: list[tuple[Field, Operator, list[Any], list[_Entry]]] = []
        self._others: list[_Entry] = []
        self._relative: list[_Entry] = []
        self._others_by_mask: dict[int, list[_Entry]] = {}

    def add(self, order: int, topic: PushTopic, mask: int) -> None:
        """File a topic under its keys. A topic that watches no field matches creates and deletes only."""
        if topic.relative is not None:
            # Its bounds move with the days, so it has no fixed keys.
            self._relative.append(_Entry(order, mask, None, topic))
            return
        keys, is_enough = _keys(topic.where, self._topic_counts)
        entry = _Entry(order, mask, None if is_enough else topic.matches, topic)
        if not keys:
            self._others.append(entry)
        for key in keys:
            match key:
                case _Exact(field, values):
                    buckets = self._exact.setdefault(field, {})
                    for value in values:
                        buckets.setdefault(value, []).append(entry)
                case _Prefix(field, text):
                    by_length = self._prefixes.setdefault(field, {}).setdefault(len(text), {})
                    by_length.setdefault(text, []).append(entry)
                case _Bound(field, operator, value):
                    self._bounds.setdefault((field, operator), []).append((value, entry))

    def seal(self) -> None:
        """Sort the bounds once all topics are added, for binary search."""
        for (field, operator), pairs in self._bounds.items():
            pairs.sort(key=lambda pair: pair[0])
            self._sorted.append((field, operator, [v for v, _ in pairs], [e for _, e in pairs]))
        self._bounds.clear()

    def find(self, row: Row, mask: int, now_ms: int, calendar: Calendar) -> list[PushTopic]:
        """Return the topics that match a record with these values, of which the fields in `mask` changed."""
        # By order of creation: a topic with several keys (an OR) may be found more than once.
        found: dict[int, PushTopic] = {}
        keys: dict[str, Any] = {}
        for field, buckets in self._exact.items():
            entries = buckets.get(_key_in(row, field, keys))
            if entries is not None:
                _try_all(entries, row, mask, found)
        for field, by_length in self._prefixes.items():
            key = _key_in(row, field, keys)
            if key is not None:
                # One dict lookup per distinct length of prefix; real topics have few.
                for length, texts in by_length.items():
                    entries = texts.get(key[:length])
                    if entries is not None:
                        _try_all(entries, row, mask, found)
        for field, operator, values, entries in self._sorted:
            key = _key_in(row, field, keys)
            if key is not None:
                _try_all(entries[_beyond(operator, values, key)], row, mask, found)
        if self._others:
            _try_all(self._others_of(mask), row, mask, found)
        for entry in self._relative:
            relative = entry.topic.relative
            # The mask before the condition, which may have to be compiled for a new day.
            is_due = entry.mask & mask or mask == _EVERY_BIT
            if is_due and relative is not None and relative.at(now_ms, calendar)(row):
                found[entry.order] = entry.topic
        return [found[order] for order in sorted(found)]

    def _others_of(self, mask: int) -> list[_Entry]:
        """Return the topics without keys that watch one of these fields."""
        if mask == _EVERY_BIT:
            return self._others
        entries = self._others_by_mask.get(mask)
        if entries is None:
            if len(self._others_by_mask) >= _MAX_MASKS:
                self._others_by_mask.clear()
            entries = self._others_by_mask[mask] = [e for e in self._others if e.mask & mask]
        return entries


def _try_all(entries: Iterable[_Entry], row: Row, mask: int, found: dict[int, PushTopic]) -> None:
    """Add the topics among these that match. One comprehension: this loop is most of the cost of matching."""
    found |= {
        order: topic
        for order, own_mask, test, topic in entries
        if (own_mask & mask or mask == _EVERY_BIT) and (test is None or test(row))
    }


def _beyond(operator: Operator, values: list[Any], key: Any) -> slice:
    """Return which of the ascending bounds a key lies beyond."""
    match operator:
        case Operator.GT:
            return slice(0, bisect_left(values, key))
        case Operator.GE:
            return slice(0, bisect_right(values, key))
        case Operator.LT:
            return slice(bisect_right(values, key), None)
        case _:
            return slice(bisect_left(values, key), None)


def _key_in(row: Row, field: Field, keys: dict[str, Any]) -> Any:
    """Return a record's value as conditions compare it. Folded once per record, whatever the number of topics."""
    name = field.name
    if name in keys:
        return keys[name]
    keys[name] = key = _key(field, row.get(name))
    return key


def _key(field: Field, value: Value) -> Value:
    if isinstance(value, str) and field.is_text:
        return fold_key(value, case_sensitive=field.case_sensitive)
    return value


def _keys(
    where: BoundCondition | None, topic_counts: Counter[tuple[str, Value]]
) -> tuple[tuple[_Exact | _Prefix | _Bound, ...], bool]:
    """Return keys of which a matching record has at least one, and whether having one is enough.

    Without keys any record may match. Of several possible keys the one that the fewest topics share is taken;
    `topic_counts` counts topics by field and value.
    """
    if isinstance(where, BoundOr):
        return _alternatives(where), False
    parts = conjuncts(where)
    exact = _exact_keys(parts)
    if exact:
        rarest = min(exact, key=lambda key: sum(topic_counts[key.field.name, value] for value in key.values))
        return (rarest,), len(parts) == 1
    for part in parts:
        if isinstance(part, BoundOr) and (keys := _alternatives(part)):
            return keys, False
    # The longest prefix excludes the most records; a bound usually excludes about half of them, so it comes last.
    prefixes = [prefix for part in parts if (prefix := _try_prefix(part)) is not None]
    if prefixes:
        return (max(prefixes, key=lambda prefix: len(prefix.text)),), False
    bound = next((found for part in parts if (found := _try_bound(part)) is not None), None)
    if bound is not None:
        return (bound,), len(parts) == 1
    return (), where is None


def _alternatives(where: BoundOr) -> tuple[_Exact, ...]:
    """Return a key for each alternative, or none unless all of them have one."""
    keys: list[_Exact] = []
    for item in where.items:
        parts = item.items if isinstance(item, BoundAnd) else (item,)
        key = next((key for part in parts if (key := _try_exact(part)) is not None), None)
        if key is None:
            return ()
        keys.append(key)
    return tuple(keys)


def _exact_keys(parts: Iterable[BoundCondition]) -> list[_Exact]:
    return [key for part in parts if (key := _try_exact(part)) is not None]


def _try_exact(part: BoundCondition) -> _Exact | None:
    match part:
        case BoundCompare(Column() as column, Operator.EQ, value) if _is_own(column):
            return _Exact(column.field, frozenset({_key(column.field, value)}))
        case BoundIn(Column() as column, values, has_null, False) if _is_own(column):
            keys = frozenset(_key(column.field, value) for value in values)
            return _Exact(column.field, keys | {None} if has_null else keys)
        case _:
            return None


def _try_prefix(part: BoundCondition) -> _Prefix | None:
    match part:
        case BoundLike(column, (str() as text, *_)) if _is_own(column):
            return _Prefix(column.field, text)
        case _:
            return None


def _try_bound(part: BoundCondition) -> _Bound | None:
    match part:
        case BoundCompare(Column() as column, operator, value) if operator in _ORDERINGS and _is_own(column):
            return _Bound(column.field, operator, _key(column.field, value))
        case _:
            return None


def _is_own(column: Column) -> bool:
    # A checkbox would give two huge buckets, and may be stored as null. Fields of related records are not in the row.
    return not column.steps and not column.others and column.field.type is not FieldType.CHECKBOX
