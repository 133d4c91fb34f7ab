"""The fanout bench: one update told to very many long polls, beside Faye.

    python benchmarks/fanout.py [--json] [--clients 1000] [--rate 20] [--seconds 4] [--pairs 3] [--edges 0]
        [--idle 10000]

Both servers speak Bayeux over long polling and plain HTTP on loopback, and both are driven by the same load client
with the same number of sessions, the same rate of events and messages of the same size: Faye is sent what ours made
of one update. Turns alternate in one run, after one of each that does not count. Every turn must deliver every event
to every client, once and in order, or the bench fails. CPU is that of all processes of the server, and of no load
client; latency counts from the moment an update was due until a client has read its message.

What each does for an event. Ours takes a record update over REST, checks the token, the object and the field, commits
record and event to SQLite with synchronous=FULL, matches push topics, and checks each poll's login; half of the
clients are of a user who must not see one of the fields. Faye takes a published message from anybody and keeps nothing.

`--idle N` measures memory instead: N long polls held by a fresh server of each kind, then one event to all of
them as proof that they were.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from bayeux_sessions import BayeuxSession
from load_making import STAMP, LoadMaker
from measuring import Window, fdatasync_us, group_cpu_s, group_rss_mb
from reporting import bench_parser, show

from tidewire.testing import READER_USERNAME, ServerProcess

FAYE = Path(__file__).resolve().parent / "faye"
API = "/services/data/v62.0"
PEER = "Faye"
TOPIC = "/topic/BenchFanout"
DURABILITY = "ours: every event on disk before it is told (SQLite: WAL, synchronous=FULL); peer: none"
_SETTLE_S = 0.3  # until every poll that was sent is held
_LONGEST_S = 50.0
_HELD_S = 100.0  # both sides answer a poll after 110 s
_IDLE_PART = 1000
_WARMING_EVENTS = 20


@dataclass(frozen=True, slots=True)
class Settings:
    """How much of everything."""

    clients: int
    rate: float
    seconds: float
    pairs: int
    edges: int
    idle: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn of one side measured."""

    deliveries_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us_per_delivery: float
    bytes_per_delivery: float
    is_clean: bool


@dataclass(frozen=True, slots=True)
class Rest:
    """Memory of one side before its clients came and while all of them waited."""

    start_mb: float
    held_mb: float
    clients: int

    @property
    def poll_kb(self) -> float:
        """What one more held poll costs."""
        return (self.held_mb - self.start_mb) * 1000 / self.clients


class Side(Protocol):
    """A server under load. `group` is its process group."""

    port: int
    group: int

    def open_sessions(self, count: int) -> list[BayeuxSession]:
        """So many clients, shaken hands and subscribed."""

    def event_request(self) -> bytes:
        """The bytes that make one event; the load client sets its stamp."""


class Ours:
    """The server under test, with one record, one push topic and two users."""

    def __init__(self, server: ServerProcess) -> None:
        self.group = server.pid
        self.port = urlsplit(server.http).port or 0
        self._http = HTTPConnection("127.0.0.1", self.port, timeout=30)
        self._token = server.login()
        self._reader_token = server.login(READER_USERNAME)
        topic = {
            "Name": TOPIC.rpartition("/")[2],
            "Query": "SELECT Id, Name, AccountNumber, Phone FROM Account",
            "ApiVersion": 62.0,
            "NotifyForFields": "All",
        }
        self._create("PushTopic", topic)
        self._record_id = self._create("Account", {"Name": "Bench", "Phone": "+49 30 1234567"})

    def open_sessions(self, count: int) -> list[BayeuxSession]:
        """Every other one is of the user who must not see Phone."""
        tokens = (self._token, self._reader_token)
        return [BayeuxSession(self._http, tokens[n % 2], channel=TOPIC) for n in range(count)]

    def event_request(self) -> bytes:
        """An update of one field."""
        path = f"{API}/sobjects/Account/{self._record_id}"
        return _request("PATCH", path, {"AccountNumber": STAMP}, self._token)

    def sample(self) -> Any:
        """The data of one notification, as the user with fewer fields gets it."""
        session = BayeuxSession(self._http, self._reader_token)
        session.subscribe(TOPIC)
        other = HTTPConnection("127.0.0.1", self.port, timeout=30)
        path = f"{API}/sobjects/Account/{self._record_id}"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        other.request("PATCH", path, json.dumps({"AccountNumber": STAMP}), headers)
        assert other.getresponse().status == 204
        other.close()
        (event,) = session.poll()
        session.disconnect()
        assert "Phone" not in event["data"]["sobject"], event
        return event["data"]

    def _create(self, entity: str, fields: dict[str, Any]) -> str:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._http.request("POST", f"{API}/sobjects/{entity}", json.dumps(fields), headers)
        response = self._http.getresponse()
        answer = response.read()
        assert response.status == 201, answer
        return str(json.loads(answer)["id"])


class Faye:
    """The peer, whose events are copies of one of ours."""

    def __init__(self, process: subprocess.Popen[str], data: Any) -> None:
        assert process.stdout is not None
        self.group = process.pid
        self.port = int(process.stdout.readline())
        self._http = HTTPConnection("127.0.0.1", self.port, timeout=30)
        self._data = data

    def open_sessions(self, count: int) -> list[BayeuxSession]:
        """All alike."""
        return [BayeuxSession(self._http, "none", "/bayeux", TOPIC) for _ in range(count)]

    def event_request(self) -> bytes:
        """A published message."""
        return _request("POST", "/bayeux", [{"channel": TOPIC, "data": self._data, "id": "1"}], "none")


def _request(method: str, path: str, content: Any, token: str) -> bytes:
    body = json.dumps(content, separators=(",", ":"))
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


@contextmanager
def faye_process() -> Iterator[subprocess.Popen[str]]:
    """The peer's process, in a group of its own."""
    process = subprocess.Popen(
        ["node", str(FAYE / "server.mjs")], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=10)


def ensure_faye() -> None:
    """Install the peer into its folder if `make install` has not."""
    if not (FAYE / "node_modules" / "faye").exists():
        subprocess.run(
            ["npm", "ci", "--loglevel=error"], cwd=FAYE, check=True, stdout=sys.stderr, timeout=120
        )


def take_turn(maker: LoadMaker, side: Side, clients: int, rate: float, events: int) -> Turn:
    """One turn of one side."""
    sessions = side.open_sessions(clients)
    requests = [session.poll_request() for session in sessions]
    polls = maker.start(side.port, "polls", requests, _LONGEST_S, 0, events)
    time.sleep(_SETTLE_S)
    window = Window([side.group])
    cpu_before_s = group_cpu_s(side.group)
    maker.start(side.port, "events", [side.event_request()], _LONGEST_S, rate, events).result()
    polled = polls.result()
    cpu_s = group_cpu_s(side.group) - cpu_before_s
    reading = window.close()
    _check_complete(polled, clients, events)
    for session in sessions:
        session.disconnect()
    return Turn(
        deliveries_per_s=polled["deliveries"] * 1e6 / polled["span_us"],
        p50_ms=polled["age_p50_us"] / 1000,
        p99_ms=polled["age_p99_us"] / 1000,
        cpu_us_per_delivery=cpu_s * 1e6 / polled["deliveries"],
        bytes_per_delivery=polled["bytes"] / polled["deliveries"],
        is_clean=reading.is_clean,
    )


def _check_complete(polled: dict[str, Any], clients: int, events: int) -> None:
    fewest, most = polled["fewest"], polled["most"]
    if not (fewest == most == events) or polled["disordered"] or polled["deliveries"] != clients * events:
        raise SystemExit(
            f"of {events} events the clients got from {fewest} to {most}, {polled['disordered']} out of order"
        )


def rest(maker: LoadMaker, side: Side, clients: int) -> Rest:
    """Memory of a fresh server without and with so many held polls."""
    start_mb = group_rss_mb(side.group)
    polls = []
    # A part at a time, as a client that has shaken hands must come back soon.
    for first in range(0, clients, _IDLE_PART):
        sessions = side.open_sessions(min(_IDLE_PART, clients - first))
        requests = [session.poll_request() for session in sessions]
        polls.append((len(requests), maker.start(side.port, f"idle{first}", requests, _HELD_S, 0, 1)))
    _wait_quiet(side.group)
    held_mb = group_rss_mb(side.group)
    maker.start(side.port, "event", [side.event_request()], _LONGEST_S, 1, 1).result()
    for count, part in polls:
        _check_complete(part.result(), count, 1)
    return Rest(start_mb, held_mb, clients)


def _wait_quiet(group: int) -> None:
    """Until the server has taken in all that was sent: it rests for a while."""
    deadline_s = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline_s:
        before_s = group_cpu_s(group)
        time.sleep(_SETTLE_S)
        if group_cpu_s(group) - before_s < 0.1 * _SETTLE_S:
            return
    raise SystemExit("the server did not come to rest")


def run(settings: Settings) -> dict[str, Any]:
    """The whole bench, as the object that `--json` prints."""
    ensure_faye()
    folder = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    try:
        with ExitStack() as stack:
            maker = LoadMaker(folder)
            sync_us = fdatasync_us(folder)
            options = ["--edges", str(settings.edges)]
            ours = Ours(stack.enter_context(ServerProcess(folder / "data", options=options)))
            window = Window([ours.group])
            faye = Faye(stack.enter_context(faye_process()), ours.sample())
            if settings.idle:
                rests = (rest(maker, ours, settings.idle), rest(maker, faye, settings.idle))
                results, is_clean = report_rest(*rests), window.close().is_clean
            else:
                events = max(round(settings.rate * settings.seconds), 1)
                sides: tuple[Side, Side] = (ours, faye)
                for side in sides:
                    take_turn(maker, side, settings.clients, settings.rate, _WARMING_EVENTS)
                turns = [
                    tuple(take_turn(maker, side, settings.clients, settings.rate, events) for side in sides)
                    for _ in range(settings.pairs)
                ]
                mine, theirs = [list(column) for column in zip(*turns, strict=True)]
                results, is_clean = report(mine, theirs), all(t.is_clean for pair in turns for t in pair)
    finally:
        shutil.rmtree(folder)
    return {
        "bench": "fanout",
        "results": results,
        "durability": f"{DURABILITY}; fdatasync here: {sync_us:.0f} us",
        "clean": is_clean,
    }


def report(ours: Sequence[Turn], faye: Sequence[Turn]) -> list[dict[str, Any]]:
    """Medians over the turns, and the median of the turns' ratios."""
    rows = (
        ("deliveries, every one checked", "1/s", "deliveries_per_s"),
        ("update to delivery p50", "ms", "p50_ms"),
        ("update to delivery p99", "ms", "p99_ms"),
        ("server CPU per delivery", "us", "cpu_us_per_delivery"),
        ("bytes on the wire per delivery", "bytes", "bytes_per_delivery"),
    )
    return [
        {
            "metric": metric,
            "unit": unit,
            "ours": _median(ours, field),
            "peers": {PEER: _median(faye, field)},
            "ratio": {PEER: _ratio(ours, faye, field)},
            "cpu_ratio": {PEER: _ratio(ours, faye, "cpu_us_per_delivery")},
        }
        for metric, unit, field in rows
    ]


def report_rest(ours: Rest, faye: Rest) -> list[dict[str, Any]]:
    """Memory, both sides."""
    rows = (
        ("memory before the first client", "MB", ours.start_mb, faye.start_mb),
        (f"memory with {ours.clients} idle long polls", "MB", ours.held_mb, faye.held_mb),
        ("of it for each poll", "kB", ours.poll_kb, faye.poll_kb),
    )
    return [
        {
            "metric": metric,
            "unit": unit,
            "ours": round(mine, 2),
            "peers": {PEER: round(theirs, 2)},
            "ratio": {PEER: round(mine / theirs, 3)},
            "cpu_ratio": {},
        }
        for metric, unit, mine, theirs in rows
    ]


def _median(turns: Sequence[Turn], field: str) -> float:
    return round(statistics.median(float(getattr(turn, field)) for turn in turns), 2)


def _ratio(ours: Sequence[Turn], faye: Sequence[Turn], field: str) -> float:
    pairs = zip(ours, faye, strict=True)
    return round(statistics.median(getattr(a, field) / getattr(b, field) for a, b in pairs), 3)


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people."""
    print(f"{'':48}{'ours':>12}{PEER:>12}{'ratio':>8}")
    for row in outcome["results"]:
        name = f"{row['metric']} [{row['unit']}]"
        print(f"{name:48}{row['ours']:12,.1f}{row['peers'][PEER]:12,.1f}{row['ratio'][PEER]:8.2f}")


def main() -> None:
    """Parse the command line and run."""
    parser = bench_parser(__doc__)
    parser.add_argument("--clients", type=int, default=1000, help="long polls (1000)")
    parser.add_argument("--rate", type=float, default=20.0, help="events a second, each to every client (20)")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each turn (4)")
    parser.add_argument("--pairs", type=int, default=3, help="turns of ours and the peer's (3)")
    parser.add_argument("--edges", type=int, default=0, help="edge processes of ours (0: all in one process)")
    parser.add_argument(
        "--idle", type=int, default=0, help="measure the memory of so many held polls instead"
    )
    given = parser.parse_args()
    outcome = run(Settings(given.clients, given.rate, given.seconds, given.pairs, given.edges, given.idle))
    show(outcome, print_table, as_json=given.json)


if __name__ == "__main__":
    main()
