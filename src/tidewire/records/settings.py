"""Settings of an org: enabled features, and rules of its logins.

They are stored as one JSON document, so that a newer release reads what an older one wrote.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from tidewire.storage.store import Reader, Transaction

_ROW = "org_settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrgSettings:
    """The settings of one org.

    `session_timeout_s` of 0 leaves the idle limit to the server; `trusted_ip_ranges` are CIDR blocks;
    `cors_allowed_origins` are origins such as `https://app.example.org`, with `*` for one or more host
    labels. After `lockout_attempts` failed logins (0: never) a user is locked out for `lockout_minutes` (0:
    until unlocked). Without `api_enabled` nobody signs in to an API. `monitoring_events` are the monitoring
    events that the org has enabled, such as `LoginEventStream`.
    """

    streaming_api: bool = True
    dynamic_channels: bool = True
    https_required: bool = False
    shared_activities: bool = False
    person_accounts: bool = False
    session_timeout_s: int = 0
    trusted_ip_ranges: tuple[str, ...] = ()
    cors_allowed_origins: tuple[str, ...] = ()
    lockout_attempts: int = 10
    lockout_minutes: int = 15
    api_enabled: bool = True
    monitoring_events: tuple[str, ...] = ()


def read_settings(reader: Reader | Transaction) -> OrgSettings:
    """Return the settings as of this reader's commit, with defaults for those never set."""
    rows = reader.execute("SELECT value FROM settings WHERE name = ?", (_ROW,))
    if not rows:
        return OrgSettings()
    known = {f.name for f in fields(OrgSettings)}
    stored = {name: value for name, value in json.loads(rows[0][0]).items() if name in known}
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in stored.items()}
    return OrgSettings(**values)


def write_settings(tx: Transaction, settings: OrgSettings) -> None:
    """Store all settings, as part of a transaction."""
    tx.execute(
        "INSERT INTO settings (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (_ROW, json.dumps(asdict(settings))),
    )
