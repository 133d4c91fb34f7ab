"""Lead conversion: a lead becomes an account, a contact and, unless refused, an opportunity.

The changes stand in this order, and the lead's own comes after them. The lead does not count as modified by
hand: only the six fields of the conversion change, and its SystemModstamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tidewire.errors import LeadConverted, PicklistValueInvalid, ReferenceMissing
from tidewire.events import Value
from tidewire.records.table import read_rows
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType
from tidewire.schema.standard import LEAD_STATUSES, OPPORTUNITY_STAGES
from tidewire.schema.values import DAY_MS, render_value

_ADDRESS_PARTS = (
    "Street",
    "City",
    "State",
    "PostalCode",
    "Country",
    "Latitude",
    "Longitude",
    "GeocodeAccuracy",
)
_TO_ACCOUNT = {
    "Company": "Name",
    "Phone": "Phone",
    "Fax": "Fax",
    "Website": "Website",
    "Industry": "Industry",
    "AnnualRevenue": "AnnualRevenue",
    "NumberOfEmployees": "NumberOfEmployees",
    "Rating": "Rating",
    "LeadSource": "AccountSource",
    **{part: "Billing" + part for part in _ADDRESS_PARTS},
}
_TO_CONTACT = {
    "Salutation": "Salutation",
    "FirstName": "FirstName",
    "LastName": "LastName",
    "Title": "Title",
    "Email": "Email",
    "Phone": "Phone",
    "MobilePhone": "MobilePhone",
    "Fax": "Fax",
    "Description": "Description",
    "LeadSource": "LeadSource",
    **{part: "Mailing" + part for part in _ADDRESS_PARTS},
}
_FOLLOWERS = (("Task", "WhoId"), ("Event", "WhoId"))
"""Lookups that move from the lead to its contact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What the caller asks for. An id given is a record that the lead joins instead of making one."""

    lead_id: str
    converted_status: str
    account_id: str | None = None
    contact_id: str | None = None
    opportunity_id: str | None = None
    opportunity_name: str | None = None
    makes_opportunity: bool = True
    overwrites_lead_source: bool = False
    owner_id: str | None = None


@dataclass(frozen=True, slots=True)
class Converted:
    """The records that a lead became."""

    lead_id: str
    account_id: str
    contact_id: str
    opportunity_id: str | None


def convert_lead(unit: UnitOfWork, conversion: Conversion) -> Converted:
    """Convert a living lead. Raises LeadConverted, PicklistValueInvalid, or what its creates and updates raise.

    A raise may leave a part of the conversion behind, so the transaction must fail with it.
    """
    lead = unit.catalog.object("Lead")
    row = unit.read(lead, conversion.lead_id)
    if row.get("IsConverted"):
        raise LeadConverted("cannot convert a lead that is already converted", record_id=conversion.lead_id)
    _check_status(conversion.converted_status)
    account_id, contact_id = _join_account_and_contact(unit, conversion, lead, row)
    opportunity_id = _join_opportunity(unit, conversion, row, account_id)
    unit.store(
        lead,
        row,
        {
            "Status": conversion.converted_status,
            "IsConverted": True,
            "ConvertedDate": unit.now_ms - unit.now_ms % DAY_MS,
            "ConvertedAccountId": account_id,
            "ConvertedContactId": contact_id,
            "ConvertedOpportunityId": opportunity_id,
        },
        is_edit=False,
    )
    _move_followers(unit, conversion.lead_id, contact_id)
    return Converted(conversion.lead_id, account_id, contact_id, opportunity_id)


def quarter_end(now_ms: int) -> str:
    """The last day of the calendar quarter, as JSON has it."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    month, day = ((3, 31), (6, 30), (9, 30), (12, 31))[(now.month - 1) // 3]
    return f"{now.year:04}-{month:02}-{day:02}"


def _check_status(status: str) -> None:
    if not any(known.name == status and known.is_converted for known in LEAD_STATUSES):
        raise PicklistValueInvalid(f"invalid convertedStatus: {status}", fields=["convertedStatus"])


def _join_account_and_contact(
    unit: UnitOfWork, conversion: Conversion, lead: ObjectType, row: Mapping[str, Value]
) -> tuple[str, str]:
    account, contact = unit.catalog.object("Account"), unit.catalog.object("Contact")
    owner = {"OwnerId": conversion.owner_id} if conversion.owner_id else {"OwnerId": row.get("OwnerId")}
    if str(owner["OwnerId"])[:3] != unit.catalog.object("User").key_prefix:
        owner = {}  # a queue owns leads, not what becomes of them
    to_account = _mapped(lead, row, account, _TO_ACCOUNT)
    to_contact = _mapped(lead, row, contact, _TO_CONTACT)
    if conversion.account_id is None:
        account_id = unit.create(account, {**to_account, **owner})
    else:
        account_id = conversion.account_id
        _fill(unit, account, account_id, to_account)
    if conversion.contact_id is None:
        return account_id, unit.create(contact, {**to_contact, **owner, "AccountId": account_id})
    if unit.read(contact, conversion.contact_id).get("AccountId") != account_id:
        raise ReferenceMissing("the contact does not belong to the account", fields=["contactId"])
    replaced = {"LeadSource"} if conversion.overwrites_lead_source else set()
    _fill(unit, contact, conversion.contact_id, to_contact, replaced)
    return account_id, conversion.contact_id


def _join_opportunity(
    unit: UnitOfWork, conversion: Conversion, row: Mapping[str, Value], account_id: str
) -> str | None:
    opportunity = unit.catalog.object("Opportunity")
    if conversion.opportunity_id is not None:
        if unit.read(opportunity, conversion.opportunity_id).get("AccountId") != account_id:
            raise ReferenceMissing("the opportunity does not belong to the account", fields=["opportunityId"])
        return conversion.opportunity_id
    if not conversion.makes_opportunity:
        return None
    owner = unit.read(unit.catalog.object("Account"), account_id)["OwnerId"]
    return unit.create(
        opportunity,
        {
            "AccountId": account_id,
            "Name": conversion.opportunity_name or f"{row.get('Company')}"[:119] + "-",
            "StageName": next(stage.name for stage in OPPORTUNITY_STAGES if not stage.is_closed),
            "CloseDate": quarter_end(unit.now_ms),
            "LeadSource": row.get("LeadSource"),
            "OwnerId": conversion.owner_id or owner,
        },
    )


def _mapped(
    lead: ObjectType, row: Mapping[str, Value], target: ObjectType, names: Mapping[str, str]
) -> dict[str, object]:
    """The lead's values under the target's names, in JSON form."""
    out: dict[str, object] = {}
    for own, other in names.items():
        field = lead.try_field(own)
        if field is not None and row.get(field.name) is not None and target.try_field(other) is not None:
            out[other] = render_value(field, row[field.name], "Z")
    return out


def _fill(
    unit: UnitOfWork,
    obj: ObjectType,
    record_id: str,
    values: Mapping[str, object],
    replaced: set[str] | frozenset[str] = frozenset(),
) -> None:
    """Give an existing record what it lacks."""
    before = unit.read(obj, record_id)
    fresh = {n: v for n, v in values.items() if before.get(n) is None or n in replaced}
    if fresh:
        unit.update(obj, record_id, fresh)


def _move_followers(unit: UnitOfWork, lead_id: str, contact_id: str) -> None:
    for entity, name in _FOLLOWERS:
        obj = unit.catalog.try_object(entity)
        if obj is not None and obj.try_field(name) is not None:
            for row in read_rows(unit.tx, obj, name, [lead_id]):
                unit.store(obj, row, {name: contact_id})
    members = unit.catalog.try_object("CampaignMember")
    if members is not None:
        for row in read_rows(unit.tx, members, "LeadId", [lead_id]):
            unit.store(members, row, {"ContactId": contact_id})
