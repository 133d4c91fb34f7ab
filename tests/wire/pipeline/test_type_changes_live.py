"""Fields of a live server's object that change their type, come and are renamed: the replica follows, row for row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.pipeline.apply_lake import apply_all
from tests.pipeline.archive_lake import archive_all, settings_for
from tests.pipeline.histories import native_rows
from tests.running import Rest
from tidewire.clock import SystemClock
from tidewire.pipeline.lake.control import open_dirty, open_resyncs
from tidewire.pipeline.lake.tables import Lake
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.source.records_reader import RecordsReader
from tidewire.pipeline.upkeep import snapshot
from tidewire.pipeline.upkeep.audit import audit
from tidewire.pipeline.upkeep.reconcile import Reconciler
from tidewire.pipeline.upkeep.resync import Resyncer
from tidewire.testing import ServerProcess

EPOCH = 1
CRATE = "TypeCrate__c"
CHANNEL = "TypeCrates__chn"
METADATA = "http://soap.sforce.com/2006/04/metadata"
TEXT, NUMBER = {"type": "Text", "length": 80}, {"type": "Number", "precision": 18, "scale": 2}
COLOURS = {"type": "Picklist", "values": ["yes", "no"]}
BEFORE = {
    "Lost__c": TEXT,
    "Kept__c": NUMBER,
    "Flag__c": {"type": "Checkbox"},
    "Day__c": {"type": "Date"},
    "Told__c": TEXT,
    "Pick__c": COLOURS,
    "Old__c": TEXT,
}
AFTER = {
    "Lost__c": NUMBER,
    "Kept__c": TEXT,
    "Flag__c": TEXT,
    "Day__c": TEXT,
    "Told__c": {"type": "Checkbox"},
    "Pick__c": {"type": "Checkbox"},
}


@pytest.fixture
def settings(server: ServerProcess, rest: Rest) -> BusSettings:
    crate = {"label": "TypeCrate", "plural": "TypeCrates", "fields": BEFORE}
    rest.call("POST", "/services/tidewire/v1/apply", {"objects": {CRATE: crate}})
    member = {"channel": CHANNEL, "event": "TypeCrate__ChangeEvent"}
    document = {"channels": {CHANNEL: {"label": "TypeCrates", "kind": "data"}}}
    rest.call(
        "POST", "/services/tidewire/v1/apply", {**document, "channel_members": {"TypeCrates_Crate": member}}
    )
    return settings_for(server, f"/data/{CHANNEL}")


@pytest.fixture
def reader(settings: BusSettings) -> Iterator[RecordsReader]:
    made = RecordsReader(settings)
    yield made
    made.close()


def rename_field(server: ServerProcess, token: str, old: str, new: str) -> None:
    content = (
        '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Header>'
        f'<SessionHeader xmlns="{METADATA}"><sessionId>{token}</sessionId></SessionHeader></e:Header><e:Body>'
        f'<renameMetadata xmlns="{METADATA}"><type>CustomField</type><oldFullName>{old}</oldFullName>'
        f"<newFullName>{new}</newFullName></renameMetadata></e:Body></e:Envelope>"
    )
    headers = {"Content-Type": "text/xml", "SOAPAction": '""'}
    answer = requests.post(f"{server.http}/services/Soap/m/62.0", content, headers=headers, timeout=60)
    assert "<success>true</success>" in answer.text, answer.text


class Follower:
    """A lake that follows the server."""

    def __init__(self, place: Path, settings: BusSettings, reader: RecordsReader) -> None:
        self.lake = Lake(str(place))
        self.settings = settings
        self.reader = reader
        self.reconciler = Reconciler(self.lake, EPOCH, reader, SystemClock())
        self.resyncer = Resyncer(self.lake, EPOCH, reader, SystemClock())

    def follow(self) -> None:
        """Take in what there is, and read what has to be read again."""
        for _ in range(50):
            archive_all(self.lake, self.settings)
            apply_all(self.lake)
            if not open_dirty(self.lake) and not open_resyncs(self.lake):
                return
            self.reconciler.once()
            self.resyncer.advance()
        pytest.fail(f"still open: {open_dirty(self.lake)} {open_resyncs(self.lake)}")

    def rows(self) -> dict[str, dict[str, Any]]:
        rows = read_replica(self.lake, CRATE)
        assert not any(rows["_stale"].to_pylist())
        return {record_id: values for record_id, _, values in native_rows(rows)}

    def check(self) -> None:
        """The replica has what the server has, and in old columns what that has lost."""
        self.reader.describe(CRATE, renew=True)
        page = self.reader.read_range(CRATE, "", "", 2000)
        wanted = {
            str(row["Id"]): {name: v for name, v in row.items() if v is not None and name != "Id"}
            for row in page.rows
        }
        found = {
            record_id: {name: value for name, value in values.items() if "__old_" not in name}
            for record_id, values in self.rows().items()
        }
        assert found.keys() == wanted.keys()
        for record_id, row in wanted.items():
            assert sorted(found[record_id].items() ^ row.items(), key=str) == []
        assert audit(self.lake, EPOCH, self.reader, CRATE, SystemClock()).drifted == 0


def test_replica_follows_every_class_of_conversion_a_rename_and_a_new_checkbox(
    tmp_path: Path,
    server: ServerProcess,
    dev_token: str,
    rest: Rest,
    settings: BusSettings,
    reader: RecordsReader,
) -> None:
    follower = Follower(tmp_path / "lake", settings, reader)
    values = {"Lost__c": "many", "Kept__c": 2.25, "Flag__c": True, "Day__c": "2031-05-06"}
    values |= {"Told__c": "yes", "Pick__c": "yes", "Old__c": "o"}
    first = rest.create(CRATE, {"Name": "first", **values})
    snapshot.start(follower.lake, EPOCH, reader, SystemClock())
    rest.create(CRATE, {"Name": "second", **values, "Kept__c": 3, "Pick__c": "no"})
    follower.follow()
    follower.check()
    for name, definition in AFTER.items():
        rest.call("POST", "/services/tidewire/v1/apply", {"objects": {CRATE: {"fields": {name: definition}}}})
        rest.create(CRATE, {"Name": f"after {name}"})
        follower.follow()
        follower.check()
    row = follower.rows()[first]
    kept = {name.partition("__old_")[0]: value for name, value in row.items() if "__old_" in name}
    day_ms = 1_935_792_000_000
    assert kept == {"Lost__c": "many", "Flag__c": True, "Day__c": day_ms, "Told__c": "yes", "Pick__c": "yes"}
    rename_field(server, dev_token, f"{CRATE}.Old__c", f"{CRATE}.New__c")
    rest.create(CRATE, {"Name": "after the rename"})
    follower.follow()
    follower.check()
    assert follower.rows()[first]["New__c"] == "o"
    fresh = {"Fresh__c": {"type": "Checkbox", "default": True}}
    rest.call("POST", "/services/tidewire/v1/apply", {"objects": {CRATE: {"fields": fresh}}})
    rest.update(CRATE, first, {"Name": "again"})
    follower.follow()
    follower.check()
