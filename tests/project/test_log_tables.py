"""Only `eventlog` runs SQL on the tables of the event log, so that another log can take its place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/tidewire"
ALLOWED = ("eventlog/", "storage/migrations.py")
_TABLES = r"(?:event_schemas|partitions|incarnations|topics|families|e\d_\d+|e\{)"
LOG_SQL = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE|TABLE(?: IF NOT EXISTS)?)\s+{_TABLES}(?:\W|$)")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a module, with the parts of f-strings put together."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_log_tables_are_used_by_the_event_log_only() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text[:80]}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not str(path.relative_to(SOURCE)).startswith(ALLOWED)
        for line, text in texts(path)
        if LOG_SQL.search(text)
    ]
    assert found == []


def test_scan_finds_the_statements_of_the_event_log_itself() -> None:
    found = [
        text for path in (SOURCE / "eventlog").glob("*.py") for _, text in texts(path) if LOG_SQL.search(text)
    ]
    for table in ("event_schemas", "partitions", "incarnations", "topics", "families"):
        assert any(table in text for text in found), table
    assert LOG_SQL.search("SELECT position FROM e4_497987 WHERE position > 1")
    assert LOG_SQL.search("SELECT position FROM e{}_{}")
