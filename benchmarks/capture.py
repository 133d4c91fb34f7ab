"""The capture bench: records updated through REST collections, with change data capture and without.

    python benchmarks/capture.py [--json] [--seconds 2] [--pairs 4] [--clients 5]

Two servers in one run, alike but for the selection: one captures Account, Contact, Lead, Opportunity and Case, the
other nothing. They take turns with the same clients, of which each updates two fields in 200 records of one object
at a time; no two records get the same values, so no events are merged. Besides the rate, the CPU time of the servers
is compared, which other work on the machine disturbs less.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from measuring import Window, fdatasync_us, group_cpu_s
from reporting import bench_parser, show

from tidewire.testing import ServerProcess

API = "/services/data/v62.0"
PEER = "capture off"
RECORDS = 200
ENTITIES: dict[str, tuple[dict[str, str], tuple[str, str]]] = {
    "Account": ({"Name": "A"}, ("Phone", "Site")),
    "Contact": ({"LastName": "C"}, ("Phone", "Title")),
    "Lead": ({"LastName": "L", "Company": "C"}, ("Phone", "Title")),
    "Opportunity": (
        {"Name": "O", "StageName": "Prospecting", "CloseDate": "2030-01-01"},
        ("NextStep", "Description"),
    ),
    "Case": ({"Subject": "S"}, ("Subject", "SuppliedName")),
}
DURABILITY = "both: every update on disk before its answer (SQLite: WAL, synchronous=FULL)"


@dataclass(frozen=True, slots=True)
class Turn:
    """What one server did in one stretch of time."""

    per_s: float
    cpu_us: float


class Side:
    """One server with its records, and for each client two bodies that it sends in turn."""

    def __init__(self, server: ServerProcess, clients: int, *, is_captured: bool) -> None:
        self._server = server
        self._headers = {
            "Authorization": f"Bearer {server.login()}",
            "Content-Type": "application/json",
        }
        self._connections = [
            HTTPConnection("127.0.0.1", urlsplit(server.http).port, timeout=60) for _ in range(clients)
        ]
        objects = {entity: {"capture": is_captured} for entity in ENTITIES}
        self._call(self._connections[0], "POST", "/services/tidewire/v1/apply", {"objects": objects})
        entities = list(ENTITIES)
        self._bodies = [
            self._make_bodies(connection, entities[number % len(entities)])
            for number, connection in enumerate(self._connections)
        ]

    def run(self, seconds: float) -> Turn:
        """Keep all clients busy for so long."""
        counts = [0] * len(self._connections)
        started, cpu_s = time.monotonic(), group_cpu_s(self._server.pid)

        def update(number: int) -> None:
            connection, bodies = self._connections[number], self._bodies[number]
            while time.monotonic() - started < seconds:
                body = bodies[counts[number] // RECORDS % 2]
                connection.request("PATCH", f"{API}/composite/sobjects", body, self._headers)
                response = connection.getresponse()
                answer = response.read()
                assert response.status == 200, answer
                assert b'"success":false' not in answer, answer
                counts[number] += RECORDS

        threads = [threading.Thread(target=update, args=(n,)) for n in range(len(counts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent_s = time.monotonic() - started
        cpu_s = group_cpu_s(self._server.pid) - cpu_s
        return Turn(sum(counts) / spent_s, cpu_s * 1e6 / sum(counts))

    def close(self) -> None:
        """Hang up."""
        for connection in self._connections:
            connection.close()

    def _make_bodies(self, connection: HTTPConnection, entity: str) -> tuple[bytes, bytes]:
        needed, (one, two) = ENTITIES[entity]
        label = {"attributes": {"type": entity}}
        made = self._call(
            connection, "POST", f"{API}/composite/sobjects", {"records": [label | needed] * RECORDS}
        )
        ids = [result["id"] for result in made]

        def body(word: str) -> bytes:
            records = [
                label | {"id": record_id, one: f"{word}{number}", two: f"{word} {number} times"}
                for number, record_id in enumerate(ids)
            ]
            return json.dumps({"allOrNone": True, "records": records}).encode()

        return body("odd"), body("even")

    def _call(self, connection: HTTPConnection, method: str, path: str, body: Any) -> Any:
        connection.request(method, path, json.dumps(body), self._headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status < 400, answer
        return answer


def measure(seconds: float, pairs: int, clients: int) -> dict[str, Any]:
    """The whole bench, as the object that `--json` prints."""
    folder = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    try:
        with ExitStack() as stack:
            sync_us = fdatasync_us(folder)
            servers = [stack.enter_context(ServerProcess(folder / name / "data")) for name in ("on", "off")]
            on, off = (
                Side(server, clients, is_captured=is_captured)
                for server, is_captured in zip(servers, (True, False), strict=True)
            )
            stack.callback(on.close)
            stack.callback(off.close)
            window = Window([server.pid for server in servers])
            for side in (on, off):
                side.run(seconds / 2)  # not counted: compiles statements and fills caches
            turns = [(on.run(seconds), off.run(seconds)) for _ in range(pairs)]
            is_clean = window.close().is_clean
    finally:
        shutil.rmtree(folder)
    cpu_ratio = statistics.median(b.cpu_us / a.cpu_us for a, b in turns)
    row = {
        "metric": f"records updated in {RECORDS}s, {clients} clients, 5 entities captured",
        "unit": "records/s",
        "ours": round(statistics.median(a.per_s for a, _ in turns)),
        "peers": {PEER: round(statistics.median(b.per_s for _, b in turns))},
        "ratio": {PEER: round(statistics.median(a.per_s / b.per_s for a, b in turns), 3)},
        "cpu_ratio": {PEER: round(cpu_ratio, 3)},
        "server_us": round(statistics.median(a.cpu_us for a, _ in turns), 1),
        "peer_server_us": {PEER: round(statistics.median(b.cpu_us for _, b in turns), 1)},
        "capture_cost": round(1 - cpu_ratio, 3),
    }
    return {
        "bench": "capture",
        "results": [row],
        "durability": f"{DURABILITY}; fdatasync here: {sync_us:.0f} us",
        "clean": is_clean,
    }


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people."""
    for row in outcome["results"]:
        print(row["metric"])
        print(f"{'':24}{'capture on':>14}{PEER:>14}{'ratio':>8}")
        print(f"{row['unit']:24}{row['ours']:14,}{row['peers'][PEER]:14,}{row['ratio'][PEER]:8.3f}")
        print(
            f"{'server CPU us/record':24}{row['server_us']:14}{row['peer_server_us'][PEER]:14}"
            f"{row['cpu_ratio'][PEER]:8.3f}"
        )
        print(f"capture takes {row['capture_cost']:.1%} of the server's CPU time")


def main() -> None:
    """Parse the command line and run."""
    parser = bench_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each turn (2)")
    parser.add_argument("--pairs", type=int, default=4, help="turns of each side (4)")
    parser.add_argument("--clients", type=int, default=5, help="clients at the same time (5)")
    given = parser.parse_args()
    outcome = measure(given.seconds, given.pairs, given.clients)
    show(outcome, print_table, as_json=given.json)


if __name__ == "__main__":
    main()
