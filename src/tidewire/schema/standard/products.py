"""Products, price books and the assets that customers hold of them."""

from __future__ import annotations

from tidewire.schema.fields import (
    checkbox,
    currency,
    date,
    double,
    long_text,
    lookup,
    picklist,
    read_only,
    required_parent,
    text,
    url,
)
from tidewire.schema.layout import (
    audit_fields,
    identity_fields,
    owner_field,
    record_type_field,
    standard_object,
    viewed_fields,
)

PRICEBOOK2 = standard_object(
    25,
    "01s",
    "Pricebook2",
    (
        *identity_fields(),
        text("Name", "Price Book Name", 255, required=True),
        *audit_fields(),
        checkbox("IsActive", "Active"),
        text("Description", "Description", 255),
        read_only(checkbox("IsStandard", "Is Standard Price Book")),
        *viewed_fields(),
    ),
    label="Price Book",
)

PRICEBOOK_ENTRY = standard_object(
    26,
    "01u",
    "PricebookEntry",
    (
        *identity_fields(),
        read_only(text("Name", "Product Name", 255)),
        required_parent("Pricebook2Id", "Price Book ID", "Pricebook2", "Pricebook2", "PricebookEntries"),
        required_parent("Product2Id", "Product ID", "Product2", "Product2", "PricebookEntries"),
        currency("UnitPrice", "List Price", 18, 2, required=True),
        checkbox("IsActive", "Active"),
        checkbox("UseStandardPrice", "Use Standard Price"),
        *audit_fields(),
        read_only(text("ProductCode", "Product Code", 255)),
    ),
    label="Price Book Entry",
    plural="Price Book Entries",
)

PRODUCT2 = standard_object(
    27,
    "01t",
    "Product2",
    (
        *identity_fields(),
        text("Name", "Product Name", 255, required=True),
        text("ProductCode", "Product Code", 255),
        text("Description", "Product Description", 4000),
        checkbox("IsActive", "Active"),
        *audit_fields(),
        picklist("Family", "Product Family", "None", length=255),
        text("ExternalId", "External ID", 255),
        url("DisplayUrl", "Display URL"),
        picklist("QuantityUnitOfMeasure", "Quantity Unit Of Measure", "Each", length=255),
        read_only(checkbox("IsArchived", "Archived")),
        text("StockKeepingUnit", "Product SKU", 180),
        *viewed_fields(),
        record_type_field(),
    ),
    label="Product",
)

ASSET = standard_object(
    28,
    "02i",
    "Asset",
    (
        *identity_fields(),
        lookup("ContactId", "Contact ID", "Contact", "Contact", "Assets"),
        lookup("AccountId", "Account ID", "Account", "Account", "Assets", delete_constraint="Cascade"),
        lookup("ParentId", "Parent Asset ID", "Asset", "Parent", "ChildAssets"),
        read_only(lookup("RootAssetId", "Root Asset ID", "Asset", "RootAsset")),
        lookup("Product2Id", "Product ID", "Product2", "Product2", "Assets"),
        read_only(text("ProductCode", "Product Code", 255)),
        checkbox("IsCompetitorProduct", "Competitor Asset"),
        *audit_fields(),
        text("Name", "Asset Name", 255, required=True),
        text("SerialNumber", "Serial Number", 80),
        date("InstallDate", "Install Date"),
        date("PurchaseDate", "Purchase Date"),
        date("UsageEndDate", "Usage End Date"),
        picklist("Status", "Status", "Shipped;Installed;Registered;Obsolete;Purchased"),
        currency("Price", "Price", 18, 2),
        double("Quantity", "Quantity", 12, 2),
        long_text("Description", "Description"),
        owner_field(),
        *viewed_fields(),
        record_type_field(),
    ),
)
