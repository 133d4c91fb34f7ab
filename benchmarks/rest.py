"""The REST bench: durable creates and reads of single records over HTTP, beside pgbench doing the same in SQL.

    python benchmarks/rest.py [--json] [--seconds 1] [--pairs 2] [--connections 1,64,256] [--edges 0]

Ours is a whole server: HTTP, login, permissions, validation, change events, the log. The peer is PostgreSQL with
nothing in front of it, driven by pgbench with prepared statements: into copies of the very tables that ours has on
that server, indexes included, it inserts what ours stores for one create, a record of the same columns and an
event of the same size, in one transaction. Every commit is synced; ours and the peer take turns in one run, with
as many clients. Ours runs on SQLite; at one number of connections it is measured on that PostgreSQL as well. Without
PostgreSQL's programs there is no peer. With `--edges N` ours takes turns with itself in as many more processes.

The load on ours is made by load_client.c, a process of its own; what it and pgbench cost is told apart from what
the servers cost.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
from measuring import FOREIGN_LIMIT, Window, fdatasync_us, group_cpu_s
from private_postgres import PostgresServer, running_postgres, try_find_programs
from reporting import bench_parser, show

from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.testing import ServerProcess

HERE = Path(__file__).resolve().parent
API = "/services/data/v62.0"
SQLITE, POSTGRES, PEER = "ours", "ours on PostgreSQL", "pgbench"
CREATES, READS = "records created over HTTP", "records read over HTTP"
ACCOUNT = next(o for o in STANDARD_OBJECTS if o.name == "Account")
NAME, PHONE = (ACCOUNT.by_name[n] for n in ("name", "phone"))
# The load client puts the time into the stamp, so each record has a name of its own.
BODY = '{"Name": "Company @0000000000000000@", "Phone": "5550100", "BillingCity": "Oslo"}'
DURABILITY = (
    "all: every create on disk before its answer (SQLite: WAL, synchronous=FULL, one sync for each group of commits;"
    " PostgreSQL: fsync and synchronous_commit on)"
)
_SCHEMA = "bench"
_ALSO_ON_POSTGRES = 64  # connections at which ours is measured there too
_NEXT_ID = "'001TW0' || lpad(nextval('peer.number')::text, 12, '0')"
_OWN_ID = "'001TW0' || lpad((:client_id + 1)::text, 12, '0')"


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side did in one stretch of time: its rate, and the CPU time that one operation took."""

    per_s: float
    server_us: float
    client_us: float


@dataclass(frozen=True, slots=True)
class Metric:
    """One kind of request at one number of connections, the turns of each side by its name."""

    name: str
    connections: int
    turns: dict[str, list[Turn]] = field(default_factory=dict)


class Side(Protocol):
    """Something that can be asked to create and to read."""

    def run(self, metric: str, connections: int, seconds: float) -> Turn:
        """Keep so many clients busy for so long."""


class Ours:
    """One server, and the requests that are sent to it."""

    def __init__(self, client: Path, server: ServerProcess, most: int) -> None:
        self._client = client
        self._file = client.with_name("requests")
        self._pid = server.pid
        self._port = urlsplit(server.http).port or 0
        self._head = f"Host: localhost\r\nAuthorization: Bearer {server.login()}\r\n"
        headers = dict(line.split(": ", 1) for line in self._head.splitlines())
        http = HTTPConnection("127.0.0.1", self._port, timeout=30)
        reads = []
        for _ in range(most):
            http.request(
                "POST", f"{API}/sobjects/Account", BODY, headers | {"Content-Type": "application/json"}
            )
            record_id = json.loads(http.getresponse().read())["id"]
            reads.append(self._request("GET", f"/{record_id}?fields=Name,Phone", ""))
        http.close()
        self._requests = {CREATES: [self._request("POST", "", BODY)] * most, READS: reads}

    def run(self, metric: str, connections: int, seconds: float) -> Turn:
        """As `Side` says."""
        requests = self._requests[metric][:connections]
        self._file.write_bytes(b"".join(len(r).to_bytes(4, "little") + r for r in requests))
        server_s, client_s = group_cpu_s(self._pid), _children_cpu_s()
        command = [str(self._client), str(self._port), str(self._file), str(seconds), "0"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        result = json.loads(done.stdout.splitlines()[-1])
        assert not result["failures"], f"{result['failures']} requests failed"
        count = result["requests"]
        server_s, client_s = group_cpu_s(self._pid) - server_s, _children_cpu_s() - client_s
        return Turn(count / result["seconds"], server_s * 1e6 / count, client_s * 1e6 / count)

    def _request(self, method: str, rest: str, body: str) -> bytes:
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        return f"{method} {API}/sobjects/Account{rest} HTTP/1.1\r\n{self._head}{length}\r\n{body}".encode()


class Peer:
    """pgbench on copies of our tables, in a schema beside ours on the same server."""

    def __init__(self, programs: Path, folder: Path, server: PostgresServer, most: int) -> None:
        self._program = programs / "pgbench"
        self._server = server
        self._folder = folder
        self._starts: dict[int, tuple[float, float]] = {}
        with psycopg.connect(server.address, autocommit=True) as db:
            db.execute(f"SET search_path = {_SCHEMA}")
            (events,) = _row(
                db, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'e4~_%' ESCAPE '~'"
            ).values()
            record = _row(db, f"SELECT * FROM {ACCOUNT.table} ORDER BY id LIMIT 1")
            event = _row(db, f"SELECT * FROM {events} ORDER BY position DESC LIMIT 1")
            db.execute("CREATE SCHEMA peer")
            db.execute(f"CREATE TABLE peer.record (LIKE {ACCOUNT.table} INCLUDING ALL)")
            db.execute(f"CREATE TABLE peer.event (LIKE {events} INCLUDING ALL)")
            db.execute("CREATE SEQUENCE peer.number")
            create = [_insert("peer.record", record, id=_NEXT_ID), _insert("peer.event", event)]
            for _ in range(most):
                db.execute(create[0])
                db.execute(create[1])
        read = f"SELECT {NAME.column}, {PHONE.column} FROM peer.record WHERE id = {_OWN_ID}"
        self._write_script(CREATES, ["BEGIN", *create, "COMMIT"])
        self._write_script(READS, [read])

    def run(self, metric: str, connections: int, seconds: float) -> Turn:
        """As `Side` says. pgbench knows whole seconds only, and begins to count them before it has connected; its rate
        leaves the connecting out, and so does what is told of CPU time here.
        """
        if connections not in self._starts:
            self._starts[connections] = self._drive(READS, connections, "-t", 1)[1:]
        told, server_s, client_s = self._drive(
            metric, connections, "-T", max(round(seconds), 1) + connections // 100
        )
        start_server_s, start_client_s = self._starts[connections]
        count = int(told["number of transactions actually processed"].partition("/")[0])
        return Turn(
            per_s=float(told["tps"].split()[0]),
            server_us=max(server_s - start_server_s, 0.0) * 1e6 / count,
            client_us=max(client_s - start_client_s, 0.0) * 1e6 / count,
        )

    def _drive(
        self, metric: str, connections: int, kind: str, amount: int
    ) -> tuple[dict[str, str], float, float]:
        """Run pgbench: what it told, and the CPU time of the server and of itself."""
        command = [self._program, "-n", "-M", "prepared", "-c", connections, "-j", min(connections, 2)]
        command += [kind, amount, "-f", self._script(metric), self._server.address]
        server_s, client_s = self._server.cpu_s(), _children_cpu_s()
        done = subprocess.run(
            list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True, timeout=60
        )
        told = dict(line.split(" = ", 1) for line in done.stdout.splitlines() if " = " in line)
        told |= dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
        assert told["number of failed transactions"].startswith("0 "), done.stdout
        return told, self._server.cpu_s() - server_s, _children_cpu_s() - client_s

    def _script(self, metric: str) -> Path:
        return self._folder / f"{metric.split()[1]}.sql"

    def _write_script(self, metric: str, statements: Sequence[str]) -> None:
        self._script(metric).write_text("".join(f"{statement};\n" for statement in statements))


def _row(db: psycopg.Connection[Any], sql: str) -> dict[str, Any]:
    """The first row that a statement finds, without what is null."""
    cursor = db.execute(sql)
    found = cursor.fetchone()
    assert found is not None, sql
    assert cursor.description is not None, sql
    names = (column.name for column in cursor.description)
    return {name: value for name, value in zip(names, found, strict=True) if value is not None}


def _insert(table: str, row: dict[str, Any], **computed: str) -> str:
    """An INSERT of a row like this one, with the next number wherever ours has one of its own."""
    values = {name: _literal(value) for name, value in row.items()} | computed
    if "position" in row:
        values["position"] = values["transaction_last"] = "currval('peer.number')"
    return f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, str):
        # A name is different in every record, or its index would hold one key only.
        prefix, found, _ = value.partition("@")
        return f"'{prefix}@' || currval('peer.number')" if found else f"'{value}'"
    return str(value)


def _children_cpu_s() -> float:
    """User and system time of this process's ended children: the makers of load."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(connections: Sequence[int], seconds: float, pairs: int, edges: int = 0) -> dict[str, Any]:
    """The whole bench, as the object that `--json` prints."""
    folder = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    metrics = [Metric(name, count) for count in connections for name in (CREATES, READS)]
    programs = try_find_programs()
    postgres: PostgresServer | None = None
    postgres_s = 0.0
    try:
        sync_us = fdatasync_us(folder)
        client = folder / "load_client"
        subprocess.run(["gcc", "-O2", "-o", client, HERE / "load_client.c"], check=True, timeout=60)
        most = max(connections)
        with ExitStack() as stack:
            servers = [stack.enter_context(ServerProcess(folder / "sqlite"))]
            sides: dict[str, Side] = {SQLITE: Ours(client, servers[0], most)}
            if edges:
                options = ["--edges", str(edges)]
                servers.append(stack.enter_context(ServerProcess(folder / "edges", options=options)))
                sides[f"ours, edges: {edges}"] = Ours(client, servers[-1], most)
            if programs is not None:
                postgres = stack.enter_context(running_postgres(programs))
                options = ["--store", f"{postgres.address}&schema={_SCHEMA}"]
                servers.append(stack.enter_context(ServerProcess(folder / "postgres", options=options)))
                sides[POSTGRES] = Ours(client, servers[-1], most)
                sides[PEER] = Peer(programs, folder, postgres, most)
                postgres_s = -postgres.cpu_s()
            window = Window([server.pid for server in servers])
            for metric in metrics * pairs:
                for name, side in sides.items():
                    if name == POSTGRES and metric.connections != _ALSO_ON_POSTGRES:
                        continue
                    metric.turns.setdefault(name, []).append(
                        side.run(metric.name, metric.connections, seconds)
                    )
            reading = window.close()
            if postgres is not None:
                postgres_s += postgres.cpu_s()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # PostgreSQL detaches itself, so the window takes it for a stranger.
    foreign_part = reading.foreign_part - postgres_s / (reading.wall_s * (os.cpu_count() or 1))
    return {
        "bench": "rest",
        "results": [render_metric(metric) for metric in metrics],
        "durability": f"{DURABILITY}; fdatasync here: {sync_us:.0f} us",
        "clean": foreign_part < FOREIGN_LIMIT,
    }


def render_metric(metric: Metric) -> dict[str, Any]:
    """One row. `cpu_ratio` is of the servers' time alone; `cpu_us` has that of each side's server and client."""
    rates = {
        side: round(statistics.median(t.per_s for t in turns), 1) for side, turns in metric.turns.items()
    }
    cpu = {
        side: {
            "server": round(statistics.median(t.server_us for t in turns), 1),
            "client": round(statistics.median(t.client_us for t in turns), 1),
        }
        for side, turns in metric.turns.items()
    }
    others = [side for side in metric.turns if side != SQLITE]
    ours = metric.turns[SQLITE]

    def ratio(side: str, name: str) -> float:
        pairs = zip(ours, metric.turns[side], strict=True)
        ratios = [float(getattr(a, name)) / max(float(getattr(b, name)), 0.01) for a, b in pairs]
        return round(statistics.median(ratios), 3)

    return {
        "metric": f"{metric.name}, {metric.connections} connections",
        "unit": "1/s",
        "ours": rates[SQLITE],
        "peers": {side: rates[side] for side in others},
        "ratio": {side: ratio(side, "per_s") for side in others},
        "cpu_ratio": {side: ratio(side, "server_us") for side in others},
        "cpu_us": cpu,
    }


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people: rates, ours to each of the others, and the CPU time of servers and clients per operation."""
    for row in outcome["results"]:
        print(f"{row['metric']} [{row['unit']}]")
        for side, cpu in row["cpu_us"].items():
            rate = row["ours"] if side == SQLITE else row["peers"][side]
            beside = "" if side == SQLITE else f"  ours is {row['ratio'][side]:6.3f} of it"
            shown = f"CPU us: server {cpu['server']:7.1f}, client {cpu['client']:6.1f}"
            print(f"    {side:20}{rate:11,.0f}   {shown}{beside}")


def main() -> None:
    """Parse the command line and run."""
    parser = bench_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of each turn (1)")
    parser.add_argument("--pairs", type=int, default=2, help="turns of each side (2)")
    parser.add_argument("--connections", default="1,64,256", help="how many at once (1,64,256)")
    parser.add_argument("--edges", type=int, default=0, help="measure ours with so many edges as well (0)")
    given = parser.parse_args()
    connections = [int(count) for count in given.connections.split(",")]
    outcome = measure(connections, given.seconds, given.pairs, given.edges)
    show(outcome, print_table, as_json=given.json)


if __name__ == "__main__":
    main()
