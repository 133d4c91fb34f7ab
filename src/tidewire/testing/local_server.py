"""A server for tests, in a thread or in its own process, with the same calls for both."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

from tidewire.client.cometd import NEW_EVENTS
from tidewire.client.login import Credentials, Login, login
from tidewire.client.rest import RestClient
from tidewire.config import (
    DEV_CLIENT_ID,
    DEV_CLIENT_SECRET,
    DEV_PASSWORD,
    DEV_USERNAME,
    Settings,
    load_settings,
)
from tidewire.errors import ConfigInvalid, InternalError, PlatformError, leaf_errors
from tidewire.testing.listener import Listener
from tidewire.testing.process import ServerProcess

if TYPE_CHECKING:
    from tidewire.testing.thread import ServerThread

_ANY_PORT = dict.fromkeys(("http", "https", "grpc", "grpc_tls"), "127.0.0.1:0")
_CALL_S = 120.0
_NO_FILE = Path(__file__).parent  # without a tidewire.toml: tests behave the same everywhere


class LocalServer:
    """A server on free loopback ports with a new development org. Use it as a context manager.

    `form` is "thread", which starts fastest, or "process", which shares nothing with the test. Other arguments are
    settings of `tidewire serve`, such as `edition="developer"`. After `start`: `http` and `https` are base URLs, `grpc`
    and `grpc_tls` are `host:port`, `ca_path` is the private CA that signs the TLS listeners, `token` is a session of
    the administrator `username`.
    """

    def __init__(self, *, form: Literal["thread", "process"] = "thread", **settings: object) -> None:
        if form not in ("thread", "process"):
            raise ConfigInvalid(f"form must be thread or process, not {form!r}", setting="form")
        taken = sorted({"data", "store", "dev", "edges", *_ANY_PORT} & settings.keys())
        if taken:
            raise ConfigInvalid(f"reserved by the test kit: {', '.join(taken)}", setting=taken[0])
        unknown = sorted(settings.keys() - {f.name for f in dataclasses.fields(Settings)})
        if unknown:
            raise ConfigInvalid(f"unknown setting {unknown[0]!r}", setting=unknown[0])
        # Validate here rather than in the thread or process.
        load_settings(settings, environment={}, directory=_NO_FILE)
        self.form = form
        self._settings = settings
        self._running: ServerThread | ServerProcess | None = None
        self._holder: tempfile.TemporaryDirectory[str] | None = None
        self._ready: Mapping[str, object] = {}
        self._rest: RestClient | None = None
        self.username = DEV_USERNAME
        self.password = DEV_PASSWORD
        self.client_id = DEV_CLIENT_ID
        self.client_secret = DEV_CLIENT_SECRET

    def start(self) -> Self:
        """Start the server and wait until every listener answers."""
        if self._running is not None:
            raise InternalError("the server is already running")
        self._holder = tempfile.TemporaryDirectory(prefix="tidewire-test-")
        data = Path(self._holder.name) / "data"
        try:
            self._ready = self._start_thread(data) if self.form == "thread" else self._start_process(data)
        except BaseException:
            self._holder.cleanup()
            self._holder = None
            raise
        self._rest = self._client()
        return self

    def stop(self) -> None:
        """Stop the server and delete its data. Idempotent."""
        running, self._running = self._running, None
        try:
            if running is not None:
                running.stop()
        finally:
            if self._holder is not None:
                self._holder.cleanup()
                self._holder = None

    def __enter__(self) -> Self:
        return self if self._running is not None else self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    # addresses

    @property
    def http(self) -> str:
        """The base URL."""
        return str(self._ready["http"])

    @property
    def https(self) -> str:
        """The base URL over TLS."""
        return str(self._ready["https"])

    @property
    def grpc(self) -> str:
        """`host:port` of the Pub/Sub API without TLS."""
        return str(self._ready["grpc"])

    @property
    def grpc_tls(self) -> str:
        """`host:port` of the Pub/Sub API over TLS."""
        return str(self._ready["grpc_tls"])

    @property
    def org_id(self) -> str:
        """The org's id, the same after each reset."""
        return str(self._ready["org_id"])

    @property
    def ca_path(self) -> Path:
        """The certificate that a TLS client must trust."""
        return Path(str(self._ready["data"])) / "tls" / "ca.pem"

    @property
    def control(self) -> str:
        """The URL of the control channel, for other languages; see `tidewire.testing.controlled`."""
        return str(self._ready["control"])

    @property
    def token(self) -> str:
        """An administrator session, valid from start or `reset` until `expire_sessions` or its timeout."""
        return str(self._ready["token"])

    def login(self, username: str = DEV_USERNAME, password: str = DEV_PASSWORD) -> str:
        """Sign in; return the token. Raises LoginFailed."""
        return self._sign_in(username, password).token

    # records and events

    @property
    def rest(self) -> RestClient:
        """The administrator's REST client, which renews its session when needed."""
        if self._rest is None:
            raise InternalError("the server has not been started")
        return self._rest

    def create(self, entity: str, **fields: Any) -> str:
        """Create a record; return its id."""
        return self.rest.create(entity, fields)

    def update(self, entity: str, record_id: str, **fields: Any) -> None:
        """Update fields of a record."""
        self.rest.update(entity, record_id, fields)

    def delete(self, entity: str, record_id: str) -> None:
        """Move a record to the recycle bin."""
        self.rest.delete(entity, record_id)

    def query(self, soql: str) -> list[dict[str, Any]]:
        """Return all records of a query."""
        return self.rest.query(soql)

    def publish_event(self, event: str, **fields: Any) -> str:
        """Publish a platform event; return its id."""
        return self.rest.create(event, fields)

    def apply(self, **definition: Any) -> list[str]:
        """Apply a definition of objects, events, push topics and so on, like `tidewire apply`; return the changes."""
        answer = self.rest.call("POST", "/services/tidewire/v1/apply", definition)
        return list(answer["plan"])

    def listen(self, channel: str, replay: int = NEW_EVENTS) -> Listener:
        """Subscribe to new events (-1), all retained ones (-2) or those after a replay id. Use as a context manager."""
        return Listener(self._sign_in, channel, replay)

    # control

    def reset(self) -> None:
        """Restore the initial state, clock and faults included. Disconnects all clients."""
        self._control("reset")
        self._rest = self._client()

    def advance(self, seconds: float) -> int:
        """Move the server's wall clock forward; return its time in ms. Due sessions and events expire."""
        return int(self._control("advance", seconds=seconds))

    def freeze(self, at_ms: int | None = None) -> int:
        """Stop the server's wall clock, now or at a time; return its time in ms."""
        return int(self._control("freeze", at_ms=at_ms))

    def unfreeze(self) -> int:
        """Restart the wall clock from its current time; return the server's time in ms."""
        return int(self._control("unfreeze"))

    def now_ms(self) -> int:
        """Return the server's time in ms since 1970."""
        return int(self._control("now"))

    def expire_sessions(self, username: str = "") -> int:
        """End all login sessions, or those of one user, with their streams; return their number."""
        return int(self._control("expire_sessions", username=username))

    def force_gap(self, entity: str, record_ids: Sequence[str], change: str = "UPDATE") -> None:
        """Send a gap event for records; `change` is CREATE, UPDATE, DELETE or UNDELETE."""
        self._control("gap", entity=entity, record_ids=list(record_ids), change=change)

    def force_overflow(self, entity: str) -> None:
        """Send the overflow event of an object, as after a very large transaction."""
        self._control("overflow", entity=entity)

    def limit_changes(self, count: int) -> None:
        """Send overflow events after `count` changes in a transaction, instead of 100,000."""
        self._control("limit_changes", count=count)

    def disconnect(self) -> None:
        """End every streaming session and stream, like a restart. Clients may reconnect at once."""
        self._control("disconnect")

    def fail_next(self, status: int | str, *, count: int = 1, path: str = "", message: str = "") -> None:
        """Make the next `count` requests fail.

        `status` is an HTTP status, for paths that start with `path`, or the name of a gRPC status such as UNAVAILABLE.
        """
        text = {"message": message} if message else {}
        self._control("fail_next", status=status, count=count, path=path, **text)

    def pause_delivery(self) -> None:
        """Hold back all events committed from now on."""
        self._control("pause")

    def resume_delivery(self) -> None:
        """Deliver the held events and continue."""
        self._control("resume")

    def _start_thread(self, data: Path) -> Mapping[str, object]:
        # Imported here: form "process" does not need the server's modules in this process.
        from tidewire.testing.thread import ServerThread

        values = {**_ANY_PORT, **self._settings, "dev": True, "data": str(data)}
        thread = ServerThread(load_settings(values, environment={}, directory=_NO_FILE))
        ready = thread.start()
        self._running = thread
        return ready

    def _start_process(self, data: Path) -> Mapping[str, object]:
        process = ServerProcess(data, options=self._flags(), program=("-m", "tidewire.testing"))
        self._running = process.start()
        return process.ready

    def _control(self, name: str, **arguments: object) -> Any:
        """Call the control channel. Raises the server's PlatformError."""
        if self._running is None:
            raise InternalError("the server is not running")
        url = urlsplit(self.control)
        connection = HTTPConnection(url.netloc, timeout=_CALL_S)
        try:
            connection.request("POST", f"{url.path}/{name}", body=json.dumps(arguments))
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise _error(str(answer.get("code")), str(answer.get("message")))
        return answer["result"]

    def _client(self) -> RestClient:
        return RestClient(Login(self.token, self.http, self.org_id), renew=self._sign_in)

    def _sign_in(self, username: str = DEV_USERNAME, password: str = DEV_PASSWORD) -> Login:
        return login(Credentials(self.http, username, password, self.client_id, self.client_secret))

    def _flags(self) -> list[str]:
        flags: list[str] = []
        for name, value in self._settings.items():
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                flags += [flag] if value else []
            else:
                flags += [flag, str(value)]
        return flags


def _error(code: str, message: str) -> PlatformError:
    leaf = next((each for each in leaf_errors() if each.code == code), InternalError)
    return leaf(message)
