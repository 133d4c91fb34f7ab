"""Reads conditions, the fields and functions they are about, and literals."""

from __future__ import annotations

import re
from collections.abc import Callable

from tidewire.soql.ast import (
    And,
    Argument,
    BooleanLiteral,
    Comparison,
    Condition,
    CurrencyLiteral,
    DateLiteral,
    DateTimeLiteral,
    FieldPath,
    FunctionCall,
    Literal,
    Membership,
    Not,
    NullLiteral,
    NumberLiteral,
    Operator,
    Or,
    Query,
    RelativeDate,
    SemiJoin,
    SetOperator,
    StringLiteral,
    Subject,
    TimeLiteral,
)
from tidewire.soql.cursor import Cursor
from tidewire.soql.dates import COUNTED_DATES, RELATIVE_DATES
from tidewire.soql.literals import try_date_ms, try_datetime_ms, try_time_ms
from tidewire.soql.tokens import Token, TokenKind

_OPERATORS = {op.value: op for op in Operator if op is not Operator.LIKE} | {"<>": Operator.NE}
_CURRENCY = re.compile(r"([A-Za-z]{3})(\d+)", re.ASCII)
_CONDITION_WORDS = frozenset({"AND", "OR", "NOT", "NULL", "SELECT", "FROM", "WHERE", "IN", "LIKE"})

QueryRule = Callable[[Cursor], Query]


def parse_condition(cursor: Cursor, parse_select: QueryRule) -> Condition:
    """What follows WHERE or HAVING. AND and OR do not mix at one level, so neither binds tighter."""
    position = cursor.position
    items = [_parse_simple(cursor, parse_select)]
    for word, kind in (("AND", And), ("OR", Or)):
        if not cursor.is_at_word(word):
            continue
        while cursor.take_word(word):
            items.append(_parse_simple(cursor, parse_select))
        if cursor.is_at_word("AND") or cursor.is_at_word("OR"):
            raise cursor.unexpected()
        return kind(tuple(items), position)
    return items[0]


def _parse_simple(cursor: Cursor, parse_select: QueryRule) -> Condition:
    position = cursor.position
    if cursor.take_word("NOT"):
        with cursor.nested():
            return Not(_parse_simple(cursor, parse_select), position)
    if cursor.take_symbol("("):
        with cursor.nested():
            inner = parse_condition(cursor, parse_select)
        cursor.expect_symbol(")")
        return inner
    return _parse_test(cursor, parse_select)


def _parse_test(cursor: Cursor, parse_select: QueryRule) -> Condition:
    position = cursor.position
    _refuse_formula(cursor)
    subject = parse_subject(cursor, _CONDITION_WORDS)
    if cursor.is_at(TokenKind.SYMBOL) and cursor.word in _OPERATORS:
        operator = _OPERATORS[cursor.advance().text]
        return Comparison(subject, operator, parse_literal(cursor), position)
    if cursor.take_word("LIKE"):
        return Comparison(subject, Operator.LIKE, parse_literal(cursor), position)
    membership = _parse_set_operator(cursor)
    if cursor.is_at_symbol(":") or cursor.is_at(TokenKind.NAME):
        raise cursor.bind_variable()
    cursor.expect_symbol("(")
    if membership in (SetOperator.IN, SetOperator.NOT_IN) and cursor.is_at_word("SELECT"):
        query = parse_select(cursor)
        cursor.expect_symbol(")")
        return SemiJoin(subject, membership, query, position)
    values = [parse_literal(cursor)]
    while cursor.take_symbol(","):
        values.append(parse_literal(cursor))
    cursor.expect_symbol(")")
    return Membership(subject, membership, tuple(values), position)


def _refuse_formula(cursor: Cursor) -> None:
    if cursor.is_at_word("FORMULA") and cursor.is_next_symbol("("):
        raise cursor.refused("FORMULA is not supported")


def _parse_set_operator(cursor: Cursor) -> SetOperator:
    if cursor.is_at_word("NOT") and cursor.is_next_word("IN"):
        cursor.advance()
        cursor.advance()
        return SetOperator.NOT_IN
    for operator in (SetOperator.IN, SetOperator.INCLUDES, SetOperator.EXCLUDES):
        if cursor.take_word(operator.value):
            return operator
    raise cursor.unexpected()


def parse_subject(cursor: Cursor, reserved: frozenset[str]) -> Subject:
    """Parse a field path or a function call. A reserved word may only begin a path, as in `Group.Name`."""
    if cursor.is_at(TokenKind.NAME) and cursor.word in reserved and not cursor.is_next_symbol("."):
        raise cursor.unexpected()
    first = cursor.expect_kind(TokenKind.NAME)
    if cursor.take_symbol("("):
        return _parse_call(cursor, first)
    names = [first.text]
    while cursor.take_symbol("."):
        names.append(cursor.expect_kind(TokenKind.NAME).text)
    return FieldPath(tuple(names), first.position)


def _parse_call(cursor: Cursor, name: Token) -> FunctionCall:
    with cursor.nested():
        arguments = [_parse_argument(cursor)]
        while cursor.take_symbol(","):
            arguments.append(_parse_argument(cursor))
    cursor.expect_symbol(")")
    return FunctionCall(name.text, tuple(arguments), name.position)


def _parse_argument(cursor: Cursor) -> Argument:
    if cursor.is_at(TokenKind.NAME):
        return parse_subject(cursor, frozenset())
    return parse_literal(cursor)


def parse_literal(cursor: Cursor) -> Literal:
    """One value. There is nothing to compare a field with but literals."""
    token = cursor.token
    at = token.position
    if token.kind is TokenKind.NAME:
        return _parse_word_literal(cursor)
    if token.kind is TokenKind.SYMBOL or token.kind is TokenKind.END:
        raise cursor.bind_variable() if token.text == ":" else cursor.unexpected()
    literal = _literal(cursor, token, at)
    cursor.advance()
    return literal


def _literal(cursor: Cursor, token: Token, at: int) -> Literal:
    if token.kind is TokenKind.STRING:
        return StringLiteral(token.value, token.escaped_wildcards, at)
    if token.kind is TokenKind.NUMBER:
        return NumberLiteral(token.text.removeprefix("+"), at)
    text = token.text.upper()
    if token.kind is TokenKind.DATE:
        if try_date_ms(text) is None:
            raise cursor.refused(f"Invalid date: {token.text}")
        return DateLiteral(text, at)
    if token.kind is TokenKind.TIME:
        if try_time_ms(text) is None:
            raise cursor.refused(f"Invalid time: {token.text}")
        return TimeLiteral(text, at)
    if try_datetime_ms(text) is None:
        raise cursor.refused(f"Invalid datetime: {token.text}")
    return DateTimeLiteral(text, at)


def _parse_word_literal(cursor: Cursor) -> Literal:
    word, at = cursor.word, cursor.position
    if word in ("TRUE", "FALSE"):
        cursor.advance()
        return BooleanLiteral(word == "TRUE", at)
    if word == "NULL":
        cursor.advance()
        return NullLiteral(at)
    if word in RELATIVE_DATES:
        cursor.advance()
        return RelativeDate(word, None, at)
    if word in COUNTED_DATES:
        cursor.advance()
        cursor.expect_symbol(":")
        return RelativeDate(word, cursor.expect_count(), at)
    if match := _CURRENCY.fullmatch(word):
        return _parse_currency(cursor, match[1], match[2])
    _refuse_formula(cursor)
    if word in _CONDITION_WORDS:
        raise cursor.unexpected()
    raise cursor.bind_variable()


def _parse_currency(cursor: Cursor, code: str, whole: str) -> CurrencyLiteral:
    token = cursor.advance()
    fraction = cursor.token
    # `USD5000.5` reaches us as a name and the number `.5` right after it.
    is_joined = fraction.position == token.position + len(token.text)
    if fraction.kind is TokenKind.NUMBER and is_joined and fraction.text.startswith("."):
        cursor.advance()
        return CurrencyLiteral(code, whole + fraction.text, token.position)
    return CurrencyLiteral(code, whole, token.position)
