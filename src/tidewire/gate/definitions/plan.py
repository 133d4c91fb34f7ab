"""The plan of a definition: lines that say what changes, and the steps that carry it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tidewire.events import Value
from tidewire.records.conversion import ConversionNote
from tidewire.records.table import try_find_by_value
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType


@dataclass(frozen=True, slots=True)
class Step:
    """One change and the line that announces it. `run` is not called in a dry run."""

    line: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a definition: the plan, field conversions, and secrets of new connected apps.

    `secrets` is by client id; a secret cannot be read again later.
    """

    lines: list[str]
    conversions: tuple[ConversionNote, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def try_find(unit: UnitOfWork, entity: str, field_name: str, value: str) -> str | None:
    """Return the id of the record that a unique field names, or None; no record has an empty name."""
    obj = unit.catalog.object(entity)
    return try_find_by_value(unit.tx, obj, obj.by_name[field_name.lower()], value) if value else None


def update_steps(
    unit: UnitOfWork, obj: ObjectType, row: Mapping[str, Value], wanted: Mapping[str, object], what: str
) -> list[Step]:
    """Return the step that updates a record to the wanted values, or nothing if it has them already."""
    differing = {name: value for name, value in wanted.items() if row.get(name) != value}
    if not differing:
        return []
    line = f"update {what}: {', '.join(sorted(differing))}"
    return [Step(line, partial(unit.update, obj, str(row["Id"]), differing))]


def differing_words(old: object, new: object, words: Mapping[str, str]) -> list[str]:
    """Return the words of a definition whose attribute differs; `words` maps them to attribute names."""
    return [word for word, name in words.items() if getattr(old, name) != getattr(new, name)]
