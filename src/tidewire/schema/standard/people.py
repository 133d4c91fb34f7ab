"""Accounts, contacts and leads as they are in an org with person accounts.

An account that is a person has IsPersonAccount, the Person fields and a name in parts; Name holds the parts
joined. A lead without a company becomes such an account. Other orgs have none of these fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidewire.schema.fields import (
    SALUTATIONS,
    address,
    checkbox,
    date,
    datetime,
    derived,
    email,
    lookup,
    phone,
    picklist,
    read_only,
    text,
)
from tidewire.schema.layout import added_from
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard.accounts import ACCOUNT, CONTACT
from tidewire.schema.standard.choices import LEAD_SOURCES
from tidewire.schema.standard.sales import LEAD


def _person_fields() -> tuple[Field, ...]:
    # Events carry the joined Name, so its parts are not there a second time.
    parts = (
        picklist("Salutation", "Salutation", SALUTATIONS),
        text("FirstName", "First Name", 40),
        text("LastName", "Last Name", 80),
    )
    return (
        *(replace(part, in_change_events=False) for part in parts),
        derived(checkbox("IsPersonAccount", "Is Person Account")),
        read_only(lookup("PersonContactId", "Contact ID", "Contact", "PersonContact")),
        *address("PersonMailing"),
        *address("PersonOther"),
        phone("PersonMobilePhone", "Mobile"),
        phone("PersonHomePhone", "Home Phone"),
        phone("PersonOtherPhone", "Other Phone"),
        phone("PersonAssistantPhone", "Asst. Phone"),
        email("PersonEmail", "Email", 80),
        text("PersonTitle", "Title", 80),
        text("PersonDepartment", "Department", 80),
        text("PersonAssistantName", "Assistant", 40),
        picklist("PersonLeadSource", "Lead Source", LEAD_SOURCES, length=255),
        date("PersonBirthdate", "Birthdate"),
        checkbox("PersonHasOptedOutOfEmail", "Email Opt Out"),
        checkbox("PersonHasOptedOutOfFax", "Fax Opt Out"),
        checkbox("PersonDoNotCall", "Do Not Call"),
        text("PersonEmailBouncedReason", "Email Bounced Reason", 255),
        datetime("PersonEmailBouncedDate", "Email Bounced Date"),
    )


def _with_fields(obj: ObjectType, fields: Iterable[Field]) -> ObjectType:
    return replace(obj, fields=(*obj.fields, *fields))


PERSON_ACCOUNT = _with_fields(ACCOUNT, added_from(58, *_person_fields()))
PERSON_CONTACT = _with_fields(
    CONTACT, added_from(58, read_only(checkbox("IsPersonAccount", "Is Person Account")))
)
PERSON_LEAD = replace(
    LEAD, fields=tuple(replace(f, required=False) if f.name == "Company" else f for f in LEAD.fields)
)

PERSON_OBJECTS: tuple[ObjectType, ...] = (PERSON_ACCOUNT, PERSON_CONTACT, PERSON_LEAD)
"""The objects that replace the standard objects of the same names."""

# By object: fields, or the beginning of their names, and the field that they follow in events.
_EARLY = {
    "Account": (("RecordTypeId", "Type"), ("Person*", "LastModifiedById")),
    "Contact": (("IsPersonAccount", "AccountId"),),
}


def has_person_accounts(obj: ObjectType) -> bool:
    """Return whether this is the Account of an org with person accounts."""
    return obj.name == ACCOUNT.name and obj.try_field("PersonContactId") is not None


def early_fields(obj: ObjectType) -> tuple[tuple[str, str], ...]:
    """Return fields, or name prefixes with `*`, and the field that each follows in change events.

    Only orgs with person accounts have them: those fields came late to the object, but not to its events.
    """
    return () if obj.try_field("IsPersonAccount") is None else _EARLY.get(obj.name, ())
