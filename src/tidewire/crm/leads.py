"""Lead conversion: a lead becomes an account, a contact and, unless declined, an opportunity.

Their changes come in this order, and the lead's own last. The lead does not count as modified by hand: only
the six fields of the conversion and SystemModstamp change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidewire.crm import persons
from tidewire.errors import LeadConverted, ReferenceMissing, RequiredFieldMissing, StatusRefused
from tidewire.events import Change, Value
from tidewire.records.table import read_rows
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.status_categories import status_categories
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
_FOLLOWERS = (
    ("Task", "WhoId"),
    ("Event", "WhoId"),
    ("TaskRelation", "RelationId"),
    ("EventRelation", "RelationId"),
)
"""Lookups that move from the lead to its contact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The parameters of a conversion. The lead joins the records with these ids, and creates the others.

    Submitted values take precedence over the lead's own; a joined record takes either only where it has none.
    """

    lead_id: str
    converted_status: str
    account_id: str | None = None
    contact_id: str | None = None
    opportunity_id: str | None = None
    opportunity_name: str | None = None
    makes_opportunity: bool = True
    overwrites_lead_source: bool = False
    owner_id: str | None = None
    account_values: Mapping[str, object] = field(default_factory=dict)
    contact_values: Mapping[str, object] = field(default_factory=dict)
    opportunity_values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Converted:
    """The records that a converted lead became."""

    lead_id: str
    account_id: str
    contact_id: str
    opportunity_id: str | None


def convert_lead(unit: UnitOfWork, conversion: Conversion) -> Converted:
    """Convert a living lead.

    Raises LeadConverted, StatusRefused, RequiredFieldMissing, ReferenceMissing, or errors of its creates and
    updates. An error may leave a part of the conversion behind, so the transaction must fail with it.
    """
    lead = unit.catalog.object("Lead")
    row = unit.read(lead, conversion.lead_id)
    if row.get("IsConverted"):
        raise LeadConverted("cannot reference converted lead", record_id=conversion.lead_id)
    _check_status(lead, conversion.converted_status)
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
    """Return the last day of the calendar quarter in JSON form."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    month, day = ((3, 31), (6, 30), (9, 30), (12, 31))[(now.month - 1) // 3]
    return f"{now.year:04}-{month:02}-{day:02}"


def _check_status(lead: ObjectType, status: str) -> None:
    category = status_categories(lead).get(status)
    if category is None or not category.is_converted:
        raise StatusRefused(f"invalid convertedStatus: {status}", fields=["Status"])


def _first_open_stage(opportunity: ObjectType) -> str | None:
    categories = status_categories(opportunity)
    values = opportunity.by_name["stagename"].picklist
    return next((v.value for v in values if v.is_active and not categories[v.value].is_closed), None)


def _join_account_and_contact(
    unit: UnitOfWork, conversion: Conversion, lead: ObjectType, row: Mapping[str, Value]
) -> tuple[str, str]:
    account, contact = unit.catalog.object("Account"), unit.catalog.object("Contact")
    owner = {"OwnerId": _owner(unit, conversion, row)}
    to_account = _mapped(lead, row, account, _TO_ACCOUNT) | _named(account, conversion.account_values)
    to_contact = _mapped(lead, row, contact, _TO_CONTACT) | _named(contact, conversion.contact_values)
    if conversion.account_id is None:
        if conversion.contact_id is not None:
            raise RequiredFieldMissing("a contact needs its accountId beside it", fields=["accountId"])
        if row.get("Company") is None:
            return _make_person(unit, {**to_account, **_of_person(account, contact, to_contact), **owner})
        account_id = unit.create(account, {**to_account, **owner})
    else:
        account_id = conversion.account_id
        joined = unit.read(account, account_id)
        if persons.is_person(account, joined):
            return account_id, _join_person(unit, conversion, joined, to_contact)
        _fill(unit, account, account_id, to_account)
    if conversion.contact_id is None:
        return account_id, unit.create(contact, {**to_contact, **owner, "AccountId": account_id})
    if unit.read(contact, conversion.contact_id).get("AccountId") != account_id:
        raise ReferenceMissing("the contact does not belong to the account", fields=["contactId"])
    _fill(unit, contact, conversion.contact_id, to_contact, _replaced(conversion))
    return account_id, conversion.contact_id


def _owner(unit: UnitOfWork, conversion: Conversion, row: Mapping[str, Value]) -> str:
    owner_id = conversion.owner_id or str(row.get("OwnerId"))
    if conversion.owner_id is None and not owner_id.startswith(unit.catalog.object("User").key_prefix):
        raise RequiredFieldMissing(
            "A lead that belongs to a queue is converted for a user: give ownerId.", fields=["ownerId"]
        )
    return owner_id


def _of_person(account: ObjectType, contact: ObjectType, values: Mapping[str, object]) -> dict[str, object]:
    """Return a contact's values under the names that a person account has for them, cut to their length."""
    names = {theirs: own for own, theirs in persons.shared_fields(account, contact).items()}
    out: dict[str, object] = {}
    for name in values.keys() & names.keys():
        length = account.by_name[names[name].lower()].length
        value = values[name]
        out[names[name]] = value[:length] if isinstance(value, str) and length else value
    return out


def _make_person(unit: UnitOfWork, values: Mapping[str, object]) -> tuple[str, str]:
    account = unit.catalog.object("Account")
    account_id = unit.create(account, values)
    return account_id, str(unit.read(account, account_id)["PersonContactId"])


def _join_person(
    unit: UnitOfWork, conversion: Conversion, joined: Mapping[str, Value], values: Mapping[str, object]
) -> str:
    contact_id = str(joined["PersonContactId"])
    if conversion.contact_id not in (None, contact_id):
        raise ReferenceMissing("the contact does not belong to the account", fields=["contactId"])
    _fill(unit, unit.catalog.object("Contact"), contact_id, values, _replaced(conversion))
    return contact_id


def _replaced(conversion: Conversion) -> frozenset[str]:
    return frozenset({"LeadSource"}) if conversion.overwrites_lead_source else frozenset()


def _join_opportunity(
    unit: UnitOfWork, conversion: Conversion, row: Mapping[str, Value], account_id: str
) -> str | None:
    opportunity = unit.catalog.object("Opportunity")
    if conversion.opportunity_id is not None:
        if unit.read(opportunity, conversion.opportunity_id).get("AccountId") != account_id:
            raise ReferenceMissing("the opportunity does not belong to the account", fields=["opportunityId"])
        submitted = _named(opportunity, conversion.opportunity_values)
        _fill(unit, opportunity, conversion.opportunity_id, submitted)
        return conversion.opportunity_id
    if not conversion.makes_opportunity:
        return None
    account = unit.read(unit.catalog.object("Account"), account_id)
    company = row.get("Company") or account.get("Name")
    return unit.create(
        opportunity,
        {
            "AccountId": account_id,
            "Name": conversion.opportunity_name or f"{company}"[:119] + "-",
            "StageName": _first_open_stage(opportunity),
            "CloseDate": quarter_end(unit.now_ms),
            "LeadSource": row.get("LeadSource"),
            "OwnerId": conversion.owner_id or account["OwnerId"],
            **_named(opportunity, conversion.opportunity_values),
        },
    )


def _mapped(
    lead: ObjectType, row: Mapping[str, Value], target: ObjectType, names: Mapping[str, str]
) -> dict[str, object]:
    """Return the lead's values under the target's names, in JSON form."""
    out: dict[str, object] = {}
    for own, other in names.items():
        known = lead.try_field(own)
        if known is not None and row.get(known.name) is not None and target.try_field(other) is not None:
            out[other] = render_value(known, row[known.name], "Z")
    return out


def _named(obj: ObjectType, values: Mapping[str, object]) -> dict[str, object]:
    """Return the values under the object's own spelling; unknown names stay and are rejected when stored."""
    known = {name: obj.try_field(name) for name in values}
    return {found.name if (found := known[name]) is not None else name: values[name] for name in values}


def _fill(
    unit: UnitOfWork,
    obj: ObjectType,
    record_id: str,
    values: Mapping[str, object],
    replaced: frozenset[str] = frozenset(),
) -> None:
    """Set the fields that an existing record lacks."""
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
                if entity == "Task":
                    unit.suppress_notifications(str(row["Id"]))
    members = unit.catalog.try_object("CampaignMember")
    if members is not None:
        for row in read_rows(unit.tx, members, "LeadId", [lead_id]):
            unit.store(members, row, {"ContactId": contact_id})


def is_conversion(change: Change) -> bool:
    """Return whether a change is the conversion of a lead."""
    return change.entity == "Lead" and "IsConverted" in change.changed
