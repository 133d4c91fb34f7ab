"""The section `settings`: features of the org, rules for logins, and properties of the Organization record.

Name, time zone, locale, language and fiscal year are fields of the one Organization record, where clients read them;
everything else is in `OrgSettings`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache, partial
from ipaddress import ip_network
from typing import Any
from zoneinfo import available_timezones

from tidewire.crm.person_setup import ensure_person_accounts
from tidewire.errors import RequestError
from tidewire.events import Value
from tidewire.gate.definitions.document import check_keys, flag_of, mapping, reject, text_list
from tidewire.gate.definitions.plan import Step
from tidewire.records.settings import OrgSettings, read_settings
from tidewire.records.table import read_all_rows
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.standard.monitoring import STANDARD_EVENTS
from tidewire.schema.values import parse_value

# Whole numbers: minimum, maximum, whether 0 is allowed too, and the unit.
_RANGES = {
    # The platform offers 15 minutes to a day; shorter ones help in tests.
    "session_timeout_s": (60, 86_400, True, "seconds"),
    "lockout_attempts": (1, 100, True, "attempts"),
    "lockout_minutes": (1, 10_080, True, "minutes"),
    "fiscal_year_start_month": (1, 12, False, "as the number of a month"),
}
_ORGANIZATION_FIELDS = {
    "org_name": "Name",
    "time_zone": "TimeZoneSidKey",
    "locale": "DefaultLocaleSidKey",
    "language": "LanguageLocaleKey",
    "fiscal_year_start_month": "FiscalYearStartMonth",
}
_LOCALE = re.compile(r"[a-z]{2,3}(_[A-Z][a-z]{3})?(_[A-Z]{2})?(_[A-Z]+)?")
_ORIGIN = re.compile(r"https?://(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")
_MAX_LISTED = 200


def setting_steps(unit: UnitOfWork, types: Types, document: Mapping[str, object]) -> list[Step]:
    """Return one step for all settings that differ."""
    spec = mapping(document.get("settings"), "settings")
    own = [f.name for f in fields(OrgSettings)]
    check_keys(spec, [*own, *_ORGANIZATION_FIELDS], "settings")
    current = read_settings(unit.tx)
    wanted = replace(current, **{name: _value(spec, name, current) for name in spec if name in own})
    if current.person_accounts and not wanted.person_accounts:
        reject("settings.person_accounts", "person accounts cannot be disabled once they are enabled")
    values = _organization_values(unit, spec)
    changed = [n for n in own if getattr(wanted, n) != getattr(current, n)]
    shown = [f"{n} = {_shown(getattr(wanted, n))}" for n in changed]
    shown += [
        f"{n} = {_shown(values[field])}" for n, field in _ORGANIZATION_FIELDS.items() if field in values
    ]
    if not shown:
        return []
    return [
        Step(f"set {', '.join(shown)}", partial(_change, unit, types, wanted if changed else None, values))
    ]


def _change(unit: UnitOfWork, types: Types, wanted: OrgSettings | None, values: Mapping[str, Value]) -> None:
    if wanted is not None:
        types.change_settings(unit.tx, wanted)
        if wanted.person_accounts:
            ensure_person_accounts(unit, types)
    if values:
        organization = unit.catalog.object("Organization")
        for row in read_all_rows(unit.tx, organization):
            unit.store(organization, row, values)
    if "Name" in values:
        unit.tx.execute("UPDATE settings SET value = ? WHERE name = 'org_name'", (values["Name"],))


def _organization_values(unit: UnitOfWork, spec: Mapping[str, Any]) -> dict[str, Value]:
    """Return the fields of Organization that the document changes."""
    organization = unit.catalog.object("Organization")
    rows = read_all_rows(unit.tx, organization)
    values: dict[str, Value] = {}
    for name, field_name in _ORGANIZATION_FIELDS.items():
        if name not in spec:
            continue
        path, value = f"settings.{name}", spec[name]
        if name in _RANGES:
            value = _number(name, value, path)
        elif not isinstance(value, str) or not value.strip():
            reject(path, "must be text")
        if name == "time_zone" and value not in _time_zones():
            reject(path, f"{value} is not a time zone, such as Europe/Berlin")
        if name == "locale" and not _LOCALE.fullmatch(value):
            reject(path, f"{value} is not a locale, such as en_US")
        try:
            stored = parse_value(organization.by_name[field_name.lower()], value)
        except RequestError as error:
            reject(path, error.message)
        if rows and rows[0].get(field_name) != stored:
            values[field_name] = stored
    return values


@lru_cache(maxsize=1)
def _time_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _value(spec: Mapping[str, Any], name: str, current: OrgSettings) -> Any:
    path = f"settings.{name}"
    if name in _RANGES:
        return _number(name, spec[name], path)
    if name == "trusted_ip_ranges":
        return _listed(spec, name, _network)
    if name == "cors_allowed_origins":
        return _listed(spec, name, _origin)
    if name == "monitoring_events":
        return _listed(spec, name, _monitoring_event)
    return flag_of(spec, name, bool(getattr(current, name)), "settings")


def _number(name: str, value: object, path: str) -> int:
    low, high, allows_zero, unit = _RANGES[name]
    if isinstance(value, bool) or not isinstance(value, int):
        reject(path, "must be a whole number")
    if not low <= value <= high and not (allows_zero and value == 0):
        reject(path, f"must be {low} to {high} {unit}{', or 0' if allows_zero else ''}")
    return value


def _listed(spec: Mapping[str, Any], name: str, parse: Any) -> tuple[str, ...]:
    path = f"settings.{name}"
    listed = tuple(dict.fromkeys(parse(text, path) for text in text_list(spec[name], path)))
    if len(listed) > _MAX_LISTED:
        reject(path, f"at most {_MAX_LISTED} entries")
    return listed


def _network(text: str, path: str) -> str:
    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        reject(path, f"{text} is not an address or a CIDR block")


def _monitoring_event(text: str, path: str) -> str:
    names = [event.name for event in STANDARD_EVENTS]
    if text not in names:
        reject(path, f"{text} is not one of {', '.join(names)}")
    return text


def _origin(text: str, path: str) -> str:
    """Parse an origin as browsers send it: scheme, host and port in lower case."""
    origin = text.lower()
    if not _ORIGIN.fullmatch(origin) or ".." in origin:
        reject(path, f"{text} is not an origin, such as https://app.example.org or https://*.example.org")
    return origin


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(value) if isinstance(value, tuple) else str(value)
