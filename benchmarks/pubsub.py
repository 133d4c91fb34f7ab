"""The Pub/Sub bench: events published and delivered over gRPC, beside bare grpc.aio servers in the same run.

    python benchmarks/pubsub.py [--json] [--seconds 1.5] [--pairs 3] [--edges 0]

Published: platform events of 30 fields in requests of 1, 20 and 200, by Publish and by PublishStream. Ours checks
login and permission, validates every payload, and has each event on disk before its result; the peer decodes each
payload with fastavro and stores nothing. Delivered: the same events to 1, 10 and 100 subscribers, who read one stretch
of the log again and again; the peer sends bytes that were ready before. Both sides get the same load from the same
program (grpc_load.py), turn and turn about. Where the machine is shared, the CPU time per event says more than the
rate.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import requests
from grpc_load import MARK
from load_making import Client
from measuring import Window, fdatasync_us, group_cpu_s
from reporting import bench_parser, show

from tidewire.client.pubsub_blocking import BlockingPubSubClient
from tidewire.client.pubsub_messages import render_replay_id
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.testing import ServerProcess

HERE = Path(__file__).resolve().parent
OURS, PEER = "ours", "bare grpc.aio"
EVENT = "Bench_Order__e"
TOPIC = f"/event/{EVENT}"
SIZES = (1, 20, 200)
SUBSCRIBERS = (1, 10, 100)
CALLERS = 16
PRELOADED = 10_000
DURABILITY = "ours: every event on disk before its result (group commit, one fdatasync a group); peer: none"
_PAYLOAD_FIELDS = 28  # with CreatedDate and CreatedById 30


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side did in one stretch of time."""

    per_s: float
    server_us: float  # CPU time for one event


@dataclass(frozen=True, slots=True)
class Metric:
    """One kind of load, and the turns of each side."""

    name: str
    kind: str
    amount: int
    turns: dict[str, list[Turn]] = field(default_factory=dict)


def event_fields() -> dict[str, dict[str, Any]]:
    """The definition of the event: texts, numbers, flags and times."""
    kinds: tuple[dict[str, Any], ...] = (
        {"type": "Text", "length": 80},
        {"type": "Number"},
        {"type": "Checkbox"},
        {"type": "DateTime"},
    )
    return {f"F{n}__c": kinds[n % len(kinds)] for n in range(_PAYLOAD_FIELDS)}


def event_values() -> dict[str, Any]:
    """An event with every field set."""
    samples: tuple[Any, ...] = ("some words of text", 1234.5, True, 1_750_000_000_000)
    values = {f"F{n}__c": samples[n % len(samples)] for n in range(_PAYLOAD_FIELDS)}
    return {
        "CreatedDate": 1_750_000_000_000,
        "CreatedById": "005000000000001AAA",
        **values,
        "F0__c": MARK.decode(),
    }


class Side:
    """A server, and how it is loaded."""

    def __init__(self, folder: Path, name: str, address: str, group: int, start: bytes) -> None:
        self._folder = folder
        self._address = address
        self._group = group
        self._start = start
        self._metadata = folder / f"{name.replace(' ', '-')}.metadata"

    def set_metadata(self, metadata: Sequence[tuple[str, str]]) -> None:
        """What every call carries."""
        self._metadata.write_text(json.dumps(list(metadata)))

    def run(self, metric: Metric, seconds: float) -> Turn:
        """Load it for so long."""
        command = [
            sys.executable,
            str(HERE / "grpc_load.py"),
            self._address,
            str(self._metadata),
            metric.kind,
        ]
        if metric.kind == "subscribe":
            command += [TOPIC, self._start.hex(), str(PRELOADED), str(metric.amount)]
        else:
            command += [str(request_file(self._folder, metric.amount)), str(metric.amount), str(CALLERS)]
        client = Client([*command, str(seconds)])
        client.wait_ready()
        before_s = group_cpu_s(self._group)
        result = client.result()
        cpu_s = group_cpu_s(self._group) - before_s
        return Turn(result["events"] / result["seconds"], cpu_s * 1e6 / max(result["events"], 1))


def request_file(folder: Path, size: int) -> Path:
    """Where the request of so many events is."""
    return folder / f"{size}.request"


@contextmanager
def bare_server(folder: Path, schema_json: str, entry: bytes) -> Iterator[tuple[str, int]]:
    """The peer: its address and process group."""
    (folder / "schema").write_text(schema_json)
    (folder / "entry").write_bytes(entry)
    command = [sys.executable, str(HERE / "bare_grpc.py"), str(folder / "schema"), str(folder / "entry")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}", process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def prepare(folder: Path, server: ServerProcess, token: str) -> tuple[str, bytes, bytes]:
    """The event type, the requests, and events to be read: the schema, the start, and one event as it is delivered."""
    definition = {"events": {EVENT: {"label": "Bench order", "fields": event_fields()}}}
    applied = requests.post(
        f"{server.http}/services/tidewire/v1/apply",
        json=definition,
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    )
    assert applied.status_code == 200, applied.text
    with BlockingPubSubClient(
        server.grpc, token=token, org_id=server.org_id, instance_url=server.http, tls_ca=None
    ) as client:
        schema_id = client.get_topic(TOPIC).schema_id
        schema_json = client.get_schema(schema_id)
        out = io.BytesIO()
        parsed: Any = fastavro.parse_schema(json.loads(schema_json))
        fastavro.schemaless_writer(out, parsed, event_values())
        payload = out.getvalue()
        for size in SIZES:
            event = pb.ProducerEvent(
                id="5e1f5f0a-2a7c-4c5e-8f63-2f4f5b0f9a11", schema_id=schema_id, payload=payload
            )
            body = pb.PublishRequest(topic_name=TOPIC, events=[event] * size).SerializeToString()
            request_file(folder, size).write_bytes(body)
        first = client.publish(TOPIC, [(schema_id, payload, "")])[0].replay_id
        assert first is not None
        for _ in range(PRELOADED // 200):
            client.publish(TOPIC, [(schema_id, payload, "")] * 200)
        sample = next(iter(client.subscribe(TOPIC, first))).events[0]
    consumed = pb.ConsumerEvent(
        event=pb.ProducerEvent(
            id=sample.event_id,
            schema_id=sample.schema_id,
            payload=sample.payload,
            headers=[pb.EventHeader(key=key, value=value) for key, value in sample.headers.items()],
        ),
        replay_id=render_replay_id(sample.replay_id),
    )
    return schema_json, render_replay_id(first), pb.FetchResponse(events=[consumed]).SerializeToString()


def all_metrics() -> list[Metric]:
    """Reading comes first: it is over the stretch of the log that is still in memory."""
    metrics = [
        Metric(f"events delivered to {n} subscriber{'s' if n > 1 else ''}", "subscribe", n)
        for n in SUBSCRIBERS
    ]
    for kind, name in (("publish", "Publish"), ("stream", "PublishStream")):
        metrics += [Metric(f"events published in {size}s, {name}", kind, size) for size in SIZES]
    return metrics


def measure(seconds: float, pairs: int, edges: int) -> dict[str, Any]:
    """The whole bench, as the object that `--json` prints."""
    folder = Path(tempfile.mkdtemp(prefix="tidewire-bench-"))
    metrics = all_metrics()
    try:
        sync_us = fdatasync_us(folder)
        with ExitStack() as stack:
            options = ["--edges", str(edges)] if edges else []
            server = stack.enter_context(ServerProcess(folder / "data", options=options))
            token = server.login()
            schema_json, start, entry = prepare(folder, server, token)
            address, group = stack.enter_context(bare_server(folder, schema_json, entry))
            ours = Side(folder, OURS, server.grpc, server.pid, start)
            ours.set_metadata(
                [("accesstoken", token), ("instanceurl", server.http), ("tenantid", server.org_id)]
            )
            peer = Side(folder, PEER, address, group, start)
            peer.set_metadata(
                [("accesstoken", token), ("instanceurl", server.http), ("tenantid", server.org_id)]
            )
            window = Window([server.pid, group])
            for metric in metrics:
                for _ in range(pairs):
                    for name, side in ((OURS, ours), (PEER, peer)):
                        metric.turns.setdefault(name, []).append(side.run(metric, seconds))
            reading = window.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "bench": "pubsub",
        "results": [render_metric(metric) for metric in metrics],
        "durability": f"{DURABILITY}; fdatasync here: {sync_us:.0f} us",
        "clean": reading.is_clean,
    }


def render_metric(metric: Metric) -> dict[str, Any]:
    """One row: medians, and the medians of the turns' ratios."""
    ours, peer = metric.turns[OURS], metric.turns[PEER]
    pairs = list(zip(ours, peer, strict=True))
    return {
        "metric": metric.name,
        "unit": "1/s",
        "ours": round(statistics.median(turn.per_s for turn in ours)),
        "peers": {PEER: round(statistics.median(turn.per_s for turn in peer))},
        "ratio": {PEER: round(statistics.median(a.per_s / b.per_s for a, b in pairs), 3)},
        "cpu_ratio": {
            PEER: round(statistics.median(a.server_us / max(b.server_us, 0.01) for a, b in pairs), 3)
        },
        "cpu_us": {
            name: round(statistics.median(turn.server_us for turn in turns), 2)
            for name, turns in metric.turns.items()
        },
    }


def print_table(outcome: dict[str, Any]) -> None:
    """The same for people."""
    print(f"{'':46}{'ours':>12}{PEER:>15}{'ratio':>8}{'CPU us/event, ours and peer':>30}")
    for row in outcome["results"]:
        cpu = row["cpu_us"]
        print(
            f"{row['metric'] + ' [' + row['unit'] + ']':46}{row['ours']:12,}{row['peers'][PEER]:15,}"
            f"{row['ratio'][PEER]:8.3f}{cpu[OURS]:20.2f}{cpu[PEER]:10.2f}"
        )


def main() -> None:
    """Parse the command line and run."""
    parser = bench_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="length of each turn (1.5)")
    parser.add_argument("--pairs", type=int, default=3, help="turns of ours and the peer's (3)")
    parser.add_argument("--edges", type=int, default=0, help="run ours with so many edges (0)")
    given = parser.parse_args()
    outcome = measure(given.seconds, given.pairs, given.edges)
    show(outcome, print_table, as_json=given.json)


if __name__ == "__main__":
    main()
