"""Where the records of these tests are: tests/contract/records runs the same ones elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores import OpenStore, sqlite_place


@pytest.fixture
def place(tmp_path: Path) -> OpenStore:
    """A database file of this test's own."""
    return sqlite_place(tmp_path)
