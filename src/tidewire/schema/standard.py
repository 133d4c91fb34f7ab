"""The objects every org has. Their layout only ever grows: see `tidewire.schema.layout`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidewire.schema.fields import (
    address,
    checkbox,
    currency,
    date,
    datetime,
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
    text,
    url,
)
from tidewire.schema.layout import (
    FIRST_ADDED_COLUMN,
    FIRST_CUSTOM_TABLE,
    add_fields,
    audit_fields,
    custom_object,
    identity_fields,
    owner_field,
    standard_object,
)
from tidewire.schema.model import Field, ObjectType

__all__ = [
    "FIRST_ADDED_COLUMN",
    "FIRST_CUSTOM_TABLE",
    "OPPORTUNITY_STAGES",
    "STANDARD_OBJECTS",
    "OpportunityStage",
    "add_fields",
    "custom_object",
]


@dataclass(frozen=True, slots=True)
class OpportunityStage:
    """What a stage says about an opportunity; other fields follow from it."""

    name: str
    probability: float
    forecast_category: str
    forecast_category_name: str
    is_closed: bool = False
    is_won: bool = False


OPPORTUNITY_STAGES = (
    OpportunityStage("Prospecting", 10.0, "Pipeline", "Pipeline"),
    OpportunityStage("Qualification", 10.0, "Pipeline", "Pipeline"),
    OpportunityStage("Needs Analysis", 20.0, "Pipeline", "Pipeline"),
    OpportunityStage("Value Proposition", 50.0, "Pipeline", "Pipeline"),
    OpportunityStage("Id. Decision Makers", 60.0, "Pipeline", "Pipeline"),
    OpportunityStage("Perception Analysis", 70.0, "Pipeline", "Pipeline"),
    OpportunityStage("Proposal/Price Quote", 75.0, "Pipeline", "Pipeline"),
    OpportunityStage("Negotiation/Review", 90.0, "Pipeline", "Pipeline"),
    OpportunityStage("Closed Won", 100.0, "Closed", "Closed", is_closed=True, is_won=True),
    OpportunityStage("Closed Lost", 0.0, "Omitted", "Omitted", is_closed=True),
)

_INDUSTRIES = (
    "Agriculture;Apparel;Banking;Biotechnology;Chemicals;Communications;Construction;Consulting;Education;"
    "Electronics;Energy;Engineering;Entertainment;Environmental;Finance;Food & Beverage;Government;"
    "Healthcare;Hospitality;Insurance;Machinery;Manufacturing;Media;Not For Profit;Recreation;Retail;"
    "Shipping;Technology;Telecommunications;Transportation;Utilities;Other"
)
_LEAD_SOURCES = "Web;Phone Inquiry;Partner Referral;Purchased List;Other"
_CLEAN_STATUSES = "Pending;Matched;Different;Acknowledged;NotFound;Inactive;SelectMatch;Skipped"
_TIME_ZONES = (
    "GMT;America/Los_Angeles;America/New_York;Europe/London;Europe/Paris;Asia/Tokyo;Australia/Sydney"
)
_LOCALES = "en_US;en_GB;de_DE;fr_FR;es_ES;it_IT;ja_JP;nl_NL;pt_BR;sv_SE"
_LANGUAGES = "en_US;de;es;fr;it;ja;sv;ko;zh_TW;zh_CN;pt_BR;nl_NL;da;th;fi;ru;es_MX;no"
_ENCODINGS = "UTF-8;ISO-8859-1;Shift_JIS;ISO-2022-JP;EUC-JP;ks_c_5601-1987;Big5;GB2312;Big5-HKSCS;x-SJIS_0213"


def _activity() -> tuple[Field, ...]:
    return tuple(
        replace(read_only(f), in_change_events=False)
        for f in (
            date("LastActivityDate", "Last Activity"),
            datetime("LastViewedDate", "Last Viewed Date"),
            datetime("LastReferencedDate", "Last Referenced Date"),
        )
    )


def _permissions() -> tuple[Field, ...]:
    return (
        checkbox("PermissionsViewAllData", "View All Data"),
        checkbox("PermissionsModifyAllData", "Modify All Data"),
        checkbox("PermissionsViewAllUsers", "View All Users"),
        checkbox("PermissionsViewSetup", "View Setup and Configuration"),
        checkbox("PermissionsCustomizeApplication", "Customize Application"),
        checkbox("PermissionsAuthorApex", "Author Apex"),
        checkbox("PermissionsApiEnabled", "API Enabled"),
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
        picklist("Industry", "Industry", _INDUSTRIES),
        currency("AnnualRevenue", "Annual Revenue", 18, 0),
        integer("NumberOfEmployees", "Employees", 8),
        picklist("Ownership", "Ownership", "Public;Private;Subsidiary;Other"),
        text("TickerSymbol", "Ticker Symbol", 20),
        long_text("Description", "Account Description"),
        picklist("Rating", "Account Rating", "Hot;Warm;Cold"),
        text("Site", "Account Site", 80),
        owner_field(),
        *audit_fields(),
        text("Jigsaw", "Data.com Key", 20),
        read_only(text("JigsawCompanyId", "Jigsaw Company ID", 20)),
        picklist("CleanStatus", "Clean Status", _CLEAN_STATUSES, restricted=True),
        picklist("AccountSource", "Account Source", _LEAD_SOURCES),
        text("DunsNumber", "D-U-N-S Number", 9),
        text("Tradestyle", "Tradestyle", 255),
        text("NaicsCode", "NAICS Code", 8),
        text("NaicsDesc", "NAICS Description", 120),
        text("YearStarted", "Year Started", 4),
        text("SicDesc", "SIC Description", 80),
        *_activity(),
    ),
)

CONTACT = standard_object(
    2,
    "003",
    "Contact",
    "Contacts",
    (
        *identity_fields(),
        lookup("AccountId", "Account ID", "Account", "Account", "Contacts"),
        *person_name("Full Name", has_salutation=True),
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
        picklist("LeadSource", "Lead Source", _LEAD_SOURCES, length=255),
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
        picklist("CleanStatus", "Clean Status", _CLEAN_STATUSES, restricted=True),
        *_activity(),
    ),
)

OPPORTUNITY = standard_object(
    3,
    "006",
    "Opportunity",
    "Opportunities",
    (
        *identity_fields(),
        lookup("AccountId", "Account ID", "Account", "Account", "Opportunities"),
        checkbox("IsPrivate", "Private"),
        text("Name", "Name", 120, required=True),
        long_text("Description", "Description"),
        picklist(
            "StageName",
            "Stage",
            ";".join(stage.name for stage in OPPORTUNITY_STAGES),
            length=255,
            required=True,
        ),
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
        picklist("LeadSource", "Lead Source", _LEAD_SOURCES, length=255),
        read_only(checkbox("IsClosed", "Closed")),
        read_only(checkbox("IsWon", "Won")),
        read_only(
            picklist(
                "ForecastCategory",
                "Forecast Category",
                "Omitted;Pipeline;BestCase;MostLikely;Forecast;Closed",
                restricted=True,
            )
        ),
        picklist(
            "ForecastCategoryName",
            "Forecast Category",
            "Omitted;Pipeline;Best Case;Most Likely;Commit;Closed",
            length=255,
        ),
        owner_field(),
        *audit_fields(),
        *_activity(),
    ),
)

USER = standard_object(
    4,
    "005",
    "User",
    "Users",
    (
        *identity_fields(has_is_deleted=False),
        text("Username", "Username", 80, required=True, unique=True),
        *person_name("Full Name", has_salutation=False),
        text("CompanyName", "Company Name", 80),
        text("Division", "Division", 80),
        text("Department", "Department", 80),
        text("Title", "Title", 80),
        *address(""),
        email("Email", "Email", 128, required=True),
        phone("Phone", "Phone"),
        phone("Fax", "Fax"),
        phone("MobilePhone", "Mobile"),
        phone("Extension", "Extension"),
        text("Alias", "Alias", 8, required=True),
        text("CommunityNickname", "Nickname", 40),
        checkbox("IsActive", "Active", default=True),
        picklist("TimeZoneSidKey", "Time Zone", _TIME_ZONES, required=True),
        picklist("LocaleSidKey", "Locale", _LOCALES, required=True),
        picklist("EmailEncodingKey", "Email Encoding", _ENCODINGS, required=True, restricted=True),
        picklist("LanguageLocaleKey", "Language", _LANGUAGES, required=True, restricted=True),
        lookup("ProfileId", "Profile ID", "Profile", "Profile", "Users", required=True),
        lookup("ManagerId", "Manager ID", "User", "Manager"),
        text("EmployeeNumber", "Employee Number", 20),
        text("FederationIdentifier", "SAML Federation ID", 512),
        read_only(picklist("UserType", "User Type", "Standard", default="Standard")),
        replace(read_only(datetime("LastLoginDate", "Last Login")), in_change_events=False),
        long_text("AboutMe", "About Me", 1000),
        *audit_fields(),
    ),
    deletable=False,
)

PROFILE = standard_object(
    5,
    "00e",
    "Profile",
    "Profiles",
    (
        *identity_fields(),
        text("Name", "Name", 255, required=True, unique=True),
        text("Description", "Description", 255),
        *_permissions(),
        *audit_fields(),
    ),
    is_setup=True,
)

PERMISSION_SET = standard_object(
    6,
    "0PS",
    "PermissionSet",
    "Permission Sets",
    (
        *identity_fields(),
        text("Name", "Permission Set Name", 80, required=True, unique=True),
        text("Label", "Permission Set Label", 80, required=True),
        text("Description", "Description", 255),
        read_only(checkbox("IsOwnedByProfile", "Is Owned By Profile")),
        read_only(lookup("ProfileId", "Profile ID", "Profile", "Profile")),
        *_permissions(),
        *audit_fields(),
    ),
    label="Permission Set",
    is_setup=True,
)

PERMISSION_SET_ASSIGNMENT = standard_object(
    7,
    "0Pa",
    "PermissionSetAssignment",
    "Permission Set Assignments",
    (
        *identity_fields(),
        lookup(
            "PermissionSetId",
            "PermissionSet ID",
            "PermissionSet",
            "PermissionSet",
            "Assignments",
            required=True,
            updateable=False,
        ),
        lookup(
            "AssigneeId",
            "Assignee ID",
            "User",
            "Assignee",
            "PermissionSetAssignments",
            required=True,
            updateable=False,
        ),
        *audit_fields(),
    ),
    label="Permission Set Assignment",
    is_setup=True,
)

OBJECT_PERMISSIONS = standard_object(
    8,
    "110",
    "ObjectPermissions",
    "Object Permissions",
    (
        *identity_fields(),
        lookup(
            "ParentId", "Parent ID", "PermissionSet", "Parent", "ObjectPerms", required=True, updateable=False
        ),
        picklist("SobjectType", "SObject Type Name", "", length=80, required=True, updateable=False),
        checkbox("PermissionsCreate", "Create Records"),
        checkbox("PermissionsRead", "Read Records"),
        checkbox("PermissionsEdit", "Edit Records"),
        checkbox("PermissionsDelete", "Delete Records"),
        checkbox("PermissionsViewAllRecords", "Read All Records"),
        checkbox("PermissionsModifyAllRecords", "Edit All Records"),
        *audit_fields(),
    ),
    label="Object Permissions",
    is_setup=True,
)

FIELD_PERMISSIONS = standard_object(
    9,
    "01k",
    "FieldPermissions",
    "Field Permissions",
    (
        *identity_fields(),
        lookup(
            "ParentId", "Parent ID", "PermissionSet", "Parent", "FieldPerms", required=True, updateable=False
        ),
        picklist("SobjectType", "SObject Type Name", "", length=80, required=True, updateable=False),
        picklist("Field", "Field Name", "", length=255, required=True, updateable=False),
        checkbox("PermissionsRead", "Read Field"),
        checkbox("PermissionsEdit", "Edit Field"),
        *audit_fields(),
    ),
    label="Field Permissions",
    is_setup=True,
)

ORGANIZATION = standard_object(
    10,
    "00D",
    "Organization",
    "Organizations",
    (
        *identity_fields(has_is_deleted=False),
        text("Name", "Name", 80, required=True),
        text("Division", "Division", 80),
        *address(""),
        phone("Phone", "Phone"),
        phone("Fax", "Fax"),
        text("PrimaryContact", "Primary Contact", 80),
        picklist("DefaultLocaleSidKey", "Locale", _LOCALES, default="en_US"),
        picklist("TimeZoneSidKey", "Time Zone", _TIME_ZONES, default="GMT"),
        picklist("LanguageLocaleKey", "Language", _LANGUAGES, restricted=True, default="en_US"),
        integer("FiscalYearStartMonth", "Fiscal Year Starts In", 2, default=1),
        read_only(
            picklist(
                "OrganizationType",
                "Edition",
                "Developer Edition;Professional Edition;Enterprise Edition;Unlimited Edition;"
                "Performance Edition",
                default="Developer Edition",
            )
        ),
        read_only(text("NamespacePrefix", "Namespace Prefix", 15)),
        read_only(text("InstanceName", "Instance Name", 5)),
        read_only(checkbox("IsSandbox", "Is Sandbox")),
        read_only(datetime("TrialExpirationDate", "Trial Expiration Date")),
        *audit_fields(),
    ),
    is_setup=True,
    createable=False,
    deletable=False,
)

PUSH_TOPIC = standard_object(
    11,
    "0IF",
    "PushTopic",
    "Push Topics",
    (
        *identity_fields(),
        text("Name", "Topic Name", 25, required=True, unique=True),
        text("Query", "SOQL Query", 1300, required=True),
        double("ApiVersion", "API Version", 4, 1, required=True),
        checkbox("IsActive", "Is Active", default=True),
        picklist(
            "NotifyForFields",
            "Notify For Fields",
            "Referenced;Select;Where;All",
            restricted=True,
            default="Referenced",
        ),
        picklist(
            "NotifyForOperations", "Notify For Operations", "All;Create;Extended;Update", restricted=True
        ),
        checkbox("NotifyForOperationCreate", "Create", default=True),
        checkbox("NotifyForOperationUpdate", "Update", default=True),
        checkbox("NotifyForOperationDelete", "Delete", default=True),
        checkbox("NotifyForOperationUndelete", "Undelete", default=True),
        text("Description", "Description", 400),
        *audit_fields(),
    ),
    label="Push Topic",
    is_setup=True,
)

STANDARD_OBJECTS: tuple[ObjectType, ...] = (
    ACCOUNT,
    CONTACT,
    OPPORTUNITY,
    USER,
    PROFILE,
    PERMISSION_SET,
    PERMISSION_SET_ASSIGNMENT,
    OBJECT_PERMISSIONS,
    FIELD_PERMISSIONS,
    ORGANIZATION,
    PUSH_TOPIC,
)
"""In the order of their table numbers."""
