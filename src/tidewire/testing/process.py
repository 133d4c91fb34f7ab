"""A real server in its own process, which tests can kill and restart.

    with ServerProcess(tmp_path / "data") as server:
        token = server.login()
        ...
        server.kill()      # like kill -9
        server.restart()   # same data directory, same ports

The server runs with `--dev` on loopback. It keeps its ports over restarts, so that clients can reconnect. Its stderr
goes to a file next to the data directory.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Self
from urllib.parse import urlencode, urlsplit

from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.errors import InternalError, LoginFailed

READER_USERNAME = "reader@tidewire.local"
"""The development user with few permissions: some fields of Account, no access to Opportunity."""

_LISTENERS = ("http", "https", "grpc", "grpc_tls")
_FIRST_PORT = 15_000
_STRIPES = 32


def choose_ports(count: int) -> list[int]:
    """Choose free loopback ports below the kernel's ephemeral range.

    A client that keeps connecting to an ephemeral port without a listener can end up connected to itself (TCP
    self-connect), which blocks the port for the restarted server. Parallel processes choose from disjoint stripes,
    because a chosen port is not reserved until a server listens on it.
    """
    first_ephemeral = 32_768
    text = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if text.exists():
        first_ephemeral = int(text.read_text().split()[0])
    last = max(first_ephemeral - 1, _FIRST_PORT + 1_000)
    chosen: list[int] = []
    own = range(_FIRST_PORT + os.getpid() % _STRIPES, last, _STRIPES)
    for port in random.SystemRandom().sample(own, len(own)):
        if len(chosen) == count:
            break
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        chosen.append(port)
    return chosen


def _python_path() -> str:
    """Return the module search path with which a child process imports this same package."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


class ServerProcess:
    """A `tidewire serve --dev` on a data directory. Not thread-safe, except for `kill`.

    `options` are additional command-line flags; `env` is added to the server's environment (crash points, a preloaded
    library) and may be changed between starts. After `start`: `http` and `https` are base URLs,
    `grpc` and `grpc_tls` are `host:port`, `ca_path` is the private CA that signs the TLS listeners.
    """

    def __init__(
        self,
        data: Path,
        *,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        ready_timeout_s: float = 90.0,
        program: Sequence[str] = ("-m", "tidewire.cli", "serve"),
    ) -> None:
        self.data = data
        self.env = dict(env or {})
        self.stderr_path = data.with_name(data.name + ".stderr.log")
        self.http = ""
        self.https = ""
        self.grpc = ""
        self.grpc_tls = ""
        self.org_id = ""
        self.ready: Mapping[str, object] = {}
        self._program = tuple(program)
        self._options = tuple(options)
        self._ready_timeout_s = ready_timeout_s
        self._ports = dict(zip(_LISTENERS, choose_ports(len(_LISTENERS)), strict=True))
        # per process
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ca_path(self) -> Path:
        """The certificate that a TLS client must trust."""
        return self.data / "tls" / "ca.pem"

    @property
    def pid(self) -> int:
        """The running server's process id."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server and wait until every listener is open. Raises InternalError with the end of its stderr."""
        if self.is_running:
            raise InternalError("the server is already running")
        self.data.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, *self._program, "--dev", "--data", str(self.data)]
        for name in _LISTENERS:
            command += [f"--{name.replace('_', '-')}", f"127.0.0.1:{self._ports[name]}"]
        with self.stderr_path.open("ab") as stderr:
            # In its own process group, so that one signal also reaches the server's children.
            self._process = subprocess.Popen(
                [*command, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": _python_path(), **self.env},
                start_new_session=True,
            )
        ready = self.ready = self._wait_ready(self._process)
        self.http = str(ready["http"])
        self.https = str(ready["https"])
        self.grpc = str(ready["grpc"])
        self.grpc_tls = str(ready["grpc_tls"])
        self.org_id = str(ready["org_id"])
        return self

    def kill(self) -> None:
        """Kill the server and its children with SIGKILL, and wait for the server. Idempotent."""
        process = self._process
        if process is None:
            return
        self._kill_group(process)
        process.wait(timeout=60)
        if process.stdout is not None:
            process.stdout.close()

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stop the server with SIGTERM. Raises InternalError unless it drains and exits with 0 in time."""
        process = self._running()
        process.terminate()
        try:
            code = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired as err:
            self.kill()
            raise InternalError(
                f"the server did not stop within {timeout_s} s", stderr=self.stderr_tail()
            ) from err
        self.kill()
        if code != 0:
            raise InternalError(f"the server stopped with exit code {code}", stderr=self.stderr_tail())

    def wait_crashed(self, timeout_s: float = 90.0) -> None:
        """Wait until the server dies at a crash point. Raises InternalError if it stays alive."""
        process = self._running()
        try:
            process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired as err:
            raise InternalError(f"the server was still alive after {timeout_s} s") from err
        finally:
            self.kill()

    def restart(self) -> Self:
        """Kill the server if it runs, and start it on the same data and ports."""
        self.kill()
        return self.start()

    def login(self, username: str = DEV_USERNAME, password: str = DEV_PASSWORD) -> str:
        """Sign in by the OAuth password grant; return the token. Raises LoginFailed."""
        form = {
            "grant_type": "password",
            "client_id": DEV_CLIENT_ID,
            "client_secret": DEV_CLIENT_SECRET,
            "username": username,
            "password": password,
        }
        connection = HTTPConnection(urlsplit(self.http).netloc, timeout=60)
        try:
            connection.request(
                "POST",
                "/services/oauth2/token",
                body=urlencode(form),
                headers={"Content-Type": "application/x-www-form-urlencoded"},
            )
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise LoginFailed(f"login rejected: {answer.get('error_description', response.status)}")
        return str(answer["access_token"])

    def stderr_tail(self, max_bytes: int = 4_000) -> str:
        """Return the end of the server's stderr, over all starts."""
        if not self.stderr_path.exists():
            return ""
        return self.stderr_path.read_bytes()[-max_bytes:].decode(errors="replace")

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise InternalError("the server has not been started")
        return self._process

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> Mapping[str, object]:
        if process.stdout is None:
            raise InternalError("the server's stdout is not a pipe")
        ready: list[Mapping[str, object]] = []
        done = threading.Event()
        # A thread reads the pipe to its end, so that the server never blocks on a full pipe.
        threading.Thread(
            target=_read_stdout, args=(process.stdout, ready, done), name="server-stdout", daemon=True
        ).start()
        done.wait(self._ready_timeout_s)
        if ready:
            return ready[0]
        self.kill()
        raise InternalError(
            f"the server was not ready within {self._ready_timeout_s} s (exit code {process.poll()}):\n"
            f"{self.stderr_tail()}"
        )

    @staticmethod
    def _kill_group(process: subprocess.Popen[bytes]) -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _read_stdout(stdout: IO[bytes], ready: list[Mapping[str, object]], done: threading.Event) -> None:
    try:
        for line in stdout:
            if not ready and line.startswith(b"{"):
                message = json.loads(line)
                if message.get("event") == "ready":
                    ready.append(message)
                    done.set()
    except ValueError:
        # `kill` closed the pipe, or the server died in the middle of a line.
        pass
    finally:
        done.set()
