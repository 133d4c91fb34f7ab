"""The syntax tree of a formula, before its names are resolved.

`depth` is how many nodes stand inside each other; the parser bounds it, so that walks over the tree can be
recursive. `position` is a place in the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text, TRUE, FALSE or NULL."""

    value: Decimal | str | bool | None
    position: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Reference:
    """A field, as named."""

    name: str
    position: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Call:
    """A function, its name in upper case, with its arguments."""

    name: str
    arguments: tuple[Node, ...]
    position: int
    depth: int


@dataclass(frozen=True, slots=True)
class Unary:
    """`-`, `+` or `!` before an operand."""

    operator: str
    operand: Node
    position: int
    depth: int


@dataclass(frozen=True, slots=True)
class Step:
    """An operator and what stands to its right."""

    operator: str
    operand: Node
    position: int


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one rank, taken from left to right: `a - b + c`."""

    first: Node
    steps: tuple[Step, ...]
    depth: int

    @property
    def position(self) -> int:
        """Where the first operand begins."""
        return self.first.position


Node = Literal | Reference | Call | Unary | Chain


@dataclass(frozen=True, slots=True)
class FormulaAst:
    """A parsed formula and the text it came from."""

    text: str
    root: Node
