"""The portable SQL as PostgreSQL reads it."""

from __future__ import annotations

import pytest

from tidewire.storage.dialect import render_postgres, try_render_copy


@pytest.mark.parametrize(
    "portable, expected",
    [
        ("SELECT a FROM t WHERE b = ? AND c IN (?, ?)", "SELECT a FROM t WHERE b = $1 AND c IN ($2, $3)"),
        ("SELECT a FROM t WHERE b LIKE ? ESCAPE '\\'", "SELECT a FROM t WHERE b LIKE $1 ESCAPE '\\'"),
        ("SELECT '?', \"?\", 'TEXT' FROM t WHERE a = ?", "SELECT '?', \"?\", 'TEXT' FROM t WHERE a = $1"),
        ("SELECT 'it''s ?' WHERE a = ?", "SELECT 'it''s ?' WHERE a = $1"),
        ("SELECT a % 10 FROM t", "SELECT a % 10 FROM t"),
    ],
    ids=["numbered", "escape", "quoted", "doubled quote", "percent"],
)
def test_placeholders_are_numbered_outside_of_quotes(portable: str, expected: str) -> None:
    assert render_postgres(portable) == expected


def test_column_types_keep_their_width_and_compare_bytewise() -> None:
    made = render_postgres("CREATE TABLE t (id TEXT PRIMARY KEY, a INTEGER NOT NULL, b REAL, c BLOB)")
    assert made == (
        'CREATE TABLE t (id TEXT COLLATE "C" PRIMARY KEY, a BIGINT NOT NULL, b DOUBLE PRECISION, c BYTEA)'
    )
    assert render_postgres("ALTER TABLE t ADD COLUMN d TEXT") == 'ALTER TABLE t ADD COLUMN d TEXT COLLATE "C"'


def test_casts_keep_their_width_and_name_no_collation() -> None:
    cast = render_postgres("SELECT CAST(a AS REAL), CAST(b AS INTEGER), CAST(c AS TEXT) FROM t")
    assert cast == "SELECT CAST(a AS DOUBLE PRECISION), CAST(b AS BIGINT), CAST(c AS TEXT) FROM t"


def test_names_in_small_letters_are_left_alone() -> None:
    assert (
        render_postgres("SELECT text, real_price FROM integer_t") == "SELECT text, real_price FROM integer_t"
    )


def test_insert_of_placeholders_only_becomes_a_copy() -> None:
    assert (
        try_render_copy("INSERT INTO o1_0 (id, c7, k7) VALUES (?, ?, ?)")
        == "COPY o1_0 (id, c7, k7) FROM STDIN"
    )


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t (a) VALUES (?) ON CONFLICT (a) DO NOTHING",
        "INSERT INTO t (a, b) VALUES (?, 1)",
        "INSERT INTO t (a) VALUES (?) RETURNING a",
        "INSERT INTO t SELECT a FROM u WHERE b = ?",
        "UPDATE t SET a = ? WHERE b = ?",
    ],
)
def test_statement_that_does_more_than_store_rows_becomes_no_copy(sql: str) -> None:
    assert try_render_copy(sql) is None
