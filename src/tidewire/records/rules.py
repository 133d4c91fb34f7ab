"""What the platform demands of the records of single standard objects, beyond what their fields say.

Checked before anything is written. `plan_rivals` names what a record's change takes from others: an
opportunity has one primary contact, so a new one takes the flag from the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidewire.errors import (
    ActivationRefused,
    DuplicateValue,
    EmailInvalid,
    FieldsInconsistent,
    HierarchyCircular,
    LeadConverted,
    PicklistValueInvalid,
    ReferenceWrongType,
    RequiredFieldMissing,
    ValueMalformed,
)
from tidewire.events import Value
from tidewire.records.cascade import RowEdit
from tidewire.records.persons import has_person_accounts
from tidewire.records.recurrence import find_zone
from tidewire.records.table import read_rows, try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.status_categories import status_categories
from tidewire.storage.store import Transaction

Row = Mapping[str, Value]
_Rule = Callable[[Transaction, Catalog, ObjectType, Row, Row | None], None]
"""Raises unless a row, and the row before it if there was one, may stand."""

_ACTIVATED = "Activated"
# No hierarchy is deeper; one that is, from before this was checked, must not hold up the writer.
_MAX_LEVELS = 10_000


def check_rules(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None = None
) -> None:
    """Refuse a record that its object's own rules forbid; `before` is None for a new one."""
    for rule in _RULES.get(obj.name, ()):
        rule(tx, catalog, obj, row, before)
    owner_id = row.get("OwnerId")
    if owner_id is not None and (before is None or before.get("OwnerId") != owner_id):
        _check_owner(tx, catalog, obj, str(owner_id))


def plan_rivals(tx: Transaction, obj: ObjectType, row: Row, before: Row | None = None) -> list[RowEdit]:
    """What others lose because this record takes it: the flag of the primary contact."""
    parent = _PRIMARY.get(obj.name)
    if parent is None or not row.get("IsPrimary") or (before is not None and before.get("IsPrimary")):
        return []
    rows = read_rows(tx, obj, parent, [row[parent]])
    return [
        RowEdit(obj, r, {"IsPrimary": False}) for r in rows if r.get("IsPrimary") and r["Id"] != row["Id"]
    ]


def ignored_fields(obj: ObjectType, before: Row) -> frozenset[str]:
    """Fields that an update may name and that stay as they are: what an opportunity's products decide."""
    if obj.name == "Opportunity" and before.get("HasOpportunityLineItem"):
        return frozenset({"Amount", "TotalOpportunityQuantity"})
    return frozenset()


def _check_owner(tx: Transaction, catalog: Catalog, obj: ObjectType, owner_id: str) -> None:
    group = catalog.object("Group")
    if owner_id.startswith(group.key_prefix):
        row = try_read_row(tx, group, owner_id)
        if row is not None and row.get("Type") != "Queue":
            label = obj.by_name["ownerid"].label
            raise ReferenceWrongType(f"{label}: id value of incorrect type: {owner_id}", fields=["OwnerId"])


def _check_lead(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    lead = catalog.object("Lead")
    lookup = _LEADS[obj.name]
    lead_id = row.get(lookup)
    if lead_id is None or not str(lead_id).startswith(lead.key_prefix):
        return
    if (before is None or before.get(lookup) != lead_id) and (
        (try_read_row(tx, lead, str(lead_id)) or {}).get("IsConverted")
    ):
        raise LeadConverted("cannot reference converted lead", record_id=lead_id)


def _check_hierarchy(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None
) -> None:
    if before is None:  # nothing can be below a record that is not there yet
        return
    lookup = _PARENTS[obj.name]
    parent_id = row.get(lookup)
    if parent_id == before.get(lookup):
        return
    for _ in range(_MAX_LEVELS):
        if parent_id is None:
            return
        if parent_id == row["Id"]:
            raise HierarchyCircular(
                f"{obj.label} hierarchy: the record would stand above itself", fields=[lookup]
            )
        parent_id = (try_read_row(tx, obj, str(parent_id)) or {}).get(lookup)


def _check_activation(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None
) -> None:
    category = status_categories(obj).get(str(row.get("Status")))
    is_active = category is not None and category.code == _ACTIVATED
    was_active = before is not None and before.get("StatusCode") == _ACTIVATED
    if is_active == was_active:
        return
    if obj.name == "Contract" and (before is None or was_active):
        raise ActivationRefused(
            "Choose a valid contract status and save your changes. Ask your admin for details.",
            fields=["Status"],
        )
    if obj.name == "Order" and is_active and not _has_products(tx, catalog, row):
        raise ActivationRefused("An order must have at least one product.", fields=["Status"])


def _has_products(tx: Transaction, catalog: Catalog, order: Row) -> bool:
    return bool(read_rows(tx, catalog.object("OrderItem"), "OrderId", [order["Id"]]))


def _check_member(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    if before is not None:  # neither can be changed afterwards
        return
    named = [name for name in ("LeadId", "ContactId") if row.get(name) is not None]
    if not named:
        raise RequiredFieldMissing(
            "Required fields are missing: [LeadId or ContactId]", fields=["LeadId", "ContactId"]
        )
    if len(named) > 1:
        raise FieldsInconsistent("A campaign member is a lead or a contact, not both.", fields=named)
    for other in read_rows(tx, obj, named[0], [row[named[0]]]):
        if other["CampaignId"] == row["CampaignId"]:
            raise DuplicateValue("Already a campaign member.", fields=[], record_id=other["Id"])


def _check_price(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    if before is not None:
        return
    for other in read_rows(tx, obj, "Product2Id", [row["Product2Id"]]):
        if other["Pricebook2Id"] == row["Pricebook2Id"]:
            raise FieldsInconsistent("This price definition already exists in this price book", fields=[])


def _check_asset(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    names = ["AccountId", "ContactId"]
    if all(row.get(name) is None for name in names):
        raise FieldsInconsistent("Every asset needs an account, a contact, or both.", fields=names)


def _check_user(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    name, _, domain = str(row.get("Username")).partition("@")
    if (before is None or before.get("Username") != row.get("Username")) and not (name and domain):
        raise EmailInvalid("Username must be in the form of an email address", fields=["Username"])
    zone = row.get("TimeZoneSidKey")
    if before is None or before.get("TimeZoneSidKey") != zone:
        try:
            find_zone(zone, "TimeZoneSidKey")
        except ValueMalformed as error:
            raise PicklistValueInvalid(
                f"Time Zone: bad value for restricted picklist field: {zone}", fields=["TimeZoneSidKey"]
            ) from error


def _check_person_contact(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None
) -> None:
    account_id = row.get("AccountId")
    if not has_person_accounts(catalog.object("Account")) or account_id is None:
        return
    if before is not None and before.get("AccountId") == account_id:
        return
    account = try_read_row(tx, catalog.object("Account"), str(account_id))
    if account is not None and account.get("IsPersonAccount"):
        raise FieldsInconsistent("A person account has no other contacts.", fields=["AccountId"])


_PARENTS = {
    "Account": "ParentId",
    "Asset": "ParentId",
    "Campaign": "ParentId",
    "Case": "ParentId",
    "ServiceContract": "ParentServiceContractId",
}
_LEADS = {"CampaignMember": "LeadId", "Task": "WhoId", "Event": "WhoId"}
_PRIMARY = {"OpportunityContactRole": "OpportunityId", "AccountContactRole": "AccountId"}
_RULES: dict[str, tuple[_Rule, ...]] = {
    **dict.fromkeys(_PARENTS, (_check_hierarchy,)),
    "CampaignMember": (_check_member, _check_lead),
    "Task": (_check_lead,),
    "Event": (_check_lead,),
    "Asset": (_check_hierarchy, _check_asset),
    "Contact": (_check_person_contact,),
    "Contract": (_check_activation,),
    "Order": (_check_activation,),
    "PricebookEntry": (_check_price,),
    "User": (_check_user,),
}
