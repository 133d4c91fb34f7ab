"""The console of a server that offers no development login."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import WAIT_MS, ConsolePage
from tests.running import Rest
from tidewire.testing import choose_ports

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

USERNAME = "harbourmaster@example.org"


@dataclass(frozen=True, slots=True)
class PlainServer:
    """A server as `tidewire init` and `tidewire serve` make it."""

    http: str
    password: str


@pytest.fixture
def plain_server(tmp_path: Path) -> Iterator[PlainServer]:
    command = [sys.executable, "-m", "tidewire.cli"]
    data = ["--data", str(tmp_path / "data")]
    made = subprocess.run(
        [*command, "init", *data, "--username", USERNAME], check=True, capture_output=True, text=True
    )
    found = re.search(r"password: (\S+)", made.stdout)
    assert found is not None
    listeners = zip(("--http", "--https", "--grpc", "--grpc-tls"), choose_ports(4), strict=True)
    flags = [part for name, port in listeners for part in (name, f"127.0.0.1:{port}")]
    with subprocess.Popen([*command, "serve", *data, *flags], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield PlainServer(json.loads(process.stdout.readline())["http"], found[1])
        finally:
            process.terminate()


def test_console_asks_for_a_login_and_asks_again_when_the_session_ends(
    browser: Browser, plain_server: PlainServer
) -> None:
    context = browser.new_context()
    context.set_default_timeout(WAIT_MS)
    console = ConsolePage(context.new_page(), plain_server.http)
    tab = console.tab
    tab.goto(f"{plain_server.http}/#/capture")
    expect(tab.locator("#state")).to_have_text("Signed out")
    expect(tab.get_by_label("Username")).to_be_focused()
    expect(tab.get_by_role("button", name="Use the development login")).to_have_count(0)
    assert console.findings() == []
    tab.get_by_label("Username").fill(USERNAME)
    tab.get_by_label("Password").fill(plain_server.password)
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("heading", name="Change Data Capture")).to_be_visible()
    expect(tab.locator("#state")).to_have_text("Connected")

    tab.reload()
    expect(tab.get_by_role("heading", name="Change Data Capture")).to_be_visible()
    token = tab.evaluate("JSON.parse(sessionStorage.getItem('tidewire.session')).token")
    rest = Rest(plain_server.http, token)
    rest.call("POST", f"/services/oauth2/revoke?token={token}")
    rest.close()
    expect(tab.get_by_role("alert")).to_have_text("Your session has ended. Sign in again.")
    expect(tab.get_by_label("Username")).to_have_value(USERNAME)
    assert tab.evaluate("sessionStorage.length") == 0
    context.close()
