"""Quotes, contracts, orders and their line items."""

from __future__ import annotations

from dataclasses import replace

from tidewire.schema.fields import (
    address,
    auto_number,
    checkbox,
    currency,
    date,
    datetime,
    derived,
    detail,
    double,
    email,
    integer,
    long_text,
    lookup,
    percent,
    phone,
    picklist,
    read_only,
    required_parent,
    text,
)
from tidewire.schema.layout import (
    audit_fields,
    identity_fields,
    owner_field,
    record_type_field,
    standard_object,
    viewed_fields,
)
from tidewire.schema.model import Field
from tidewire.schema.standard.choices import activity_fields, price_book_entry, product
from tidewire.schema.standard.statuses import CONTRACT_STATUSES, ORDER_STATUSES, status_field


def _total(name: str, label: str) -> Field:
    return read_only(replace(currency(name, label, 18, 2), default=0.0))


def _price_book(child_relationship_name: str) -> Field:
    return lookup("Pricebook2Id", "Price Book ID", "Pricebook2", "Pricebook2", child_relationship_name)


CONTRACT = standard_object(
    22,
    "800",
    "Contract",
    (
        *identity_fields(),
        required_parent("AccountId", "Account ID", "Account", "Account", "Contracts", updateable=True),
        _price_book("Contracts"),
        picklist("OwnerExpirationNotice", "Owner Expiration Notice", "15;30;45;60;90;120"),
        date("StartDate", "Contract Start Date"),
        read_only(date("EndDate", "Contract End Date")),
        *address("Billing"),
        *address("Shipping"),
        integer("ContractTerm", "Contract Term", 4),
        owner_field(),
        status_field(CONTRACT_STATUSES),
        lookup("CompanySignedId", "Company Signed By ID", "User", "CompanySigned"),
        date("CompanySignedDate", "Company Signed Date"),
        lookup("CustomerSignedId", "Customer Signed By ID", "Contact", "CustomerSigned", "ContractsSigned"),
        text("CustomerSignedTitle", "Customer Signed Title", 40),
        date("CustomerSignedDate", "Customer Signed Date"),
        text("SpecialTerms", "Special Terms", 4000),
        read_only(lookup("ActivatedById", "Activated By ID", "User", "ActivatedBy")),
        read_only(datetime("ActivatedDate", "Activated Date")),
        read_only(
            picklist(
                "StatusCode",
                "Status Category",
                "Draft;InApproval;Activated",
                restricted=True,
                default="Draft",
            )
        ),
        long_text("Description", "Description"),
        *audit_fields(),
        auto_number("ContractNumber", "Contract Number", "{00000000}", start_number=100),
        read_only(datetime("LastApprovedDate", "Last Approved Date")),
        *activity_fields(),
        record_type_field(),
    ),
    named_by="ContractNumber",
)

ORDER = standard_object(
    23,
    "801",
    "Order",
    (
        *identity_fields(),
        owner_field("Group", "User"),
        lookup("ContractId", "Contract ID", "Contract", "Contract", "Orders"),
        lookup("AccountId", "Account ID", "Account", "Account", "Orders", delete_constraint="Cascade"),
        _price_book("Orders"),
        lookup("OriginalOrderId", "Original Order ID", "Order", "OriginalOrder", "ReductionOrders"),
        date("EffectiveDate", "Order Start Date", required=True),
        date("EndDate", "Order End Date"),
        checkbox("IsReductionOrder", "Reduction Order"),
        status_field(ORDER_STATUSES, required=True),
        long_text("Description", "Description"),
        lookup("CustomerAuthorizedById", "Customer Authorized By ID", "Contact", "CustomerAuthorizedBy"),
        date("CustomerAuthorizedDate", "Customer Authorized Date"),
        lookup("CompanyAuthorizedById", "Company Authorized By ID", "User", "CompanyAuthorizedBy"),
        date("CompanyAuthorizedDate", "Company Authorized Date"),
        picklist("Type", "Order Type", ""),
        *address("Billing"),
        *address("Shipping"),
        text("Name", "Order Name", 80),
        date("PoDate", "PO Date"),
        text("PoNumber", "PO Number", 80),
        text("OrderReferenceNumber", "Order Reference Number", 80),
        lookup("BillToContactId", "Bill To Contact ID", "Contact", "BillToContact"),
        lookup("ShipToContactId", "Ship To Contact ID", "Contact", "ShipToContact"),
        read_only(datetime("ActivatedDate", "Activated Date")),
        read_only(lookup("ActivatedById", "Activated By ID", "User", "ActivatedBy")),
        read_only(
            picklist("StatusCode", "Status Category", "Draft;Activated", restricted=True, default="Draft")
        ),
        auto_number("OrderNumber", "Order Number", "{00000000}", start_number=100),
        _total("TotalAmount", "Order Amount"),
        *audit_fields(),
        *viewed_fields(),
        record_type_field(),
    ),
    named_by="OrderNumber",
)

ORDER_ITEM = standard_object(
    24,
    "802",
    "OrderItem",
    (
        *identity_fields(),
        detail("OrderId", "Order ID", "Order", "Order", "OrderItems"),
        price_book_entry("OrderItems"),
        product("OrderItems"),
        lookup(
            "OriginalOrderItemId",
            "Original Order Product ID",
            "OrderItem",
            "OriginalOrderItem",
            "ChildOrderItems",
            updateable=False,
        ),
        read_only(double("AvailableQuantity", "Available Quantity", 18, 2)),
        double("Quantity", "Quantity", 18, 2, required=True),
        currency("UnitPrice", "Unit Price", 18, 2),
        read_only(currency("ListPrice", "List Price", 18, 2)),
        read_only(currency("TotalPrice", "Total Price", 18, 2)),
        date("ServiceDate", "Start Date"),
        date("EndDate", "End Date"),
        text("Description", "Line Description", 255),
        *audit_fields(),
        auto_number("OrderItemNumber", "Order Product Number", "{0000000000}"),
    ),
    label="Order Product",
    named_by="OrderItemNumber",
)

QUOTE = standard_object(
    29,
    "0Q0",
    "Quote",
    (
        *identity_fields(),
        owner_field(),
        text("Name", "Quote Name", 255, required=True),
        *audit_fields(),
        detail("OpportunityId", "Opportunity ID", "Opportunity", "Opportunity", "Quotes"),
        _price_book("Quotes"),
        lookup("ContactId", "Contact ID", "Contact", "Contact", "Quotes"),
        auto_number("QuoteNumber", "Quote Number", "{00000000}"),
        checkbox("IsSyncing", "Syncing"),
        currency("ShippingHandling", "Shipping and Handling", 18, 2),
        currency("Tax", "Tax", 18, 2),
        picklist(
            "Status", "Status", "Draft;Needs Review;In Review;Approved;Rejected;Presented;Accepted;Denied"
        ),
        date("ExpirationDate", "Expiration Date"),
        long_text("Description", "Description"),
        _total("Subtotal", "Subtotal"),
        _total("TotalPrice", "Total Price"),
        read_only(integer("LineItemCount", "Line Item Count", 9, default=0)),
        *address("Billing"),
        *address("Shipping"),
        text("BillingName", "Bill To Name", 255),
        text("ShippingName", "Ship To Name", 255),
        email("Email", "Email", 80),
        phone("Phone", "Phone"),
        phone("Fax", "Fax"),
        derived(lookup("AccountId", "Account ID", "Account", "Account", "Quotes")),
        percent("Discount", "Discount", 18, 2),
        _total("GrandTotal", "Grand Total"),
        *viewed_fields(),
        record_type_field(),
    ),
)

QUOTE_LINE_ITEM = standard_object(
    30,
    "0QL",
    "QuoteLineItem",
    (
        *identity_fields(),
        auto_number("LineNumber", "Line Item Number", "{00000000}"),
        *audit_fields(),
        detail("QuoteId", "Quote ID", "Quote", "Quote", "QuoteLineItems"),
        price_book_entry("QuoteLineItems"),
        product("QuoteLineItems"),
        double("Quantity", "Quantity", 12, 2, required=True),
        currency("UnitPrice", "Sales Price", 18, 2),
        percent("Discount", "Discount", 5, 2),
        text("Description", "Line Item Description", 255),
        date("ServiceDate", "Date"),
        integer("SortOrder", "Sort Order", 9),
        read_only(currency("ListPrice", "List Price", 18, 2)),
        read_only(currency("Subtotal", "Subtotal", 18, 2)),
        read_only(currency("TotalPrice", "Total Price", 18, 2)),
    ),
    label="Quote Line Item",
    named_by="LineNumber",
)
