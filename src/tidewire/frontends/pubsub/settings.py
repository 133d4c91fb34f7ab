"""Limits and timeouts of the Pub/Sub API. The defaults are those that clients expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tidewire.frontends import setting


@dataclass(frozen=True, kw_only=True)
class PubSubOptions:
    """The settings that an operator can change; `config.Settings` inherits them."""

    grpc: str = setting("127.0.0.1:7011", "address of the Pub/Sub API without TLS")
    grpc_tls: str = setting("127.0.0.1:7443", "address of the Pub/Sub API over TLS")
    pubsub_keepalive_s: float = setting(60.0, "seconds between empty responses on a quiet Pub/Sub stream")
    pubsub_idle_close_s: float = setting(
        60.0, "seconds after its last event that a Pub/Sub subscription ends if it requests no more events"
    )
    pubsub_publish_idle_close_s: float = setting(
        70.0, "seconds without a request after which a Pub/Sub publish stream ends"
    )


@dataclass(frozen=True, slots=True)
class PubSubSettings:
    """Limits and timeouts of one server.

    `queued_requests` and `queued_bytes` bound the queue of a publish stream; when it is full the stream is not read.
    `read_requests` and `worked_bytes` bound the unary requests of one user in progress, and `body_timeout_s` how long
    one may take to arrive. A request of up to `received_bytes` is answered with an error; gRPC cuts off a larger one.
    """

    max_outstanding: int = 100
    lifted_max_outstanding: int = 10_000
    max_response_bytes: int = 1 << 20
    max_event_bytes: int = 1 << 20
    max_request_bytes: int = 4 << 20
    keepalive_s: float = 60.0  # the proto promises one within 270 s; common watchdogs expect it sooner
    min_keepalive_ms: int = 50
    idle_close_s: float = 60.0
    publish_idle_close_s: float = 70.0
    commit_close_s: float = 1800.0
    max_streams: int = 50_000
    queued_requests: int = 64
    queued_bytes: int = 8 << 20
    read_requests: int = 16
    worked_bytes: int = 64 << 20
    body_timeout_s: float = 60.0
    received_bytes: int = 16 << 20

    @classmethod
    def from_options(cls, options: PubSubOptions) -> Self:
        """Apply the operator's settings."""
        return cls(
            keepalive_s=options.pubsub_keepalive_s,
            idle_close_s=options.pubsub_idle_close_s,
            publish_idle_close_s=options.pubsub_publish_idle_close_s,
        )
