"""The index of push topics finds what asking every topic would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewire.capture.event_bodies import AUDIT_STAMPS
from tidewire.capture.push_topics import PushTopic, compile_push_topic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.events import Change, ChangeType, Value
from tidewire.ids import make_id
from tidewire.schema.catalog import Catalog
from tidewire.schema.standard import STANDARD_OBJECTS

CATALOG = Catalog(1, STANDARD_OBJECTS)
FIELDS = [f.name for f in CATALOG.object("Account").stored_fields]
RECORD = make_id("001", 1)

TEXTS = st.sampled_from(["a", "A", "ab", "Abc", "b", "ß", "SS"])
NUMBERS = st.integers(0, 4)
CONDITIONS = st.one_of(
    st.builds(
        "{} {} '{}'".format,
        st.sampled_from(["Name", "Phone"]),
        st.sampled_from(["=", "!=", "<", ">="]),
        TEXTS,
    ),
    st.builds(
        "{} {} {}".format, st.just("AnnualRevenue"), st.sampled_from(["=", "<", "<=", ">", ">="]), NUMBERS
    ),
    st.builds("{} {} ('{}', '{}')".format, st.just("Name"), st.sampled_from(["IN", "NOT IN"]), TEXTS, TEXTS),
    st.builds("Phone LIKE '{}{}'".format, TEXTS, st.sampled_from(["%", "_", "", "%c"])),
    st.sampled_from(["Phone = null", "Phone != null", "IsDeleted = false", f"Id = '{RECORD}'"]),
)
WHERES = st.one_of(
    CONDITIONS,
    st.builds("{} AND {}".format, CONDITIONS, CONDITIONS),
    st.builds("{} OR {}".format, CONDITIONS, CONDITIONS),
    st.builds("{} AND ({} OR {})".format, CONDITIONS, CONDITIONS, CONDITIONS),
    st.builds("({} AND {}) OR {}".format, CONDITIONS, CONDITIONS, CONDITIONS),
)


@st.composite
def topics(draw: st.DrawFn) -> list[PushTopic]:
    out = []
    for number in range(draw(st.integers(0, 12))):
        where = draw(st.one_of(st.just(""), WHERES.map(" WHERE {}".format)))
        row: dict[str, Value] = {
            "Id": make_id("0IF", number + 1),
            "Name": f"T{number}",
            "Query": f"SELECT Id, {draw(st.sampled_from(['Name', 'Phone', 'Fax']))} FROM Account{where}",
            "ApiVersion": 50.0,
            "IsActive": draw(st.booleans()) or draw(st.booleans()),
            "NotifyForFields": draw(st.sampled_from(["All", "Referenced", "Select"])),
        }
        row |= {f"NotifyForOperation{kind.value.title()}": draw(st.booleans()) for kind in ChangeType}
        out.append(compile_push_topic(row, CATALOG))
    return out


@st.composite
def changes(draw: st.DrawFn) -> Change:
    def account() -> dict[str, Value]:
        return dict.fromkeys(FIELDS) | {
            "Id": RECORD,
            "IsDeleted": False,
            "Name": draw(TEXTS),
            "Phone": draw(st.one_of(st.none(), TEXTS)),
            "Fax": draw(st.one_of(st.none(), TEXTS)),
            "AnnualRevenue": draw(st.one_of(st.none(), NUMBERS.map(float))),
            "LastModifiedDate": draw(NUMBERS),
        }

    kind = draw(st.sampled_from(ChangeType))
    before, after = account(), account()
    changed = tuple(name for name in FIELDS if before[name] != after[name])
    return Change(
        "Account",
        RECORD,
        kind,
        None if kind is ChangeType.CREATE else before,
        None if kind is ChangeType.DELETE else after,
        changed if kind is ChangeType.UPDATE else (),
        1,
    )


def is_concerned(topic: PushTopic, change: Change) -> bool:
    """What the guide says of one topic, without any index."""
    if not topic.is_active or change.type not in topic.operations:
        return False
    if change.type is ChangeType.UPDATE:
        counted = frozenset(change.changed) - AUDIT_STAMPS if topic.watched is None else topic.watched
        if counted.isdisjoint(change.changed):
            return False
    row = change.before if change.type is ChangeType.DELETE else change.after
    return row is not None and topic.matches(row)


@given(topics(), st.lists(changes(), max_size=6))
def test_index_finds_the_same_topics_as_testing_each(known: list[PushTopic], seen: list[Change]) -> None:
    index = PushTopicIndex(known)
    for change in seen:
        expected = [topic.record_id for topic in known if is_concerned(topic, change)]
        assert [topic.record_id for topic in index.concerned_by(change)] == expected


@given(topics(), topics(), changes())
def test_replaced_topics_are_found_and_those_gone_are_not(
    known: list[PushTopic], fresh: list[PushTopic], change: Change
) -> None:
    index = PushTopicIndex(known)
    index.concerned_by(change)
    gone = frozenset(topic.record_id for topic in fresh)
    replaced = index.replaced(gone, fresh)
    left = [topic for topic in known if topic.record_id not in gone]
    expected = {topic.record_id for topic in [*left, *fresh] if is_concerned(topic, change)}
    assert {topic.record_id for topic in replaced.concerned_by(change)} == expected
    assert set(replaced.by_id) == {topic.record_id for topic in [*left, *fresh]}


def test_change_of_an_object_without_topics_concerns_none() -> None:
    change = Change("Contact", make_id("003", 1), ChangeType.CREATE, None, {"Id": "x"}, (), 1)
    assert PushTopicIndex().concerned_by(change) == []
