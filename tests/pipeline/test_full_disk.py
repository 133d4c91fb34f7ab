"""A lake on a full disk: nothing wrong is written, the status has the reason, and space is all it needs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipeline.live_org import (
    OBJECTS,
    assert_lake_is_true,
    make_one_of_each,
    replica_rows,
    select_objects,
    source_rows,
)
from tests.pipeline.pipeline_process import Driver, is_well, told, wait_for
from tests.running import Rest
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.status.lake_status import read_status
from tidewire.testing import LocalServer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB, in memory."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tidewire-test", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"file systems can be mounted by root only: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room there is; returns the file that has it."""
    ballast = disk / "ballast"
    size_bytes = 1 << 20
    with ballast.open("wb", buffering=0) as file:
        while size_bytes:
            try:
                file.write(bytes(size_bytes))
            except OSError:
                size_bytes //= 2
    return ballast


def test_pipeline_on_a_full_disk_says_so_keeps_what_it_has_and_continues_with_room(
    source: LocalServer, small_disk: Path, tmp_path: Path
) -> None:
    lake = Lake(str(small_disk / "lake"))
    with closing(Rest(source.http, source.login())) as rest:
        select_objects(rest)
        make_one_of_each(rest)
        driver = Driver(source, lake, "local[2]", tmp_path / "driver.log")
        try:
            wait_for(driver, "a copy", lambda: is_well(lake))
            before = {entity: source_rows(rest, entity) for entity in OBJECTS}
            ballast = fill(small_disk)
            make_one_of_each(rest)
            wait_for(driver, "its words", lambda: "archive: disk_full: " in told(lake).get("problem", ""))
            assert read_status(lake).health == "retrying"
            assert {entity: replica_rows(lake, entity) for entity in OBJECTS} == before
            make_one_of_each(rest)
            ballast.unlink()
            head = rest.call("GET", "/services/tidewire/v1/status")["head"]
            wait_for(
                driver, "the rest", lambda: told(lake).get("applied_through", 0) >= head and is_well(lake)
            )
            driver.stop()
        finally:
            driver.bury()
        assert_lake_is_true(rest, lake)
