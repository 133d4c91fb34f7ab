"""Counters, histograms of time taken, and structured logs. Keys are `stage.noun_verb`.

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
"""Process-wide counts since start. Adding is one dict operation; docs/glossary.md says how they are named."""

timer_s = SystemClock().monotonic_s
"""Seconds for measuring how long something took; never what anything is decided by."""

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of every histogram's buckets, in seconds; one more holds what took longer."""


def render_labels(labels: Mapping[str, str]) -> str:
    """Labels of a metric as Prometheus reads them."""
    if not labels:
        return ""
    escaped = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


class Histogram:
    """How long something took, by buckets.

    Without a lock: threads that observe at one instant may lose one count.
    """

    __slots__ = ("buckets", "total_s")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        """Add `count` observations of the same length."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += count
        self.total_s += seconds * count

    def add(self, buckets: list[int], total_s: float) -> None:
        """Add what another histogram has seen."""
        self.buckets = [own + other for own, other in zip(self.buckets, buckets, strict=True)]
        self.total_s += total_s


TIMINGS: defaultdict[str, Histogram] = defaultdict(Histogram)
"""Process-wide histograms since start. Names come from the code only, so their number is bounded."""

Snapshot = tuple[dict[str, int], dict[str, tuple[list[int], float]]]
"""Counters, and buckets and sum of each histogram, as they travel from an edge to its core."""


def take_snapshot() -> Snapshot:
    """Everything that this process has counted."""
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
