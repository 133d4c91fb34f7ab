"""Shared by the pipeline tests: one Spark session, since starting one is slow, and servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tidewire.pipeline.spark import start_session
from tidewire.testing import LocalServer


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session("local[2]")
    yield session
    session.stop()


@pytest.fixture
def source() -> Iterator[LocalServer]:
    """A server in a process of its own, whose transactions may overflow."""
    with LocalServer(form="process") as process:
        yield process
