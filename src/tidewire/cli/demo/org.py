"""The demo's org, made through the public API: its definition, then its records, 200 in a call.

What was made is noted after each call in a file beside the org's data, so a demo that was stopped half-way goes on
there, and one that is whole is left alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path

import yaml

from tidewire.cli.demo.calls import DemoCalls
from tidewire.cli.demo.company import Company, Maker

GENERIC_CHANNEL = "/u/demo/announcements"
_NOTES = "demo.json"
_AT_ONCE = 200
SIZES: Mapping[str, int] = {
    "Account": 1200,
    "Contact": 2400,
    "Lead": 400,
    "Opportunity": 1400,
    "Case": 1000,
    "Invoice_Statement__c": 1000,
    "Order": 600,
}
"""How many records of each object a new demo has."""


def ensure_demo_org(
    calls: DemoCalls,
    data: Path,
    company: Company,
    tell: Callable[[int, int], None],
    stop: threading.Event,
    sizes: Mapping[str, int] = SIZES,
) -> None:
    """Make what is missing. `tell` hears how many records of how many are there. Raises PlatformError."""
    for name in ("invoices.yaml", "org.yaml"):
        document = yaml.safe_load((files("tidewire.cli.demo") / name).read_text("utf-8"))
        calls.rest("POST", "/services/tidewire/v1/apply", document)
    ensure_channel(calls)
    made = _read_notes(data, calls.org_id)
    total = sum(sizes.values())
    makers = makers_of(company)
    known: dict[str, list[str]] = {}
    for entity, size in sizes.items():
        while made.get(entity, 0) < size and not stop.is_set():
            if entity != "Account" and "Account" not in known:
                known["Account"] = calls.ids("Account", sizes["Account"])
            first = made.get(entity, 0)
            batch = range(first, min(size, first + _AT_ONCE))
            calls.create_all(entity, [makers[entity](number, known) for number in batch])
            made[entity] = batch.stop
            _write_notes(data, calls.org_id, made)
            tell(sum(made.values()), total)


def makers_of(company: Company) -> dict[str, Maker]:
    """Who makes the records of which object."""
    return {
        "Account": company.account,
        "Contact": company.contact,
        "Lead": company.lead,
        "Opportunity": company.opportunity,
        "Case": company.case,
        "Invoice_Statement__c": company.invoice,
        "Order": company.order,
    }


def ensure_channel(calls: DemoCalls) -> str:
    """The id of the generic channel that announcements go to."""
    soql = f"SELECT Id FROM StreamingChannel WHERE Name = '{GENERIC_CHANNEL}'"  # noqa: S608  # a constant
    found = calls.query(soql)
    if found:
        return str(found[0]["Id"])
    answer = calls.rest("POST", "/services/data/v67.0/sobjects/StreamingChannel", {"Name": GENERIC_CHANNEL})
    return str(answer["id"])


def _read_notes(data: Path, org_id: str) -> dict[str, int]:
    try:
        notes = json.loads((data / _NOTES).read_text("utf-8"))
        # Notes of an org that was thrown away say nothing about the one in its place.
        return {str(k): int(v) for k, v in notes["made"].items()} if notes["org_id"] == org_id else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _write_notes(data: Path, org_id: str, made: Mapping[str, int]) -> None:
    data.mkdir(parents=True, exist_ok=True)
    written = data / (_NOTES + ".new")
    written.write_text(json.dumps({"org_id": org_id, "made": made}), "utf-8")
    written.replace(data / _NOTES)
