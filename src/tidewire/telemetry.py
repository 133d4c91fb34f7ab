"""Counters and structured logs. One JSON object a line on stderr; keys are `stage.noun_verb`."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from typing import TextIO

_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

counters: Counter[str] = Counter()
"""Process-wide counts since start. Adding is one dict operation; names stand in docs/glossary.md's metric
list.
"""


class JsonFormatter(logging.Formatter):
    """Renders a record as one JSON line. Line breaks in values are escaped by JSON, so a peer cannot forge a
    line.
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


def configure_logging(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send every log line of the process to `stream` (stderr). Called once, by the command line."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
