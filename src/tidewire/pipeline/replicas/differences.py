"""Text differences: a long text that changed little is sent as the lines that differ.

The format is a unified diff: `--- `, `+++ ` and the SHA-256 of the whole new text, then hunks with old line
numbers from 1 on. Both texts are split by lines and joined with the line break of the old text; the hash
decides whether the result is the new text. Nothing is trimmed.
"""

from __future__ import annotations

import hashlib
import re

_BREAK = re.compile(r"\r\n|\r|\n")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@.*")
_TARGET = re.compile(r"\+\+\+ ?([0-9A-Fa-f]{64})\s*")


def try_patch(old: str | None, difference: str) -> str | None:
    """Return the new text; None if the difference does not apply to the old text.

    A text that already is the new one is returned unchanged.
    """
    lines = _BREAK.split(difference)
    target = _TARGET.fullmatch(lines[1]) if len(lines) > 1 and lines[0].startswith("---") else None
    if target is None or old is None:
        return None
    digest = target[1].lower()
    if _digest(old) == digest:
        return old
    breaks = _BREAK.findall(old)
    patched = _apply_hunks(_BREAK.split(old), lines[2:])
    if patched is None:
        return None
    # With mixed line breaks, guess the first one; the hash decides.
    new = (breaks[0] if breaks else "\n").join(patched)
    return new if _digest(new) == digest else None


def _apply_hunks(old: list[str], lines: list[str]) -> list[str] | None:
    new: list[str] = []
    place = i = 0
    while i < len(lines):
        hunk = _HUNK.fullmatch(lines[i])
        if hunk is None:
            return new + old[place:] if not any(lines[i:]) else None
        i += 1
        taken = int(hunk[2] or 1)
        given = int(hunk[4] or 1)
        # A hunk without old lines names the line before it.
        start = int(hunk[1]) if taken == 0 else int(hunk[1]) - 1
        if start < place or start + taken > len(old):
            return None
        new += old[place:start]
        place = start
        while (taken or given) and i < len(lines):
            mark, text = lines[i][:1], lines[i][1:]
            if mark in ("-", " ") and taken and place < len(old) and old[place] == text:
                place += 1
                taken -= 1
            elif mark == "-" or mark not in ("+", " "):
                return None
            if mark in ("+", " "):
                new.append(text)
                given -= 1
            i += 1
        if taken or given:
            return None
    return new + old[place:]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
