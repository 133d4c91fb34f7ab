"""Which push topics a change concerns, without asking every topic.

Topics are kept by object and operation. One whose condition cannot hold unless a field has one of a few values,
begins with a text, or lies beyond a bound, is found by that field's value; what is left of its condition is
tried only then. Topics without such a condition are kept by which changed fields concern them, and so are those with
relative dates, whose values move with the days. So a change costs
what the topics cost that it could concern, however many others there are.
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
_MAX_MASKS = 64
_ANY_FIELD = 1  # the bit of a change that is more than new stamps; every watched field has one of the others
_EVERY_BIT = -1


class PushTopicIndex:
    """An org's push topics. Never changed, but for parts that are made when they are first asked for."""

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
        """The entities that some active topic is about."""
        return tuple(self._by_entity)

    def replaced(self, gone: frozenset[str], fresh: Iterable[PushTopic]) -> PushTopicIndex:
        """A new index without the topics whose record ids are in `gone`, and with the fresh ones."""
        added = list(fresh)
        index = PushTopicIndex([*(t for t in self.by_id.values() if t.record_id not in gone), *added])
        touched = {self.by_id[i].obj.name for i in gone if i in self.by_id} | {t.obj.name for t in added}
        index._made = {entity: made for entity, made in self._made.items() if entity not in touched}
        return index

    def concerned_by(
        self, change: Change, now_ms: int = 0, calendar: Calendar = UTC_CALENDAR
    ) -> list[PushTopic]:
        """The active topics that a change is to be told on, in a fixed order; relative dates count from `now_ms` in
        the org's calendar.
        """
        topics = self._by_entity.get(change.entity)
        if topics is None:
            return []
        made = self._made.get(change.entity)
        if made is None:
            made = self._made[change.entity] = _EntityTopics(topics)
        return made.concerned_by(change, now_ms, calendar)


class _Entry(NamedTuple):
    """A topic in a lookup. `mask` are the changes of fields that count; `test` is None if finding it is enough."""

    order: int
    mask: int
    test: Callable[[Row], bool] | None
    topic: PushTopic


class _Exact(NamedTuple):
    """The condition holds only for these values of the field, all of them as keys."""

    field: Field
    values: frozenset[Value]


class _Prefix(NamedTuple):
    """The condition holds only for keys that begin so."""

    field: Field
    text: str


class _Bound(NamedTuple):
    """The condition holds only on one side of a value."""

    field: Field
    operator: Operator
    value: Value


class _EntityTopics:
    """The topics on one object."""

    def __init__(self, topics: Sequence[PushTopic]) -> None:
        watched = sorted({name for topic in topics for name in topic.watched or ()})
        self._bits = {name: 2 << place for place, name in enumerate(watched)}
        self._crowds: Counter[tuple[str, Value]] = Counter()
        for topic in topics:
            for key in _exact_keys(conjuncts(topic.where)):
                self._crowds.update((key.field.name, value) for value in key.values)
        self._lookups = {kind: self._lookup(topics, kind) for kind in ChangeType}

    def _lookup(self, topics: Sequence[PushTopic], kind: ChangeType) -> _Lookup:
        lookup = _Lookup(self._crowds)
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
    """The topics on one object that are told of one operation."""

    def __init__(self, crowds: Counter[tuple[str, Value]]) -> None:
        self._crowds = crowds
        self._exact: dict[Field, dict[Value, list[_Entry]]] = {}
        self._prefixes: dict[Field, dict[int, dict[str, list[_Entry]]]] = {}
        self._bounds: dict[tuple[Field, Operator], list[tuple[Any, _Entry]]] = {}
        self._sorted: list[tuple[Field, Operator, list[Any], list[_Entry]]] = []
        self._others: list[_Entry] = []
        self._relative: list[_Entry] = []
        self._others_by_mask: dict[int, list[_Entry]] = {}

    def add(self, order: int, topic: PushTopic, mask: int) -> None:
        """Put a topic where its condition says. A topic that watches nothing hears of creates and deletes."""
        if topic.relative is not None:
            self._relative.append(_Entry(order, mask, None, topic))
            return
        keys, is_enough = _keys(topic.where, self._crowds)
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
        """Order the bounds, once all topics are in."""
        for (field, operator), pairs in self._bounds.items():
            pairs.sort(key=lambda pair: pair[0])
            self._sorted.append((field, operator, [v for v, _ in pairs], [e for _, e in pairs]))
        self._bounds.clear()

    def find(self, row: Row, mask: int, now_ms: int, calendar: Calendar) -> list[PushTopic]:
        """The topics that a record with these values, of which those in `mask` changed, concerns."""
        found: dict[int, PushTopic] = {}
        keys: dict[str, Any] = {}
        for field, buckets in self._exact.items():
            entries = buckets.get(_key_in(row, field, keys))
            if entries is not None:
                _try_all(entries, row, mask, found)
        for field, by_length in self._prefixes.items():
            key = _key_in(row, field, keys)
            if key is not None:
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
            is_due = entry.mask & mask or mask == _EVERY_BIT
            if is_due and relative is not None and relative.at(now_ms, calendar)(row):
                found[entry.order] = entry.topic
        return [found[order] for order in sorted(found)]

    def _others_of(self, mask: int) -> list[_Entry]:
        if mask == _EVERY_BIT:
            return self._others
        entries = self._others_by_mask.get(mask)
        if entries is None:
            if len(self._others_by_mask) >= _MAX_MASKS:
                self._others_by_mask.clear()
            entries = self._others_by_mask[mask] = [e for e in self._others if e.mask & mask]
        return entries


def _try_all(entries: Iterable[_Entry], row: Row, mask: int, found: dict[int, PushTopic]) -> None:
    found |= {
        order: topic
        for order, own_mask, test, topic in entries
        if (own_mask & mask or mask == _EVERY_BIT) and (test is None or test(row))
    }


def _beyond(operator: Operator, values: list[Any], key: Any) -> slice:
    """Which of the ascending bounds a key lies beyond."""
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
    """A record's value as conditions compare it; folded once, however many ask."""
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
    where: BoundCondition | None, crowds: Counter[tuple[str, Value]]
) -> tuple[tuple[_Exact | _Prefix | _Bound, ...], bool]:
    """What a record must have at least one of to meet the condition, and whether that is enough; none if any
    record may. Of several it is the one that the fewest topics share: `crowds` counts them by field and value.
    """
    if isinstance(where, BoundOr):
        return _alternatives(where), False
    parts = conjuncts(where)
    exact = _exact_keys(parts)
    if exact:
        rarest = min(exact, key=lambda key: sum(crowds[key.field.name, value] for value in key.values))
        return (rarest,), len(parts) == 1
    for part in parts:
        if isinstance(part, BoundOr) and (keys := _alternatives(part)):
            return keys, False
    prefixes = [prefix for part in parts if (prefix := _try_prefix(part)) is not None]
    if prefixes:
        return (max(prefixes, key=lambda prefix: len(prefix.text)),), False
    bound = next((found for part in parts if (found := _try_bound(part)) is not None), None)
    if bound is not None:
        return (bound,), len(parts) == 1
    return (), where is None


def _alternatives(where: BoundOr) -> tuple[_Exact, ...]:
    """A key for each of the alternatives; none unless all of them have one."""
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
    # Two buckets would not be worth having, and a checkbox may be stored as null.
    return not column.steps and not column.others and column.field.type is not FieldType.CHECKBOX
