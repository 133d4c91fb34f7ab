"""What applying a definition gives: lines that say what is done, and the steps that do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidewire.records.conversion import ConversionNote


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do and the line that announces it. `run` is not called in a dry run."""

    line: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Applied:
    """The plan of one definition, and the field conversions among it."""

    lines: list[str]
    conversions: tuple[ConversionNote, ...] = ()
