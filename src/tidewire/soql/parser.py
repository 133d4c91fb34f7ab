"""Reads a query into its tree. One method per rule of the grammar, in the order in which the clauses stand.

Rules that the grammar has and this parser does not read (WITH DATA CATEGORY, FORMULA) raise an error that names
them. What it reads but cannot be run, the binder rejects. Conditions are in `tidewire.soql.condition_parser`, the
cursor over tokens is in `tidewire.soql.cursor`.
"""

from __future__ import annotations

from tidewire.soql.ast import (
    Aliased,
    FieldPath,
    FromAlias,
    FunctionCall,
    GroupBy,
    Grouping,
    OrderItem,
    Query,
    SelectItem,
    Subject,
    Subquery,
    TypeOf,
    TypeOfBranch,
)
from tidewire.soql.condition_parser import parse_condition, parse_subject
from tidewire.soql.cursor import Cursor
from tidewire.soql.tokens import TokenKind, parse_tokens

RESERVED = frozenset(
    [
        "AND",
        "AS",
        "ASC",
        "DESC",
        "EXCLUDES",
        "FIRST",
        "FROM",
        "GROUP",
        "HAVING",
        "IN",
        "INCLUDES",
        "LAST",
        "LIKE",
        "LIMIT",
        "NOT",
        "NULL",
        "NULLS",
        "OR",
        "SELECT",
        "USING",
        "WHERE",
        "WITH",
    ]
)
"""Words that cannot be aliases, nor stand alone as a field."""
_PURPOSES = ("VIEW", "REFERENCE", "UPDATE")
_STATISTICS = ("TRACKING", "VIEWSTAT")
_SECURITY = ("SECURITY_ENFORCED", "USER_MODE", "SYSTEM_MODE")
_SCOPES = {
    scope.replace("_", "").upper(): scope
    for scope in (
        "delegated",
        "everything",
        "mine",
        "mine_and_my_groups",
        "my_territory",
        "my_team_territory",
        "team",
        "allPrivate",
        "mru",
        "scopingRule",
    )
}
_CLAUSE_STARTS = frozenset(["ORDER", "OFFSET", "FOR", "UPDATE", "ALL"])


def parse_query(text: str) -> Query:
    """The tree of a query. Raises SoqlSyntaxError, or NumberOutOfRange for a LIMIT or OFFSET past 32 bits."""
    cursor = Cursor(text, parse_tokens(text))
    query = _parse_select(cursor)
    if not cursor.is_at(TokenKind.END):
        raise cursor.unexpected()
    return query


def _parse_select(cursor: Cursor, *, is_child: bool = False) -> Query:
    position = cursor.expect_word("SELECT").position
    with cursor.nested():
        is_count, select = _parse_select_list(cursor)
        cursor.expect_word("FROM")
        entity = cursor.expect_kind(TokenKind.NAME)
        prefix = ""
        if is_child and cursor.take_symbol("."):
            prefix, entity = entity.text, cursor.expect_kind(TokenKind.NAME)
        alias = _parse_from_alias(cursor)
        joined = _parse_joined(cursor)
        scope_position = cursor.position
        scope = _parse_scope(cursor)
        where = parse_condition(cursor, _parse_select) if cursor.take_word("WHERE") else None
        security = _parse_security(cursor)
        group_by = _parse_group_by(cursor)
        order_by = _parse_order_by(cursor)
        limit = cursor.expect_count() if cursor.take_word("LIMIT") else None
        offset = cursor.expect_count() if cursor.take_word("OFFSET") else None
        if cursor.is_at_word("ALL") and cursor.is_next_word("ROWS"):
            raise cursor.refused("ALL ROWS not allowed in this context")
        purposes = _parse_purposes(cursor)
        statistics = _parse_words(cursor, _STATISTICS) if cursor.take_word("UPDATE") else ()
    return Query(
        select,
        entity.text,
        alias,
        prefix,
        joined,
        is_count,
        scope,
        where,
        security,
        group_by,
        order_by,
        limit,
        offset,
        purposes,
        statistics,
        cursor.text,
        position,
        entity.position,
        scope_position,
    )


def _parse_scope(cursor: Cursor) -> str:
    if not cursor.take_word("USING"):
        return ""
    cursor.expect_word("SCOPE")
    if not cursor.is_at(TokenKind.NAME):
        raise cursor.unexpected()
    scope = _SCOPES.get(cursor.word.replace("_", ""))
    if scope is None:
        raise cursor.refused(f"unknown scope: '{cursor.token.text}'")
    cursor.advance()
    return scope


def _parse_security(cursor: Cursor) -> str:
    """WITH and the mode of its permission checks."""
    if not cursor.take_word("WITH"):
        return ""
    if cursor.is_at_word("DATA") and cursor.is_next_word("CATEGORY"):
        raise cursor.refused("WITH DATA CATEGORY is not supported")
    (mode,) = _parse_words(cursor, _SECURITY, at_most=1)
    return mode


def _parse_purposes(cursor: Cursor) -> tuple[str, ...]:
    """FOR VIEW and FOR REFERENCE, which say why somebody asks, and FOR UPDATE."""
    purposes: list[str] = []
    while cursor.take_word("FOR"):
        if cursor.word in purposes:
            raise cursor.unexpected()
        purposes += _parse_words(cursor, _PURPOSES, at_most=1)
    return tuple(purposes)


def _parse_words(cursor: Cursor, words: tuple[str, ...], at_most: int | None = None) -> tuple[str, ...]:
    """Some of these words, each once, with commas between them."""
    found: list[str] = []
    while not found or (len(found) != at_most and cursor.take_symbol(",")):
        if not any(cursor.is_at_word(word) for word in words) or cursor.word in found:
            raise cursor.unexpected()
        found.append(cursor.advance().word)
    return tuple(found)


def _parse_select_list(cursor: Cursor) -> tuple[bool, tuple[SelectItem, ...]]:
    if cursor.take_call("COUNT"):
        return True, ()
    items = [_parse_select_item(cursor)]
    while cursor.take_symbol(","):
        items.append(_parse_select_item(cursor))
    return False, tuple(items)


def _parse_select_item(cursor: Cursor) -> SelectItem:
    position = cursor.position
    if cursor.take_symbol("("):
        query = _parse_select(cursor, is_child=True)
        cursor.expect_symbol(")")
        return Subquery(query, position)
    if (
        cursor.is_at_word("TYPEOF")
        and cursor.is_next_kind(TokenKind.NAME)
        and not cursor.is_next_word("FROM")
    ):
        return _parse_type_of(cursor)
    item = parse_subject(cursor, RESERVED)
    alias = _try_alias(cursor)
    return Aliased(item, alias, position) if alias else item


def _try_alias(cursor: Cursor) -> str:
    if not cursor.is_at(TokenKind.NAME) or cursor.word in RESERVED or cursor.word in _CLAUSE_STARTS:
        return ""
    return cursor.advance().text


def _parse_type_of(cursor: Cursor) -> TypeOf:
    position = cursor.advance().position
    relationship = _parse_path(cursor)
    branches = []
    while cursor.take_word("WHEN"):
        entity = cursor.expect_kind(TokenKind.NAME).text
        cursor.expect_word("THEN")
        branches.append(TypeOfBranch(entity, _parse_paths(cursor)))
    if not branches:
        raise cursor.unexpected()
    otherwise = _parse_paths(cursor) if cursor.take_word("ELSE") else ()
    cursor.expect_word("END")
    return TypeOf(relationship, tuple(branches), otherwise, position)


def _parse_paths(cursor: Cursor) -> tuple[FieldPath, ...]:
    paths = [_parse_path(cursor)]
    while cursor.take_symbol(","):
        paths.append(_parse_path(cursor))
    return tuple(paths)


def _parse_path(cursor: Cursor) -> FieldPath:
    subject = parse_subject(cursor, RESERVED)
    if isinstance(subject, FunctionCall):
        raise cursor.refused("a field is needed here, not a function", subject.position)
    return subject


def _parse_from_alias(cursor: Cursor) -> str:
    if not cursor.take_word("AS"):
        return _try_alias(cursor)
    alias = _try_alias(cursor)
    if not alias:
        raise cursor.unexpected()
    return alias


def _parse_joined(cursor: Cursor) -> tuple[FromAlias, ...]:
    """The further entries of FROM, each a relationship of what an earlier one names, and its own name."""
    joined: list[FromAlias] = []
    while cursor.take_symbol(","):
        path = _parse_path(cursor)
        alias = _parse_from_alias(cursor)
        if not alias or len(path.names) == 1:
            raise cursor.unexpected()
        joined.append(FromAlias(path.names, alias, path.position))
    return tuple(joined)


def _parse_group_by(cursor: Cursor) -> GroupBy | None:
    if not cursor.is_at_word("GROUP"):
        return None
    position = cursor.advance().position
    cursor.expect_word("BY")
    grouping = Grouping.PLAIN
    for candidate in (Grouping.ROLLUP, Grouping.CUBE):
        if cursor.is_at_word(candidate.value) and cursor.is_next_symbol("("):
            grouping = candidate
            cursor.advance()
            cursor.expect_symbol("(")
    items: list[Subject] = [parse_subject(cursor, RESERVED)]
    while cursor.take_symbol(","):
        items.append(parse_subject(cursor, RESERVED))
    if grouping is not Grouping.PLAIN:
        cursor.expect_symbol(")")
    having = parse_condition(cursor, _parse_select) if cursor.take_word("HAVING") else None
    return GroupBy(tuple(items), grouping, having, position)


def _parse_order_by(cursor: Cursor) -> tuple[OrderItem, ...]:
    if not cursor.take_word("ORDER"):
        return ()
    cursor.expect_word("BY")
    items = [_parse_order_item(cursor)]
    while cursor.take_symbol(","):
        items.append(_parse_order_item(cursor))
    return tuple(items)


def _parse_order_item(cursor: Cursor) -> OrderItem:
    position = cursor.position
    subject = parse_subject(cursor, RESERVED)
    is_descending = cursor.take_word("DESC")
    if not is_descending:
        cursor.take_word("ASC")
    has_nulls_last = False
    if cursor.take_word("NULLS"):
        has_nulls_last = cursor.take_word("LAST")
        if not has_nulls_last:
            cursor.expect_word("FIRST")
    return OrderItem(subject, is_descending, has_nulls_last, position)
