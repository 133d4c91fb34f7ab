"""A server for tests, in this process or in one of its own, with the same calls for both."""

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
from tidewire.testing.listening import Listener
from tidewire.testing.process import ServerProcess

if TYPE_CHECKING:
    from tidewire.testing.thread import ServerThread

_ANY_PORT = dict.fromkeys(("http", "https", "grpc", "grpc_tls"), "127.0.0.1:0")
_CALL_S = 120.0
_NO_FILE = Path(__file__).parent  # a test server is the same wherever and by whomever it is started


class LocalServer:
    """A server on loopback that begins with a fresh development org, on ports that are free. Use it with `with`.

    `form` is "thread", which starts soonest, or "process", which shares nothing with the test. Further arguments are
    settings of `tidewire serve`, such as `edition="developer"`. After `start`: `http` and `https` are base URLs, `grpc`
    and `grpc_tls` are `host:port`, `ca_path` is the private CA that signs the TLS listeners, `token` is a session of
    the administrator `username`.
    """

    def __init__(self, *, form: Literal["thread", "process"] = "thread", **settings: object) -> None:
        if form not in ("thread", "process"):
            raise ConfigInvalid(f"form must be thread or process, not {form!r}", setting="form")
        taken = sorted({"data", "store", "dev", "edges", *_ANY_PORT} & settings.keys())
        if taken:
            raise ConfigInvalid(f"the test kit itself decides about {', '.join(taken)}", setting=taken[0])
        unknown = sorted(settings.keys() - {f.name for f in dataclasses.fields(Settings)})
        if unknown:
            raise ConfigInvalid(f"there is no setting {unknown[0]!r}", setting=unknown[0])
        # To be refused here, and not in the thread or the process.
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
        """End the server and remove what it wrote. Idempotent."""
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

    # where it is

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
        """The URL of the control channel, for whoever is not Python; see `tidewire.testing.controlled`."""
        return str(self._ready["control"])

    @property
    def token(self) -> str:
        """A session of the administrator, good from start or `reset` on, until `expire_sessions` or its time is up."""
        return str(self._ready["token"])

    def login(self, username: str = DEV_USERNAME, password: str = DEV_PASSWORD) -> str:
        """A new session's token. Raises LoginFailed."""
        return self._sign_in(username, password).token

    # records and events

    @property
    def rest(self) -> RestClient:
        """REST calls as the administrator, signed in again when that is needed."""
        if self._rest is None:
            raise InternalError("the server has not been started")
        return self._rest

    def create(self, entity: str, **fields: Any) -> str:
        """Make a record; its id."""
        return self.rest.create(entity, fields)

    def update(self, entity: str, record_id: str, **fields: Any) -> None:
        """Change fields of a record."""
        self.rest.update(entity, record_id, fields)

    def delete(self, entity: str, record_id: str) -> None:
        """Put a record into the recycle bin."""
        self.rest.delete(entity, record_id)

    def query(self, soql: str) -> list[dict[str, Any]]:
        """Every record that a query finds."""
        return self.rest.query(soql)

    def publish_event(self, event: str, **fields: Any) -> str:
        """Publish a platform event; its id."""
        return self.rest.create(event, fields)

    def apply(self, **definition: Any) -> list[str]:
        """Make objects, fields, platform events, push topics and the like, as `tidewire apply` does; what was done."""
        answer = self.rest.call("POST", "/services/tidewire/v1/apply", definition)
        return list(answer["plan"])

    def listen(self, channel: str, replay: int = NEW_EVENTS) -> Listener:
        """Subscribe to a channel, from new events on, from all kept ones (-2) or after a replay id. For `with`."""
        return Listener(self._sign_in, channel, replay)

    # control

    def reset(self) -> None:
        """Put everything back as it was at the start, clock and faults included. All clients are disconnected."""
        self._control("reset")
        self._rest = self._client()

    def advance(self, seconds: float) -> int:
        """Move the server's wall clock forward; its time in ms. Sessions and events that are due expire."""
        return int(self._control("advance", seconds=seconds))

    def freeze(self, at_ms: int | None = None) -> int:
        """Stop the server's wall clock, here or at a time; its time in ms."""
        return int(self._control("freeze", at_ms=at_ms))

    def unfreeze(self) -> int:
        """Let the wall clock go on from where it stands; the server's time in ms."""
        return int(self._control("unfreeze"))

    def now_ms(self) -> int:
        """The server's time, in ms since 1970."""
        return int(self._control("now"))

    def expire_sessions(self, username: str = "") -> int:
        """End all login sessions, or those of one user, open streams included; how many there were."""
        return int(self._control("expire_sessions", username=username))

    def force_gap(self, entity: str, record_ids: Sequence[str], change: str = "UPDATE") -> None:
        """Send the gap event that says these records changed, and not how: CREATE, UPDATE, DELETE or UNDELETE."""
        self._control("gap", entity=entity, record_ids=list(record_ids), change=change)

    def force_overflow(self, entity: str) -> None:
        """Send the overflow event of an object, as if a transaction had made too many changes to tell each."""
        self._control("overflow", entity=entity)

    def limit_changes(self, count: int) -> None:
        """Let overflow events begin after so many changes of one transaction, instead of 100,000."""
        self._control("limit_changes", count=count)

    def disconnect(self) -> None:
        """End every streaming session and stream, as a restart would. Clients may come back at once."""
        self._control("disconnect")

    def fail_next(self, status: int | str, *, count: int = 1, path: str = "", message: str = "") -> None:
        """Let the next requests fail.

        `status` is an HTTP status, for requests whose path begins with `path`, or the name of a gRPC status such as
        UNAVAILABLE, for calls of the Pub/Sub API.
        """
        text = {"message": message} if message else {}
        self._control("fail_next", status=status, count=count, path=path, **text)

    def pause_delivery(self) -> None:
        """Keep what is committed from now on from every subscriber."""
        self._control("pause")

    def resume_delivery(self) -> None:
        """Deliver what waited, and what follows."""
        self._control("resume")

    def _start_thread(self, data: Path) -> Mapping[str, object]:
        # Loaded here because a server in a process of its own needs none of it in this one.
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
        """One call of the control channel. Raises what the server raises."""
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
