"""Read the bus: one subscription that survives server restarts, dropped streams and expired logins.

`Bus.stream` resumes after the last position that it returned, so its caller sees each event once and in
order, whatever happens to the connection. Events that the server repeats are dropped, and events of one
response are sorted by position. Errors that no retry can fix (an expired replay id, a missing permission) are
raised at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from itertools import pairwise
from operator import attrgetter
from weakref import WeakSet

from tidewire.client.login import Credentials, Login, login
from tidewire.client.pubsub_blocking import BlockingPubSubClient
from tidewire.client.pubsub_messages import Fetched, Received
from tidewire.clock import Clock
from tidewire.errors import (
    AuthHeaderInvalid,
    ConfigInvalid,
    InternalError,
    PlatformError,
    ReplayIdExpired,
    ReplayIdInvalid,
    ServerUnreachable,
    SessionInvalid,
)
from tidewire.pipeline.lake.spans import START
from tidewire.telemetry import counters

_log = logging.getLogger(__name__)

TRANSACTION_LAST = "tidewire-tx-last"
MAX_REQUESTED = 5_000  # two pages of our server's ring; other servers grant 100 whatever is asked
KEEPALIVE_MS = 100  # how soon our server reports that the log has grown without an event for us
FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 5.0


@dataclass(frozen=True, slots=True)
class BusSettings:
    """Where the events are and who reads them.

    `tls_ca` is the path of the PEM roots to trust; without it the connection is plain, unless `tls` asks for
    the public roots. `export` locates the Arrow export of a Tidewire server: a URL, empty to look at the
    login's server, or `off`.
    """

    endpoint: str
    topic: str
    org_id: str = ""
    token: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    login_url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    tls_ca: str = ""
    tls: bool = False
    retry_s: float = 300.0
    export: str = ""


_TEXT_OPTIONS = tuple(each.name for each in fields(BusSettings) if each.default == "")
"""Settings that are texts and may be left out."""
_SPARKS_OWN = frozenset(
    (
        "path",
        "paths",
        "provider",
        "owner",
        "comment",
        "location",
        "external",
        "is_managed_location",
        "collation",
    )
)
SERVER_OPTIONS = frozenset(("endpoint", "topic", "tls", "retry_s", "settle_s", *_TEXT_OPTIONS))
"""Options that all sources share: the server's address, retry time, and login."""


def parse_settings(options: Mapping[str, str]) -> BusSettings:
    """Parse the options of a Spark reader. Raises ConfigInvalid."""
    for needed in ("endpoint", "topic"):
        if not options.get(needed):
            raise ConfigInvalid(f"the option {needed!r} is needed", setting=needed)
    if not options.get("token") and not (options.get("username") and options.get("login_url")):
        raise ConfigInvalid("give either 'token' or 'username', 'password' and 'login_url'", setting="token")
    if options.get("token") and not options.get("org_id"):
        raise ConfigInvalid("the option 'org_id' is needed with 'token'", setting="org_id")
    return BusSettings(
        endpoint=options["endpoint"],
        topic=options["topic"],
        tls=parse_flag(options, "tls"),
        retry_s=parse_number(options, "retry_s", 300.0),
        **{name: options.get(name, "") for name in _TEXT_OPTIONS},
    )


def render_options(settings: BusSettings) -> dict[str, str]:
    """Return the Spark reader options that parse to these settings."""
    options = {name: getattr(settings, name) for name in ("endpoint", "topic", *_TEXT_OPTIONS)}
    options |= {"tls": str(settings.tls).lower(), "retry_s": str(settings.retry_s)}
    return {name: value for name, value in options.items() if value}


def parse_number(options: Mapping[str, str], name: str, default: float) -> float:
    """Parse a non-negative number among reader options. Raises ConfigInvalid."""
    text = options.get(name, "")
    try:
        number = float(text) if text else default
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ConfigInvalid(f"the option {name!r} must be a number, not {text!r}", setting=name)
    return number


def parse_flag(options: Mapping[str, str], name: str) -> bool:
    """Parse a flag among reader options; false if absent. Raises ConfigInvalid."""
    text = options.get(name, "")
    if text.lower() not in ("", "true", "false"):
        raise ConfigInvalid(f"the option {name!r} must be 'true' or 'false', not {text!r}", setting=name)
    return text.lower() == "true"


def check_names(options: Iterable[str], known: Set[str]) -> None:
    """Raise ConfigInvalid for an unknown option, since a misspelt one would have no effect.

    Spark adds some names of its own to the options of a table; these are accepted.
    """
    for name in options:
        if name.lower() in known or name.lower() in _SPARKS_OWN or "." in name:
            continue
        near = get_close_matches(name.lower(), sorted(known), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f": there are {', '.join(sorted(known))}"
        raise ConfigInvalid(f"there is no option {name!r}{hint}", setting=name)


def position_after(fetched: Fetched, before: int) -> int:
    """Return how far the log has been read after a response; `before` is the position before it.

    Our server reports a position in each response, beyond the events if others follow that this subscriber
    does not receive. Other servers report it only in an empty response, and only while demand is open.
    """
    if not fetched.events:
        return max(before, fetched.latest_replay_id) if fetched.pending > 0 else before
    last = fetched.events[-1]
    if TRANSACTION_LAST in last.headers:
        return max(last.replay_id, fetched.latest_replay_id)
    return last.replay_id


class Deduplicator:
    """Sorts events by position and drops those seen before.

    Several events may share a replay id; their payloads then distinguish them.
    """

    def __init__(self, after: int) -> None:
        self._last = after
        self._payloads: set[bytes] = set()

    def put(self, fetched: Fetched) -> Fetched:
        """Return a response with only its new events, in order."""
        events = fetched.events
        if not events:
            return fetched
        is_sorted = all(left.replay_id < right.replay_id for left, right in pairwise(events))
        if is_sorted and events[0].replay_id > self._last:
            self._note(events[-1])
            return fetched
        fresh: list[Received] = []
        for event in sorted(events, key=attrgetter("replay_id")):
            shares = event.replay_id == self._last and bool(self._payloads)
            if event.replay_id > self._last or (shares and event.payload not in self._payloads):
                self._note(event)
                fresh.append(event)
        if len(fresh) < len(events):
            left_out = len(events) - len(fresh)
            counters["pipeline.events_repeated"] += left_out
            _log.warning("pipeline.events_repeated", extra={"events": left_out, "position": self._last})
        # The position in a response with repeated events is outdated.
        latest = fetched.latest_replay_id if fresh else self._last
        return replace(fetched, events=fresh, latest_replay_id=latest)

    def _note(self, event: Received) -> None:
        if event.replay_id != self._last:
            self._last = event.replay_id
            self._payloads.clear()
        self._payloads.add(event.payload)


class Bus:
    """Reads events and schemas as one user. Threads may share it; one of them signs in."""

    def __init__(self, settings: BusSettings, clock: Clock, session: Login | None = None) -> None:
        self.settings = settings
        self.clock = clock
        self.roots = _load_roots(settings)
        """The PEM roots to trust: empty for the public ones, None for plain connections."""
        self._lock = threading.Lock()
        self._clients: WeakSet[BlockingPubSubClient] = WeakSet()
        self._session = session
        if session is None and settings.token:
            self._session = Login(settings.token, settings.login_url, settings.org_id)

    def session(self) -> Login:
        """Return the current login, signing in first if there is none. Blocks."""
        with self._lock:
            if self._session is None:
                self._session = self._sign_in()
            return self._session

    def stream(
        self,
        after: int,
        ended: threading.Event,
        watch: Callable[[BlockingPubSubClient | None], None] | None = None,
    ) -> Iterator[Fetched]:
        """Yield every response after a position until `ended` is set. Blocks between responses.

        `watch` is called with the connection when a subscription begins on it, and with None when it breaks.
        """
        position = after
        order = Deduplicator(after)
        retry = Retry(self, ended)
        while not ended.is_set():
            try:
                with (
                    self.connect() as client,
                    client.subscribe(
                        self.settings.topic,
                        "earliest" if position == START else position,
                        max_requested=MAX_REQUESTED,
                        keepalive_ms=KEEPALIVE_MS,
                    ) as responses,
                ):
                    if watch is not None:
                        watch(client)
                    for response in responses:
                        retry.succeeded()
                        fetched = order.put(response)
                        position = position_after(fetched, position)
                        yield fetched
                        if ended.is_set():
                            return
                if not ended.is_set():
                    raise ServerUnreachable("the server has ended the subscription")
            except PlatformError as error:
                if watch is not None:
                    watch(None)
                retry.failed(error, position)

    def tip(self) -> int | None:
        """Return the position of the log's end. Blocks until the server reports it or the bus is closed.

        On a quiet log that may be never, so call this on a separate thread.
        """
        with (
            self.connect() as client,
            client.subscribe(
                self.settings.topic, "latest", max_requested=1, keepalive_ms=KEEPALIVE_MS
            ) as responses,
        ):
            for fetched in responses:
                return position_after(fetched, START)
        return None

    def schema_json(self, schema_id: str) -> str:
        """Return the Avro schema with an id. Blocks; retries as `stream` does."""
        retry = Retry(self, threading.Event())
        while True:
            try:
                with self.connect() as client:
                    return client.get_schema(schema_id)
            except PlatformError as error:
                retry.failed(error, START)

    def renew_session(self) -> None:
        """Sign in again after the server rejected the session. Blocks."""
        with self._lock:
            self._session = self._sign_in()

    def _sign_in(self) -> Login:
        settings = self.settings
        credentials = Credentials(
            settings.login_url,
            settings.username,
            settings.password,
            settings.client_id,
            settings.client_secret,
        )
        return login(credentials, self.roots)

    def connect(self) -> BlockingPubSubClient:
        """Return a client with the current login. The caller or `close` closes it."""
        session = self.session()
        client = BlockingPubSubClient(
            self.settings.endpoint,
            token=session.token,
            org_id=self.settings.org_id or session.org_id,
            instance_url=session.instance_url,
            tls_ca=self.roots,
        )
        self._clients.add(client)
        return client

    def close(self) -> None:
        """End every stream. Callable from any thread; iterating threads must have been asked to stop first."""
        for client in list(self._clients):
            client.close()


class Retry:
    """Decides whether a failed attempt is retried, and how long to wait first."""

    def __init__(self, bus: Bus, ended: threading.Event) -> None:
        self._bus = bus
        self._ended = ended
        self._delay_s = FIRST_DELAY_S
        self._failing_since: float | None = None
        self._has_renewed = False

    def succeeded(self) -> None:
        self._delay_s = FIRST_DELAY_S
        self._failing_since = None
        self._has_renewed = False

    def failed(self, error: PlatformError, position: int) -> None:
        """Wait until the next attempt is due; raise the error if no retry can help."""
        now_s = self._bus.clock.monotonic_s()
        if self._failing_since is None:
            self._failing_since = now_s
        if isinstance(error, ReplayIdExpired | ReplayIdInvalid):
            raise type(error)(
                f"the server no longer has the events after replay id {position}: {error.message.rstrip('.')}. "
                "An archive may still have them; otherwise read the records again.",
                replay_id=position,
            ) from error
        if now_s - self._failing_since >= self._bus.settings.retry_s:
            raise error
        if isinstance(error, AuthHeaderInvalid) and not self._bus.session().instance_url:
            raise ConfigInvalid(
                f"give 'login_url' with 'token', the URL of the instance that it is for: {error.message}",
                setting="login_url",
            ) from error
        if isinstance(error, SessionInvalid | AuthHeaderInvalid):
            if self._has_renewed or not self._bus.settings.username:
                raise error
            self._has_renewed = True
            try:
                self._bus.renew_session()
            except PlatformError as renewal_error:
                if not renewal_error.retryable:
                    raise
                self._has_renewed = False
        elif not (error.retryable or isinstance(error, InternalError)):
            raise error
        _log.warning(
            "pipeline.bus_retried", extra={"code": error.code, "position": position, "delay_s": self._delay_s}
        )
        self._ended.wait(self._delay_s)
        self._delay_s = min(self._delay_s * 2, LONGEST_DELAY_S)


def _load_roots(settings: BusSettings) -> bytes | None:
    if not settings.tls_ca:
        return b"" if settings.tls else None
    try:
        with open(settings.tls_ca, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigInvalid(
            f"cannot read the certificate file {settings.tls_ca}: {error}", setting="tls_ca"
        ) from error
