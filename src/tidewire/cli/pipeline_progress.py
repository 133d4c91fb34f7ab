"""Progress display: a bar on a terminal, only headlines elsewhere."""

from __future__ import annotations

from typing import TextIO

from tidewire.clock import Clock

_WIDTH = 30
_BAR_S = 0.1


class Progress:
    """Shows one task at a time. Not thread-safe."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._label = ""
        self._shown_s = -_BAR_S
        self._has_bar = False

    def say(self, line: str) -> None:
        """Print a headline."""
        self.done()
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def show(self, label: str, done: int, total: int | None) -> None:
        """Update the bar; `total` is None if unknown."""
        if not self._is_terminal:
            return
        now_s = self._clock.monotonic_s()
        is_last = total is not None and done >= total
        if label == self._label and now_s - self._shown_s < _BAR_S and not is_last:
            return
        self._label, self._shown_s = label, now_s
        self._stream.write(f"\r\x1b[K{render(label, done, total)}")
        self._stream.flush()
        self._has_bar = True

    def done(self) -> None:
        """End the bar's line."""
        if self._has_bar:
            self._stream.write("\n")
            self._has_bar = False
        self._label = ""


def render(label: str, done: int, total: int | None) -> str:
    """Return the progress of a task as one line."""
    if not total:
        return f"{label}: {done:,}"
    part = min(1.0, done / total)
    full = round(_WIDTH * part)
    return f"[{'#' * full}{'.' * (_WIDTH - full)}] {label}: {done:,} of {total:,} ({part:.0%})"
