"""What is told of streaming clients between those who serve them and those who count them. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.events import Family


@dataclass(frozen=True, slots=True)
class Delivered:
    """How many events of a family have reached clients, of durable versions or of older ones.

    Without `is_allotted` they count against no allocation.
    """

    is_durable: bool
    family: Family
    events: int
    is_allotted: bool = True


@dataclass(frozen=True, slots=True)
class DurableClient:
    """One client that outlives a restart.

    `channels` are those it reads, with the position after which each goes on. `batch` is the last
    one it acknowledged, or -1 if it acknowledges nothing.
    """

    client_id: str
    user_id: str
    api_version: float
    is_durable: bool
    browser: str
    batch: int
    channels: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far one subscription has come, a Pub/Sub stream or a Bayeux client's to one channel.

    `managed` is the name of its managed subscription, if it has one; `pending` the demand that is left of a stream.
    """

    client_id: str
    username: str
    topic: str
    managed: str
    position: int
    pending: int
    protocol: str = "pubsub"
