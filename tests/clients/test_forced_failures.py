"""What the test kit forces, as clients by other people meet it: unmodified CometD and Pub/Sub libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.watcher import Watcher
from tidewire.testing import LocalServer

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(300)]

CHANNEL = "/data/AccountChangeEvent"
PATIENCE_S = 90.0

Line = dict[str, Any]


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalServer]:
    with LocalServer() as running:
        yield running


@pytest.fixture
def local(shared: LocalServer) -> LocalServer:
    shared.reset()
    return shared


@pytest.fixture(params=["cometd_watch.mjs", "java/CometdWatch.java"])
def cometd(request: pytest.FixtureRequest, local: LocalServer, tmp_path: Path) -> Iterator[Watcher]:
    """A client that has subscribed."""
    arguments = [local.http + "/cometd/67.0", local.login(), "-1", CHANNEL]
    with Watcher(request.param, arguments, local.ca_path, tmp_path / "client.log") as watcher:
        watcher.wait_subscribed(1)
        yield watcher


@pytest.fixture
def pubsub(local: LocalServer, tmp_path: Path) -> Iterator[Watcher]:
    """A client that has seen its first event."""
    arguments = [local.grpc_tls, local.https, "-2", CHANNEL, "user-supplied", local.login(), local.org_id]
    local.create("Account", Name="First")
    with Watcher("pubsub_watch.mjs", arguments, local.ca_path, tmp_path / "client.log") as watcher:
        wait_for_change(watcher, "CREATE")
        yield watcher


def wait_for_line(watcher: Watcher, is_wanted: Callable[[Line], bool]) -> Line:
    found: list[Line] = []

    def look(lines: list[Line]) -> bool:
        found[:] = [line for line in lines if is_wanted(line)]
        return bool(found)

    watcher.wait_for(look, PATIENCE_S)
    return found[-1]


def wait_for_change(watcher: Watcher, change: str) -> Line:
    """The header of a change event of this type, once it has come."""

    def header_of(line: Line) -> Line:
        data = line["data"].get("payload", line["data"])  # the Pub/Sub client prints the payload alone
        header: Line = data["ChangeEventHeader"]
        return header

    found = wait_for_line(
        watcher, lambda line: line["kind"] == "event" and header_of(line)["changeType"] == change
    )
    return header_of(found)


def test_cometd_client_is_told_of_gap_and_overflow(local: LocalServer, cometd: Watcher) -> None:
    account = local.create("Account", Name="Gone")
    local.force_gap("Account", [account], "DELETE")
    assert wait_for_change(cometd, "GAP_DELETE")["recordIds"] == [account]
    local.force_overflow("Account")
    assert wait_for_change(cometd, "GAP_OVERFLOW")["entityName"] == "Account"


def test_cometd_client_that_was_disconnected_shakes_hands_again_and_goes_on(
    local: LocalServer, cometd: Watcher
) -> None:
    local.disconnect()
    cometd.wait_subscribed(2, PATIENCE_S)
    account = local.create("Account", Name="After")
    assert wait_for_change(cometd, "CREATE")["recordIds"] == [account]


def test_cometd_client_whose_session_was_expired_is_told_authentication_invalid(
    local: LocalServer, cometd: Watcher
) -> None:
    local.expire_sessions()
    wait_for_line(
        cometd,
        lambda line: line["kind"] == "connect" and line["error"] == "401::Authentication invalid",
    )


def test_cometd_client_survives_requests_that_fail(local: LocalServer, cometd: Watcher) -> None:
    local.fail_next(503, count=2, path="/cometd")
    local.create("Account", Name="Behind two failures")  # answers the poll that is held; the next two fail
    wait_for_change(cometd, "CREATE")
    account = local.create("Account", Name="Then")
    wait_for_line(cometd, lambda line: account in str(line))


def test_pubsub_client_is_told_of_gap_and_overflow(local: LocalServer, pubsub: Watcher) -> None:
    account = local.create("Account", Name="Gone")
    local.force_gap("Account", [account])
    assert wait_for_change(pubsub, "GAP_UPDATE")["recordIds"] == [account]
    local.force_overflow("Account")
    assert wait_for_change(pubsub, "GAP_OVERFLOW")["entityName"] == "Account"


def test_pubsub_client_that_was_disconnected_goes_on_after_its_last_event(
    local: LocalServer, pubsub: Watcher
) -> None:
    local.disconnect()
    wait_for_line(pubsub, lambda line: line["kind"] in ("error", "end"))
    account = local.create("Account", Name="After")
    wait_for_line(pubsub, lambda line: line["kind"] == "event" and account in str(line))
    names = [event["data"]["Name"] for event in pubsub.events]
    assert names == ["First", "After"]


def test_pubsub_client_whose_session_was_expired_is_refused(local: LocalServer, pubsub: Watcher) -> None:
    local.expire_sessions()
    refused = wait_for_line(pubsub, lambda line: line["kind"] == "error")
    assert "UNAUTHENTICATED" in refused["message"]


def test_pubsub_client_meets_the_status_that_was_asked_for(local: LocalServer, pubsub: Watcher) -> None:
    local.fail_next("RESOURCE_EXHAUSTED")
    local.disconnect()
    refused = wait_for_line(pubsub, lambda line: "RESOURCE_EXHAUSTED" in str(line.get("message")))
    assert "a fault injected by a test" in refused["message"]
    account = local.create("Account", Name="After")
    wait_for_line(pubsub, lambda line: line["kind"] == "event" and account in str(line))
