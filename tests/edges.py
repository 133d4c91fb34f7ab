"""Servers whose sockets belong to edge processes, for tests: their processes, and clients that reach any of them."""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidewire.testing import ServerProcess

CHANGES = "/data/AccountChangeEvent"
PATH = "/cometd/62.0"
WAIT_S = 100.0  # less than the 110 s after which a held connect is answered anyway


def edged(data: Path, count: int, *options: str) -> ServerProcess:
    """A server with so many edges, to be started."""
    return ServerProcess(data, options=["--edges", str(count), *options], ready_timeout_s=WAIT_S)


class Client:
    """A Bayeux client that dials anew for every request, so that any edge may get it."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self._address = urlsplit(server.http).netloc
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.client_id = ""

    def ask(self, **message: Any) -> list[dict[str, Any]]:
        if self.client_id:
            message["clientId"] = self.client_id
        connection = HTTPConnection(self._address, timeout=WAIT_S)
        try:
            connection.request("POST", PATH, json.dumps([message]), self._headers)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        assert response.status == 200, body
        messages: list[dict[str, Any]] = json.loads(body)
        return messages

    def open(self, replay: int = -1) -> None:
        self.client_id = ""
        (reply,) = self.ask(channel="/meta/handshake", supportedConnectionTypes=["long-polling"])
        self.client_id = reply["clientId"]
        (reply,) = self.connect()
        assert reply["successful"], reply
        (reply,) = self.ask(
            channel="/meta/subscribe", subscription=CHANGES, ext={"replay": {CHANGES: replay}}
        )
        assert reply["successful"], reply

    def connect(self) -> list[dict[str, Any]]:
        return self.ask(channel="/meta/connect", connectionType="long-polling")

    def next_events(self) -> list[dict[str, Any]]:
        """What the first connect brings that is not answered empty because its time was up."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            messages = self.connect()
            assert messages[-1]["successful"], messages
            if events := [m["data"] for m in messages if "data" in m]:
                return events
            assert time.monotonic() < deadline_s, "no event came"


def edges_of(server: ServerProcess) -> list[int]:
    """The process ids of a server's edges."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    found = []
    for child in children:
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended just now
            if b"tidewire.server.edge" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def wait_ended(pid: int, timeout_s: float = WAIT_S) -> None:
    """Wait until a process has gone."""
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([ended], [], [], timeout_s)[0], f"{pid} is still there"
    finally:
        os.close(ended)


def record_ids(events: list[dict[str, Any]]) -> list[str]:
    return [event["payload"]["ChangeEventHeader"]["recordIds"][0] for event in events]


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        pause.wait(0.02)
