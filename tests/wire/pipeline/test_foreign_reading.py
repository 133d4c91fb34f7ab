"""The source `tidewire` with the export off: our server read as any server of the Pub/Sub API would be."""

from __future__ import annotations

import json
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.pipeline import archive_lake
from tests.running import Rest
from tidewire.client.login import Credentials, login
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import (
    ConfigInvalid,
    LoginFailed,
    PlatformError,
    ReplayIdExpired,
    ReplayIdInvalid,
    ServerUnreachable,
    SessionInvalid,
    TopicUnknown,
)
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.source.event_source import (
    ReadSettings,
    TidewireBatchReader,
    TidewireStreamReader,
    parse_read_settings,
)
from tidewire.testing import ServerProcess

TOPIC = "/data/AccountChangeEvent"
PATIENT = ReadSettings(settle_s=60)


def settings_for(server: ServerProcess, **more: Any) -> BusSettings:
    return replace(archive_lake.settings_for(server, TOPIC), **{"export": "off", **more})


def read_batch(settings: BusSettings, read: ReadSettings = PATIENT) -> list[dict[str, Any]]:
    reader = TidewireBatchReader(settings, read)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def read_available(
    settings: BusSettings, start: dict[str, Any] | None, read: ReadSettings = PATIENT
) -> tuple[list[list[dict[str, Any]]], dict[str, Any]]:
    """The batches of a query that takes what there is now, and its last offset."""
    reader = TidewireStreamReader(settings, read)
    batches: list[list[dict[str, Any]]] = []
    try:
        reader.prepareForTriggerAvailableNow()
        offset = reader.initialOffset() if start is None else start
        while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
            parts = reader.partitions(offset, end)
            batches.append([row for part in parts for b in reader.read(part) for row in b.to_pylist()])
            reader.commit(end)
            offset = end
    finally:
        reader.stop()
    return batches, offset


def test_batch_read_gives_every_event_of_the_channel(server: ServerProcess, rest: Rest) -> None:
    for i in range(5):
        rest.create("Account", {"Name": f"Foreign {i}"})
    by_bus, by_export = read_batch(settings_for(server)), read_batch(settings_for(server, export=""))
    assert len(by_bus) >= 5
    assert by_bus == by_export


def test_available_now_reads_in_batches_ends_and_continues_from_its_checkpoint(
    server: ServerProcess, rest: Rest
) -> None:
    settings, read = settings_for(server), replace(PATIENT, max_rows=3, rows_per_partition=2)
    _, tip = read_available(settings, None)
    for i in range(7):
        rest.create("Account", {"Name": f"Batched {i}"})
    batches, end = read_available(settings, tip, read)
    assert [len(rows) for rows in batches if rows] == [3, 3, 1]
    again, same = read_available(settings, end, read)
    assert (again, same) == ([], end)
    rest.create("Account", {"Name": "one more"})
    first_version = {"v": 1, "replay": end["replay"]}
    batches, _ = read_available(settings, first_version, read)
    assert sum(map(len, batches)) == 1


def test_batch_that_a_restart_repeats_has_the_same_rows(server: ServerProcess, rest: Rest) -> None:
    settings = settings_for(server)
    _, tip = read_available(settings, None)
    for i in range(4):
        rest.create("Account", {"Name": f"Repeated {i}"})
    (rows,), end = read_available(settings, tip)
    reader = TidewireStreamReader(settings, PATIENT)
    again = [row for part in reader.partitions(tip, end) for b in reader.read(part) for row in b.to_pylist()]
    reader.stop()
    assert again == rows


def test_checkpoint_of_another_org_is_rejected(server: ServerProcess) -> None:
    _, tip = read_available(settings_for(server), None)
    assert tip["incarnation"].startswith("00D")
    foreign = {**tip, "incarnation": "00D000000000001EAA"}
    for export in ("off", ""):
        with pytest.raises(ReplayIdInvalid, match="belongs to org 00D000000000001EAA"):
            read_available(settings_for(server, export=export), foreign)
    assert read_available(settings_for(server, export=""), tip)[0] == []
    with pytest.raises(ReplayIdInvalid, match="belongs to org 00D000000000001EAA,"):
        read_available(settings_for(server), {**tip, "incarnation": "00D000000000001EAA-100"})


def test_position_that_the_server_no_longer_has_is_reported(server: ServerProcess) -> None:
    with pytest.raises(ReplayIdExpired, match="An archive may still have them"):
        read_available(settings_for(server), {"v": 2, "replay": "1", "incarnation": ""})


def test_session_instead_of_a_login_reads_the_same(server: ServerProcess, rest: Rest) -> None:
    rest.create("Account", {"Name": "by token"})
    session = login(Credentials(server.http, DEV_USERNAME, DEV_PASSWORD))
    settings = BusSettings(
        server.grpc,
        TOPIC,
        token=session.token,
        org_id=session.org_id,
        login_url=session.instance_url,
        export="off",
    )
    assert read_batch(settings) == read_batch(settings_for(server))


def test_events_over_tls_are_the_same_and_a_strange_certificate_is_rejected(
    server: ServerProcess, rest: Rest
) -> None:
    rest.create("Account", {"Name": "by TLS"})
    secure = {"endpoint": server.grpc_tls, "login_url": server.https}
    assert read_batch(settings_for(server, **secure, tls_ca=str(server.ca_path))) == read_batch(
        settings_for(server)
    )
    with pytest.raises(ServerUnreachable, match=r"(?i)certificate"):
        read_batch(settings_for(server, **secure, tls=True, retry_s=0.1))


@pytest.mark.parametrize(
    "wrong, error, words",
    [
        ({"password": "wrong"}, LoginFailed, "rejected the login"),
        ({"topic": "/data/NothingChangeEvent"}, TopicUnknown, "/data/NothingChangeEvent"),
        ({"login_url": "localhost"}, ConfigInvalid, "http://"),
        (
            {"username": "", "token": "00D!gone", "org_id": "00D000000000001EAA"},
            SessionInvalid,
            "Session expired",
        ),
        ({"username": "", "token": "t", "org_id": "00D", "login_url": ""}, ConfigInvalid, "'login_url'"),
    ],
)
def test_what_is_wrong_with_the_options_is_told_at_once(
    server: ServerProcess, wrong: dict[str, Any], error: type[PlatformError], words: str
) -> None:
    with pytest.raises(error, match=words):
        read_batch(settings_for(server, **wrong))


def create_as(server: ServerProcess, client: str, account: dict[str, str]) -> None:
    """Create an account as a program that names itself."""
    connection = HTTPConnection(server.http.removeprefix("http://"))
    headers = {
        "Authorization": f"Bearer {server.login()}",
        "Content-Type": "application/json",
        "Sforce-Call-Options": f"client={client}",
    }
    connection.request("POST", "/services/data/v67.0/sobjects/Account", json.dumps(account), headers)
    assert connection.getresponse().status == 201
    connection.close()


def test_own_changes_are_left_out_by_their_origin_and_archived_all_the_same(
    server: ServerProcess, rest: Rest
) -> None:
    settings = settings_for(server)
    _, tip = read_available(settings, None)
    create_as(server, "WriterBack", {"Name": "written back"})
    rest.create("Account", {"Name": "somebody else's"})
    everything, _ = read_available(settings, tip)
    assert sum(map(len, everything)) == 2
    for export in ("off", ""):
        read = replace(
            PATIENT, skip_origins=parse_read_settings({"skip_origins": "x, WriterBack"}).skip_origins
        )
        others, _ = read_available(settings_for(server, export=export), tip, read)
        assert [row["replay_id"] for rows in others for row in rows] == [everything[-1][-1]["replay_id"]]
