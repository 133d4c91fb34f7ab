"""Translates the portable SQL of the storage contract to PostgreSQL. Pure.

Stages write one text for both stores: `?` for a value, and SQLite's words for the types. Here the words
become types of the same width, text compares bytewise as in SQLite whatever the database's collation is, and
placeholders are numbered. Quoted text is not changed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count

# Types are written in capitals, columns never are.
_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\?|\b(?:INTEGER|REAL|BLOB|TEXT)\b")
_TABLE_STATEMENT = re.compile(r"\s*(?:CREATE(?:\s+TEMP)?|ALTER)\s+TABLE\b")
_TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA", "TEXT": "TEXT"}
_PLAIN_INSERT = re.compile(r"INSERT INTO (\w+ \([a-z0-9_, ]+\)) VALUES \(\?(?:, \?)*\)")
_COLUMN_TYPES = {**_TYPES, "TEXT": 'TEXT COLLATE "C"'}


@lru_cache(maxsize=4096)
def render_postgres(sql: str) -> str:
    """Return the statement with `$1`, `$2`, ... and PostgreSQL's types."""
    # A collation belongs to a column; a CAST cannot name one.
    types = _COLUMN_TYPES if _TABLE_STATEMENT.match(sql) else _TYPES
    numbers = count(1)

    def replace(match: re.Match[str]) -> str:
        found = match[0]
        return f"${next(numbers)}" if found == "?" else types.get(found, found)

    return _TOKEN.sub(replace, sql)


@lru_cache(maxsize=4096)
def try_render_copy(sql: str) -> str | None:
    """Return the COPY for an INSERT that consists of placeholders only; None for any other statement."""
    match = _PLAIN_INSERT.fullmatch(sql)
    return None if match is None else f"COPY {match[1]} FROM STDIN"
