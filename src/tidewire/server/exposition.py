"""Prometheus's text form, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate

from tidewire.telemetry import BOUNDS_S, Histogram, render_labels

Rows = Iterable[tuple[Mapping[str, str], float]]


class Exposition:
    """Metrics one after the other; each has its help and its type, also when it has no rows."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, help_text: str, rows: Rows) -> None:
        """What may rise and fall."""
        self._begin(name, help_text, "gauge")
        self._lines += [f"{name}{render_labels(labels)} {_number(value)}" for labels, value in rows]

    def counter(self, name: str, help_text: str, rows: Rows) -> None:
        """What only rises, until the process is started again."""
        self._begin(name, help_text, "counter")
        self._lines += [f"{name}{render_labels(labels)} {_number(value)}" for labels, value in rows]

    def histogram(
        self, name: str, help_text: str, rows: Iterable[tuple[Mapping[str, str], Histogram]]
    ) -> None:
        """How long something took."""
        self._begin(name, help_text, "histogram")
        for labels, seen in rows:
            below = list(accumulate(seen.buckets))
            bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
            self._lines += [
                f"{name}_bucket{render_labels({**labels, 'le': bound})} {count}"
                for bound, count in zip(bounds, below, strict=True)
            ]
            self._lines.append(f"{name}_sum{render_labels(labels)} {seen.total_s:.6f}")
            self._lines.append(f"{name}_count{render_labels(labels)} {below[-1]}")

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines) + "\n"

    def _begin(self, name: str, help_text: str, kind: str) -> None:
        self._lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.3f}"
