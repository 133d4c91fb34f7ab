"""The custom fields of contacts on person accounts: the contact's `X__c` is also the account's `X__pc`.

The account's field has its own column, so that queries over accounts need no join. It is created, changed and
removed with the contact's field. Formulas, roll-ups and geolocations exist on the contact only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidewire.crm.persons import PERSON_SUFFIX, shared_fields
from tidewire.records.conversion import ConversionNote, fill_column, iter_values, next_column
from tidewire.records.table import create_table, try_read_row, update_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard.people import has_person_accounts
from tidewire.storage.store import Transaction

_SUFFIX = "__c"


def with_contact_fields(
    tx: Transaction, base: Catalog, objects: tuple[ObjectType, ...]
) -> tuple[ObjectType, ...]:
    """Return the objects that are about to change, and Account if it changes with Contact."""
    changing = {obj.name: obj for obj in objects}
    account = changing.get("Account") or base.object("Account")
    contact = changing.get("Contact") or base.object("Contact")
    if not has_person_accounts(account) or not changing.keys() & {"Account", "Contact"}:
        return objects
    grown = _with_fields(tx, account, contact)
    if grown != account or "Account" in changing:
        changing["Account"] = grown
    return tuple(changing.values())


def lost_contact_fields(base: Catalog, objects: Iterable[ObjectType]) -> list[tuple[str, str]]:
    """Return the `__pc` fields that Account loses."""
    account = next((obj for obj in objects if obj.name == "Account"), None)
    if account is None:
        return []
    gone = (f.name for f in base.object("Account").fields if account.try_field(f.name) is None)
    return [("Account", name) for name in gone if name.endswith(PERSON_SUFFIX)]


def fill_contact_fields(tx: Transaction, catalog: Catalog, changed: Iterable[str]) -> None:
    """Copy the custom fields of contacts to their person accounts, if the type of contacts has changed."""
    account, contact = catalog.object("Account"), catalog.object("Contact")
    if "Contact" not in changed or not has_person_accounts(account):
        return
    pairs = {a: c for a, c in shared_fields(account, contact).items() if a.endswith(PERSON_SUFFIX)}
    for account_id, contact_id in iter_values(tx, account, account.by_name["personcontactid"]):
        row, twin = try_read_row(tx, account, account_id), try_read_row(tx, contact, str(contact_id))
        if row is None or twin is None:
            continue
        fresh = {own: twin[other] for own, other in pairs.items() if row.get(own) != twin.get(other)}
        if fresh:
            update_row(tx, account, account_id, fresh)


def conversions_on_accounts(tx: Transaction, catalog: Catalog, note: ConversionNote) -> list[ConversionNote]:
    """Return the conversions of account fields that the conversion of a contact's field implies."""
    account, contact = catalog.object("Account"), catalog.object("Contact")
    if note.entity != contact.name or not has_person_accounts(account):
        return []
    held = frozenset(note.record_ids)
    links = iter_values(tx, account, account.by_name["personcontactid"], include_deleted=False)
    ids = tuple(i for i, contact_id in links if contact_id in held) if held else ()
    return [
        replace(note, entity=account.name, field=own, record_ids=ids)
        for own, other in shared_fields(account, contact).items()
        if other == note.field
    ]


def _with_fields(tx: Transaction, account: ObjectType, contact: ObjectType) -> ObjectType:
    """Return Account with a `__pc` field for each custom field of Contact."""
    number = next_column(tx, account)
    kept = [f for f in account.fields if not f.name.endswith(PERSON_SUFFIX)]
    added: list[Field] = []
    for field in contact.fields:
        if not _is_shared(field):
            continue
        twin = _twin(field)
        held = account.try_field(twin.name)
        if held is not None and held.type is twin.type:
            added.append(replace(twin, column=held.column))
        else:
            added.append(replace(twin, column=f"c{number}"))
            number += 1
    grown = replace(account, fields=(*kept, *added))
    boxes = [f for f in added if f.type is FieldType.CHECKBOX and f not in account.fields]
    if boxes:
        create_table(tx, grown)
        for field in boxes:
            fill_column(tx, grown, field, False)
    return grown


def _is_shared(field: Field) -> bool:
    is_own = field.custom and field.name.endswith(_SUFFIX) and bool(field.column)
    is_computed = bool(field.formula) or field.roll_up is not None or field.type is FieldType.AUTO_NUMBER
    return is_own and not is_computed and not field.is_compound


def _twin(field: Field) -> Field:
    stem = field.name.removesuffix(_SUFFIX)
    return replace(
        field,
        name=stem + PERSON_SUFFIX,
        required=False,
        unique=False,
        external_id=False,
        is_master_detail=False,
        delete_constraint="SetNull",
        relationship_name=stem + "__pr" if field.relationship_name else "",
        child_relationship_name="",
        field_id="",
    )
