"""Checks a formula against its object: resolves names to fields, and gives every piece a kind and its code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from tidewire.events import Value
from tidewire.schema.field_types import FieldType, FormulaKind
from tidewire.schema.formula.ast import Call, Chain, FormulaAst, Literal, Node, Reference, Unary
from tidewire.schema.formula.forms import FORMS
from tidewire.schema.formula.functions import FUNCTIONS, Function
from tidewire.schema.formula.kinds import ARITHMETIC, FormulaValue, Run, load_field, try_field_kind
from tidewire.schema.formula.operators import Join, combine, negation
from tidewire.schema.formula.tokens import formula_error, shown
from tidewire.schema.formula.typed import Typed, require, require_count, unknown_function
from tidewire.schema.model import ObjectType

_LARGEST_LITERAL = Decimal(10) ** 30


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula that fits its object.

    `references` are the API names of the fields it reads; `is_volatile` says whether it reads the clock.
    """

    ast: FormulaAst
    result: FieldType
    references: frozenset[str]
    is_volatile: bool
    run: Run = field(repr=False, compare=False)


def check_formula(ast: FormulaAst, obj: ObjectType, result: FieldType) -> Formula:
    """Check a formula, so that it can run on records of `obj`. Raises DefinitionInvalid with row and column."""
    wanted = result.row.formula_kind
    if wanted is None or not result.row.is_formula_result:
        raise formula_error(ast.text, 0, f"a formula cannot yield the type {result.value}")
    checker = _Checker(ast.text, obj)
    root = checker.visit(ast.root)
    require(ast.text, root, (wanted,), "the result")
    return Formula(ast, result, frozenset(checker.references), checker.is_volatile, root.run)


class _Checker:
    def __init__(self, text: str, obj: ObjectType) -> None:
        self.text = text
        self.obj = obj
        self.references: set[str] = set()
        self.is_volatile = False

    def visit(self, node: Node) -> Typed:
        match node:
            case Literal():
                return self.literal(node)
            case Reference():
                return self.reference(node)
            case Unary():
                return self.unary(node)
            case Chain():
                return self.chain(node)
            case Call():
                return self.call(node)

    def literal(self, node: Literal) -> Typed:
        value = node.value
        kind = FormulaKind.NULL
        if isinstance(value, bool):
            kind = FormulaKind.TRUTH
        elif isinstance(value, str):
            kind = FormulaKind.TEXT
        elif isinstance(value, Decimal):
            if value >= _LARGEST_LITERAL:
                raise formula_error(self.text, node.position, "the number is too large")
            kind, value = FormulaKind.NUMBER, ARITHMETIC.plus(value)
        return Typed(kind, lambda row, now_ms: value, node.position, value)

    def reference(self, node: Reference) -> Typed:
        found = self.obj.try_field(node.name)
        if found is None:
            if "." in node.name or node.name.startswith("$"):
                reason = f"only fields of {self.obj.name} itself can be used, not {shown(node.name)}"
            else:
                reason = f"{self.obj.name} has no field {shown(node.name)}"
            raise formula_error(self.text, node.position, reason)
        kind = try_field_kind(found)
        if kind is None:
            reason = f"{found.name} is of type {found.type.value}, which formulas cannot read"
            raise formula_error(self.text, node.position, reason)
        self.references.add(found.name)
        return Typed(kind, load_field(found), node.position)

    def unary(self, node: Unary) -> Typed:
        item = self.visit(node.operand)
        if node.operator == "!":
            require(self.text, item, (FormulaKind.TRUTH,), "what '!' negates")
            return Typed(FormulaKind.TRUTH, negation(item.run), node.position)
        require(self.text, item, (FormulaKind.NUMBER,), f"what '{node.operator}' stands before")
        run = _negative(item.run) if node.operator == "-" else item.run
        return Typed(FormulaKind.NUMBER, run, node.position)

    def chain(self, node: Chain) -> Typed:
        left = self.visit(node.first)
        first = left.run
        links: list[tuple[Join, Run]] = []
        for step in node.steps:
            right = self.visit(step.operand)
            kind, join = combine(self.text, left, step.operator, right, step.position)
            links.append((join, right.run))
            left = Typed(kind, first, node.position)

        # A loop and no nest of calls: a chain may be as long as the formula.
        def run(row: Mapping[str, Value], now_ms: int) -> FormulaValue:
            value = first(row, now_ms)
            for join, operand in links:
                value = join(value, operand, row, now_ms)
            return value

        return Typed(left.kind, run, node.position)

    def call(self, node: Call) -> Typed:
        arguments = [self.visit(argument) for argument in node.arguments]
        if form := FORMS.get(node.name):
            require_count(self.text, node.position, node.name, len(arguments), form.least, form.most)
            self.is_volatile = self.is_volatile or form.is_volatile
            return form.build(self.text, node.position, arguments)
        function = FUNCTIONS.get(node.name)
        if function is None:
            raise unknown_function(self.text, node.position, shown(node.name))
        most = len(function.parameters)
        require_count(
            self.text,
            node.position,
            node.name,
            len(arguments),
            most - function.optional,
            None if function.repeats else most,
        )
        for index, item in enumerate(arguments):
            kinds = function.parameters[min(index, most - 1)]
            require(self.text, item, kinds, f"argument {index + 1} of {node.name}")
        return Typed(function.result, _applied(function, arguments), node.position)


def _negative(operand: Run) -> Run:
    def run(row: Mapping[str, Value], now_ms: int) -> FormulaValue:
        value = operand(row, now_ms)
        return ARITHMETIC.minus(value) if isinstance(value, Decimal) else None

    return run


def _applied(function: Function, arguments: list[Typed]) -> Run:
    last = len(function.parameters) - 1
    parts = [
        (item.run, "" if function.parameters[min(index, last)] == (FormulaKind.TEXT,) else None)
        for index, item in enumerate(arguments)
    ]
    apply = function.apply

    def run(row: Mapping[str, Value], now_ms: int) -> FormulaValue:
        values: list[FormulaValue] = []
        for part, blank in parts:
            value = part(row, now_ms)
            values.append(blank if value is None else value)
        if None in values:
            return None
        return apply(*values)

    return run
