"""Rejected requests mapped to our errors, and servers without an export."""

from __future__ import annotations

import json
import threading

import pytest

from tests.unit.client.test_login import LoginServer
from tidewire.client.http_blocking import HttpHead
from tidewire.clock import SystemClock
from tidewire.errors import (
    AccessDenied,
    ChannelUnknown,
    PlatformError,
    ReplayIdExpired,
    ReplayIdInvalid,
    RequestRefused,
    ResourceUnknown,
    ServerUnreachable,
    SessionInvalid,
)
from tidewire.pipeline.source.bus import Bus, BusSettings
from tidewire.pipeline.source.log_export import Incarnation, LogPlan, find_export
from tidewire.pipeline.source.offsets import Offset
from tidewire.pipeline.source.server_http import check


@pytest.mark.parametrize(
    "status, body, expected",
    [
        (400, [{"errorCode": "REPLAY_ID_EXPIRED", "message": "old"}], ReplayIdExpired),
        (400, [{"errorCode": "INVALID_REPLAY_ID", "message": "none"}], ReplayIdInvalid),
        (401, [{"errorCode": "INVALID_SESSION_ID", "message": "out"}], SessionInvalid),
        (403, [{"errorCode": "INSUFFICIENT_ACCESS_OR_READONLY", "message": "no"}], AccessDenied),
        (404, [{"errorCode": "NOT_FOUND", "message": "The channel you requested"}], ChannelUnknown),
        (404, "a page", ResourceUnknown),
        (503, {"odd": True}, ServerUnreachable),
        (418, [], RequestRefused),
    ],
)
def test_refusal_is_mapped_by_its_code_and_status(
    status: int, body: object, expected: type[PlatformError]
) -> None:
    with pytest.raises(expected):
        check(HttpHead(status, {}), json.dumps(body).encode(), "/path?secret=1")


def test_server_that_knows_only_logins_has_no_export() -> None:
    with LoginServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        settings = BusSettings(
            "x:1", "/data/ChangeEvents", org_id="00D", token="t", login_url=server.url, retry_s=0.1
        )
        assert find_export(Bus(settings, SystemClock())) is None
        server.shutdown()


def test_offset_is_checked_against_the_incarnations_of_the_log() -> None:
    lives = (Incarnation("a-10", 10, 20), Incarnation("a-100", 100, None))
    plan = LogPlan(9, 120, 120, (), lives)
    for offset in (Offset(0), Offset(15), Offset(9, "a-10"), Offset(20, "a-10"), Offset(120, "a-100")):
        plan.check(offset)
    found = [plan.incarnation_of(position) for position in (9, 20, 21, 99, 120)]
    assert found == ["a-10", "a-10", "", "a-100", "a-100"]
    with pytest.raises(ReplayIdInvalid, match="restored from a backup"):
        plan.check(Offset(25, "a-10"))
    with pytest.raises(ReplayIdInvalid, match="another org, or its data was recreated"):
        plan.check(Offset(15, "b-10"))
