"""What a new org has before anybody does anything with it."""

from __future__ import annotations

from tests.orgs import TestOrg


async def test_new_org_has_its_standard_price_book(org: TestOrg) -> None:
    found = await org.gate.query(org.admin, "SELECT Name, IsActive FROM Pricebook2 WHERE IsStandard = true")
    assert [(row["Name"], row["IsActive"]) for row in found.rows] == [("Standard Price Book", True)]
    product = await org.gate.create(org.call, "Product2", {"Name": "Pump"})
    price = {"Pricebook2Id": found.rows[0]["Id"], "Product2Id": product, "UnitPrice": 5}
    assert await org.gate.create(org.call, "PricebookEntry", price)
