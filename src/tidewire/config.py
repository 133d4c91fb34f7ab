"""Settings of the server: defaults < `tidewire.toml` < `TIDEWIRE_*` environment < flags.

Each setting is declared once: here, or in `settings.py` of the front end it belongs to. Its name gives the
file key, the environment variable and the flag; its help text appears in `tidewire serve --help` and
docs/configuration.md.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tidewire.errors import ConfigInvalid
from tidewire.frontends import setting
from tidewire.frontends.bayeux.settings import BayeuxOptions
from tidewire.frontends.pubsub.settings import PubSubOptions

CONFIG_FILE = "tidewire.toml"
_WORDS = {"log_level": ("DEBUG", "INFO", "WARNING", "ERROR"), "log_format": ("json", "text")}
DEV_USERNAME = "admin@tidewire.local"
DEV_PASSWORD = "tidewire"  # noqa: S105  # the well-known login of development mode
DEV_CLIENT_ID = "tidewire-dev"
DEV_CLIENT_SECRET = "tidewire-dev-secret"  # noqa: S105


@dataclass(frozen=True, kw_only=True)
class _ServerSettings:
    """The settings that belong to no front end."""

    data: str = setting("data/server", "directory of the org's records, events and certificates")
    store: str = setting(
        "sqlite",
        "where records and events are stored: sqlite (in the data directory) or"
        " postgresql://USER@HOST/DATABASE?schema=NAME",
    )
    http: str = setting(
        "127.0.0.1:8080", "address for HTTP: REST, SOAP, Bayeux and the console; port 0 picks a free port"
    )
    https: str = setting("127.0.0.1:8443", "address for HTTPS, with the same content as HTTP")
    dev: bool = setting(
        False, "create the well-known development login; never use it where others can reach the server"
    )
    tls_host: str = setting("", "additional host names for the server certificate, comma-separated")
    first_replay_id: int = setting(
        0, "first replay ID in the event log of a new data directory; 0 derives it from the clock"
    )
    session_timeout_s: int = setting(7200, "idle seconds after which a login session ends")
    jwt_audience: str = setting(
        "",
        "accepted audiences of JWT assertions, comma-separated; empty accepts the host that the client used and"
        " the original service's",
    )
    edition: str = setting(
        "",
        "edition whose streaming allocations are enforced: developer, professional, enterprise, unlimited,"
        " performance, free or databasecom-24; without one there are no allocations",
    )
    push_topic_pilot: bool = setting(
        False, "allow push topics on the six objects that the original service reserves for its pilot program"
    )
    retain_push_h: float = setting(
        24.0, "hours that push-topic and generic events are retained; 0 retains them forever"
    )
    retain_bus_h: float = setting(
        72.0, "hours that platform and change events are retained; 0 retains them forever"
    )
    org_idle_s: float = setting(
        900.0, "seconds without use after which an org other than the first is closed until it is used again"
    )
    pipeline_dir: str = setting(
        "", "directory of the lake that a pipeline keeps of the first org; the console shows its status"
    )
    edges: int = setting(
        0,
        "edge processes, which serve clients' connections for the process that writes; 0 runs all in one process",
    )
    metrics_token: str = setting(
        "", "bearer token that /metrics requires; without one everybody who can reach the server can read it"
    )
    log_level: str = setting("INFO", "lowest level of log lines: DEBUG, INFO, WARNING or ERROR")
    log_format: str = setting("json", "format of log lines: json, or text for people")


@dataclass(frozen=True, kw_only=True)
class Settings(PubSubOptions, BayeuxOptions, _ServerSettings):
    """All settings of `tidewire serve`, those of the last base class first."""


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> Settings:
    """Load the effective settings. Raises ConfigInvalid, naming the setting that is invalid."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    known = {f.name: f for f in fields(Settings)}
    for name, value in _read_file((directory or Path()) / CONFIG_FILE).items():
        if name not in known:
            raise ConfigInvalid(f"{CONFIG_FILE} has an unknown setting: {name}", setting=name)
        values[name] = value
    for name in known:
        variable = "TIDEWIRE_" + name.upper()
        if variable in environment:
            values[name] = environment[variable]
    values |= {name: value for name, value in flags.items() if value is not None}
    settings = Settings(**{name: _convert(name, known[name].type, value) for name, value in values.items()})
    for name, allowed in _WORDS.items():
        if getattr(settings, name) not in allowed:
            raise ConfigInvalid(f"{name} must be one of {', '.join(allowed)}", setting=name)
    return settings


def parse_address(text: str, setting: str) -> tuple[str, int]:
    """Parse `HOST:PORT`; an IPv6 host is in brackets."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535 or not host:
        raise ConfigInvalid(f"{setting} must be HOST:PORT, not {text!r}", setting=setting)
    return host.removeprefix("[").removesuffix("]"), int(port)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path} cannot be read: {error}", setting=CONFIG_FILE) from error


def _convert(name: str, kind: object, value: Any) -> Any:
    try:
        if kind == "bool":
            words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}
            return value if isinstance(value, bool) else words[str(value).lower()]
        if kind == "int":
            return int(value)
        if kind == "float":
            return float(value)
    except (ValueError, KeyError) as error:
        raise ConfigInvalid(f"{name} has an invalid value: {value!r}", setting=name) from error
    return str(value)
