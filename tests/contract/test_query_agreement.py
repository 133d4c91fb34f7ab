"""One query, three engines, one answer: SQLite, PostgreSQL and the predicate over one record.

Every example defines an object of its own, writes records as a client would, to an org on either store, and asks
both the same generated queries. PostgreSQL sorts by the rules of English here, so leaning on the database's order of
text shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.orgs import TestOrg, open_org
from tests.postgres import PostgresServer
from tidewire.events import Value
from tidewire.gate.requests import Rows, Write
from tidewire.records.table import read_all_rows
from tidewire.soql import ast
from tidewire.soql.ast import Operator, SetOperator
from tidewire.soql.binder import bind_query
from tidewire.soql.compile_predicate import compile_predicate
from tidewire.soql.dates import DATE_FUNCTIONS
from tidewire.soql.parser import parse_query
from tidewire.soql.render import render_query

T = TypeVar("T")
Json = Any
QUERIES = 8
PROFILE = settings(
    deadline=None,
    # An example takes half a second, so looking for the smallest one that fails would outlast the run.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Letters that fold to each other, to several, or only after composition; signs that collations skip; wildcards;
# the edges of what UTF-8 encodes.
LETTERS = "aAbBzZßsS\u0130i\u0131IéÉe\u0301\u0323ÅA\u030a\u212b\ufb03株ñ-'\"_%\\; \t09\ud7ff\ue000\U0001f600\U0010ffff"
TEXTS = st.text(LETTERS, max_size=5) | st.sampled_from(
    ["", " ", "Straße", "STRASSE", "résumé", "re\u0301sume\u0301"]
)
WHOLES = ["0", "-0", "1", "-1", "7", "123456789", "999999999999", "-999999999999"]
NUMBERS = [
    *WHOLES,
    "0.1",
    "-0.1",
    "0.30000000000000004",
    "2.5",
    "-2.5",
    "0.005",
    "1.0000001",
    "9007199254.740993",
]
EXTREMES = [
    "999999999999999999",
    "-999999999999",
    "9" * 30,
    "-" + "9" * 30,
    "0.000001",
    "0." + "0" * 30 + "1",
]
DAYS = ["1700-01-01", "1899-12-31", "1969-12-31", "1970-01-01", "2000-02-29", "2023-11-14", "4000-12-31"]
MOMENTS = [
    "1700-01-01T00:00:00Z",
    "1969-12-31T23:59:59.999Z",
    "1970-01-01T00:00:00.000Z",
    "1970-01-01T01:00:00+01:00",
    "2000-02-29T23:59:59.001-08:00",
    "2023-11-14T22:13:20Z",
    "4000-12-31T23:59:59Z",
]
CHOICES = ["red", "Red", "green", "größe", "GRÖSSE", "re%", "r_d", "blue sky", "\U0001f600"]
RELATIVE = [
    ("TODAY", None),
    ("LAST_YEAR", None),
    ("THIS_WEEK", None),
    ("LAST_N_DAYS", 30),
    ("NEXT_N_MONTHS", 2**31 - 1),
]
PARTS = sorted(DATE_FUNCTIONS - {"DAY_ONLY", "HOUR_IN_DAY"})
ORDERINGS = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)
EQUALITIES = (Operator.EQ, Operator.NE)
NULL = ast.NullLiteral()

TYPES: dict[str, st.SearchStrategy[Json]] = {
    "Text": st.just({"type": "Text", "length": 40}),
    "Exact": st.just({"type": "Text", "length": 40, "case_sensitive": True}),
    "Number": st.integers(0, 6).map(lambda scale: {"type": "Number", "precision": 18, "scale": scale}),
    "Money": st.sampled_from([0, 2]).map(lambda scale: {"type": "Currency", "precision": 18, "scale": scale}),
    "Flag": st.just({"type": "Checkbox"}),
    "Day": st.just({"type": "Date"}),
    "Moment": st.just({"type": "DateTime"}),
    "Choice": st.permutations(CHOICES).map(lambda values: {"type": "Picklist", "values": values[:6]}),
    "Choices": st.permutations(CHOICES).map(
        lambda values: {"type": "MultiselectPicklist", "values": values[:6]}
    ),
}
SEVERAL_CHOICES = st.lists(st.sampled_from(CHOICES), min_size=1, max_size=3, unique=True).map(";".join)
VALUES: dict[str, st.SearchStrategy[Json]] = {
    "Text": TEXTS,
    "Exact": TEXTS,
    "Number": st.sampled_from(NUMBERS) | st.integers(-5, 5) | st.floats(-1e6, 1e6),
    "Money": st.sampled_from(NUMBERS) | st.floats(-10, 10),
    "Flag": st.booleans(),
    "Day": st.sampled_from(DAYS),
    "Moment": st.sampled_from(MOMENTS),
    "Choice": st.sampled_from(CHOICES) | st.just("not listed"),
    "Choices": SEVERAL_CHOICES,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A generated object: its fields are `<kind><number>__c`, and `Parent__c` leads to its own records."""

    fields: Mapping[str, Json]

    def kind(self, name: str) -> str:
        return "Text" if name == "Name" else name.removesuffix("__c").rstrip("0123456789")

    @property
    def names(self) -> list[str]:
        return ["Name", *self.fields]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    kinds = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=4, max_size=9))
    return Shape({f"{kind}{number}__c": draw(TYPES[kind]) for number, kind in enumerate(kinds)})


def extremes(spec: Json) -> list[str | None]:
    """The largest and smallest numbers that a field holds, nothing for other types."""
    if "precision" not in spec:
        return [None]
    largest = 10 ** (spec["precision"] - spec["scale"]) - 1
    return [str(largest), str(-largest), f"1e-{spec['scale']}"]


@st.composite
def records(draw: st.DrawFn, shape: Shape) -> dict[str, Json]:
    values = {
        name: draw(st.none() | VALUES[shape.kind(name)] | st.sampled_from(extremes(spec)))
        for name, spec in shape.fields.items()
    }
    return {"Name": draw(TEXTS), **values}


@st.composite
def string_literals(draw: st.DrawFn) -> ast.StringLiteral:
    value = draw(TEXTS)
    wildcards = [place for place, char in enumerate(value) if char in "%_"]
    escaped = draw(st.sets(st.sampled_from(wildcards))) if wildcards else set()
    return ast.StringLiteral(value, tuple(sorted(escaped)))


LITERALS: dict[str, st.SearchStrategy[ast.Literal]] = {
    "Text": string_literals(),
    "Exact": string_literals(),
    "Number": st.sampled_from([*NUMBERS, *EXTREMES]).map(ast.NumberLiteral),
    "Money": st.sampled_from([*NUMBERS, *EXTREMES]).map(ast.NumberLiteral)
    | st.sampled_from(["0", "1", "2.5"]).map(partial(ast.CurrencyLiteral, "USD")),
    "Day": st.sampled_from(DAYS).map(ast.DateLiteral),
    "Moment": st.sampled_from(MOMENTS).map(ast.DateTimeLiteral),
    "Choice": st.sampled_from([*CHOICES, "", "not listed"]).map(ast.StringLiteral),
    "Choices": SEVERAL_CHOICES.map(ast.StringLiteral),
}


@st.composite
def comparisons(
    draw: st.DrawFn, shape: Shape, ids: Sequence[str], path: tuple[str, ...] = ()
) -> ast.Condition:
    """A condition on one field, of the record itself or at the end of `path`."""
    name = draw(st.sampled_from([*shape.names, "Id", "Parent__c"]))
    kind, subject = shape.kind(name), ast.FieldPath((*path, name))
    if kind == "Flag":
        truth = draw(st.booleans().map(ast.BooleanLiteral) | st.just(NULL))
        return ast.Comparison(subject, draw(st.sampled_from(EQUALITIES)), truth)
    if kind in ("Day", "Moment") and draw(st.integers(0, 2)) == 0:
        if draw(st.booleans()):
            is_converted = kind == "Moment" and draw(st.booleans())
            moment = ast.FunctionCall("convertTimezone", (subject,)) if is_converted else subject
            call = ast.FunctionCall(draw(st.sampled_from(PARTS)), (moment,))
            number = draw(st.sampled_from(["1", "7", "12", "53", "366", "1700", "1969", "2000"]))
            return ast.Comparison(
                call, draw(st.sampled_from(ORDERINGS + EQUALITIES)), ast.NumberLiteral(number)
            )
        relative = ast.RelativeDate(*draw(st.sampled_from(RELATIVE)))
        return ast.Comparison(subject, draw(st.sampled_from(ORDERINGS + EQUALITIES)), relative)
    literals = LITERALS.get(kind, st.sampled_from([*ids, ids[0][:15]]).map(ast.StringLiteral))
    if draw(st.booleans()):
        words = (
            (SetOperator.INCLUDES, SetOperator.EXCLUDES)
            if kind == "Choices"
            else (SetOperator.IN, SetOperator.NOT_IN)
        )
        listed = literals if kind == "Choices" else literals | st.just(NULL)
        values = draw(st.lists(listed, min_size=1, max_size=3))
        return ast.Membership(subject, draw(st.sampled_from(words)), tuple(values))
    operators = list(EQUALITIES) if kind == "Choices" else [*EQUALITIES, *ORDERINGS]
    if kind in ("Text", "Exact", "Choice"):
        operators += [Operator.LIKE] * 3
    operator = draw(st.sampled_from(operators))
    if operator is Operator.LIKE:
        return ast.Comparison(subject, operator, draw(string_literals()))
    return ast.Comparison(
        subject, operator, draw(literals | st.just(NULL) if operator in EQUALITIES else literals)
    )


def trees(leaves: st.SearchStrategy[ast.Condition]) -> st.SearchStrategy[ast.Condition]:
    def combine(inner: st.SearchStrategy[ast.Condition]) -> st.SearchStrategy[ast.Condition]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(st.builds(ast.And, several), st.builds(ast.Or, several), st.builds(ast.Not, inner))

    return st.recursive(leaves, combine, max_leaves=6)


@st.composite
def queries(draw: st.DrawFn, shape: Shape, entity: str, where: ast.Condition) -> ast.Query:
    """The condition with an order, over the lookup too, a limit and an offset."""
    sortable = [name for name in [*shape.names, "Parent__c"] if shape.kind(name) != "Choices"]
    paths = st.sampled_from(sortable).map(lambda name: (name,)) | st.sampled_from(sortable).map(
        lambda name: ("Parent__r", name)
    )
    keys = draw(st.lists(paths, max_size=3, unique=True))
    order = tuple(ast.OrderItem(ast.FieldPath(key), draw(st.booleans()), draw(st.booleans())) for key in keys)
    selected = tuple(ast.FieldPath((name,)) for name in ["Id", "Parent__c", *shape.names])
    return ast.Query(
        selected,
        entity,
        where=where,
        order_by=order,
        limit=draw(st.none() | st.integers(0, 6)),
        offset=draw(st.none() | st.integers(0, 3)),
    )


class TwoOrgs:
    """The same org on both stores, on a loop of its own: a generated test is no coroutine."""

    def __init__(self, runner: asyncio.Runner, sqlite: TestOrg, postgres: TestOrg) -> None:
        self._runner = runner
        self._numbers = count(1)
        self.sqlite = sqlite
        self.postgres = postgres

    def run(self, work: Coroutine[None, None, T]) -> T:
        return self._runner.run(work)

    def define(self, shape: Shape) -> str:
        """A new object of this shape in both."""
        entity = f"Agreed{next(self._numbers)}__c"
        parent = {"type": "Lookup", "references": entity}
        document = {entity: {"name": {"type": "Text"}, "fields": {**shape.fields, "Parent__c": parent}}}
        for org in (self.sqlite, self.postgres):
            self.run(org.apply(objects=document))
        return entity

    def write(self, writes: Sequence[Write]) -> list[str]:
        """Writes that both must carry out alike."""
        by_store = [
            self.run(org.gate.write_together(org.call, writes, all_or_none=True))
            for org in (self.sqlite, self.postgres)
        ]
        assert by_store[0] == by_store[1]
        assert all(isinstance(result, str) for result in by_store[0]), by_store[0]
        return [str(result) for result in by_store[0]]

    def stored(self, entity: str) -> list[dict[str, Value]]:
        """Every living record, which both hold alike."""
        by_store = []
        for org in (self.sqlite, self.postgres):
            obj = org.gate.catalog.object(entity)
            by_store.append(self.run(org.core.records.read(partial(read_all_rows, obj=obj))))
        assert by_store[0] == by_store[1]
        return [row for row in by_store[0] if not row["IsDeleted"]]

    def ask(self, query: ast.Query) -> Rows:
        """The answer that both give."""
        text = render_query(query)
        found, other = (self.run(org.gate.query(org.admin, text)) for org in (self.sqlite, self.postgres))
        assert found.rows == other.rows, text
        assert found.count == other.count, text
        return found

    def fill(self, data: st.DataObject, shape: Shape, entity: str) -> list[str]:
        """Records with lookups among each other, some of them deleted again; returns the ids of all."""
        drawn = data.draw(st.lists(records(shape), min_size=2, max_size=10))
        # A name that is nothing but blanks would be none at all.
        drawn = [
            {**values, "Name": f"{values['Name']}{'.' if not values['Name'].strip() else ''}"}
            for values in drawn
        ]
        ids = self.write([Write(entity, None, values) for values in drawn])
        parents = data.draw(st.lists(st.none() | st.sampled_from(ids), min_size=len(ids), max_size=len(ids)))
        own = [
            Write(entity, i, {"Parent__c": p})
            for i, p in zip(ids, parents, strict=True)
            if p not in (None, i)
        ]
        deleted = data.draw(st.sets(st.sampled_from(ids), max_size=2))
        self.write([*own, *(Write(entity, record_id, None) for record_id in sorted(deleted))])
        return ids


@pytest.fixture(scope="module")
def orgs(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[TwoOrgs]:
    """One org on each store."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        opened = [
            runner.run(stack.enter_async_context(open_org(tmp_path_factory.mktemp("org"), store=store)))
            for store in ("sqlite", postgres.make_url())
        ]
        for org in opened:
            # A zone with summer time and half an hour, so that days and hours are its own.
            zone = {"TimeZoneSidKey": "America/St_Johns"}
            runner.run(org.gate.update(org.call, "User", org.admin.user_id, zone))
        yield TwoOrgs(runner, *opened)
        runner.run(stack.aclose())


def ids_of(rows: Rows) -> list[str]:
    return [str(row["Id"]) for row in rows.rows]


def check_paging(orgs: TwoOrgs, query: ast.Query) -> list[str]:
    """The ids of the whole answer, of which limit and offset give a part and COUNT the number."""
    whole = ids_of(orgs.ask(replace(query, limit=None, offset=None)))
    first = query.offset or 0
    end = None if query.limit is None else first + query.limit
    assert ids_of(orgs.ask(query)) == whole[first:end]
    counting = ast.Query((), query.entity, is_count=True, where=query.where)
    assert orgs.ask(counting).count == len(whole)
    return whole


@settings(PROFILE, max_examples=16)
@given(shape=shapes(), data=st.data())
def test_condition_on_one_record_picks_the_same_records_on_every_engine(
    orgs: TwoOrgs, shape: Shape, data: st.DataObject
) -> None:
    entity = orgs.define(shape)
    ids = orgs.fill(data, shape, entity)
    living = orgs.stored(entity)
    catalog = orgs.sqlite.gate.catalog
    now_ms = orgs.sqlite.clock.now_ms()
    caller = orgs.run(orgs.sqlite.gate.grants(orgs.sqlite.admin)).caller
    for _ in range(QUERIES):
        query = data.draw(queries(shape, entity, data.draw(trees(comparisons(shape, ids)))))
        found = check_paging(orgs, query)
        bound = bind_query(parse_query(render_query(query)), catalog, now_ms=now_ms, caller=caller)
        holds = compile_predicate(bound.where, bound.entity)
        assert sorted(found) == [row["Id"] for row in living if holds(row)], render_query(query)


@settings(PROFILE, max_examples=8)
@given(shape=shapes(), data=st.data())
def test_condition_over_relationships_picks_the_same_records_on_both_stores(
    orgs: TwoOrgs, shape: Shape, data: st.DataObject
) -> None:
    entity = orgs.define(shape)
    ids = orgs.fill(data, shape, entity)
    leaves = st.one_of(
        comparisons(shape, ids),
        comparisons(shape, ids, ("Parent__r",)),
        comparisons(shape, ids, ("Parent__r", "Parent__r")),
    )
    for _ in range(QUERIES):
        where = data.draw(trees(leaves))
        if data.draw(st.booleans()):
            inner = ast.Query(
                (ast.FieldPath(("Parent__c",)),), entity, where=data.draw(trees(comparisons(shape, ids)))
            )
            word = data.draw(st.sampled_from([SetOperator.IN, SetOperator.NOT_IN]))
            where = ast.And((where, ast.SemiJoin(ast.FieldPath(("Id",)), word, inner)))
        check_paging(orgs, data.draw(queries(shape, entity, where)))
