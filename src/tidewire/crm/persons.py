"""Person accounts: one person in two rows, an account and its contact, that are kept in step.

An org has person accounts if its Account has PersonContactId. Fields that the two rows share have the same
name in both (FirstName, Phone), the prefix Person on the account (PersonEmail is the contact's Email), or the
suffix `__pc` for `__c`. A change of one row is copied to the other, and every save touches both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from tidewire.events import Change, ChangeType, Value
from tidewire.records.touched import changes_of
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.people import has_person_accounts
from tidewire.schema.values import join_person_name

NAME_PARTS = ("Salutation", "FirstName", "LastName")
_SHARED = (*NAME_PARTS, "Phone", "Fax", "OwnerId")
_PREFIX = "Person"
PERSON_SUFFIX = "__pc"
IS_PERSON = "IsPersonAccount"


@lru_cache(maxsize=64)
def shared_fields(account: ObjectType, contact: ObjectType) -> dict[str, str]:
    """Return the account's fields that a person's contact shares, and their names there."""
    pairs = {name: name for name in _SHARED if account.try_field(name) and contact.try_field(name)}
    for field in account.stored_fields:
        if field.name == "PersonContactId":
            continue
        if field.name.endswith(PERSON_SUFFIX):
            twin = field.name.removesuffix(PERSON_SUFFIX) + "__c"
        elif field.name.startswith(_PREFIX):
            twin = field.name.removeprefix(_PREFIX)
        else:
            continue
        other = contact.try_field(twin)
        if other is not None and other.column:
            pairs[field.name] = other.name
    return pairs


def is_person(obj: ObjectType, row: Mapping[str, Value]) -> bool:
    """Return whether the row is the account or contact of a person account."""
    return obj.name in ("Account", "Contact") and bool(row.get(IS_PERSON))


def person_only_fields(account: ObjectType, contact: ObjectType, names: Iterable[str]) -> list[str]:
    """Return those of the fields that a business account cannot have."""
    pairs = shared_fields(account, contact)
    return [n for n in names if n in NAME_PARTS or (n in pairs and n not in _SHARED)]


def fixed_fields(obj: ObjectType, names: Iterable[str]) -> list[str]:
    """Return those of the fields that follow from the other row of a person, and cannot be set."""
    fixed = "Name" if obj.name == "Account" else "AccountId"
    return [n for n in names if n == fixed]


def account_name(row: Mapping[str, Value]) -> str | None:
    """Return the Name of a person account: `First Last`, cut to the length of the field."""
    name = join_person_name(row)
    return name[:255] if name else None


def contact_values(catalog: Catalog, account: Mapping[str, Value]) -> dict[str, Value]:
    """Return the contact of a new person account."""
    values = twin_values(catalog, catalog.object("Account"), account, account)
    values |= {"Id": account["PersonContactId"], "AccountId": account["Id"]}
    if catalog.object("Contact").try_field(IS_PERSON):
        values[IS_PERSON] = True
    return values


def twin_of(catalog: Catalog, obj: ObjectType, row: Mapping[str, Value]) -> tuple[ObjectType, str]:
    """Return object and id of the other row of a person account."""
    if obj.name == "Account":
        return catalog.object("Contact"), str(row["PersonContactId"])
    return catalog.object("Account"), str(row["AccountId"])


def twin_values(
    catalog: Catalog, obj: ObjectType, after: Mapping[str, Value], changed: Iterable[str]
) -> dict[str, Value]:
    """Return the values that a change of one row sets in the other; `after` is the whole changed row."""
    pairs = shared_fields(catalog.object("Account"), catalog.object("Contact"))
    names = {twin: own for own, twin in pairs.items()} if obj.name == "Contact" else pairs
    values = {names[name]: after.get(name) for name in changed if name in names}
    if obj.name == "Contact" and any(name in NAME_PARTS for name in changed):
        values["Name"] = account_name(after)
    return values


def changed_twins(catalog: Catalog, changes: Sequence[Change], ignored: Collection[str]) -> frozenset[Value]:
    """Return the twins of person accounts that were updated in other than the `ignored` fields."""
    if not has_person_accounts(catalog.object("Account")):
        return frozenset()
    twins: set[Value] = set()
    for change in changes_of(changes, "Account", "Contact"):
        after = change.after or {}
        if (
            after.get(IS_PERSON)
            and change.type is ChangeType.UPDATE
            and not set(change.changed).issubset(ignored)
        ):
            twins.add(after.get("PersonContactId" if change.entity == "Account" else "AccountId"))
    return frozenset(twins)


def account_event_paths(paths: dict[str, tuple[str, str]], is_person: bool) -> dict[str, tuple[str, str]]:
    """Return where the fields of an account stand in its change events, given the paths of all stored fields.

    A person account reports its Name by parts; a business account has no Person fields.
    """
    if is_person:
        return {n: path for n, path in paths.items() if n != "Name"} | {n: ("Name", n) for n in NAME_PARTS}
    return {n: path for n, path in paths.items() if not n.startswith(_PREFIX) or n == "PersonContactId"}
