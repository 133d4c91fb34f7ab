"""A piece of a formula with its kind, and the checks that kinds fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidewire.errors import DefinitionInvalid
from tidewire.schema.field_types import FormulaKind
from tidewire.schema.formula.kinds import FormulaValue, Run
from tidewire.schema.formula.tokens import formula_error

VALUE_KINDS = (
    FormulaKind.NUMBER,
    FormulaKind.TEXT,
    FormulaKind.TRUTH,
    FormulaKind.DATE,
    FormulaKind.DATETIME,
    FormulaKind.TIME,
)
"""The kinds that can be compared, chosen between and be a result; picklists have functions of their own."""
_HINTS = {
    FormulaKind.PICKLIST: "; compare a picklist with ISPICKVAL or CASE, or make it text with TEXT",
    FormulaKind.MULTI_PICKLIST: "; ask a multi-select picklist with INCLUDES or ISBLANK",
}


@dataclass(frozen=True, slots=True)
class Typed:
    """What an expression yields, how to compute it, and where it stands. `constant` is set for a literal."""

    kind: FormulaKind
    run: Run
    position: int
    constant: FormulaValue = None


def require(text: str, item: Typed, kinds: Iterable[FormulaKind], subject: str) -> None:
    """Raise DefinitionInvalid for an expression that yields none of these kinds. NULL fits all."""
    wanted = tuple(kinds)
    if item.kind is not FormulaKind.NULL and item.kind not in wanted:
        words = " or ".join(kind.value for kind in wanted)
        reason = f"{subject} must be {words}, not {item.kind.value}{_HINTS.get(item.kind, '')}"
        raise formula_error(text, item.position, reason)


def common_kind(text: str, items: Iterable[Typed], subject: str) -> FormulaKind:
    """Return the one kind that all of these yield, NULL aside. Raises DefinitionInvalid for a mixture."""
    found = FormulaKind.NULL
    for item in items:
        require(text, item, VALUE_KINDS if found is FormulaKind.NULL else (found,), subject)
        found = item.kind if found is FormulaKind.NULL else found
    return found


def require_count(text: str, position: int, name: str, count: int, least: int, most: int | None) -> None:
    """Raise DefinitionInvalid for a call with too few or too many arguments."""
    if count >= least and (most is None or count <= most):
        return
    wanted = (
        str(least) if least == most else f"{least} to {most}" if most is not None else f"at least {least}"
    )
    raise formula_error(text, position, f"{name} takes {wanted} arguments, not {count}")


def unknown_function(text: str, position: int, name: str) -> DefinitionInvalid:
    """Return the error for a function that does not exist."""
    return formula_error(text, position, f"there is no function {name}")
