"""An expired replay id: events are copied from another archive, or their objects read again."""

from __future__ import annotations

from pathlib import Path

from tests.pipeline.histories import write_bronze
from tests.pipeline.history_bus import TOKEN, HistoryBus
from tests.unit.pipeline.oracle import ENTITIES, Org
from tests.unit.pipeline.upkeep.test_resync import Mirror
from tidewire.clock import ManualClock, SystemClock
from tidewire.pipeline.lake.control import open_resyncs
from tidewire.pipeline.lake.spans import Span
from tidewire.pipeline.lake.tables import Lake, try_open_table
from tidewire.pipeline.source.archive_replay import read_holes
from tidewire.pipeline.source.bus import Bus, BusSettings
from tidewire.pipeline.upkeep.compaction import Compactor
from tidewire.pipeline.upkeep.gap_recovery import GapRecovery, recover_expired

EPOCH = 1


def heal(mirror: Mirror, first_kept: int, archive: Lake | None = None) -> GapRecovery:
    """Heal against a server that keeps only what comes from `first_kept` on."""
    history = mirror.org.history
    kept = [event for event in history.events if event.replay_id >= first_kept]
    with HistoryBus(kept, history.position, first_kept=first_kept) as server:
        settings = BusSettings(server.endpoint, "/data/ChangeEvents", org_id="00D", token=TOKEN, retry_s=60)
        bus = Bus(settings, SystemClock())
        try:
            return recover_expired(mirror.lake, EPOCH, mirror.reader, bus, ManualClock(), archive)
        finally:
            bus.close()


def mirror_with_a_hole(place: Path) -> tuple[Mirror, int]:
    """A lake that stopped following, and the first event that the server then still has."""
    mirror = Mirror(Org(11), place)
    for _ in range(4):
        mirror.org.transact()
    mirror.archive()
    mirror.apply()
    mirror.settle()
    for _ in range(8):
        mirror.org.transact()
    kept = [event for event in mirror.org.history.events if event.replay_id > mirror.archived]
    checkpoint = Path(mirror.lake.checkpoint("archive"))
    checkpoint.mkdir(parents=True)
    (checkpoint / "offsets").write_text("of an expired position")
    return mirror, kept[len(kept) // 2].replay_id


def test_events_that_nobody_has_are_made_up_for_by_reading_every_object(tmp_path: Path) -> None:
    mirror, first_kept = mirror_with_a_hole(tmp_path)
    healed = heal(mirror, first_kept)
    assert healed == GapRecovery("resynced", first_kept - 1)
    assert set(open_resyncs(mirror.lake)) == set(ENTITIES)
    assert {each.cause for each in open_resyncs(mirror.lake).values()} == {"expired"}
    assert not Path(mirror.lake.checkpoint("archive")).exists()
    mirror.archived = healed.position
    mirror.settle()
    assert mirror.living() == mirror.truth()


def test_recovery_again_after_a_crash_only_continues(tmp_path: Path) -> None:
    mirror, first_kept = mirror_with_a_hole(tmp_path)
    heal(mirror, first_kept)
    assert heal(mirror, first_kept) == GapRecovery("resumed", first_kept - 1)


def test_events_that_another_archive_has_are_taken_over(tmp_path: Path) -> None:
    mirror, first_kept = mirror_with_a_hole(tmp_path)
    other = Lake(str(tmp_path / "other"), "other")
    events = mirror.org.history.events
    middle = events[len(events) // 3].replay_id
    write_bronze(other, [event for event in events if event.replay_id <= middle], middle)
    rest = [event for event in events if event.replay_id > middle]
    write_bronze(other, rest, mirror.org.history.position)
    healed = heal(mirror, first_kept, other)
    assert healed == GapRecovery("refilled", mirror.org.history.position)
    mirror.archived = healed.position
    mirror.settle()
    assert mirror.living() == mirror.truth()
    bronze = try_open_table(mirror.lake, "bronze")
    assert bronze is not None
    kept = bronze.delta.to_pyarrow_table(columns=["replay_id"])["replay_id"].to_pylist()
    assert sorted(kept) == [event.replay_id for event in events]


def test_archive_that_does_not_begin_where_the_lake_ends_is_not_used(tmp_path: Path) -> None:
    mirror, first_kept = mirror_with_a_hole(tmp_path)
    other = Lake(str(tmp_path / "other"), "other")
    last = mirror.org.history.events[-1]
    write_bronze(other, [last], last.replay_id)
    assert heal(mirror, first_kept, other).action == "resynced"


def test_archive_with_a_hole_of_its_own_is_taken_over_up_to_there_and_no_further(tmp_path: Path) -> None:
    mirror, first_kept = mirror_with_a_hole(tmp_path)
    events = mirror.org.history.events
    after = [event.replay_id for event in events if event.replay_id > mirror.archived]
    other = Mirror(mirror.org, tmp_path)
    before_hole, last_lost = after[1], after[3]
    write_bronze(other.lake, [event for event in events if event.replay_id <= before_hole], before_hole)
    heal(other, last_lost + 1)
    rest = [event for event in events if event.replay_id > last_lost]
    write_bronze(other.lake, rest, mirror.org.history.position)
    Compactor(other.lake, EPOCH, ManualClock()).join("bronze", at_least=2)
    assert last_lost < first_kept
    healed = heal(mirror, first_kept, other.lake)
    assert healed == GapRecovery("resynced", first_kept - 1)
    bronze = try_open_table(mirror.lake, "bronze")
    assert bronze is not None
    assert read_holes(bronze) == (Span(before_hole, first_kept - 1),)
    kept = bronze.delta.to_pyarrow_table(columns=["replay_id"])["replay_id"].to_pylist()
    assert sorted(kept) == [event.replay_id for event in events if event.replay_id <= before_hole]
    mirror.archived = healed.position
    mirror.settle()
    assert mirror.living() == mirror.truth()


def test_lake_that_lacks_nothing_just_continues(tmp_path: Path) -> None:
    mirror = Mirror(Org(12), tmp_path)
    mirror.org.transact()
    mirror.archive()
    assert heal(mirror, 0) == GapRecovery("resumed", mirror.org.history.position)
