"""Rules of accounts and contacts in orgs with person accounts: creates, updates, and switches by record type.

A new account is a person account by its record type or its last name. A business account can become one if it
has exactly one contact, and a person account can become a business account again.
"""

from __future__ import annotations

from tidewire.crm import persons
from tidewire.crm.persons import IS_PERSON
from tidewire.errors import DeleteRestricted, FieldNotWriteable, FieldsInconsistent, RequiredFieldMissing
from tidewire.events import Value
from tidewire.records.cascade import RowEdit
from tidewire.records.numbers import take_record_id
from tidewire.records.object_rules import Row, WritePlan
from tidewire.records.submitted import defaults, not_writeable
from tidewire.records.table import read_all_rows, read_living, read_rows, try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.people import has_person_accounts
from tidewire.storage.store import Transaction

_Switch = tuple[dict[str, Value], RowEdit]
"""New values of an account, and the edit of its contact."""


def is_person_type(tx: Transaction, catalog: Catalog, record_type_id: Value) -> bool:
    """Return whether accounts of this record type are person accounts; without a type they are not."""
    row = try_read_row(tx, catalog.object("RecordType"), str(record_type_id)) if record_type_id else None
    return row is not None and bool(row.get("IsPersonType"))


def try_person_type(tx: Transaction, catalog: Catalog) -> str | None:
    """Return the oldest active record type for person accounts, or None."""
    for row in read_all_rows(tx, catalog.object("RecordType")):
        is_usable = row.get("IsActive") and not row.get("IsDeleted")
        if is_usable and row.get("IsPersonType") and row.get("SobjectType") == "Account":
            return str(row["Id"])
    return None


def complete_account(
    tx: Transaction, catalog: Catalog, obj: ObjectType, submitted: Row, row: dict[str, Value]
) -> None:
    """Turn a new account with a last name instead of a name into a person account."""
    if not has_person_accounts(obj):
        return
    is_person = submitted.get("LastName") is not None
    if row.get("RecordTypeId") is not None:
        is_person = is_person_type(tx, catalog, row["RecordTypeId"])
    elif is_person:
        row["RecordTypeId"] = try_person_type(tx, catalog)
    if is_person and submitted.get("LastName") is None:
        raise RequiredFieldMissing("Required fields are missing: [LastName]", fields=["LastName"])
    names = [name for name, value in submitted.items() if value is not None and value is not False]
    if not is_person:
        _check_writeable(persons.person_only_fields(obj, catalog.object("Contact"), names))
        return
    _check_writeable(persons.fixed_fields(obj, names))
    row[IS_PERSON] = True
    row["Name"] = persons.account_name(row)


def plan_account(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: dict[str, Value]
) -> WritePlan | None:
    """Plan the create of an account: a person account is stored with its contact."""
    if not persons.is_person(obj, row):
        return None
    contact = catalog.object("Contact")
    row["PersonContactId"] = take_record_id(tx, contact.key_prefix)
    twin = defaults(contact) | persons.contact_values(catalog, row)
    return WritePlan(created=((obj, row), (contact, twin)))


def plan_update(
    tx: Transaction,
    catalog: Catalog,
    obj: ObjectType,
    before: dict[str, Value],
    changed: dict[str, Value],
    now_ms: int,
) -> WritePlan | None:
    """Plan the update of an account or contact, which for a person account changes both.

    Raises FieldNotWriteable for fields that follow from the other row or that only person accounts have, and
    for any other field beside a record type that turns a business account into a person account or back;
    FieldsInconsistent if the account cannot become a person.
    """
    switch = _plan_switch(tx, catalog, obj, before, changed)
    if switch is not None:
        return switch
    if persons.is_person(obj, before):
        return _plan_person(tx, catalog, obj, before, changed)
    if has_person_accounts(obj):
        _check_writeable(persons.person_only_fields(obj, catalog.object("Contact"), changed))
    return None


def check_contact_delete(row: Row) -> None:
    """Reject the delete of a person account's contact."""
    if row.get(IS_PERSON):
        raise DeleteRestricted(
            "The contact is part of a person account. Delete the account instead.",
            record_id=row["Id"],
            entity="Account",
        )


def check_contact(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    """Reject a second contact of a person account."""
    account_id = row.get("AccountId")
    if not has_person_accounts(catalog.object("Account")) or account_id is None:
        return
    if before is not None and before.get("AccountId") == account_id:
        return
    account = try_read_row(tx, catalog.object("Account"), str(account_id))
    if account is not None and account.get(IS_PERSON):
        raise FieldsInconsistent("A person account has no other contacts.", fields=["AccountId"])


def _check_writeable(rejected: list[str]) -> None:
    if rejected:
        raise not_writeable(rejected)


def _plan_person(
    tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row, changed: dict[str, Value]
) -> WritePlan:
    _check_writeable(persons.fixed_fields(obj, changed))
    after = {**before, **changed}
    if not after.get("LastName"):
        raise RequiredFieldMissing("Required fields are missing: [LastName]", fields=["LastName"])
    values: dict[str, Value] = {"Name": persons.account_name(after)} if obj.name == "Account" else {}
    twin, twin_id = persons.twin_of(catalog, obj, before)
    # Stored even if nothing in it changes: every save of one row touches both.
    edit = RowEdit(twin, read_living(tx, twin, twin_id), persons.twin_values(catalog, obj, after, changed))
    return WritePlan(values, edited=(edit,))


def _plan_switch(
    tx: Transaction, catalog: Catalog, obj: ObjectType, before: dict[str, Value], changed: Row
) -> WritePlan | None:
    """Plan the effect of a new record type; None if the account stays a person's or a business's."""
    if "RecordTypeId" not in changed or not has_person_accounts(obj):
        return None
    is_person = is_person_type(tx, catalog, changed["RecordTypeId"])
    if is_person == bool(before.get(IS_PERSON)):
        return None
    others = [name for name in changed if name != "RecordTypeId"]
    if others:
        raise FieldNotWriteable(
            "Cannot specify any additional fields when marrying or separating a Person-Account", fields=others
        )
    switch = _marry if is_person else _separate
    account, contact = switch(tx, catalog, obj, before)
    is_changed = any(contact.row.get(n) != v for n, v in contact.values.items() if n != IS_PERSON)
    if is_changed:
        return WritePlan(account, edited=(contact,))
    # The flag alone is not a change of the contact: the account's change event says it.
    return WritePlan(
        account, copied=(RowEdit(contact.obj, contact.row, {IS_PERSON: contact.values[IS_PERSON]}),)
    )


def _marry(tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row) -> _Switch:
    contact = catalog.object("Contact")
    contacts = read_rows(tx, contact, "AccountId", [before["Id"]])
    if len(contacts) != 1 or not _can_marry(tx, obj, before, contact, contacts[0]):
        raise FieldsInconsistent("Account cannot be converted to person-account", fields=["RecordTypeId"])
    (person,) = contacts
    pairs = persons.shared_fields(obj, contact)
    # What both have and only one has set is the person's; where they differ, the account is right.
    both = {own: before.get(own) for own in pairs if own == pairs[own] and before.get(own) is not None}
    account = {own: both.get(own, person.get(other)) for own, other in pairs.items()}
    account |= {IS_PERSON: True, "PersonContactId": person["Id"]}
    account["Name"] = persons.account_name(account)
    return account, RowEdit(contact, person, {IS_PERSON: True, **both})


def _can_marry(tx: Transaction, obj: ObjectType, before: Row, contact: ObjectType, person: Row) -> bool:
    is_alone = before.get("ParentId") is None and person.get("ReportsToId") is None
    is_alone = is_alone and before.get("OwnerId") == person.get("OwnerId")
    return (
        is_alone
        and not read_rows(tx, obj, "ParentId", [before["Id"]])
        and not read_rows(tx, contact, "ReportsToId", [person["Id"]])
    )


def _separate(tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row) -> _Switch:
    contact = catalog.object("Contact")
    (person,) = read_rows(tx, contact, "Id", [before["PersonContactId"]])
    gone = persons.person_only_fields(obj, contact, (f.name for f in obj.stored_fields))
    account: dict[str, Value] = {
        name: False if obj.by_name[name.lower()].type is FieldType.CHECKBOX else None for name in gone
    }
    account |= {IS_PERSON: False, "PersonContactId": None}
    return account, RowEdit(contact, person, {IS_PERSON: False})
