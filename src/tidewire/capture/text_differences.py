"""Text differences: a long text that changed little is sent as the lines that differ.

The format is a unified diff without context: `--- `, `+++ ` and the SHA-256 of the whole new text, then hunks that
always state their line counts. A reader splits both by lines, applies the hunks and joins with the old text's line
break. Where that would not reproduce the new text exactly, the whole text is sent.

An inserted line is sent together with its neighbour, as if that had changed too, because tools disagree about the
position of a hunk that removes no line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

MIN_LENGTH = 1000
_MAX_LENGTH_CHANGE = 0.5  # of the old text's length
_MAX_LINES_CHANGED = 0.25  # of the lines of both texts together
_MAX_COMPARED_LINES = 400  # on either side: the comparison takes time proportional to their product
_BREAK = re.compile(r"\r\n|\r|\n")

_Hunk = tuple[int, int, int, int]  # lines [a, b) of the old text become lines [c, d) of the new one


def try_difference(old: str, new: str) -> str | None:
    """Return the difference to send, or None if the whole text must be sent."""
    if len(new) < MIN_LENGTH or abs(len(new) - len(old)) > _MAX_LENGTH_CHANGE * len(old):
        return None
    breaks = set(_BREAK.findall(old))
    if len(breaks) > 1:
        return None
    old_lines, new_lines = _BREAK.split(old), _BREAK.split(new)
    line_break = breaks.pop() if breaks else "\n"
    # A text that ends with a line break loses it when its lines are read and joined again.
    if line_break.join(new_lines) != new or not old_lines[-1] or not new_lines[-1]:
        return None
    hunks = _with_neighbours(_iter_hunks(old_lines, new_lines))
    changed = sum(max(b - a, d - c) for a, b, c, d in hunks)
    if changed > _MAX_LINES_CHANGED * (len(old_lines) + len(new_lines)):
        return None
    parts = ["--- ", "+++ " + hashlib.sha256(new.encode()).hexdigest()]
    for a, b, c, d in hunks:
        parts.append(f"@@ -{a + 1},{b - a} +{c + 1},{d - c} @@")
        parts += ["-" + line for line in old_lines[a:b]]
        parts += ["+" + line for line in new_lines[c:d]]
    difference = "\n".join(parts)
    return difference if len(difference) <= len(new) else None


def _iter_hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[_Hunk]:
    """Yield the runs of lines that differ, in order. The common prefix and suffix are skipped first."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old_end, new_end = len(old) - end, len(new) - end
    if max(old_end, new_end) - start > _MAX_COMPARED_LINES:
        yield start, old_end, start, new_end
        return
    matcher = SequenceMatcher(None, old[start:old_end], new[start:new_end], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            yield a + start, b + start, c + start, d + start


def _with_neighbours(hunks: Iterable[_Hunk]) -> list[_Hunk]:
    """Extend each pure insertion by the line before it, or else the line after, so that every hunk removes a line."""
    out: list[_Hunk] = []
    for a, b, c, d in hunks:
        if a == b:
            a, b, c, d = (a - 1, b, c - 1, d) if a > 0 else (a, b + 1, c, d + 1)
        if out and a < out[-1][1]:  # two insertions share the line between them
            a, _, c, _ = out.pop()
        out.append((a, b, c, d))
    return out
