"""Lines of opportunities, orders, quotes and service contracts: what they sell, and for how much.

A line takes its product and list price from its price book entry when it is made. Without a price of its own it
sells at the list price; its totals follow from price, quantity and discount.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidewire.events import Value
from tidewire.records.table import try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Transaction

LINES = frozenset({"OpportunityLineItem", "OrderItem", "QuoteLineItem", "ContractLineItem"})


def line_values(
    tx: Transaction,
    catalog: Catalog,
    obj: ObjectType,
    row: Mapping[str, Value],
    before: Mapping[str, Value] | None,
) -> dict[str, Value]:
    """What follows for a line whose other fields are as in `row`; `before` is None for a new one."""
    values: dict[str, Value] = {} if before is not None else _from_entry(tx, catalog, obj, row)
    quantity = _number(row.get("Quantity")) or 0.0
    kept_share = 1 - (_number(row.get("Discount")) or 0.0) / 100
    price = _number(row.get("UnitPrice"))
    if _is_priced_by_total(row, before) and quantity and kept_share:
        price = (_number(row.get("TotalPrice")) or 0.0) / (quantity * kept_share)
    elif price is None:
        price = _number(values.get("ListPrice", row.get("ListPrice")))
    values["UnitPrice"] = price
    values["Subtotal"] = None if price is None else price * quantity
    values["TotalPrice"] = None if price is None else price * quantity * kept_share
    values["AvailableQuantity"] = row.get("Quantity")
    return values


def _is_priced_by_total(row: Mapping[str, Value], before: Mapping[str, Value] | None) -> bool:
    """Whether somebody set the total and left the price open: only opportunities allow that."""
    if row.get("TotalPrice") is None:
        return False
    if before is None:
        return row.get("UnitPrice") is None
    named = ("UnitPrice", "Quantity", "Discount")
    is_other = any(row.get(name) != before.get(name) for name in named)
    return row.get("TotalPrice") != before.get("TotalPrice") and not is_other


def _from_entry(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: Mapping[str, Value]
) -> dict[str, Value]:
    entry_id = row.get("PricebookEntryId")
    entry = try_read_row(tx, catalog.object("PricebookEntry"), str(entry_id)) if entry_id else None
    if entry is None:
        return {}
    values: dict[str, Value] = {
        "Product2Id": row.get("Product2Id") or entry.get("Product2Id"),
        "ListPrice": entry.get("UnitPrice"),
        "ProductCode": entry.get("ProductCode"),
    }
    if obj.name == "OpportunityLineItem":
        deal = try_read_row(tx, catalog.object("Opportunity"), str(row["OpportunityId"])) or {}
        names = (deal.get("Name"), entry.get("Name"))
        values["Name"] = " ".join(str(name) for name in names if name) or None
    return values


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None
