"""Fields that a record copies from the records it refers to.

A campaign member shows its lead's or contact's name and address, a case its contact's telephone. Such a field
is computed whenever its record is written, and again when the other record changes. That is not a change of
the record: there is no event, and nobody has modified it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from tidewire.crm.activity_rows import iter_by
from tidewire.events import Value
from tidewire.records.conversion import iter_values
from tidewire.records.derived import fit_values
from tidewire.records.object_rules import CopiedRule, FlushUnit, Row
from tidewire.records.table import try_read_row
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.storage.store import Transaction

_Values = dict[str, Value]
_LINES = ("OpportunityLineItem", "OrderItem", "QuoteLineItem", "ContractLineItem")
_FISCAL_YEAR = ("FiscalYearStartMonth", "UsesStartDateAsFiscalYearName")
_SAME = (
    "Salutation",
    "FirstName",
    "LastName",
    "Name",
    "Title",
    "Email",
    "Phone",
    "Fax",
    "MobilePhone",
    "DoNotCall",
    "HasOptedOutOfEmail",
    "HasOptedOutOfFax",
    "LeadSource",
)
_PLACE = ("Street", "City", "State", "PostalCode", "Country")
_CASE = {
    "ContactPhone": "Phone",
    "ContactMobile": "MobilePhone",
    "ContactEmail": "Email",
    "ContactFax": "Fax",
}


@dataclass(frozen=True, slots=True)
class _Link:
    """The records of `child` whose copied fields depend on the `inputs` of the record in their `lookup`."""

    child: str
    lookup: str
    inputs: tuple[str, ...]


def apply_copies(unit: FlushUnit) -> None:
    """Update all copied fields after the changes of a unit of work. Called once, after its last statement."""
    _apply_fiscal_year(unit)
    for entity, links in _LINKS.items():
        changed: dict[_Link, list[str]] = {link: [] for link in links}
        for _, before, after in unit.touched((entity,)):
            if before is None or after is None:
                continue
            for link in links:
                if any(before.get(n) != after.get(n) for n in link.inputs):
                    changed[link].append(str(after["Id"]))
        for link, ids in changed.items():
            if ids:
                _refresh(unit, unit.catalog.object(link.child), link.lookup, ids)


def _apply_fiscal_year(unit: FlushUnit) -> None:
    """Recompute the fiscal periods of all opportunities if the org has changed its fiscal year."""
    for _, before, after in unit.touched(("Organization",)):
        if before is None or after is None or all(before.get(n) == after.get(n) for n in _FISCAL_YEAR):
            continue
        deals = unit.catalog.object("Opportunity")
        start = _fiscal_year_start(unit.tx, unit.catalog)
        for deal_id, close_ms in iter_values(unit.tx, deals, deals.by_name["closedate"]):
            unit.store_copies(deals, {"Id": deal_id}, _period(close_ms, start))


def _refresh(unit: FlushUnit, child: ObjectType, lookup: str, ids: list[str]) -> None:
    for row in iter_by(unit.tx, child, lookup, ids):
        if child.name == "Contact":  # copies nothing itself, but its campaign members copy its account's name
            members = unit.catalog.object("CampaignMember")
            _refresh(unit, members, "ContactId", [str(row["Id"])])
            continue
        values = fit_values(child, COPIED[child.name](unit.tx, unit.catalog, child, row, row))
        fresh = {name: value for name, value in values.items() if row.get(name) != value}
        if fresh:
            unit.store_copies(child, row, fresh)


def _read(tx: Transaction, catalog: Catalog, entity: str, record_id: Value) -> Row:
    row = try_read_row(tx, catalog.object(entity), str(record_id)) if record_id is not None else None
    return row or {}


def _member(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> _Values:
    # A lead that was converted is shown as the contact that it became.
    if row.get("ContactId") is not None:
        person = _read(tx, catalog, "Contact", row["ContactId"])
        company = _read(tx, catalog, "Account", person.get("AccountId")).get("Name")
        kind, prefix = "Contact", "Mailing"
    else:
        person = _read(tx, catalog, "Lead", row.get("LeadId"))
        company, kind, prefix = person.get("Company"), "Lead", ""
    values = _picked(person, _SAME) | {name: person.get(prefix + name) for name in _PLACE}
    return values | {
        "CompanyOrAccount": company,
        "Type": kind,
        "LeadOrContactId": person.get("Id"),
        "LeadOrContactOwnerId": person.get("OwnerId"),
    }


def _case(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> _Values:
    contact = _read(tx, catalog, "Contact", row.get("ContactId"))
    values = {own: contact.get(other) for own, other in _CASE.items()}
    if before is None and row.get("AccountId") is None:
        values["AccountId"] = contact.get("AccountId")
    return values


def _product(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> _Values:
    product = _read(tx, catalog, "Product2", row.get("Product2Id"))
    names = ("Name", "ProductCode") if obj.name == "PricebookEntry" else ("ProductCode",)
    return _picked(product, names)


def _quote(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> _Values:
    return _picked(_read(tx, catalog, "Opportunity", row.get("OpportunityId")), ("AccountId",))


def _fiscal_period(
    tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None
) -> _Values:
    close_ms = row.get("CloseDate")
    if before is not None and before.get("CloseDate") == close_ms and row.get("Fiscal") is not None:
        return {}
    return _period(close_ms, _fiscal_year_start(tx, catalog))


def _period(close_ms: Value, start: tuple[int, bool]) -> _Values:
    if not isinstance(close_ms, int):
        return {"FiscalYear": None, "FiscalQuarter": None, "Fiscal": None}
    year, quarter = fiscal_quarter(close_ms, *start)
    return {"FiscalYear": year, "FiscalQuarter": quarter, "Fiscal": f"{year} {quarter}"}


def fiscal_quarter(day_ms: int, start_month: int, is_named_by_start: bool) -> tuple[int, int]:
    """Return the fiscal year and quarter of a day; a year is named by its end unless `is_named_by_start`."""
    day = datetime.fromtimestamp(day_ms / 1000, UTC)
    year = day.year if day.month >= start_month else day.year - 1
    if start_month > 1 and not is_named_by_start:
        year += 1
    return year, (day.month - start_month) % 12 // 3 + 1


def _fiscal_year_start(tx: Transaction, catalog: Catalog) -> tuple[int, bool]:
    organization = catalog.object("Organization")
    month, by_start = (organization.by_name[name.lower()] for name in _FISCAL_YEAR)
    # Names come from the catalog; an org has one such row, which is never among the buffered inserts.
    rows = tx.execute_skipping_buffer(
        f"SELECT {month.column}, {by_start.column} FROM {organization.table} LIMIT 1"  # noqa: S608
    )
    if not rows or rows[0][0] is None or not 1 <= rows[0][0] <= 12:
        return 1, False
    return int(rows[0][0]), bool(rows[0][1])


def _picked(row: Row, names: Iterable[str]) -> _Values:
    return {name: row.get(name) for name in names}


def _line(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row, before: Row | None) -> _Values:
    """Compute product, prices and totals of a line item; `before` is None for a new one."""
    values: _Values = {} if before is not None else _from_entry(tx, catalog, obj, row)
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


def _is_priced_by_total(row: Row, before: Row | None) -> bool:
    """Return whether the total was set and the price was not, which only opportunities allow."""
    if row.get("TotalPrice") is None:
        return False
    if before is None:
        return row.get("UnitPrice") is None
    named = ("UnitPrice", "Quantity", "Discount")
    is_other = any(row.get(name) != before.get(name) for name in named)
    return row.get("TotalPrice") != before.get("TotalPrice") and not is_other


def _from_entry(tx: Transaction, catalog: Catalog, obj: ObjectType, row: Row) -> _Values:
    entry = _read(tx, catalog, "PricebookEntry", row.get("PricebookEntryId"))
    if not entry:
        return {}
    values: _Values = {
        "Product2Id": row.get("Product2Id") or entry.get("Product2Id"),
        "ListPrice": entry.get("UnitPrice"),
        "ProductCode": entry.get("ProductCode"),
    }
    if obj.name == "OpportunityLineItem":
        deal = _read(tx, catalog, "Opportunity", row["OpportunityId"])
        names = (deal.get("Name"), entry.get("Name"))
        values["Name"] = " ".join(str(name) for name in names if name) or None
    return values


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


COPIED: dict[str, CopiedRule] = {
    "CampaignMember": _member,
    "Case": _case,
    "PricebookEntry": _product,
    "Asset": _product,
    "Quote": _quote,
    "Opportunity": _fiscal_period,
    **dict.fromkeys(_LINES, _line),
}
_SHOWN_OF_LEAD = (*_SAME, *_PLACE, "Company", "OwnerId")
_SHOWN_OF_CONTACT = (*_SAME, *("Mailing" + name for name in _PLACE), "AccountId", "OwnerId")
_LINKS: dict[str, tuple[_Link, ...]] = {
    "Lead": (_Link("CampaignMember", "LeadId", _SHOWN_OF_LEAD),),
    "Contact": (
        _Link("CampaignMember", "ContactId", _SHOWN_OF_CONTACT),
        _Link("Case", "ContactId", tuple(_CASE.values())),
    ),
    "Account": (_Link("Contact", "AccountId", ("Name",)),),
    "Opportunity": (_Link("Quote", "OpportunityId", ("AccountId",)),),
    "Product2": (
        _Link("PricebookEntry", "Product2Id", ("Name", "ProductCode")),
        _Link("Asset", "Product2Id", ("ProductCode",)),
    ),
}
