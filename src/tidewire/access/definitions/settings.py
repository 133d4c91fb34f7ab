"""The section `settings`: what the org has switched on, and how its logins behave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from ipaddress import ip_network
from typing import Any

from tidewire.access.definition import check_keys, mapping
from tidewire.access.definitions.document import flag_of, refuse, text_list
from tidewire.access.definitions.plan import Step
from tidewire.records.settings import OrgSettings, read_settings
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork

# The real service offers a quarter of an hour to a day; shorter ones help in tests.
_SHORTEST_TIMEOUT_S, _LONGEST_TIMEOUT_S = 60, 86_400


def setting_steps(unit: UnitOfWork, types: Types, document: Mapping[str, object]) -> list[Step]:
    """One step for all settings that differ."""
    spec = mapping(document.get("settings"), "settings")
    check_keys(spec, [f.name for f in fields(OrgSettings)], "settings")
    current = read_settings(unit.tx)
    wanted = replace(current, **{name: _value(spec, name, current) for name in spec})
    changed = [
        f"{f.name} = {_shown(getattr(wanted, f.name))}"
        for f in fields(OrgSettings)
        if getattr(wanted, f.name) != getattr(current, f.name)
    ]
    if not changed:
        return []
    return [Step(f"set {', '.join(changed)}", partial(types.change_settings, unit.tx, wanted))]


def _value(spec: Mapping[str, Any], name: str, current: OrgSettings) -> Any:
    path = f"settings.{name}"
    if name == "session_timeout_s":
        value = spec[name]
        if isinstance(value, bool) or not isinstance(value, int):
            refuse(path, "must be a whole number of seconds")
        if value and not _SHORTEST_TIMEOUT_S <= value <= _LONGEST_TIMEOUT_S:
            refuse(path, f"must be {_SHORTEST_TIMEOUT_S} to {_LONGEST_TIMEOUT_S} seconds, or 0")
        return value
    if name == "trusted_ip_ranges":
        return tuple(_network(text, path) for text in text_list(spec[name], path))
    return flag_of(spec, name, bool(getattr(current, name)), "settings")


def _network(text: str, path: str) -> str:
    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        refuse(path, f"{text} is not an address or a CIDR block")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(value) if isinstance(value, tuple) else str(value)
