"""The two families of accounts, business and person, and the way from one to the other: by the record type.

A new account is a person's by its record type or its last name. A business account takes in its only contact; a
person account lets it go again. Plans only: reading, checking, never writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidewire.errors import FieldNotWriteable, FieldsInconsistent, RequiredFieldMissing
from tidewire.events import Value
from tidewire.records import persons
from tidewire.records.cascade import RowEdit
from tidewire.records.given import not_writeable
from tidewire.records.table import read_all_rows, read_rows, try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Transaction

Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Switch:
    """What becomes of an account that changes its family, and of its contact."""

    account: dict[str, Value]
    contact: RowEdit


def is_person_type(tx: Transaction, catalog: Catalog, record_type_id: Value) -> bool:
    """Whether accounts of this record type are persons; those without one are not."""
    row = try_read_row(tx, catalog.object("RecordType"), str(record_type_id)) if record_type_id else None
    return row is not None and bool(row.get("IsPersonType"))


def try_person_type(tx: Transaction, catalog: Catalog) -> str | None:
    """The oldest record type in use for persons."""
    for row in read_all_rows(tx, catalog.object("RecordType")):
        is_usable = row.get("IsActive") and not row.get("IsDeleted")
        if is_usable and row.get("IsPersonType") and row.get("SobjectType") == "Account":
            return str(row["Id"])
    return None


def make_person(
    tx: Transaction, catalog: Catalog, obj: ObjectType, given: Row, row: dict[str, Value]
) -> bool:
    """Turn a new account that is given a last name instead of a name into a person's; returns whether it is one."""
    if not persons.has_person_accounts(obj):
        return False
    is_person = given.get("LastName") is not None
    if row.get("RecordTypeId") is not None:
        is_person = is_person_type(tx, catalog, row["RecordTypeId"])
    elif is_person:
        row["RecordTypeId"] = try_person_type(tx, catalog)
    if is_person and given.get("LastName") is None:
        raise RequiredFieldMissing("Required fields are missing: [LastName]", fields=["LastName"])
    names = [name for name, value in given.items() if value is not None and value is not False]
    if is_person:
        refused = persons.fixed_fields(obj, names)
    else:
        refused = persons.person_only_fields(obj, catalog.object("Contact"), names)
    if refused:
        raise not_writeable(refused)
    if is_person:
        row["IsPersonAccount"] = True
        row["Name"] = persons.account_name(row)
    return is_person


def plan_switch(
    tx: Transaction, catalog: Catalog, obj: ObjectType, before: dict[str, Value], changed: Row
) -> Switch | None:
    """What a new record type does to an account; None if it stays in its family.

    Raises FieldNotWriteable if more than the record type changes, FieldsInconsistent if the account cannot
    become a person.
    """
    if "RecordTypeId" not in changed or not persons.has_person_accounts(obj):
        return None
    is_person = is_person_type(tx, catalog, changed["RecordTypeId"])
    if is_person == bool(before.get("IsPersonAccount")):
        return None
    others = [name for name in changed if name != "RecordTypeId"]
    if others:
        raise FieldNotWriteable(
            "Cannot specify any additional fields when marrying or separating a Person-Account", fields=others
        )
    switch = _marry(tx, catalog, obj, before) if is_person else _separate(tx, catalog, obj, before)
    switch.account["RecordTypeId"] = changed["RecordTypeId"]
    return switch


def _marry(tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row) -> Switch:
    contact = catalog.object("Contact")
    contacts = read_rows(tx, contact, "AccountId", [before["Id"]])
    if len(contacts) != 1 or not _can_marry(tx, obj, before, contact, contacts[0]):
        raise FieldsInconsistent("Account cannot be converted to person-account", fields=["RecordTypeId"])
    (person,) = contacts
    pairs = persons.shared_fields(obj, contact)
    # What both have and only one has set is the person's; where they differ, the account is right.
    both = {own: before.get(own) for own in pairs if own == pairs[own] and before.get(own) is not None}
    account = {own: both.get(own, person.get(other)) for own, other in pairs.items()}
    account |= {"IsPersonAccount": True, "PersonContactId": person["Id"]}
    account["Name"] = persons.account_name(account)
    return Switch(account, RowEdit(contact, person, {"IsPersonAccount": True, **both}))


def _can_marry(tx: Transaction, obj: ObjectType, before: Row, contact: ObjectType, person: Row) -> bool:
    is_alone = before.get("ParentId") is None and person.get("ReportsToId") is None
    is_alone = is_alone and before.get("OwnerId") == person.get("OwnerId")
    return (
        is_alone
        and not read_rows(tx, obj, "ParentId", [before["Id"]])
        and not read_rows(tx, contact, "ReportsToId", [person["Id"]])
    )


def _separate(tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row) -> Switch:
    contact = catalog.object("Contact")
    (person,) = read_rows(tx, contact, "Id", [before["PersonContactId"]])
    gone = persons.person_only_fields(obj, contact, (f.name for f in obj.stored_fields))
    account: dict[str, Value] = {
        name: False if obj.by_name[name.lower()].type is FieldType.CHECKBOX else None for name in gone
    }
    account |= {"IsPersonAccount": False, "PersonContactId": None}
    return Switch(account, RowEdit(contact, person, {"IsPersonAccount": False}))
