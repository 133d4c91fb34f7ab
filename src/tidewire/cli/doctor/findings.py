"""What a check of `tidewire doctor` found: how things stand, in words, and what to do if they are not well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. A note is worth knowing and no fault; `do` is empty where there is nothing to do."""

    check: str
    state: State
    told: str
    do: str = ""


def ok(check: str, told: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", told)


def note(check: str, told: str, do: str) -> Finding:
    """Something that need not be mended."""
    return Finding(check, "note", told, do)


def problem(check: str, told: str, do: str) -> Finding:
    """Something that keeps server or pipeline from working."""
    return Finding(check, "problem", told, do)
