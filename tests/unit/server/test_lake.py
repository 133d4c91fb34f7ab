"""What the server tells of a lake, whatever state that is in."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tidewire.clock import ManualClock
from tidewire.errors import ResourceUnknown
from tidewire.server.lake import LakeReader

ID = "001000000000001AAA"
OTHER = "001000000000002AAA"


def told_at(directory: Path) -> int:
    return round((directory / "status.json").stat().st_mtime * 1000)


def change(record_id: str, replay_id: int, **more: object) -> dict[str, object]:
    return {"record_id": record_id, "replay_id": replay_id, "values_json": "{}"} | more


async def test_directory_without_a_lake_is_empty(tmp_path: Path) -> None:
    answer = await LakeReader(str(tmp_path / "lake"), ManualClock()).status()
    assert (answer["state"], answer["status"]) == ("empty", None)
    assert "tidewire pipeline run" in str(answer["message"])


async def test_running_pipeline_is_shown_by_its_own_status(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"archived": 7, "health": "fine"}')
    answer = await LakeReader(str(tmp_path), ManualClock(told_at(tmp_path) + 1_000)).status()
    assert answer == {"state": "running", "message": "", "status": {"archived": 7, "health": "fine"}}


async def test_pipeline_with_an_old_status_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"archived": 7}')
    answer = await LakeReader(str(tmp_path), ManualClock(told_at(tmp_path) + 90_000)).status()
    assert (answer["state"], answer["status"]) == ("stopped", {"archived": 7})
    assert "90 seconds old" in str(answer["message"])


async def test_status_that_is_not_json_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"archived": ')
    answer = await LakeReader(str(tmp_path), ManualClock()).status()
    assert (answer["state"], answer["status"]) == ("unreadable", None)


async def test_status_is_read_again_only_after_a_moment(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text('{"archived": 1}')
    clock = ManualClock(told_at(tmp_path))
    reader = LakeReader(str(tmp_path), clock)
    await reader.status()
    (tmp_path / "status.json").write_text('{"archived": 2}')
    assert (await reader.status())["status"] == {"archived": 1}
    clock.advance(2)
    assert (await reader.status())["status"] == {"archived": 2}


async def test_lake_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "bronze" / "_delta_log").mkdir(parents=True)
    (tmp_path / "bronze" / "_delta_log" / "00000000000000000000.json").write_text("no json")
    answer = await LakeReader(str(tmp_path), ManualClock()).status()
    assert (answer["state"], answer["status"]) == ("unreadable", None)


async def test_history_is_of_one_record_from_changes_and_reads_newest_first(tmp_path: Path) -> None:
    rows = [change(ID, 5), change(OTHER, 6), change(ID, 9, change_type="UPDATE")]
    write_deltalake(str(tmp_path / "history" / "Account"), pa.Table.from_pylist(rows))
    read = [change(ID, 7, change_type="READ")]
    write_deltalake(str(tmp_path / "reads" / "Account"), pa.Table.from_pylist(read))

    answer = await LakeReader(str(tmp_path), ManualClock()).history("account", ID)

    changes = json.loads(json.dumps(answer))["changes"]
    assert (answer["entity"], [row["replay_id"] for row in changes]) == ("Account", [9, 7, 5])


async def test_history_of_a_much_changed_record_is_cut(tmp_path: Path) -> None:
    rows = [change(ID, number) for number in range(500)]
    write_deltalake(str(tmp_path / "history" / "Account"), pa.Table.from_pylist(rows))
    answer = await LakeReader(str(tmp_path), ManualClock()).history("Account", ID)
    changes = answer["changes"]
    assert isinstance(changes, list)
    assert (len(changes), changes[0]["replay_id"]) == (200, 499)


@pytest.mark.parametrize("entity", ["Contact", "../outside", "..", ".", "Account/../../outside", "/etc"])
async def test_history_of_an_object_that_is_not_in_the_lake_is_unknown(tmp_path: Path, entity: str) -> None:
    lake = tmp_path / "lake"
    write_deltalake(str(lake / "history" / "Account"), pa.Table.from_pylist([change(ID, 1)]))
    write_deltalake(str(tmp_path / "outside"), pa.Table.from_pylist([change(ID, 1)]))
    with pytest.raises(ResourceUnknown):
        await LakeReader(str(lake), ManualClock()).history(entity, ID)
