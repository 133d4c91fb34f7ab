"""The organization, its users, and the objects that grant access."""

from __future__ import annotations

from dataclasses import replace

from tidewire.schema.fields import (
    address,
    checkbox,
    datetime,
    derived,
    email,
    integer,
    long_text,
    lookup,
    person_name,
    phone,
    picklist,
    read_only,
    required_parent,
    text,
    url,
)
from tidewire.schema.layout import added_from, audit_fields, identity_fields, standard_object
from tidewire.schema.model import Field
from tidewire.schema.standard.choices import ENCODINGS, LANGUAGES, LOCALES, TIME_ZONES

_ACCESS_LEVELS = "None;Read;Edit;ControlledByParent"


def _permissions(added_column: int) -> tuple[Field, ...]:
    return (
        checkbox("PermissionsViewAllData", "View All Data"),
        checkbox("PermissionsModifyAllData", "Modify All Data"),
        checkbox("PermissionsViewAllUsers", "View All Users"),
        checkbox("PermissionsViewSetup", "View Setup and Configuration"),
        checkbox("PermissionsCustomizeApplication", "Customize Application"),
        checkbox("PermissionsAuthorApex", "Author Apex"),
        checkbox("PermissionsApiEnabled", "API Enabled"),
        *added_from(
            added_column,
            checkbox("PermissionsManageUsers", "Manage Internal Users"),
            checkbox("PermissionsManageEncryptionKeys", "Manage Encryption Keys"),
            checkbox("PermissionsBulkApiHardDelete", "Bulk API Hard Delete"),
            checkbox("PermissionsManageDataIntegrations", "Manage Data Integrations"),
            checkbox("PermissionsViewRealTimeEventMonitoringData", "View Real-Time Event Monitoring Data"),
            checkbox("PermissionsTransferAnyEntity", "Transfer Record"),
            checkbox("PermissionsTransferAnyLead", "Transfer Leads"),
            checkbox("PermissionsTransferAnyCase", "Transfer Cases"),
        ),
    )


def _user_settings() -> tuple[Field, ...]:
    # Change events carry the enabled permissions and preferences as lists, not a field each.
    flags = (
        checkbox("UserPermissionsMarketingUser", "Marketing User"),
        checkbox("UserPermissionsOfflineUser", "Offline User"),
        checkbox("UserPermissionsSFContentUser", "Content User"),
        checkbox("UserPermissionsKnowledgeUser", "Knowledge User"),
        checkbox("UserPermissionsInteractionUser", "Flow User"),
        checkbox("UserPermissionsSupportUser", "Service Cloud User"),
        checkbox("UserPreferencesActivityRemindersPopup", "Activity Reminders Popup"),
        checkbox("UserPreferencesEventRemindersCheckboxDefault", "Event Reminders By Default"),
        checkbox("UserPreferencesTaskRemindersCheckboxDefault", "Task Reminders By Default"),
        checkbox("UserPreferencesReminderSoundOff", "Reminder Sound Off"),
        checkbox("EmailPreferencesAutoBcc", "Auto Bcc"),
        checkbox("EmailPreferencesStayInTouchReminder", "Stay-in-Touch Reminder"),
    )
    return (
        checkbox("ReceivesInfoEmails", "Info Emails"),
        checkbox("ReceivesAdminInfoEmails", "Admin Info Emails"),
        checkbox("ForecastEnabled", "Allow Forecasting"),
        picklist(
            "DigestFrequency", "Chatter Email Highlights Frequency", "D;W;N", restricted=True, default="D"
        ),
        picklist(
            "DefaultGroupNotificationFrequency",
            "Default Notification Frequency when Joining Groups",
            "P;D;W;N",
            restricted=True,
            default="N",
        ),
        derived(url("SmallPhotoUrl", "Photo")),
        derived(url("FullPhotoUrl", "Url for full-sized Photo")),
        replace(lookup("ContactId", "Contact ID", "Contact", "Contact", "Users"), in_change_events=False),
        derived(lookup("AccountId", "Account ID", "Account", "Account", "Users")),
        *(replace(flag, in_change_events=False) for flag in flags),
    )


def _later_user_settings() -> tuple[Field, ...]:
    flags = (
        checkbox("UserPreferencesDisableLikeEmail", "Disable Like Email"),
        checkbox("UserPreferencesSortFeedByComment", "Sort Feed By Comment"),
        checkbox("UserPreferencesShowTitleToExternalUsers", "Show Title To External Users"),
        checkbox("UserPreferencesLightningExperiencePreferred", "Lightning Experience Preferred"),
        checkbox("UserPreferencesHideSfxWelcomeMat", "Hide Welcome Mat"),
    )
    return (
        *(replace(flag, in_change_events=False) for flag in flags),
        read_only(checkbox("IsProfilePhotoActive", "Has Profile Photo")),
        read_only(checkbox("IsSystemControlled", "Is System Controlled")),
    )


def _org_settings() -> tuple[Field, ...]:
    access = tuple(
        read_only(picklist(f"Default{name}Access", f"Default {label} Access", _ACCESS_LEVELS, default="Edit"))
        for name, label in (
            ("Account", "Account"),
            ("Contact", "Contact"),
            ("Opportunity", "Opportunity"),
            ("Lead", "Lead"),
            ("Case", "Case"),
            ("Calendar", "Calendar"),
            ("Pricebook", "Price Book"),
            ("Campaign", "Campaign"),
        )
    )
    return (
        *access,
        checkbox("ReceivesInfoEmails", "Info Emails"),
        checkbox("ReceivesAdminInfoEmails", "Admin Info Emails"),
        checkbox("UsesStartDateAsFiscalYearName", "Fiscal Year Name by Start"),
        email("ComplianceBccEmail", "Compliance BCC Email", 80),
        picklist("UiSkin", "UI Skin", "Theme3", default="Theme3"),
        read_only(checkbox("IsReadOnly", "Is Read Only")),
        read_only(text("WebToCaseDefaultOrigin", "Web to Cases Default Origin", 40)),
        read_only(integer("MonthlyPageViewsUsed", "Monthly Page Views Used", 9)),
        read_only(integer("MonthlyPageViewsEntitlement", "Monthly Page Views Allowed", 9)),
    )


USER = standard_object(
    4,
    "005",
    "User",
    (
        *identity_fields(has_is_deleted=False),
        text("Username", "Username", 80, required=True, unique=True),
        *person_name("Full Name", has_salutation=False, column="c40"),
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
        picklist("TimeZoneSidKey", "Time Zone", TIME_ZONES, required=True),
        picklist("LocaleSidKey", "Locale", LOCALES, required=True),
        picklist("EmailEncodingKey", "Email Encoding", ENCODINGS, required=True, restricted=True),
        picklist("LanguageLocaleKey", "Language", LANGUAGES, required=True, restricted=True),
        lookup(
            "ProfileId",
            "Profile ID",
            "Profile",
            "Profile",
            "Users",
            required=True,
            delete_constraint="Restrict",
        ),
        *added_from(41, lookup("UserRoleId", "Role ID", "UserRole", "UserRole", "Users")),
        lookup("ManagerId", "Manager ID", "User", "Manager", "ManagedUsers"),
        text("EmployeeNumber", "Employee Number", 20),
        text("FederationIdentifier", "SAML Federation ID", 512),
        read_only(picklist("UserType", "User Type", "Standard", default="Standard")),
        derived(datetime("LastLoginDate", "Last Login")),
        long_text("AboutMe", "About Me", 1000),
        *audit_fields(),
        *added_from(42, *_user_settings()),
        *added_from(63, *_later_user_settings()),
        *added_from(
            70,
            replace(
                derived(datetime("LastPasswordChangeDate", "Last Password Change or Reset")),
                in_change_events=False,
            ),
        ),
    ),
    deletable=False,
    id_lookup="Username",
)

PROFILE = standard_object(
    5,
    "00e",
    "Profile",
    (
        *identity_fields(),
        text("Name", "Name", 255, required=True, unique=True),
        text("Description", "Description", 255),
        *_permissions(16),
        *audit_fields(),
    ),
    is_setup=True,
)

PERMISSION_SET = standard_object(
    6,
    "0PS",
    "PermissionSet",
    (
        *identity_fields(),
        text("Name", "Permission Set Name", 80, required=True, unique=True),
        text("Label", "Permission Set Label", 80, required=True),
        text("Description", "Description", 255),
        read_only(checkbox("IsOwnedByProfile", "Is Owned By Profile")),
        read_only(lookup("ProfileId", "Profile ID", "Profile", "Profile", delete_constraint="Cascade")),
        *_permissions(19),
        *audit_fields(),
    ),
    label="Permission Set",
    is_setup=True,
)

PERMISSION_SET_ASSIGNMENT = standard_object(
    7,
    "0Pa",
    "PermissionSetAssignment",
    (
        *identity_fields(),
        required_parent(
            "PermissionSetId", "PermissionSet ID", "PermissionSet", "PermissionSet", "Assignments"
        ),
        required_parent("AssigneeId", "Assignee ID", "User", "Assignee", "PermissionSetAssignments"),
        *audit_fields(),
    ),
    label="Permission Set Assignment",
    is_setup=True,
)

OBJECT_PERMISSIONS = standard_object(
    8,
    "110",
    "ObjectPermissions",
    (
        *identity_fields(),
        required_parent("ParentId", "Parent ID", "PermissionSet", "Parent", "ObjectPerms"),
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
    plural="Object Permissions",
    is_setup=True,
)

FIELD_PERMISSIONS = standard_object(
    9,
    "01k",
    "FieldPermissions",
    (
        *identity_fields(),
        required_parent("ParentId", "Parent ID", "PermissionSet", "Parent", "FieldPerms"),
        picklist("SobjectType", "SObject Type Name", "", length=80, required=True, updateable=False),
        picklist("Field", "Field Name", "", length=255, required=True, updateable=False),
        checkbox("PermissionsRead", "Read Field"),
        checkbox("PermissionsEdit", "Edit Field"),
        *audit_fields(),
    ),
    label="Field Permissions",
    plural="Field Permissions",
    is_setup=True,
)

ORGANIZATION = standard_object(
    10,
    "00D",
    "Organization",
    (
        *identity_fields(has_is_deleted=False),
        text("Name", "Name", 80, required=True),
        text("Division", "Division", 80),
        *address(""),
        phone("Phone", "Phone"),
        phone("Fax", "Fax"),
        text("PrimaryContact", "Primary Contact", 80),
        picklist("DefaultLocaleSidKey", "Locale", LOCALES, default="en_US"),
        picklist("TimeZoneSidKey", "Time Zone", TIME_ZONES, default="GMT"),
        picklist("LanguageLocaleKey", "Language", LANGUAGES, restricted=True, default="en_US"),
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
        *added_from(28, *_org_settings()),
    ),
    is_setup=True,
    createable=False,
    deletable=False,
)

GROUP = standard_object(
    36,
    "00G",
    "Group",
    (
        *identity_fields(),
        text("Name", "Name", 40, required=True),
        text("DeveloperName", "Developer Name", 80),
        picklist(
            "Type",
            "Type",
            "Regular;Queue;Role;RoleAndSubordinates;Organization",
            restricted=True,
            required=True,
            updateable=False,
            default="Regular",
        ),
        email("Email", "Email", 255),
        checkbox("DoesSendEmailToMembers", "Send Email to Members"),
        checkbox("DoesIncludeBosses", "Include Bosses", default=True),
        lookup("RelatedId", "Related ID", "UserRole", "Related"),
        *audit_fields(),
    ),
    is_setup=True,
)

GROUP_MEMBER = standard_object(
    47,
    "011",
    "GroupMember",
    (
        *identity_fields(),
        required_parent("GroupId", "Group ID", "Group", "Group", "GroupMembers"),
        required_parent("UserOrGroupId", "User/Group ID", ("Group", "User"), "UserOrGroup"),
        *audit_fields(),
    ),
    label="Group Member",
    is_setup=True,
)

QUEUE_SOBJECT = standard_object(
    48,
    "03g",
    "QueueSobject",
    (
        *identity_fields(),
        picklist("SobjectType", "SObject Type", "", length=80, required=True, updateable=False),
        required_parent("QueueId", "Group ID", "Group", "Queue", "QueueSobjects"),
        *audit_fields(),
    ),
    label="Queue sObject",
    is_setup=True,
)

USER_ROLE = standard_object(
    37,
    "00E",
    "UserRole",
    (
        *identity_fields(),
        text("Name", "Name", 80, required=True),
        lookup("ParentRoleId", "Parent Role ID", "UserRole", "ParentRole", "ChildRoles"),
        text("RollupDescription", "Description", 80),
        text("DeveloperName", "Developer Name", 80),
        picklist(
            "OpportunityAccessForAccountOwner", "Opportunity Access Level", "None;Read;Edit", default="None"
        ),
        picklist("CaseAccessForAccountOwner", "Case Access Level", "None;Read;Edit", default="None"),
        picklist("ContactAccessForAccountOwner", "Contact Access Level", "None;Read;Edit", default="None"),
        *audit_fields(),
    ),
    label="Role",
    is_setup=True,
)

RECORD_TYPE = standard_object(
    38,
    "012",
    "RecordType",
    (
        *identity_fields(),
        text("Name", "Name", 80, required=True),
        text("DeveloperName", "Record Type Name", 80, required=True),
        read_only(text("NamespacePrefix", "Namespace Prefix", 15)),
        text("Description", "Description", 255),
        picklist("SobjectType", "SObject Type Name", "", length=80, required=True, updateable=False),
        checkbox("IsActive", "Active", default=True),
        checkbox("IsPersonType", "Is Person Type"),
        *audit_fields(),
    ),
    label="Record Type",
    is_setup=True,
)

USER_LOGIN = standard_object(
    49,
    "0Yw",
    "UserLogin",
    (
        *identity_fields(has_is_deleted=False),
        read_only(lookup("UserId", "User ID", "User", "User")),
        checkbox("IsFrozen", "Frozen"),
        checkbox("IsPasswordLocked", "Password Locked"),
        *audit_fields(),
    ),
    label="User Login",
    is_setup=True,
    createable=False,
    deletable=False,
)

SHARE_PREFIXES = {
    "Account": "00r",
    "Contact": "03s",
    "Opportunity": "00t",
    "Lead": "01o",
    "Case": "01n",
    "Campaign": "08s",
    "StreamingChannel": "0M7",
}
"""The standard objects that have a share object, and its key prefix."""

SHARES_NAMED_ALIKE = frozenset({"StreamingChannel"})
"""Standard objects whose share object names its fields like that of a custom object."""

ACCOUNT_CHILDREN = ("Contact", "Opportunity", "Case")
"""The objects whose records an account's share may open along with it."""

SHARED_CHILDREN = {"Account": ACCOUNT_CHILDREN}
"""The same, by the shared object."""
