"""Accounts, people as accounts, contacts and their roles.

An account that is a person has IsPersonAccount, the Person fields and a name in parts; Name holds the parts joined.
"""

from __future__ import annotations

from dataclasses import replace

from tidewire.schema.fields import (
    SALUTATIONS,
    address,
    checkbox,
    currency,
    date,
    datetime,
    derived,
    detail,
    email,
    integer,
    long_text,
    lookup,
    person_name,
    phone,
    picklist,
    read_only,
    text,
    url,
)
from tidewire.schema.layout import (
    activity_fields,
    added_from,
    audit_fields,
    identity_fields,
    merged_into,
    owner_field,
    record_type_field,
    standard_object,
)
from tidewire.schema.model import Field
from tidewire.schema.standard.choices import (
    CLEAN_STATUSES,
    CONTACT_ROLES,
    INDUSTRIES,
    LEAD_SOURCES,
    RATINGS,
)


def _person_fields() -> tuple[Field, ...]:
    # Events carry the joined Name, so its parts are not there a second time.
    parts = (
        picklist("Salutation", "Salutation", SALUTATIONS),
        text("FirstName", "First Name", 40),
        text("LastName", "Last Name", 80),
    )
    return (
        *(replace(part, in_change_events=False) for part in parts),
        read_only(checkbox("IsPersonAccount", "Is Person Account")),
        read_only(lookup("PersonContactId", "Contact ID", "Contact", "PersonContact")),
        *address("PersonMailing"),
        *address("PersonOther"),
        phone("PersonMobilePhone", "Mobile"),
        phone("PersonHomePhone", "Home Phone"),
        phone("PersonOtherPhone", "Other Phone"),
        phone("PersonAssistantPhone", "Asst. Phone"),
        email("PersonEmail", "Email", 80),
        text("PersonTitle", "Title", 80),
        text("PersonDepartment", "Department", 80),
        text("PersonAssistantName", "Assistant", 40),
        picklist("PersonLeadSource", "Lead Source", LEAD_SOURCES, length=255),
        date("PersonBirthdate", "Birthdate"),
        checkbox("PersonHasOptedOutOfEmail", "Email Opt Out"),
        checkbox("PersonHasOptedOutOfFax", "Fax Opt Out"),
        checkbox("PersonDoNotCall", "Do Not Call"),
        text("PersonEmailBouncedReason", "Email Bounced Reason", 255),
        datetime("PersonEmailBouncedDate", "Email Bounced Date"),
    )


ACCOUNT = standard_object(
    1,
    "001",
    "Account",
    "Accounts",
    (
        *identity_fields(),
        text("Name", "Account Name", 255, required=True),
        picklist(
            "Type",
            "Account Type",
            "Prospect;Customer - Direct;Customer - Channel;Channel Partner / Reseller;Installation Partner;"
            "Technology Partner;Other",
        ),
        lookup("ParentId", "Parent Account ID", "Account", "Parent", "ChildAccounts"),
        *address("Billing"),
        *address("Shipping"),
        phone("Phone", "Account Phone"),
        phone("Fax", "Account Fax"),
        text("AccountNumber", "Account Number", 40),
        url("Website", "Website"),
        text("Sic", "SIC Code", 20),
        picklist("Industry", "Industry", INDUSTRIES),
        currency("AnnualRevenue", "Annual Revenue", 18, 0),
        integer("NumberOfEmployees", "Employees", 8),
        picklist("Ownership", "Ownership", "Public;Private;Subsidiary;Other"),
        text("TickerSymbol", "Ticker Symbol", 20),
        long_text("Description", "Account Description"),
        picklist("Rating", "Account Rating", RATINGS),
        text("Site", "Account Site", 80),
        owner_field(),
        *audit_fields(),
        text("Jigsaw", "Data.com Key", 20),
        read_only(text("JigsawCompanyId", "Jigsaw Company ID", 20)),
        picklist("CleanStatus", "Clean Status", CLEAN_STATUSES, restricted=True),
        picklist("AccountSource", "Account Source", LEAD_SOURCES),
        text("DunsNumber", "D-U-N-S Number", 9),
        text("Tradestyle", "Tradestyle", 255),
        text("NaicsCode", "NAICS Code", 8),
        text("NaicsDesc", "NAICS Description", 120),
        text("YearStarted", "Year Started", 4),
        text("SicDesc", "SIC Description", 80),
        *activity_fields(),
        *added_from(
            54,
            merged_into("Account"),
            derived(url("PhotoUrl", "Photo URL")),
            derived(checkbox("IsCustomerPortal", "Customer Portal Account")),
            derived(checkbox("IsPartner", "Partner Account")),
        ),
        *added_from(53, record_type_field()),
        *added_from(58, *_person_fields()),
    ),
)

CONTACT = standard_object(
    2,
    "003",
    "Contact",
    "Contacts",
    (
        *identity_fields(),
        lookup("AccountId", "Account ID", "Account", "Account", "Contacts", delete_constraint="Cascade"),
        *person_name("Full Name", has_salutation=True, column="c53"),
        *address("Other"),
        *address("Mailing"),
        phone("Phone", "Business Phone"),
        phone("Fax", "Business Fax"),
        phone("MobilePhone", "Mobile Phone"),
        phone("HomePhone", "Home Phone"),
        phone("OtherPhone", "Other Phone"),
        phone("AssistantPhone", "Asst. Phone"),
        lookup("ReportsToId", "Reports To ID", "Contact", "ReportsTo"),
        email("Email", "Email", 80),
        text("Title", "Title", 128),
        text("Department", "Department", 80),
        text("AssistantName", "Assistant's Name", 40),
        picklist("LeadSource", "Lead Source", LEAD_SOURCES, length=255),
        date("Birthdate", "Birthdate"),
        long_text("Description", "Contact Description"),
        owner_field(),
        checkbox("HasOptedOutOfEmail", "Email Opt Out"),
        checkbox("HasOptedOutOfFax", "Fax Opt Out"),
        checkbox("DoNotCall", "Do Not Call"),
        *audit_fields(),
        text("EmailBouncedReason", "Email Bounced Reason", 255),
        datetime("EmailBouncedDate", "Email Bounced Date"),
        text("Jigsaw", "Data.com Key", 20),
        read_only(text("JigsawContactId", "Jigsaw Contact ID", 20)),
        picklist("CleanStatus", "Clean Status", CLEAN_STATUSES, restricted=True),
        *activity_fields(),
        *added_from(
            55,
            merged_into("Contact"),
            derived(url("PhotoUrl", "Photo URL")),
            derived(checkbox("IsEmailBounced", "Is Email Bounced")),
            derived(checkbox("IsPersonAccount", "Is Person Account")),
        ),
        *added_from(54, record_type_field()),
    ),
)

ACCOUNT_CONTACT_ROLE = standard_object(
    14,
    "02Z",
    "AccountContactRole",
    "Account Contact Roles",
    (
        *identity_fields(),
        *audit_fields(),
        detail("AccountId", "Account ID", "Account", "Account", "AccountContactRoles"),
        lookup(
            "ContactId",
            "Contact ID",
            "Contact",
            "Contact",
            "AccountContactRoles",
            required=True,
            delete_constraint="Cascade",
        ),
        picklist("Role", "Role", CONTACT_ROLES),
        checkbox("IsPrimary", "Primary"),
    ),
    label="Account Contact Role",
)
