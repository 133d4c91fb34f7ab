"""A small Pub/Sub server over a made-up history: what the pipeline must get along with when the server is not ours.

It grants at most 100 events at a time, refuses tokens it does not know, drops streams or stays silent when told
to, and says where its log ends only in keepalives.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc

from tests.pipeline.histories import SCHEMAS, BusEvent
from tidewire.schema.proto import pubsub_pb2 as pb

TOKEN = "good"
PAGE = 40
_PREFIX = "sfdc.platform.eventbus.grpc."


def replay_bytes(position: int) -> bytes:
    return position.to_bytes(8, "big") + b"\0\0"


class HistoryBus:
    """Serves events on a loopback port until closed. `head` is where its log stands."""

    def __init__(self, events: Sequence[BusEvent], head: int, *, first_kept: int = 0) -> None:
        self.events = list(events)
        self.head = head
        self.first_kept = first_kept
        self.drop_every = 0  # responses after which a stream is cut, 0 for never
        self.subscriptions = 0
        self.holds_after_drop = False  # whether a dropped stream is followed by silence
        self.end_every = False  # whether each stream is ended at once, as if all were said
        self.is_sloppy = False  # whether each page comes backwards, twice, and with the one before
        self.may_answer = (
            threading.Event()
        )  # while it is not set, subscriptions are accepted and hear nothing
        self.may_answer.set()
        self.schemas = {s.schema_id: s.json for versions in SCHEMAS.values() for s in versions}
        self._closing = threading.Event()
        self._counting = threading.Lock()
        # Or the system may give the same port to a server of another test, and share its callers out.
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        handlers = {
            "GetSchema": grpc.unary_unary_rpc_method_handler(
                self._get_schema, pb.SchemaRequest.FromString, pb.SchemaInfo.SerializeToString
            ),
            "Subscribe": grpc.stream_stream_rpc_method_handler(
                self._subscribe, pb.FetchRequest.FromString, pb.FetchResponse.SerializeToString
            ),
        }
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("eventbus.v1.PubSub", handlers)]
        )
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._closing.set()
        self.may_answer.set()
        self._server.stop(None).wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_token(self, context: Any) -> None:
        if dict(context.invocation_metadata()).get("accesstoken") != TOKEN:
            self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, "service.auth.error")

    def _refuse(self, context: Any, status: Any, code: str) -> None:
        context.set_trailing_metadata((("error-code", _PREFIX + code),))
        context.abort(status, f"refused: {code}")

    def _get_schema(self, request: Any, context: Any) -> Any:
        self._check_token(context)
        if request.schema_id not in self.schemas:
            self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "schema.validation.failed")
        return pb.SchemaInfo(schema_id=request.schema_id, schema_json=self.schemas[request.schema_id])

    def _subscribe(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        self._check_token(context)
        self.subscriptions += 1
        if self.end_every:
            return
        first = next(requests)
        demand = [min(first.num_requested, 100)]
        position = int.from_bytes(first.replay_id[:8], "big")
        if first.replay_preset == pb.CUSTOM and not self.first_kept <= position <= self.head:
            self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "subscription.fetch.replayid.corrupted")
        if first.replay_preset == pb.LATEST:
            position = self.head
        threading.Thread(target=self._count_demand, args=(requests, demand), daemon=True).start()
        sent = 0
        self.may_answer.wait()
        while not self._closing.is_set() and context.is_active():
            # Both before the events: what is said to be nothing must be so for what was asked for by then.
            head, wanted = self.head, demand[0]
            page = [e for e in self.events if e.replay_id > position][: min(PAGE, wanted)]
            if not page:
                if wanted and position < head:
                    position = head
                    yield pb.FetchResponse(
                        latest_replay_id=replay_bytes(position), pending_num_requested=demand[0]
                    )
                self._closing.wait(0.02)
                continue
            with self._counting:
                demand[0] -= len(page)
            position = page[-1].replay_id
            said = page
            if self.is_sloppy:
                before = [e for e in self.events if e.replay_id < page[0].replay_id][-PAGE:]
                said = [*page[::-1], *before, *page]
            yield pb.FetchResponse(
                events=[self._render(event) for event in said],
                latest_replay_id=replay_bytes(position),
                pending_num_requested=demand[0],
            )
            sent += 1
            if sent == self.drop_every:
                if self.holds_after_drop:
                    self.may_answer.clear()
                context.abort(grpc.StatusCode.UNAVAILABLE, "going away")

    def _count_demand(self, requests: Iterator[Any], demand: list[int]) -> None:
        try:
            for request in requests:
                with self._counting:
                    demand[0] = min(demand[0] + request.num_requested, 100)
        except grpc.RpcError:
            return  # the client hung up

    def _render(self, event: BusEvent) -> Any:
        headers = []
        if event.transaction_last is not None:
            headers = [pb.EventHeader(key="tidewire-tx-last", value=b"%d" % event.transaction_last)]
        return pb.ConsumerEvent(
            replay_id=replay_bytes(event.replay_id),
            event=pb.ProducerEvent(
                id=f"e-{event.replay_id}", schema_id=event.schema_id, payload=event.payload, headers=headers
            ),
        )
