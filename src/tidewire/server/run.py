"""A running server: core and edges, in one process or several, and any number of orgs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from ssl import SSLContext

from tidewire.clock import Clock, SystemClock
from tidewire.config import Settings, parse_address
from tidewire.delivery.front_end import Listener
from tidewire.errors import ConfigInvalid
from tidewire.server.edges import Edges
from tidewire.server.front_ends import ADDRESSES, make_router, open_listeners
from tidewire.server.orgs import Orgs
from tidewire.server.probes import Probes
from tidewire.server.process_tuning import allow_many_connections, freeze_startup_objects, return_large_blocks
from tidewire.server.routing import OrgRouter
from tidewire.telemetry import Snapshot
from tidewire.tracing import configure_tracing, end_tracing
from tidewire.transport.http_server import HttpListener, serve_http
from tidewire.transport.routes import Router
from tidewire.transport.tls import TlsFiles, ensure_certificates_in_subprocess, server_ssl_context

log = logging.getLogger(__name__)

_DRAIN_S = 5.0


class Server:
    """Call `start` to open and `close` to drain. `ready` has the addresses after `start`."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, router_type: type[OrgRouter] = OrgRouter
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._listeners: list[HttpListener | Listener] = []
        self._edges: Edges | None = None
        self._router_type = router_type
        self.router: OrgRouter | None = None
        self.orgs = Orgs(settings, self._clock, has_fronts=settings.edges == 0)
        self.ready: dict[str, str] = {}
        self._is_closing = False

    @property
    def failed(self) -> asyncio.Event:
        """Set when the writer of the only org has stopped for good; only a restart helps."""
        return self.orgs.failed

    def _counted(self) -> list[Snapshot]:
        return [] if self._edges is None else self._edges.counted()

    def _why_unready(self) -> str:
        if self._is_closing:
            return "the server is stopping"
        if not self.ready:
            return "the server is starting"
        is_complete = self._edges is None or len(self._edges.counted()) == self._settings.edges
        return "" if is_complete else "an edge process is restarting"

    async def start(self) -> None:
        """Open the first org, then every listener. Raises ConfigInvalid, StoreLocked or OSError."""
        settings = self._settings
        await self.orgs.start()
        router = self.router = self._router_type(
            self.orgs, Probes(settings, self.orgs, self._clock, self._counted, self._why_unready)
        )
        files = await self._ensure_certificates()
        if settings.edges:
            edges = self._edges = Edges(settings, self.orgs, router.answer)
            at = await edges.start()
        else:
            at = await self._listen_here(router, files)
        self.ready = {
            "event": "ready",
            "http": f"http://{_shown(*at['http'])}",
            "https": f"https://{_shown(*at['https'])}",
            **{setting: _shown(*at[setting]) for setting in ADDRESSES},
            "org_id": self.orgs.first_id,
            "data": settings.data,
        }

    async def _ensure_certificates(self) -> TlsFiles:
        hosts = [h.strip() for h in self._settings.tls_host.split(",") if h.strip()]
        directory = Path(self._settings.data) / "tls"
        return await asyncio.to_thread(
            ensure_certificates_in_subprocess, directory, hosts, self._clock.now_ms()
        )

    async def _listen_here(self, org_router: OrgRouter, files: TlsFiles) -> dict[str, tuple[str, int]]:
        """Open the listeners in this process; returns their addresses by setting."""
        settings = self._settings
        router = make_router(settings, org_router.answer, org_router.edge_routes(settings))
        http = await self._listen(router, settings.http, "http", None)
        https = await self._listen(router, settings.https, "https", server_ssl_context(files))
        at = {"http": (http.host, http.port), "https": (https.host, https.port)}
        addresses = {setting: parse_address(getattr(settings, setting), setting) for setting in ADDRESSES}
        for listener in open_listeners(org_router.find_calls, settings, shares_ports=False):
            self._listeners.append(listener)
            ports = await listener.start(addresses, files)
            at |= {setting: (addresses[setting][0], port) for setting, port in ports.items()}
        return at

    async def close(self) -> None:
        """Answer all held requests, finish queued writes, and close everything."""
        self._is_closing = True
        await self.orgs.end_clients()
        if self._edges is not None:
            await self._edges.stop()
        await asyncio.gather(*(listener.close(_DRAIN_S) for listener in self._listeners))
        await self.orgs.close()

    async def _listen(
        self, router: Router, address: str, setting: str, ssl: SSLContext | None
    ) -> HttpListener:
        host, port = parse_address(address, setting)
        try:
            listener = await serve_http(router, host, port, clock=self._clock, ssl=ssl)
        except UnicodeError as error:
            raise ConfigInvalid(
                f"{setting}: cannot listen on {address}: not a valid host name", setting=setting
            ) from error
        except OSError as error:
            # Errors of name resolution have negative numbers, which `strerror` does not know.
            is_known = error.errno is not None and error.errno > 0
            reason = os.strerror(error.errno or 0) if is_known else error.strerror or str(error)
            raise ConfigInvalid(
                f"{setting}: cannot listen on {address}: {reason}", setting=setting
            ) from error
        self._listeners.append(listener)
        return listener


async def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status of the process."""
    return_large_blocks()
    allow_many_connections()  # edges inherit the limit
    sys.setswitchinterval(1e-4)  # a busy loop must not starve the writer thread in the same process
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    configure_tracing(os.environ)
    server = Server(settings)
    try:
        await server.start()
        freeze_startup_objects()
        sys.stdout.write(json.dumps(server.ready) + "\n")
        sys.stdout.flush()
        waits = [asyncio.create_task(event.wait()) for event in (stop, server.failed)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    finally:
        await server.close()
        end_tracing()
    if server.failed.is_set():
        log.error("server.stopped_after_storage_failure")
        return 1
    return 0


def _shown(host: str, port: int) -> str:
    """Render an address for clients: certificates and cookies work best with `localhost`."""
    return f"{'localhost' if host in ('127.0.0.1', '::1', 'localhost') else host}:{port}"
