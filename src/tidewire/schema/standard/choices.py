"""Fields and picklist values that several standard objects share; the values are joined by `;`."""

from __future__ import annotations

from tidewire.schema.fields import checkbox, date, derived, lookup, picklist, required_parent
from tidewire.schema.layout import viewed_fields
from tidewire.schema.model import Field

INDUSTRIES = (
    "Agriculture;Apparel;Banking;Biotechnology;Chemicals;Communications;Construction;Consulting;Education;"
    "Electronics;Energy;Engineering;Entertainment;Environmental;Finance;Food & Beverage;Government;"
    "Healthcare;Hospitality;Insurance;Machinery;Manufacturing;Media;Not For Profit;Recreation;Retail;"
    "Shipping;Technology;Telecommunications;Transportation;Utilities;Other"
)
LEAD_SOURCES = "Web;Phone Inquiry;Partner Referral;Purchased List;Other"
RATINGS = "Hot;Warm;Cold"
CLEAN_STATUSES = "Pending;Matched;Different;Acknowledged;NotFound;Inactive;SelectMatch;Skipped"
CONTACT_ROLES = (
    "Business User;Decision Maker;Economic Buyer;Economic Decision Maker;Evaluator;Executive Sponsor;"
    "Influencer;Technical Buyer;Other"
)
TIME_ZONES = "GMT;America/Los_Angeles;America/New_York;Europe/London;Europe/Paris;Asia/Tokyo;Australia/Sydney"
LOCALES = "en_US;en_GB;de_DE;fr_FR;es_ES;it_IT;ja_JP;nl_NL;pt_BR;sv_SE"
LANGUAGES = "en_US;de;es;fr;it;ja;sv;ko;zh_TW;zh_CN;pt_BR;nl_NL;da;th;fi;ru;es_MX;no"
ENCODINGS = "UTF-8;ISO-8859-1;Shift_JIS;ISO-2022-JP;EUC-JP;ks_c_5601-1987;Big5;GB2312;Big5-HKSCS;x-SJIS_0213"


def merged_into(entity: str) -> Field:
    """Return the field with the record, of the same object, that this one was merged into."""
    return derived(lookup("MasterRecordId", "Master Record ID", entity, "MasterRecord"))


def contact_role_fields(child_relationship_name: str) -> tuple[Field, ...]:
    """Return the contact of a role, what the role is, and whether it is the primary one."""
    return (
        required_parent(
            "ContactId", "Contact ID", "Contact", "Contact", child_relationship_name, updateable=True
        ),
        picklist("Role", "Role", CONTACT_ROLES),
        checkbox("IsPrimary", "Primary"),
    )


def price_book_entry(child_relationship_name: str, *, required: bool = True) -> Field:
    """Return the field with the price book entry that a line item sells."""
    return lookup(
        "PricebookEntryId",
        "Price Book Entry ID",
        "PricebookEntry",
        "PricebookEntry",
        child_relationship_name,
        required=required,
        updateable=False,
        delete_constraint="Restrict",
    )


def product(child_relationship_name: str) -> Field:
    """Return the field with the product that a line item sells."""
    return lookup(
        "Product2Id", "Product ID", "Product2", "Product2", child_relationship_name, updateable=False
    )


def activity_fields() -> tuple[Field, ...]:
    """Return the fields with the dates of the last activity and of the last view."""
    return (derived(date("LastActivityDate", "Last Activity")), *viewed_fields())
