"""What applying a definition gives: lines that say what is done, and the steps that do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidewire.records.conversion import ConversionNote


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do and the line that announces it. `run` is not called in a dry run."""

    line: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Applied:
    """The plan of one definition, the field conversions among it, and the secrets of the connected apps it
    made, by client id: nobody can ask for them again.
    """

    lines: list[str]
    conversions: tuple[ConversionNote, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
