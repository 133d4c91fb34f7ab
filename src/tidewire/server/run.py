"""A running server: core and edge in one process, joined by `LocalLink` and committed batches alone."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from functools import partial
from pathlib import Path
from ssl import SSLContext

from tidewire.clock import Clock, SystemClock
from tidewire.config import Settings, parse_address
from tidewire.delivery.hub import Hub
from tidewire.errors import ConfigInvalid
from tidewire.frontends.bayeux.serve import BayeuxApp
from tidewire.frontends.bayeux.settings import BayeuxSettings
from tidewire.frontends.pubsub.serve import PubSubApp
from tidewire.frontends.pubsub.session import PubSubSettings
from tidewire.server.core import Core, open_core
from tidewire.server.http_apps import CoreHttp
from tidewire.server.link import LocalLink
from tidewire.transport.http_server import HttpListener, Route, Router, serve_http
from tidewire.transport.tls import ensure_certificates, server_ssl_context

log = logging.getLogger(__name__)

_DRAIN_S = 5.0


class Server:
    """Open with `start`; `close` drains. Addresses are known after `start`."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._core: Core | None = None
        self._hub: Hub | None = None
        self._bayeux: BayeuxApp | None = None
        self._pubsub: PubSubApp | None = None
        self._listeners: list[HttpListener] = []
        self._trimmer: asyncio.Task[None] | None = None
        self.ready: dict[str, str] = {}
        self.failed = asyncio.Event()  # the writer has stopped for good; a restart is the only way on

    async def start(self) -> None:
        """Open the store, then every listener. Raises ConfigInvalid, StoreLocked or OSError."""
        settings, clock = self._settings, self._clock
        core = self._core = await open_core(settings, clock)
        loop = asyncio.get_running_loop()
        core.writer.watch_failure(partial(loop.call_soon_threadsafe, self.failed.set))
        core_http = CoreHttp(core, clock, is_dev=settings.dev)
        link = LocalLink(core, core_http.answer)
        hub = self._hub = Hub(link)
        await hub.start()
        bayeux = self._bayeux = BayeuxApp(link, hub, clock, self._bayeux_settings())
        router = Router([Route("/", handle=link.call_http), core_http.guard(bayeux.route)])
        hosts = [h.strip() for h in settings.tls_host.split(",") if h.strip()]
        files = ensure_certificates(Path(settings.data) / "tls", hosts, clock.now_ms())
        http = await self._listen(router, settings.http, "http", None)
        https = await self._listen(router, settings.https, "https", server_ssl_context(files))
        pubsub = self._pubsub = PubSubApp(
            link, hub, clock, PubSubSettings(keepalive_s=settings.pubsub_keepalive_s)
        )
        grpc_host, grpc_port = parse_address(settings.grpc, "grpc")
        tls_host, tls_port = parse_address(settings.grpc_tls, "grpc_tls")
        plain, tls = await pubsub.start(
            (grpc_host, grpc_port),
            (tls_host, tls_port, files.server_key.read_bytes(), files.server.read_bytes()),
        )
        self._trimmer = asyncio.create_task(core.trim_for_ever(settings, clock))
        self.ready = {
            "event": "ready",
            "http": f"http://{_shown(http.host)}:{http.port}",
            "https": f"https://{_shown(https.host)}:{https.port}",
            "grpc": f"{_shown(grpc_host)}:{plain}",
            "grpc_tls": f"{_shown(tls_host)}:{tls}",
            "org_id": core.logins.org_id,
            "data": settings.data,
        }

    async def close(self) -> None:
        """Answer what is held, finish what is queued, and let go of everything."""
        if self._trimmer is not None:
            self._trimmer.cancel()
        if self._bayeux is not None:
            await self._bayeux.close()
        closing = [listener.close(_DRAIN_S) for listener in self._listeners]
        if self._pubsub is not None:
            closing.append(self._pubsub.close(_DRAIN_S))
        await asyncio.gather(*closing)
        if self._hub is not None:
            await self._hub.close()
        if self._core is not None:
            await self._core.close()

    def _bayeux_settings(self) -> BayeuxSettings:
        settings = self._settings
        return BayeuxSettings(
            hold_s=settings.bayeux_hold_s,
            reconnect_window_s=settings.bayeux_reconnect_s,
            requires_cookie=settings.bayeux_require_cookie,
        )

    async def _listen(
        self, router: Router, address: str, setting: str, ssl: SSLContext | None
    ) -> HttpListener:
        host, port = parse_address(address, setting)
        try:
            listener = await serve_http(router, host, port, clock=self._clock, ssl=ssl)
        except OSError as error:
            raise ConfigInvalid(
                f"{setting}: cannot listen on {address}: {error.strerror}", setting=setting
            ) from error
        self._listeners.append(listener)
        return listener


async def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; returns the process's exit status."""
    sys.setswitchinterval(1e-4)  # a busy loop must not starve the writer thread in the same process
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    server = Server(settings)
    try:
        await server.start()
        sys.stdout.write(json.dumps(server.ready) + "\n")
        sys.stdout.flush()
        waits = [asyncio.create_task(event.wait()) for event in (stop, server.failed)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    finally:
        await server.close()
    if server.failed.is_set():
        log.error("server.stopped_after_storage_failure")
        return 1
    return 0


def _shown(host: str) -> str:
    """The host as clients should name it: certificates and cookies work best with `localhost`."""
    return "localhost" if host in ("127.0.0.1", "::1", "localhost") else host
