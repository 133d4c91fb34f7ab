"""Checks of single standard objects, beyond what their fields define. Each raises before anything is written."""

from __future__ import annotations

from tidewire.crm.recurrence import find_zone
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
from tidewire.records.object_rules import Row, WritePlan
from tidewire.records.table import read_rows, try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.status_categories import status_categories
from tidewire.storage.store import Transaction

_ACTIVATED = "Activated"
# No hierarchy is deeper; one that is, from before this was checked, must not hold up the writer.
_MAX_LEVELS = 10_000


def plan_role_create(tx: Transaction, catalog: Catalog, obj: ObjectType, row: dict[str, Value]) -> WritePlan:
    """Plan the create of a contact role: a new primary one takes the flag from the old one."""
    rivals = _other_primary_roles(tx, obj, row) if row.get("IsPrimary") else ()
    return WritePlan(created=((obj, row),), edited=rivals)


def plan_role_update(
    tx: Transaction, catalog: Catalog, obj: ObjectType, before: Row, changed: Row, now_ms: int
) -> WritePlan | None:
    """Plan the update of a contact role, as `plan_role_create` does."""
    if not changed.get("IsPrimary"):
        return None
    return WritePlan(edited=_other_primary_roles(tx, obj, {**before, **changed}))


def _other_primary_roles(tx: Transaction, obj: ObjectType, row: Row) -> tuple[RowEdit, ...]:
    parent = _PRIMARY[obj.name]
    rows = read_rows(tx, obj, parent, [row[parent]])
    rivals = [r for r in rows if r.get("IsPrimary") and r["Id"] != row["Id"]]
    return tuple(RowEdit(obj, r, {"IsPrimary": False}) for r in rivals)


def ignored_opportunity_fields(before: Row) -> frozenset[str]:
    """Return the fields that an update may name but does not change: its products decide over them."""
    has_products = before.get("HasOpportunityLineItem")
    return frozenset({"Amount", "TotalOpportunityQuantity"}) if has_products else frozenset()


def check_lead_editable(before: Row) -> None:
    """Reject the update of a converted lead."""
    if before.get("IsConverted"):
        raise LeadConverted("cannot reference converted lead", record_id=before["Id"])


def check_owner(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    """Reject a new owner that is a group and not a queue."""
    owner_id = row.get("OwnerId")
    if owner_id is None or (before is not None and before.get("OwnerId") == owner_id):
        return
    group = catalog.object("Group")
    if str(owner_id).startswith(group.key_prefix):
        held = try_read_row(tx, group, str(owner_id))
        if held is not None and held.get("Type") != "Queue":
            label = obj.by_name["ownerid"].label
            raise ReferenceWrongType(f"{label}: id value of incorrect type: {owner_id}", fields=["OwnerId"])


def check_lead(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    """Reject a new reference to a converted lead."""
    lead = catalog.object("Lead")
    lookup = _LEADS[obj.name]
    lead_id = row.get(lookup)
    if lead_id is None or not str(lead_id).startswith(lead.key_prefix):
        return
    if (before is None or before.get(lookup) != lead_id) and (
        (try_read_row(tx, lead, str(lead_id)) or {}).get("IsConverted")
    ):
        raise LeadConverted("cannot reference converted lead", record_id=lead_id)


def check_hierarchy(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    """Reject a parent that is the record itself or below it."""
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


def check_activation(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None
) -> None:
    """Reject an activation, or its undoing, that a contract or order does not allow."""
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


def check_member(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    """Reject a campaign member that is not exactly one lead or contact, or is one already."""
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


def check_price(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    """Reject a second price of a product in one price book."""
    if before is not None:
        return
    for other in read_rows(tx, obj, "Product2Id", [row["Product2Id"]]):
        if other["Pricebook2Id"] == row["Pricebook2Id"]:
            raise FieldsInconsistent("This price definition already exists in this price book", fields=[])


def check_asset(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    """Reject an asset without account and contact."""
    names = ["AccountId", "ContactId"]
    if all(row.get(name) is None for name in names):
        raise FieldsInconsistent("Every asset needs an account, a contact, or both.", fields=names)


def check_user(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> None:
    """Reject a user name that is not an email address, and an unknown time zone."""
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


_PARENTS = {
    "Account": "ParentId",
    "Asset": "ParentId",
    "Campaign": "ParentId",
    "Case": "ParentId",
    "ServiceContract": "ParentServiceContractId",
}
_LEADS = {"CampaignMember": "LeadId", "Task": "WhoId", "Event": "WhoId"}
_PRIMARY = {"OpportunityContactRole": "OpportunityId", "AccountContactRole": "AccountId"}
