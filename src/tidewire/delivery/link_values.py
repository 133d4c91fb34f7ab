"""Values about streaming clients that edges, core and front ends exchange. All can be copied byte for byte."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tidewire.events import Family


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The most clients of one front end that an org may have, over all edges and in every edition."""

    total: int = sys.maxsize
    per_user: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class Delivered:
    """How many events of a family reached clients. `is_durable` means API version 37.0 or later.

    Without `is_allotted` they count against no allocation.
    """

    is_durable: bool
    family: Family
    events: int
    is_allotted: bool = True


@dataclass(frozen=True, slots=True)
class DurableClient:
    """A client that survives a restart of the server.

    `channels` are its subscriptions, each with the position to continue after. `batch` is the last one it
    acknowledged, or -1 if it does not acknowledge.
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
    """The progress of one subscription: a Pub/Sub stream, or a Bayeux client's subscription to one channel.

    `managed` is the name of its managed subscription, if it has one. `pending` is the remaining demand of a stream.
    `protocol` is the name of the front end.
    """

    client_id: str
    username: str
    topic: str
    managed: str
    position: int
    pending: int
    protocol: str


@dataclass(frozen=True, slots=True)
class ManagedStart:
    """A managed subscription that was opened: read after `position`.

    A negative position means none is stored: start at the oldest event if `is_from_earliest`, otherwise at the head.
    """

    subscription_id: str
    name: str
    topic: str
    position: int
    is_from_earliest: bool
