"""Writes a tree back as text, in one canonical form: `parse_query(render_query(query)) == query`."""

from __future__ import annotations

from tidewire.soql.ast import (
    Aliased,
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
    GroupBy,
    Grouping,
    Literal,
    Membership,
    Not,
    NullLiteral,
    NumberLiteral,
    Or,
    OrderItem,
    Query,
    RelativeDate,
    SelectItem,
    SemiJoin,
    StringLiteral,
    Subquery,
    TimeLiteral,
    TypeOf,
)

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "'": "\\'", "\\": "\\\\"}


def render_query(query: Query) -> str:
    """The query as text: keywords upper case, single blanks, defaults left out, no needless parentheses."""
    items = "COUNT()" if query.is_count else ", ".join(_select_item(item) for item in query.select)
    source = f"{query.entity_prefix}.{query.entity}" if query.entity_prefix else query.entity
    if query.alias:
        source += f" {query.alias}"
    source = ", ".join([source, *(f"{'.'.join(each.path)} {each.alias}" for each in query.joined)])
    clauses = ["SELECT", items, "FROM", source]
    if query.scope:
        clauses.append(f"USING SCOPE {query.scope}")
    if query.where is not None:
        clauses.append(f"WHERE {render_condition(query.where)}")
    if query.security:
        clauses.append(f"WITH {query.security}")
    if query.group_by is not None:
        clauses.append(_group_by(query.group_by))
    if query.order_by:
        clauses.append("ORDER BY " + ", ".join(_order_item(item) for item in query.order_by))
    if query.limit is not None:
        clauses.append(f"LIMIT {query.limit}")
    if query.offset is not None:
        clauses.append(f"OFFSET {query.offset}")
    clauses += [f"FOR {purpose}" for purpose in query.purposes]
    if query.statistics:
        clauses.append(f"UPDATE {', '.join(query.statistics)}")
    return " ".join(clauses)


def render_condition(condition: Condition) -> str:
    """Render a condition as text, without parentheses around it."""
    match condition:
        case And(items):
            return " AND ".join(_operand(item) for item in items)
        case Or(items):
            return " OR ".join(_operand(item) for item in items)
        case Not(item):
            return f"NOT {_operand(item)}"
        case Comparison(subject, operator, value):
            return f"{_argument(subject)} {operator.value} {render_literal(value)}"
        case Membership(subject, set_operator, values):
            listed = ", ".join(render_literal(value) for value in values)
            return f"{_argument(subject)} {set_operator.value} ({listed})"
        case SemiJoin(subject, set_operator, query):
            return f"{_argument(subject)} {set_operator.value} ({render_query(query)})"


def render_literal(literal: Literal) -> str:
    """Render a literal as text."""
    match literal:
        case StringLiteral(value, escaped):
            return f"'{_escape(value, frozenset(escaped))}'"
        case BooleanLiteral(value):
            return "TRUE" if value else "FALSE"
        case NullLiteral():
            return "NULL"
        case CurrencyLiteral(code, text):
            return code + text
        case RelativeDate(name, count):
            return name if count is None else f"{name}:{count}"
        case NumberLiteral(text) | DateLiteral(text) | DateTimeLiteral(text) | TimeLiteral(text):
            return text


def _escape(value: str, escaped_wildcards: frozenset[int]) -> str:
    return "".join(
        "\\" + char if place in escaped_wildcards else _ESCAPES.get(char, char)
        for place, char in enumerate(value)
    )


def _operand(condition: Condition) -> str:
    text = render_condition(condition)
    return f"({text})" if isinstance(condition, And | Or | Not) else text


def _argument(argument: Argument) -> str:
    match argument:
        case FieldPath(names):
            return ".".join(names)
        case FunctionCall(name, arguments):
            return f"{name}({', '.join(_argument(each) for each in arguments)})"
        case _:
            return render_literal(argument)


def _select_item(item: SelectItem) -> str:
    match item:
        case FieldPath() | FunctionCall():
            return _argument(item)
        case Aliased(inner, alias):
            return f"{_argument(inner)} {alias}"
        case Subquery(query):
            return f"({render_query(query)})"
        case TypeOf(relationship, branches, otherwise):
            words = [f"TYPEOF {_argument(relationship)}"]
            words += [f"WHEN {branch.entity} THEN {_paths(branch.fields)}" for branch in branches]
            if otherwise:
                words.append(f"ELSE {_paths(otherwise)}")
            return " ".join([*words, "END"])


def _paths(paths: tuple[FieldPath, ...]) -> str:
    return ", ".join(_argument(path) for path in paths)


def _group_by(group_by: GroupBy) -> str:
    items = ", ".join(_argument(item) for item in group_by.items)
    if group_by.grouping is not Grouping.PLAIN:
        items = f"{group_by.grouping.value}({items})"
    having = "" if group_by.having is None else f" HAVING {render_condition(group_by.having)}"
    return f"GROUP BY {items}{having}"


def _order_item(item: OrderItem) -> str:
    direction = " DESC" if item.is_descending else ""
    nulls = " NULLS LAST" if item.has_nulls_last else ""
    return _argument(item.subject) + direction + nulls
