"""A checkpoint that does not belong to the lake's tables is dropped, any other stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidewire.pipeline.driver.checkpoints import check_checkpoint
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.source.offsets import render_offset


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


@pytest.fixture
def checkpoint(lake: Lake) -> Path:
    """Two batches are done, up to positions 10 and 20, and one up to 30 is planned."""
    directory = Path(lake.checkpoint("archive"))
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"one"}')
    for number, position in enumerate((10, 20, 30)):
        offset = json.dumps(render_offset(position, "i"))
        (directory / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')
        if number < 2:
            (directory / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return directory


@pytest.mark.parametrize("committed", [20, 25, 1_000])
def test_checkpoint_that_the_table_has_reached_stays(lake: Lake, checkpoint: Path, committed: int) -> None:
    check_checkpoint(lake, "archive", committed)
    assert (checkpoint / "offsets" / "2").exists()


@pytest.mark.parametrize("committed", [None, 0, 19])
def test_checkpoint_that_is_ahead_of_the_table_is_dropped(
    lake: Lake, checkpoint: Path, committed: int | None
) -> None:
    check_checkpoint(lake, "archive", committed)
    assert not checkpoint.exists()


@pytest.mark.parametrize("file", ["metadata", "offsets/1", "offsets/2", "commits/1"])
@pytest.mark.parametrize("text", ["", "v1\n", "{"])
def test_checkpoint_with_a_damaged_file_is_dropped(
    lake: Lake, checkpoint: Path, file: str, text: str
) -> None:
    (checkpoint / file).write_text(text)
    check_checkpoint(lake, "archive", 20)
    assert not checkpoint.exists()


def test_checkpoint_without_a_done_batch_stays_and_a_missing_one_is_no_matter(
    lake: Lake, checkpoint: Path
) -> None:
    for number in (0, 1):
        (checkpoint / "commits" / str(number)).unlink()
    check_checkpoint(lake, "archive", None)
    assert checkpoint.exists()
    check_checkpoint(lake, "apply", 5)


def test_checkpoint_whose_first_batch_a_full_disk_has_cut_off_is_dropped(lake: Lake) -> None:
    directory = Path(lake.checkpoint("apply"))
    (directory / "offsets").mkdir(parents=True)
    (directory / "metadata").write_text('{"id":"one"}')
    check_checkpoint(lake, "apply", None)
    assert directory.exists()
    (directory / "offsets" / ".0.crc").write_bytes(b"crc")
    check_checkpoint(lake, "apply", None)
    assert not directory.exists()
