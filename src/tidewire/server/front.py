"""What clients of one org meet that is not REST or SOAP: Bayeux, Pub/Sub and the delivery behind both.

It reaches its core through a `CoreLink` only, so it is the same in the core's process and in an edge of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import CoreLink
from tidewire.frontends.bayeux.serve import BayeuxApp
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.frontends.pubsub.serve import PubSubApp
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import Exchange, Route

# The org's setting https_required; the REST API's form of an error, which the other protocols' clients can read too.
HTTPS_REQUIRED = HttpResponse(
    403,
    json.dumps(
        [{"errorCode": "HTTPS_REQUIRED", "message": "HTTPS is required; use the https address"}]
    ).encode(),
)
# A hundred small orgs must not keep what one large one may.
_FURTHER_RING_BYTES = 16 << 20
_FURTHER_ENCODED_BYTES = 8 << 20


@dataclass(eq=False, slots=True)
class OrgFront:
    """Made by `open_front`. `route` is Bayeux, held to the org's setting https_required."""

    hub: Hub
    bayeux: BayeuxApp
    pubsub: PubSubApp
    route: Route

    @property
    def is_busy(self) -> bool:
        """Whether somebody has a session or a subscription."""
        return bool(self.bayeux.session_count or self.hub.subscription_count)

    def park(self, request: HttpRequest, exchange: Exchange) -> None:
        """Take a Bayeux request."""
        if self.route.park is not None:
            self.route.park(request, exchange)

    async def end_clients(self) -> None:
        """Answer what is held and end every stream. Later ones are told to come back."""
        await self.bayeux.close()
        self.pubsub.end_streams()


async def open_front(
    link: CoreLink,
    settings: Settings,
    clock: Clock,
    needs_https: Callable[[], bool],
    *,
    is_first: bool,
    home: str = "",
) -> OrgFront:
    """Put delivery and front ends before a core. `home` begins the ids of Bayeux clients."""
    hub = (
        Hub(link)
        if is_first
        else Hub(link, ring_bytes=_FURTHER_RING_BYTES, encoded_bytes=_FURTHER_ENCODED_BYTES)
    )
    await hub.start()
    bayeux = BayeuxApp(link, hub, clock, _bayeux_settings(settings), home=home)
    pubsub = PubSubApp(link, hub, clock, pubsub_settings(settings))
    return OrgFront(hub, bayeux, pubsub, _guarded(bayeux.route, needs_https))


def pubsub_settings(settings: Settings) -> PubSubSettings:
    """What the server's settings say of the Pub/Sub API."""
    return PubSubSettings(
        keepalive_s=settings.pubsub_keepalive_s,
        idle_close_s=settings.pubsub_idle_close_s,
        publish_idle_close_s=settings.pubsub_publish_idle_close_s,
    )


def _bayeux_settings(settings: Settings) -> BayeuxSettings:
    return BayeuxSettings(
        hold_s=settings.bayeux_hold_s,
        reconnect_window_s=settings.bayeux_reconnect_s,
        requires_cookie=settings.bayeux_require_cookie,
        has_websocket=settings.bayeux_websocket,
        keeps_sessions=settings.bayeux_durable_sessions,
        old_session_s=settings.bayeux_session_s,
        max_sessions=settings.bayeux_clients,
        max_sessions_per_user=settings.bayeux_clients_per_user,
    )


def _guarded(route: Route, needs_https: Callable[[], bool]) -> Route:
    def park(request: HttpRequest, exchange: Exchange) -> None:
        if request.scheme == "http" and needs_https():
            exchange.respond_with(HTTPS_REQUIRED)
        elif route.park is not None:
            route.park(request, exchange)

    return replace(route, park=park)
