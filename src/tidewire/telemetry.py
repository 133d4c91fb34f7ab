"""Counters, latency histograms and structured logs. Keys are `stage.noun_verb`.

Log lines go to stderr, one JSON object or one line of text each.
"""

from __future__ import annotations

import json
import logging
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TextIO

from tidewire.clock import SystemClock

_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

counters: Counter[str] = Counter()
"""Process-wide counts since start. Adding is one dict operation; docs/glossary.md explains the names."""

timer_s = SystemClock().monotonic_s
"""Seconds for measuring durations only; decisions use an injected clock."""

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of every histogram, in seconds; one more bucket holds all longer durations."""


def render_labels(labels: Mapping[str, str]) -> str:
    """Render the labels of a metric in Prometheus's format."""
    if not labels:
        return ""
    escaped = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


class Histogram:
    """Durations by buckets. Without a lock: threads that observe at the same instant may lose a count."""

    __slots__ = ("buckets", "total_s")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        """Add `count` observations of the same duration."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += count
        self.total_s += seconds * count

    def add(self, buckets: list[int], total_s: float) -> None:
        """Add the observations of another histogram."""
        self.buckets = [own + other for own, other in zip(self.buckets, buckets, strict=True)]
        self.total_s += total_s


TIMINGS: defaultdict[str, Histogram] = defaultdict(Histogram)
"""Process-wide histograms since start. Names come from the code only, so their number is bounded."""

Snapshot = tuple[dict[str, int], dict[str, tuple[list[int], float]]]
"""Counters, and buckets and sum of each histogram, as an edge sends them to the core."""


def take_snapshot() -> Snapshot:
    """Return all counts of this process."""
    return dict(counters), {name: (list(each.buckets), each.total_s) for name, each in TIMINGS.items()}


class JsonFormatter(logging.Formatter):
    """Renders a record as one JSON line.

    Line breaks in values are escaped by JSON, so a peer cannot forge a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _RESERVED}
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Renders a record as one line for people: time, level, what happened, then key=value.

    Values are in JSON's form, so a peer can forge no line here either.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        message = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        parts = [f"{at}.{int(record.msecs):03}", f"{record.levelname:<7}", message]
        parts += [
            f"{key}={json.dumps(value, default=str)}"
            for key, value in vars(record).items()
            if key not in _RESERVED
        ]
        line = " ".join(parts)
        return line + "\n" + self.formatException(record.exc_info) if record.exc_info else line


FORMATS: dict[str, type[logging.Formatter]] = {"json": JsonFormatter, "text": TextFormatter}


def configure_logging(level: str = "INFO", stream: TextIO | None = None, form: str = "json") -> None:
    """Send every log line of the process to `stream` (stderr). Called once, by the command line."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(FORMATS[form]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
