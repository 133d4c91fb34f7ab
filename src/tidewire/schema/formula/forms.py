"""The functions that look at the kinds of their arguments, compute only some of them, or read the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidewire.events import Value
from tidewire.schema.field_types import FormulaKind
from tidewire.schema.formula.functions import render_text
from tidewire.schema.formula.kinds import FormulaValue, Run
from tidewire.schema.formula.operators import equality, negation
from tidewire.schema.formula.tokens import formula_error
from tidewire.schema.formula.typed import VALUE_KINDS, Typed, common_kind, require
from tidewire.schema.values import DAY_MS


@dataclass(frozen=True, slots=True)
class Form:
    """How many arguments a form takes, without bound if `most` is None, and what it makes of them."""

    least: int
    most: int | None
    build: Callable[[str, int, Sequence[Typed]], Typed]
    is_volatile: bool = False


def _if(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    condition, then, otherwise = arguments
    require(text, condition, (FormulaKind.TRUTH,), "the condition of IF")
    kind = common_kind(text, (then, otherwise), "what IF chooses between")
    test, yes, no = condition.run, then.run, otherwise.run
    return Typed(kind, lambda row, now_ms: (yes if test(row, now_ms) else no)(row, now_ms), position)


def _case(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    if len(arguments) % 2:
        reason = "CASE takes an expression, pairs of value and result, and a last result for all else"
        raise formula_error(text, position, reason)
    subject, *pairs, otherwise = arguments
    require(text, subject, (*VALUE_KINDS, FormulaKind.PICKLIST), "what CASE looks at")
    kind = FormulaKind.TEXT if subject.kind is FormulaKind.PICKLIST else subject.kind
    for value in pairs[::2]:
        require(text, value, VALUE_KINDS if kind is FormulaKind.NULL else (kind,), "a value of CASE")
    result = common_kind(text, (*pairs[1::2], otherwise), "what CASE chooses between")
    branches = [(value.run, chosen.run) for value, chosen in zip(pairs[::2], pairs[1::2], strict=True)]
    look, last, equal = subject.run, otherwise.run, equality(kind)

    def run(row: Mapping[str, Value], now_ms: int) -> FormulaValue:
        found = look(row, now_ms)
        for value, chosen in branches:
            if equal(found, value(row, now_ms)):
                return chosen(row, now_ms)
        return last(row, now_ms)

    return Typed(result, run, position)


def _all_or_any(name: str, *, stops_at: bool) -> Callable[[str, int, Sequence[Typed]], Typed]:
    def build(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
        for item in arguments:
            require(text, item, (FormulaKind.TRUTH,), f"what {name} joins")
        runs = [item.run for item in arguments]

        def run(row: Mapping[str, Value], now_ms: int) -> FormulaValue:
            for part in runs:
                if bool(part(row, now_ms)) is stops_at:
                    return stops_at
            return not stops_at

        return Typed(FormulaKind.TRUTH, run, position)

    return build


def _not(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    require(text, arguments[0], (FormulaKind.TRUTH,), "what NOT negates")
    return Typed(FormulaKind.TRUTH, negation(arguments[0].run), position)


def _is_blank(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    run = arguments[0].run
    return Typed(FormulaKind.TRUTH, lambda row, now_ms: run(row, now_ms) in (None, ""), position)


def _is_null(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    # On the platform text is never null, only empty.
    (item,) = arguments
    if item.kind is FormulaKind.TEXT:
        return Typed(FormulaKind.TRUTH, lambda row, now_ms: False, position)
    return _is_blank(text, position, arguments)


def _blank_value(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    item, fallback = arguments
    kind = common_kind(text, arguments, "what BLANKVALUE chooses between")
    return Typed(kind, _or_else(item.run, fallback.run, (None, "")), position)


def _null_value(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    item, fallback = arguments
    kind = common_kind(text, arguments, "what NULLVALUE chooses between")
    if item.kind is FormulaKind.TEXT:
        return Typed(kind, item.run, position)
    return Typed(kind, _or_else(item.run, fallback.run, (None,)), position)


def _or_else(item: Run, fallback: Run, blanks: tuple[FormulaValue, ...]) -> Run:
    def run(row: Mapping[str, Value], now_ms: int) -> FormulaValue:
        value = item(row, now_ms)
        return fallback(row, now_ms) if value in blanks else value

    return run


def _literal_text(text: str, item: Typed, name: str) -> str:
    if not isinstance(item.constant, str):
        raise formula_error(text, item.position, f"the second argument of {name} must be a text in quotes")
    return item.constant


def _is_pickval(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    item, wanted = arguments
    if item.kind is not FormulaKind.PICKLIST:
        raise formula_error(text, item.position, "the first argument of ISPICKVAL must be a picklist field")
    run, choice = item.run, _literal_text(text, wanted, "ISPICKVAL")
    return Typed(FormulaKind.TRUTH, lambda row, now_ms: run(row, now_ms) == choice, position)


def _includes(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    item, wanted = arguments
    if item.kind is not FormulaKind.MULTI_PICKLIST:
        reason = "the first argument of INCLUDES must be a multi-select picklist field"
        raise formula_error(text, item.position, reason)
    run, choice = item.run, _literal_text(text, wanted, "INCLUDES")
    return Typed(FormulaKind.TRUTH, lambda row, now_ms: choice in str(run(row, now_ms)).split(";"), position)


def _text(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    (item,) = arguments
    kinds = (
        FormulaKind.NUMBER,
        FormulaKind.DATE,
        FormulaKind.DATETIME,
        FormulaKind.TIME,
        FormulaKind.PICKLIST,
    )
    require(text, item, kinds, "the argument of TEXT")
    run, kind = item.run, item.kind
    return Typed(FormulaKind.TEXT, lambda row, now_ms: render_text(run(row, now_ms), kind), position)


def _now(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    return Typed(FormulaKind.DATETIME, lambda row, now_ms: now_ms - now_ms % 1000, position)


def _today(text: str, position: int, arguments: Sequence[Typed]) -> Typed:
    return Typed(FormulaKind.DATE, lambda row, now_ms: now_ms - now_ms % DAY_MS, position)


FORMS: dict[str, Form] = {
    "IF": Form(3, 3, _if),
    "CASE": Form(4, None, _case),
    "AND": Form(1, None, _all_or_any("AND", stops_at=False)),
    "OR": Form(1, None, _all_or_any("OR", stops_at=True)),
    "NOT": Form(1, 1, _not),
    "ISBLANK": Form(1, 1, _is_blank),
    "ISNULL": Form(1, 1, _is_null),
    "BLANKVALUE": Form(2, 2, _blank_value),
    "NULLVALUE": Form(2, 2, _null_value),
    "ISPICKVAL": Form(2, 2, _is_pickval),
    "INCLUDES": Form(2, 2, _includes),
    "TEXT": Form(1, 1, _text),
    "NOW": Form(0, 0, _now, is_volatile=True),
    "TODAY": Form(0, 0, _today, is_volatile=True),
}
