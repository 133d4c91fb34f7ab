"""Create the demo's org through the public API: its definition, then its records, 200 per call.

Progress is saved in a file after each call, so an interrupted demo resumes and a complete one is left alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path

import yaml

from tidewire.cli.client_options import ADMIN_PATH
from tidewire.cli.demo.calls import DemoCalls
from tidewire.cli.demo.company import Company, Maker

GENERIC_CHANNEL = "/u/demo/announcements"
_PROGRESS_FILE = "demo.json"
_RECORDS_PER_CALL = 200
SIZES: Mapping[str, int] = {
    "Account": 1200,
    "Contact": 2400,
    "Lead": 400,
    "Opportunity": 1400,
    "Case": 1000,
    "Invoice_Statement__c": 1000,
    "Order": 600,
}
"""Number of records of each object in a new demo."""


def ensure_demo_org(
    calls: DemoCalls,
    data: Path,
    company: Company,
    on_progress: Callable[[int, int], None],
    stop: threading.Event,
    sizes: Mapping[str, int] = SIZES,
) -> None:
    """Create what is missing. `on_progress` gets the number of created records and the total. Raises PlatformError."""
    for name in ("invoices.yaml", "org.yaml"):
        document = yaml.safe_load((files("tidewire.cli.demo") / name).read_text("utf-8"))
        calls.rest("POST", ADMIN_PATH + "/apply", document)
    ensure_channel(calls)
    made = _read_progress(data, calls.org_id)
    total = sum(sizes.values())
    makers = makers_of(company)
    known: dict[str, list[str]] = {}
    for entity, size in sizes.items():
        while made.get(entity, 0) < size and not stop.is_set():
            if entity != "Account" and "Account" not in known:
                known["Account"] = calls.ids("Account", sizes["Account"])
            first = made.get(entity, 0)
            batch = range(first, min(size, first + _RECORDS_PER_CALL))
            calls.create_all(entity, [makers[entity](number, known) for number in batch])
            made[entity] = batch.stop
            _write_progress(data, calls.org_id, made)
            on_progress(sum(made.values()), total)


def makers_of(company: Company) -> dict[str, Maker]:
    """Return the function that makes the records of each object."""
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
    """Return the id of the generic channel for announcements, creating it if needed."""
    soql = f"SELECT Id FROM StreamingChannel WHERE Name = '{GENERIC_CHANNEL}'"  # noqa: S608  # a constant
    found = calls.query(soql)
    if found:
        return str(found[0]["Id"])
    answer = calls.rest("POST", "/services/data/v67.0/sobjects/StreamingChannel", {"Name": GENERIC_CHANNEL})
    return str(answer["id"])


def _read_progress(data: Path, org_id: str) -> dict[str, int]:
    try:
        saved = json.loads((data / _PROGRESS_FILE).read_text("utf-8"))
        # The file may belong to a deleted org.
        return {str(k): int(v) for k, v in saved["made"].items()} if saved["org_id"] == org_id else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _write_progress(data: Path, org_id: str, made: Mapping[str, int]) -> None:
    data.mkdir(parents=True, exist_ok=True)
    written = data / (_PROGRESS_FILE + ".new")
    written.write_text(json.dumps({"org_id": org_id, "made": made}), "utf-8")
    written.replace(data / _PROGRESS_FILE)
