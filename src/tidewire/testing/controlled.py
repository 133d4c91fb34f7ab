"""A server whose clock, state and faults are controlled by tests.

The control channel is a separate HTTP listener on loopback; `tidewire serve` has none. Its address is `control` in the
ready line and contains a secret, so that no web page can call it. A call is `POST <control>/<name>` with a JSON object
of arguments:

    curl -d '{"seconds": 7200}' $CONTROL/advance
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import json
import secrets
import shutil
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from tidewire.capture.change_events import MAX_CHANGES
from tidewire.capture.event_headers import HEADER, overflow_header
from tidewire.clock import AdjustableClock, SystemClock
from tidewire.config import DEV_USERNAME, Settings
from tidewire.delivery.hub import Hub
from tidewire.errors import (
    ConfigInvalid,
    InternalError,
    ObjectUnknown,
    PlatformError,
    ResourceUnknown,
    ValueMalformed,
)
from tidewire.events import ChangeType, CommitContext, EventDraft, Family, UntrackedChange
from tidewire.ids import try_normalise_id
from tidewire.names import change_event_name
from tidewire.server.core import Core
from tidewire.server.orgs import OpenOrg
from tidewire.server.run import Server
from tidewire.storage.store import Transaction
from tidewire.testing.faults import FailingRouter, make_fault
from tidewire.testing.template_org import TemplateOrg
from tidewire.transport.http import HttpRequest, HttpResponse
from tidewire.transport.http_server import HttpListener, serve_http
from tidewire.transport.routes import Route, Router
from tidewire.transport.tls import TlsFiles, tls_files

_DRAIN_S = 1.0
_LAST_MS = 253_402_300_799_999  # the end of the year 9999, the last date that can be written


class _Server(Server):
    """A server that skips the certificate check, which starts a process: the template org is at most a day old."""

    async def _ensure_certificates(self) -> TlsFiles:
        if self._settings.tls_host:
            return await super()._ensure_certificates()
        return tls_files(Path(self._settings.data) / "tls")


class ControlledServer:
    """A `Server` on copies of a template org, with a control channel. Bound to one event loop."""

    def __init__(self, settings: Settings, template: TemplateOrg) -> None:
        if settings.edges or settings.store != "sqlite":
            raise ConfigInvalid(
                "a test server needs a single process and a store that can be copied; use no edges and store sqlite",
                setting="edges" if settings.edges else "store",
            )
        self._template = template
        self._directory = Path(settings.data)
        self._settings = replace(settings, data=str(self._directory / "run-0"))
        self._clock = AdjustableClock()
        self._server = _Server(self._settings, self._clock, FailingRouter)
        self._resets = 0
        self._is_paused = False
        self._turn = asyncio.Lock()
        self._secret = secrets.token_urlsafe(24)
        self._listener: HttpListener | None = None
        self._calls: dict[str, Callable[..., Awaitable[object]]] = {
            name: getattr(self, name) for name in CALLS
        }

    @property
    def failed(self) -> asyncio.Event:
        """Set when the server can no longer write."""
        return self._server.failed

    async def start(self) -> dict[str, str]:
        """Open every listener; return the ready line, with `control` and the administrator's `token`."""
        # Resets need a private copy: the server may run for longer than the cache keeps the org.
        own = TemplateOrg(self._directory / "template", self._template.token)
        await asyncio.to_thread(self._template.copy_to, own.directory)
        self._template = own
        await asyncio.to_thread(own.copy_to, Path(self._settings.data))
        await self._server.start()
        router = Router([Route("/", handle=self._answer)])
        self._listener = await serve_http(router, "127.0.0.1", 0, clock=SystemClock())
        control = f"http://127.0.0.1:{self._listener.port}/{self._secret}"
        return {**self._server.ready, "control": control, "token": self._template.token}

    async def close(self) -> None:
        """Stop the server and keep its data directory."""
        if self._listener is not None:
            await self._listener.close(_DRAIN_S)
        await self._server.close()

    # calls of the control channel

    async def reset(self) -> None:
        """Reset records, types, users, log, clock and faults. Disconnects all clients."""
        self._clock.reset()
        self._router.faults.clear()
        self._is_paused = False
        self._resets += 1
        copy = self._directory / f"run-{self._resets}"
        before = self._directory / f"run-{self._resets - 1}"
        await asyncio.to_thread(self._template.copy_to, copy)
        await self._server.orgs.replace_first(replace(self._settings, data=str(copy)))
        if self._resets > 1:  # the first directory has the certificates in use
            await asyncio.to_thread(shutil.rmtree, before, ignore_errors=True)

    async def advance(self, seconds: float) -> int:
        """Move the wall clock forward and run the work that is due; return the time in ms."""
        if not 0 <= seconds <= 100 * 366 * 86_400:
            raise ValueMalformed("seconds must be from 0 to a hundred years", fields=["seconds"])
        self._clock.advance(seconds)
        await self._catch_up()
        return self._clock.now_ms()

    async def freeze(self, at_ms: int | None = None) -> int:
        """Stop the wall clock, now or at a time in ms; return the time in ms."""
        if at_ms is not None and not 0 <= at_ms <= _LAST_MS:
            raise ValueMalformed("at_ms must be from 0 to the end of the year 9999", fields=["at_ms"])
        self._clock.freeze(at_ms)
        await self._catch_up()
        return self._clock.now_ms()

    async def unfreeze(self) -> int:
        """Restart the wall clock; return the time in ms."""
        self._clock.unfreeze()
        return self._clock.now_ms()

    async def now(self) -> int:
        """Return the server's time in ms."""
        return self._clock.now_ms()

    async def expire_sessions(self, username: str = "") -> int:
        """End all login sessions, or those of one user, with their streams; return their number."""
        sessions = self._core.logins.sessions
        ended = [
            await sessions.revoke(entry.session_id)
            for entry in await sessions.entries()
            if not username or entry.username == username
        ]
        return sum(ended)

    async def gap(self, entity: str, record_ids: list[object], change: str = "UPDATE") -> None:
        """Append a gap event for these records."""
        self._check_captured(entity)
        try:
            kind = ChangeType(change)
        except ValueError as error:
            raise ValueMalformed(
                f"change must be one of {', '.join(ChangeType.__members__)}, not {change!r}",
                fields=["change"],
            ) from error
        ids = tuple(try_normalise_id(each) if isinstance(each, str) else None for each in record_ids)
        if not ids or None in ids:
            raise ValueMalformed("record_ids must be ids of records", fields=["record_ids"])
        named = tuple(each for each in ids if each is not None)
        untracked = UntrackedChange(self._core.records.catalog.object(entity).name, kind, named)
        user_id = await self._admin_id()
        await self._core.records.write(lambda unit: unit.untracked_changes.append(untracked), user_id=user_id)

    async def overflow(self, entity: str) -> None:
        """Append an overflow event for an object."""
        self._check_captured(entity)
        core, now_ms, user_id = self._core, self._clock.now_ms(), await self._admin_id()
        name = core.records.catalog.object(entity).name
        schema = core.records.types.schemas_of(core.records.catalog)[change_event_name(name)]

        def work(tx: Transaction) -> None:
            tx.progress.commit_number += 1
            context = CommitContext(str(uuid.uuid4()), tx.progress.commit_number, now_ms, user_id)
            payload = schema.encode({HEADER: overflow_header(context, name, 1)})
            draft = EventDraft(
                schema.name, Family.CHANGE, payload, now_ms, schema.schema_id, str(uuid.uuid4())
            )
            core.log.append(tx, [draft], now_ms)

        await core.records.write_plain(work)

    async def limit_changes(self, count: int = MAX_CHANGES) -> None:
        """Set the number of changes in a transaction after which overflow events are sent."""
        if count < 0:
            raise ValueMalformed(f"count must not be negative: {count}", fields=["count"])
        self._core.capture.max_changes = count

    async def disconnect(self) -> None:
        """End every streaming session and stream, like a restart. Clients may reconnect at once."""
        await self._server.orgs.renew_front()
        if self._is_paused:
            self._hub.hold()

    async def fail_next(
        self,
        status: int | str,
        count: int = 1,
        path: str = "",
        message: str = "a fault injected by a test",
    ) -> None:
        """Make the next requests fail: with an HTTP status, for a path prefix, or with a gRPC status."""
        self._router.faults.append(make_fault(status, count=count, path=path, message=message))

    async def pause(self) -> None:
        """Hold back all events committed from now on."""
        self._is_paused = True
        self._hub.hold()

    async def resume(self) -> None:
        """Deliver the held events and continue."""
        self._is_paused = False
        self._hub.release()

    # parts of the server

    @property
    def _org(self) -> OpenOrg:
        org = self._server.orgs.try_open(self._server.orgs.first_id)
        if org is None:
            raise InternalError("the org is not open")
        return org

    @property
    def _core(self) -> Core:
        return self._org.core

    @property
    def _hub(self) -> Hub:
        front = self._org.front
        if front is None:
            raise InternalError("the org has no front ends in this process")
        return front.hub

    @property
    def _router(self) -> FailingRouter:
        router = self._server.router
        if not isinstance(router, FailingRouter):
            raise InternalError("the server has not been started")
        return router

    async def _admin_id(self) -> str:
        user_id = await self._core.logins.try_find_user(DEV_USERNAME)
        return user_id or ""

    def _check_captured(self, entity: str) -> None:
        catalog = self._core.records.catalog
        obj = catalog.try_object(entity)
        if obj is None:
            raise ObjectUnknown(f"no object {entity!r}", entity=entity)
        if obj.name not in catalog.captured:
            raise ObjectUnknown(f"{obj.name} is not selected for change data capture", entity=entity)

    async def _catch_up(self) -> None:
        # Connected clients would have kept their login sessions alive.
        self._hub.touch_sessions()
        await self._core.trim(self._clock)

    # the control channel

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        secret, _, name = request.raw_path.removeprefix("/").partition("/")
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            return _error_response(404, "resource_unknown", "no such resource")
        if request.method != "POST":
            return _error_response(405, "method_not_allowed", "calls are POST requests")
        try:
            async with self._turn:
                result = await self._call(name, request.body)
        except PlatformError as error:
            return _error_response(400, error.code, error.message)
        return HttpResponse(200, json.dumps({"result": result}).encode())

    async def _call(self, name: str, body: bytes) -> object:
        call = self._calls.get(name)
        if call is None:
            raise ResourceUnknown(f"unknown call {name!r}; known: {', '.join(CALLS)}")
        try:
            arguments = json.loads(body or b"{}")
            bound = inspect.signature(call).bind(**arguments)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueMalformed(f"{name}: {error}", fields=[]) from error
        for key, value in bound.arguments.items():
            expected = _KINDS[key]
            if not isinstance(value, expected) or isinstance(value, bool):
                raise ValueMalformed(f"{name}: {key} cannot be {value!r}", fields=[key])
        return await call(*bound.args, **bound.kwargs)


def _error_response(status: int, code: str, message: str) -> HttpResponse:
    return HttpResponse(status, json.dumps({"code": code, "message": message}).encode())


CALLS = (
    "reset",
    "advance",
    "freeze",
    "unfreeze",
    "now",
    "expire_sessions",
    "gap",
    "overflow",
    "limit_changes",
    "disconnect",
    "fail_next",
    "pause",
    "resume",
)
"""The names of all calls of the control channel."""

_KINDS: dict[str, tuple[type, ...]] = {
    "seconds": (int, float),
    "at_ms": (int, type(None)),
    "username": (str,),
    "entity": (str,),
    "record_ids": (list,),
    "change": (str,),
    "count": (int,),
    "status": (int, str),
    "path": (str,),
    "message": (str,),
}
