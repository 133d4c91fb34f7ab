"""Reads the tokens of a formula into a tree.

Ranks follow the platform's own grammar, in which `^` binds less than `*` and `/`, and a sign binds more than
any operator between two operands.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from tidewire.errors import DefinitionInvalid
from tidewire.schema.formula.ast import Call, Chain, FormulaAst, Literal, Node, Reference, Step, Unary
from tidewire.schema.formula.tokens import Token, TokenKind, formula_error, parse_tokens, shown

MAX_DEPTH = 100
_RANKS = (
    frozenset({"||"}),
    frozenset({"&&"}),
    frozenset({"=", "==", "<>", "!="}),
    frozenset({"<", "<=", ">", ">="}),
    frozenset({"+", "-", "&"}),
    frozenset({"^"}),
    frozenset({"*", "/"}),
)
_RANK_OF = {operator: rank for rank, operators in enumerate(_RANKS) for operator in operators}
_SPELLINGS = {"==": "=", "!=": "<>"}
_CONSTANTS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}


def parse_formula(text: str) -> FormulaAst:
    """Parse a formula. Raises DefinitionInvalid with the row and column of the fault."""
    parser = _Parser(text)
    root = parser.expression()
    if parser.token.kind is not TokenKind.END:
        raise parser.unexpected()
    return FormulaAst(text, root)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = parse_tokens(text)
        self.index = 0
        self.nesting = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    def is_at(self, symbol: str) -> bool:
        return self.token.kind is TokenKind.SYMBOL and self.token.text == symbol

    def take(self, symbol: str) -> bool:
        found = self.is_at(symbol)
        self.index += found
        return found

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise self.unexpected(f"; '{symbol}' is missing")

    def unexpected(self, hint: str = "") -> DefinitionInvalid:
        if self.token.kind is TokenKind.END:
            return formula_error(self.text, self.token.position, f"the formula ends too early{hint}")
        return formula_error(self.text, self.token.position, f"unexpected '{shown(self.token.text)}'{hint}")

    def depth(self, position: int, parts: Iterable[Node]) -> int:
        """Return the depth of a node over these parts, within its bound."""
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > MAX_DEPTH:
            raise self.too_deep(position)
        return depth

    def too_deep(self, position: int) -> DefinitionInvalid:
        return formula_error(self.text, position, f"the formula nests more than {MAX_DEPTH} deep")

    def expression(self, rank: int = 0) -> Node:
        """Operands joined by operators of this rank or a tighter one."""
        self.nesting += 1
        if self.nesting > MAX_DEPTH:
            raise self.too_deep(self.token.position)
        left = self.operand()
        for here in range(len(_RANKS) - 1, rank - 1, -1):
            steps: list[Step] = []
            while self.rank_at_hand() == here:
                token = self.token
                self.index += 1
                operand = self.expression(here + 1)
                steps.append(Step(_SPELLINGS.get(token.text, token.text), operand, token.position))
            if steps:
                depth = self.depth(left.position, (left, *(step.operand for step in steps)))
                left = Chain(left, tuple(steps), depth)
        self.nesting -= 1
        return left

    def rank_at_hand(self) -> int | None:
        return _RANK_OF.get(self.token.text) if self.token.kind is TokenKind.SYMBOL else None

    def operand(self) -> Node:
        signs: list[tuple[str, int]] = []
        while any(self.is_at(sign) for sign in ("-", "+", "!")):
            signs.append((self.token.text, self.token.position))
            self.index += 1
        node = self.primary()
        for sign, position in reversed(signs):
            node = Unary(sign, node, position, self.depth(position, (node,)))
        return node

    def primary(self) -> Node:
        token = self.token
        if self.take("("):
            node = self.expression()
            self.expect(")")
            return node
        match token.kind:
            case TokenKind.TEXT:
                self.index += 1
                return Literal(token.text, token.position)
            case TokenKind.NUMBER:
                self.index += 1
                return Literal(Decimal(token.text), token.position)
            case TokenKind.NAME:
                self.index += 1
                return self.named(token)
            case _:
                raise self.unexpected()

    def named(self, token: Token) -> Node:
        word = token.text.upper()
        if self.take("("):
            return self.call(word, token.position)
        if word in _CONSTANTS:
            return Literal(_CONSTANTS[word], token.position)
        return Reference(token.text, token.position)

    def call(self, name: str, position: int) -> Node:
        arguments: list[Node] = []
        if not self.take(")"):
            arguments.append(self.expression())
            while self.take(","):
                arguments.append(self.expression())
            self.expect(")")
        return Call(name, tuple(arguments), position, self.depth(position, arguments))
