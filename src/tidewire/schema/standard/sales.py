"""Leads, campaigns and opportunities."""

from __future__ import annotations

from dataclasses import replace

from tidewire.schema.fields import (
    address,
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
    person_name,
    phone,
    picklist,
    read_only,
    required_parent,
    text,
    text_area,
    url,
)
from tidewire.schema.layout import (
    added_from,
    audit_fields,
    identity_fields,
    owner_field,
    record_type_field,
    standard_object,
)
from tidewire.schema.model import Field
from tidewire.schema.standard.choices import (
    CLEAN_STATUSES,
    INDUSTRIES,
    LEAD_SOURCES,
    RATINGS,
    activity_fields,
    contact_role_fields,
    merged_into,
    price_book_entry,
    product,
)
from tidewire.schema.standard.statuses import (
    FORECAST_CATEGORIES,
    FORECAST_CATEGORY_NAMES,
    LEAD_STATUSES,
    OPPORTUNITY_STAGES,
    names_of,
    status_field,
)

OPPORTUNITY = standard_object(
    3,
    "006",
    "Opportunity",
    (
        *identity_fields(),
        lookup("AccountId", "Account ID", "Account", "Account", "Opportunities", delete_constraint="Cascade"),
        checkbox("IsPrivate", "Private"),
        text("Name", "Name", 120, required=True),
        long_text("Description", "Description"),
        picklist("StageName", "Stage", names_of(OPPORTUNITY_STAGES), length=255, required=True),
        currency("Amount", "Amount", 18, 2),
        percent("Probability", "Probability (%)", 3, 0),
        read_only(currency("ExpectedRevenue", "Expected Amount", 18, 2)),
        double("TotalOpportunityQuantity", "Quantity", 18, 2),
        date("CloseDate", "Close Date", required=True),
        picklist(
            "Type",
            "Opportunity Type",
            "Existing Customer - Upgrade;Existing Customer - Replacement;Existing Customer - Downgrade;"
            "New Customer",
            length=255,
        ),
        text("NextStep", "Next Step", 255),
        picklist("LeadSource", "Lead Source", LEAD_SOURCES, length=255),
        read_only(checkbox("IsClosed", "Closed")),
        read_only(checkbox("IsWon", "Won")),
        read_only(picklist("ForecastCategory", "Forecast Category", FORECAST_CATEGORIES, restricted=True)),
        picklist("ForecastCategoryName", "Forecast Category", FORECAST_CATEGORY_NAMES, length=255),
        *added_from(
            29,
            lookup("CampaignId", "Campaign ID", "Campaign", "Campaign", "Opportunities"),
            lookup("Pricebook2Id", "Price Book ID", "Pricebook2", "Pricebook2", "Opportunities"),
            derived(checkbox("HasOpportunityLineItem", "Has Line Item")),
        ),
        owner_field(),
        *audit_fields(),
        *activity_fields(),
        *added_from(
            32,
            replace(
                lookup("ContactId", "Contact ID", "Contact", "Contact", updateable=False),
                in_change_events=False,
            ),
            derived(datetime("LastStageChangeDate", "Last Stage Change Date")),
            derived(integer("FiscalQuarter", "Fiscal Quarter", 9)),
            derived(integer("FiscalYear", "Fiscal Year", 9)),
            derived(text("Fiscal", "Fiscal Period", 6)),
            derived(checkbox("HasOpenActivity", "Has Open Activity")),
            derived(checkbox("HasOverdueTask", "Has Overdue Task")),
        ),
        *added_from(28, record_type_field()),
    ),
    plural="Opportunities",
)

OPPORTUNITY_CONTACT_ROLE = standard_object(
    13,
    "00K",
    "OpportunityContactRole",
    (
        *identity_fields(),
        detail("OpportunityId", "Opportunity ID", "Opportunity", "Opportunity", "OpportunityContactRoles"),
        *contact_role_fields("OpportunityContactRoles"),
        *audit_fields(),
    ),
    label="Opportunity Contact Role",
)

OPPORTUNITY_LINE_ITEM = standard_object(
    46,
    "00k",
    "OpportunityLineItem",
    (
        *identity_fields(),
        detail("OpportunityId", "Opportunity ID", "Opportunity", "Opportunity", "OpportunityLineItems"),
        integer("SortOrder", "Sort Order", 9),
        price_book_entry("OpportunityLineItems", required=False),
        product("OpportunityLineItems"),
        derived(text("ProductCode", "Product Code", 255)),
        read_only(text("Name", "Opportunity Product Name", 376)),
        double("Quantity", "Quantity", 12, 2, required=True),
        currency("TotalPrice", "Total Price", 18, 2),
        currency("UnitPrice", "Sales Price", 18, 2),
        read_only(currency("ListPrice", "List Price", 18, 2)),
        percent("Discount", "Discount", 5, 2),
        date("ServiceDate", "Date"),
        text("Description", "Line Description", 255),
        *audit_fields(),
    ),
    label="Opportunity Product",
)

LEAD = standard_object(
    12,
    "00Q",
    "Lead",
    (
        *identity_fields(),
        merged_into("Lead"),
        *person_name("Full Name", has_salutation=True),
        text("Title", "Title", 128),
        text("Company", "Company", 255, required=True),
        *address(""),
        phone("Phone", "Phone"),
        phone("MobilePhone", "Mobile Phone"),
        phone("Fax", "Fax"),
        email("Email", "Email", 80),
        url("Website", "Website"),
        derived(url("PhotoUrl", "Photo URL")),
        long_text("Description", "Description"),
        picklist("LeadSource", "Lead Source", LEAD_SOURCES, length=255),
        status_field(LEAD_STATUSES, length=255, required=True),
        picklist("Industry", "Industry", INDUSTRIES, length=255),
        picklist("Rating", "Rating", RATINGS, length=255),
        currency("AnnualRevenue", "Annual Revenue", 18, 0),
        integer("NumberOfEmployees", "Employees", 8),
        owner_field("Group", "User"),
        checkbox("HasOptedOutOfEmail", "Email Opt Out"),
        checkbox("IsConverted", "Converted"),
        read_only(date("ConvertedDate", "Converted Date")),
        read_only(lookup("ConvertedAccountId", "Converted Account ID", "Account", "ConvertedAccount")),
        read_only(lookup("ConvertedContactId", "Converted Contact ID", "Contact", "ConvertedContact")),
        read_only(
            lookup(
                "ConvertedOpportunityId", "Converted Opportunity ID", "Opportunity", "ConvertedOpportunity"
            )
        ),
        checkbox("IsUnreadByOwner", "Unread By Owner", default=True),
        *audit_fields(),
        checkbox("DoNotCall", "Do Not Call"),
        checkbox("HasOptedOutOfFax", "Fax Opt Out"),
        text("Jigsaw", "Data.com Key", 20),
        read_only(text("JigsawContactId", "Jigsaw Contact ID", 20)),
        picklist("CleanStatus", "Clean Status", CLEAN_STATUSES, restricted=True),
        text("CompanyDunsNumber", "Company D-U-N-S Number", 9),
        text("EmailBouncedReason", "Email Bounced Reason", 255),
        datetime("EmailBouncedDate", "Email Bounced Date"),
        *activity_fields(),
        record_type_field(),
    ),
    id_lookup="Email",
)

CAMPAIGN = standard_object(
    16,
    "701",
    "Campaign",
    (
        *identity_fields(),
        text("Name", "Name", 80, required=True),
        lookup("ParentId", "Parent Campaign ID", "Campaign", "Parent", "ChildCampaigns"),
        picklist(
            "Type",
            "Type",
            "Conference;Webinar;Trade Show;Public Relations;Partners;Referral Program;Advertisement;"
            "Banner Ads;Direct Mail;Email;Telemarketing;Other",
        ),
        picklist("Status", "Status", "Planned;In Progress;Completed;Aborted", default="Planned"),
        date("StartDate", "Start Date"),
        date("EndDate", "End Date"),
        currency("ExpectedRevenue", "Expected Revenue", 18, 0),
        currency("BudgetedCost", "Budgeted Cost", 18, 0),
        currency("ActualCost", "Actual Cost", 18, 0),
        percent("ExpectedResponse", "Expected Response (%)", 10, 2),
        double("NumberSent", "Num Sent", 18, 0),
        checkbox("IsActive", "Active"),
        long_text("Description", "Description"),
        read_only(integer("NumberOfLeads", "Leads in Campaign", 9, default=0)),
        read_only(integer("NumberOfConvertedLeads", "Converted Leads in Campaign", 9, default=0)),
        read_only(integer("NumberOfContacts", "Contacts in Campaign", 9, default=0)),
        read_only(integer("NumberOfResponses", "Responses in Campaign", 9, default=0)),
        read_only(integer("NumberOfOpportunities", "Opportunities in Campaign", 9, default=0)),
        read_only(integer("NumberOfWonOpportunities", "Won Opportunities in Campaign", 9, default=0)),
        read_only(
            replace(currency("AmountAllOpportunities", "Value Opportunities in Campaign", 18, 0), default=0.0)
        ),
        read_only(
            replace(
                currency("AmountWonOpportunities", "Value Won Opportunities in Campaign", 18, 0), default=0.0
            )
        ),
        owner_field(),
        *audit_fields(),
        lookup(
            "CampaignMemberRecordTypeId", "Campaign Member Type", "RecordType", "CampaignMemberRecordType"
        ),
        *activity_fields(),
        record_type_field(),
    ),
)


def _member(entity: str) -> Field:
    return replace(
        required_parent(f"{entity}Id", f"{entity} ID", entity, entity, "CampaignMembers"), required=False
    )


CAMPAIGN_MEMBER = standard_object(
    17,
    "00v",
    "CampaignMember",
    (
        *identity_fields(),
        detail("CampaignId", "Campaign ID", "Campaign", "Campaign", "CampaignMembers"),
        _member("Lead"),
        _member("Contact"),
        picklist("Status", "Status", "Sent;Responded", default="Sent"),
        read_only(checkbox("HasResponded", "Responded")),
        *audit_fields(),
        read_only(date("FirstRespondedDate", "First Responded Date")),
        derived(text("Name", "Name", 121)),
        derived(picklist("Salutation", "Salutation", "")),
        derived(text("FirstName", "First Name", 40)),
        derived(text("LastName", "Last Name", 80)),
        derived(text("Title", "Title", 128)),
        derived(text_area("Street", "Street")),
        derived(text("City", "City", 40)),
        derived(text("State", "State/Province", 80)),
        derived(text("PostalCode", "Zip/Postal Code", 20)),
        derived(text("Country", "Country", 80)),
        derived(email("Email", "Email", 80)),
        derived(phone("Phone", "Phone")),
        derived(phone("Fax", "Fax")),
        derived(phone("MobilePhone", "Mobile")),
        derived(checkbox("DoNotCall", "Do Not Call")),
        derived(checkbox("HasOptedOutOfEmail", "Email Opt Out")),
        derived(checkbox("HasOptedOutOfFax", "Fax Opt Out")),
        derived(picklist("LeadSource", "Lead Source", "", length=255)),
        derived(text("CompanyOrAccount", "Company (Account)", 255)),
        derived(picklist("Type", "Type", "Contact;Lead")),
        derived(lookup("LeadOrContactId", "Related Record ID", ("Contact", "Lead"), "LeadOrContact")),
        derived(
            lookup("LeadOrContactOwnerId", "Related Record Owner ID", ("Group", "User"), "LeadOrContactOwner")
        ),
    ),
    label="Campaign Member",
)
