"""Fixtures of the wire tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bayeux import Dialler


@pytest.fixture
def dial() -> Iterator[Dialler]:
    """Connections that are closed at the end of the test."""
    dialler = Dialler()
    yield dialler
    dialler.close()
