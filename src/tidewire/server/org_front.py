"""The edge side of one org: its hub and the front ends that deliver from it.

It reaches the org's core through a `CoreLink` only, so it is the same in the core's process and in an edge
process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.delivery.front_end import EdgeApp, EdgeContext
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import CoreLink
from tidewire.server.front_ends import edge_sides
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.routes import Exchange, ParkingHandler

# The org's setting https_required; in the REST API's error form, which clients of the other protocols can
# read too.
HTTPS_REQUIRED = HttpResponse(
    403,
    json.dumps(
        [{"errorCode": "HTTPS_REQUIRED", "message": "HTTPS is required; use the https address"}]
    ).encode(),
)
# Additional orgs are many and small: a hundred of them must not use the memory of a hundred first orgs.
_ADDITIONAL_RING_BYTES = 16 << 20
_ADDITIONAL_ENCODED_BYTES = 8 << 20


@dataclass(eq=False, slots=True)
class OrgFront:
    """Made by `open_front`. `park` has the HTTP handler of each front end that has one, by name."""

    hub: Hub
    apps: Mapping[str, EdgeApp]
    park: Mapping[str, ParkingHandler]

    @property
    def is_busy(self) -> bool:
        """Whether a client has a session or a subscription."""
        return bool(self.hub.subscription_count) or any(app.is_busy() for app in self.apps.values())

    async def end_clients(self) -> None:
        """Answer all held requests and end every stream. Later clients are told to retry."""
        for app in self.apps.values():
            await app.end_clients()


async def open_front(
    link: CoreLink,
    settings: Settings,
    clock: Clock,
    needs_https: Callable[[], bool],
    *,
    is_first: bool,
    home: str = "",
) -> OrgFront:
    """Open an org's hub and front ends. `home` names this edge, see `EdgeContext`."""
    hub = (
        Hub(link)
        if is_first
        else Hub(link, ring_bytes=_ADDITIONAL_RING_BYTES, encoded_bytes=_ADDITIONAL_ENCODED_BYTES)
    )
    await hub.start()
    context = EdgeContext(link, hub, clock, settings, home)
    apps = {name: side.open(context) for name, side in edge_sides().items()}
    park = {name: _guard(app.park, needs_https) for name, app in apps.items() if app.park is not None}
    return OrgFront(hub, apps, park)


def _guard(park: ParkingHandler, needs_https: Callable[[], bool]) -> ParkingHandler:
    def park_if_allowed(request: HttpRequest, exchange: Exchange) -> None:
        if request.scheme == "http" and needs_https():
            exchange.respond_with(HTTPS_REQUIRED)
        else:
            park(request, exchange)

    return park_if_allowed
