"""The path bench: records updated over REST, and notifications of it delivered to long polls and gRPC
streams.

    python benchmarks/path.py [--json] [--seconds 3] [--polls 100] [--streams 10] [--writers 32] [--pairs 3]
        [--edges 0]

One server on a temporary directory against one bare asyncio server (bare_server.py), turn and turn about in
the same run, driven by the same load client. The bare server has no disk, no users and no gRPC: further long
polls stand in for the streams. Each turn has two parts: as fast as the writers can (closed loop), and paced,
for latency. Latency counts from the moment an update was due to be sent until a subscriber has read its
notification, on one clock.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bayeux_sessions import BayeuxSession
from load_making import STAMP, Client, LoadMaker
from measuring import Window, fdatasync_us, group_cpu_s
from reporting import bench_parser, show

from tidewire.testing import ServerProcess

HERE = Path(__file__).resolve().parent
API = "/services/data/v62.0"
PEER = "bare asyncio"
PUSH_TOPIC = "/topic/BenchPath"
CHANGES = "/data/AccountChangeEvent"
DURABILITY = "ours: every update on disk before its answer (group commit, one fdatasync a group); peer: none"
_DRAIN_S = 0.5
_PACED_PER_S = 100


@dataclass(frozen=True, slots=True)
class Settings:
    """How much of everything."""

    seconds: float
    polls: int
    streams: int
    writers: int
    pairs: int
    edges: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """What one part of one turn measured."""

    updates_per_s: float
    deliveries_per_s: float
    stream_deliveries_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us_per_delivery: float
    is_clean: bool


class Bench:
    """The load client and the settings."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.settings = settings
        self._maker = LoadMaker(folder)

    def start_client(
        self, port: int, name: str, requests: Sequence[bytes], seconds: float, rate: float
    ) -> Client:
        """Start the load client in the background; returns when its connections are open."""
        return self._maker.start(port, name, requests, seconds, rate)


def patch_request(path: str, token: str) -> bytes:
    """One update whose value is a stamp."""
    body = json.dumps({"Phone": STAMP})
    return (
        f"PATCH {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


class Ours:
    """The server under test, with its records and its subscribers."""

    def __init__(self, bench: Bench, server: ServerProcess) -> None:
        self._bench = bench
        self._server = server
        self._token = server.login()
        self._port = urlsplit(server.http).port or 0
        self._http = HTTPConnection("127.0.0.1", self._port, timeout=30)
        topic = {
            "Name": PUSH_TOPIC.rpartition("/")[2],
            "Query": "SELECT Id, Name, Phone FROM Account",
            "ApiVersion": 62.0,
            "NotifyForFields": "All",
        }
        self._create("PushTopic", topic)
        self._accounts = [
            self._create("Account", {"Name": f"Bench {n}"}) for n in range(bench.settings.writers)
        ]

    def sample(self) -> bytes:
        """One notification, as it goes over the wire, for the peer to copy."""
        session = BayeuxSession(self._http, self._token)
        session.subscribe(PUSH_TOPIC)
        other = HTTPConnection("127.0.0.1", self._port, timeout=30)
        path = f"{API}/sobjects/Account/{self._accounts[0]}"
        other.request("PATCH", path, json.dumps({"Phone": STAMP}), self._headers())
        assert other.getresponse().status == 204
        other.close()
        events = session.poll()
        session.disconnect()
        return json.dumps(events[0], separators=(",", ":")).encode()

    def run(self, rate: float) -> Turn:
        """One part of a turn. `rate` 0 is as fast as the writers can."""
        settings = self._bench.settings
        sessions = [BayeuxSession(self._http, self._token) for _ in range(settings.polls)]
        for number, session in enumerate(sessions):
            session.subscribe(PUSH_TOPIC if number % 2 else CHANGES)
        seconds = settings.seconds + _DRAIN_S
        server = self._server
        script = [sys.executable, str(HERE / "grpc_subscribers.py")]
        target = [server.grpc, self._token, server.http, server.org_id, CHANGES]
        streams = Client([*script, *target, str(settings.streams), str(seconds)])
        streams.wait_ready()
        polls = self._bench.start_client(
            self._port, "polls", [s.poll_request() for s in sessions], seconds, 0
        )
        requests = [patch_request(f"{API}/sobjects/Account/{x}", self._token) for x in self._accounts]
        turn = _measure(self._bench, self._server.pid, self._port, requests, rate, polls, streams)
        for session in sessions:
            session.disconnect()
        return turn

    def _create(self, entity: str, fields: dict[str, Any]) -> str:
        self._http.request("POST", f"{API}/sobjects/{entity}", json.dumps(fields), self._headers())
        response = self._http.getresponse()
        answer = response.read()
        assert response.status == 201, answer
        return str(json.loads(answer)["id"])

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}


class Bare:
    """The peer."""

    def __init__(self, bench: Bench, process: subprocess.Popen[str]) -> None:
        self._bench = bench
        self._process = process
        assert process.stdout is not None
        self._port = int(process.stdout.readline())

    def run(self, rate: float) -> Turn:
        """One part of a turn."""
        settings = self._bench.settings
        poll = b"POST /poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        receivers = [poll] * (settings.polls + settings.streams)
        polls = self._bench.start_client(self._port, "bare-polls", receivers, settings.seconds + _DRAIN_S, 0)
        requests = [patch_request("/record", "none") for _ in range(settings.writers)]
        return _measure(self._bench, self._process.pid, self._port, requests, rate, polls, None)


def _measure(
    bench: Bench,
    group: int,
    port: int,
    requests: Sequence[bytes],
    rate: float,
    polls: Client,
    streams: Client | None,
) -> Turn:
    seconds = bench.settings.seconds
    window = Window([group])
    cpu_before_s = group_cpu_s(group)
    written = bench.start_client(port, "writers", requests, seconds, rate).result()
    polled = polls.result()
    streamed = streams.result() if streams is not None else {"deliveries": 0}
    cpu_s = group_cpu_s(group) - cpu_before_s
    deliveries = polled["deliveries"] + streamed["deliveries"]
    return Turn(
        updates_per_s=written["requests"] / written["seconds"],
        deliveries_per_s=deliveries / written["seconds"],
        stream_deliveries_per_s=streamed["deliveries"] / written["seconds"],
        p50_ms=polled["age_p50_us"] / 1000,
        p99_ms=polled["age_p99_us"] / 1000,
        cpu_us_per_delivery=cpu_s * 1e6 / max(deliveries, 1),
        is_clean=window.close().is_clean,
    )


@contextmanager
def bare_process(template: Path) -> Iterator[subprocess.Popen[str]]:
    """The peer's process, in a group of its own."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "bare_server.py"), str(template)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=10)


def run(settings: Settings) -> dict[str, Any]:
    """The whole bench, as the object that `--json` prints."""
    folder = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    try:
        with ExitStack() as stack:
            bench = Bench(folder, settings)
            sync_us = fdatasync_us(folder)
            options = ["--edges", str(settings.edges)]
            ours = Ours(bench, stack.enter_context(ServerProcess(folder / "data", options=options)))
            template = folder / "template.json"
            template.write_bytes(re.sub(rb"@\d{16}@", STAMP.encode(), ours.sample()))
            bare = Bare(bench, stack.enter_context(bare_process(template)))
            turns = [take_turn(ours, bare) for _ in range(settings.pairs)]
    finally:
        shutil.rmtree(folder)
    return report(turns, sync_us)


def take_turn(ours: Ours, bare: Bare) -> tuple[Turn, Turn, Turn, Turn]:
    """Ours and the peer's, at full speed and paced.

    Full speed is ours; the peer is offered as many updates.
    """
    full = ours.run(0)
    return full, bare.run(full.updates_per_s), ours.run(_PACED_PER_S), bare.run(_PACED_PER_S)


def report(turns: Sequence[tuple[Turn, Turn, Turn, Turn]], sync_us: float) -> dict[str, Any]:
    """Medians over the turns, ours beside the peer's."""
    ours, bare, ours_paced, bare_paced = (list(column) for column in zip(*turns, strict=True))
    paced = f"{_PACED_PER_S} updates/s"
    rows = [
        ("record updates in", "1/s", ours, None, "updates_per_s"),
        ("notifications out", "1/s", ours, None, "deliveries_per_s"),
        ("of these over gRPC", "1/s", ours, None, "stream_deliveries_per_s"),
        ("update to delivery p50, full speed", "ms", ours, bare, "p50_ms"),
        ("update to delivery p99, full speed", "ms", ours, bare, "p99_ms"),
        ("server CPU per notification, full speed", "us", ours, bare, "cpu_us_per_delivery"),
        (f"update to delivery p50, {paced}", "ms", ours_paced, bare_paced, "p50_ms"),
        (f"update to delivery p99, {paced}", "ms", ours_paced, bare_paced, "p99_ms"),
        (f"server CPU per notification, {paced}", "us", ours_paced, bare_paced, "cpu_us_per_delivery"),
    ]
    results = [_row(metric, unit, mine, theirs, field) for metric, unit, mine, theirs, field in rows]
    return {
        "bench": "path",
        "results": results,
        "durability": f"{DURABILITY}; fdatasync here: {sync_us:.0f} us",
        "clean": all(turn.is_clean for four in turns for turn in four),
    }


def _row(
    metric: str, unit: str, ours: Sequence[Turn], peer: Sequence[Turn] | None, field: str
) -> dict[str, Any]:
    """One result. Without a peer there is nothing to compare: it was offered what ours could do."""
    row: dict[str, Any] = {"metric": metric, "unit": unit, "ours": _median(ours, field)}
    if peer is None:
        return {**row, "peers": {}, "ratio": {}, "cpu_ratio": {}}
    return {
        **row,
        "peers": {PEER: _median(peer, field)},
        "ratio": {PEER: _ratio(ours, peer, field)},
        "cpu_ratio": {PEER: _ratio(ours, peer, "cpu_us_per_delivery")},
    }


def _median(turns: Sequence[Turn], field: str) -> float:
    return round(statistics.median(float(getattr(turn, field)) for turn in turns), 2)


def _ratio(ours: Sequence[Turn], peer: Sequence[Turn], field: str) -> float:
    """The median of the pairs' ratios, ours to the peer's."""
    pairs = [(getattr(a, field), getattr(b, field)) for a, b in zip(ours, peer, strict=True)]
    return round(statistics.median(a / b if b else 0.0 for a, b in pairs), 3)


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people."""
    print(f"{'':52}{'ours':>12}{PEER:>15}{'ratio':>8}")
    for row in outcome["results"]:
        name = f"{row['metric']} [{row['unit']}]"
        peer, ratio = row["peers"].get(PEER), row["ratio"].get(PEER)
        beside = f"{peer:15,.1f}{ratio:8.2f}" if peer is not None else ""
        print(f"{name:52}{row['ours']:12,.1f}{beside}")


def main() -> None:
    """Parse the command line and run."""
    parser = bench_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each part (3)")
    parser.add_argument("--polls", type=int, default=100, help="long polls (100)")
    parser.add_argument("--streams", type=int, default=10, help="gRPC subscribers (10)")
    parser.add_argument("--writers", type=int, default=32, help="connections that update records (32)")
    parser.add_argument("--pairs", type=int, default=3, help="turns of ours and the peer's (3)")
    parser.add_argument("--edges", type=int, default=0, help="edge processes of ours (0: all in one process)")
    given = parser.parse_args()
    outcome = run(
        Settings(given.seconds, given.polls, given.streams, given.writers, given.pairs, given.edges)
    )
    show(outcome, print_table, as_json=given.json)


if __name__ == "__main__":
    main()
