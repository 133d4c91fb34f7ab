"""The elements of calls, results and headers, in a notation of one word for each element. Pure.

A word is a name, then `:` and a type unless it is a string, then its occurrence: once, `?` optional, `*` any number,
`+` at least one; a `~` at the end makes it nillable. Types without a prefix are XML Schema's if it has one of that
name, else the API's; `ens:sObject` is a record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = re.compile(r"(\w+)(?::([\w:]+))?([?*+]?)(~?)")
_OCCURS = {
    "": "",
    "?": ' minOccurs="0"',
    "*": ' minOccurs="0" maxOccurs="unbounded"',
    "+": ' maxOccurs="unbounded"',
}
_XSD = frozenset(
    {"string", "boolean", "int", "double", "date", "dateTime", "time", "base64Binary", "anyType"}
)
MENUS = ("AppSwitcher", "Salesforce1", "NetworkTabs")
"""The menus that exist."""
SETTERS = (
    "AllOrNoneHeader AllowFieldTruncationHeader AssignmentRuleHeader DebuggingHeader DisableFeedTrackingHeader"
    " DuplicateRuleHeader EmailHeader LocaleOptions MruHeader OwnerChangeOptions PackageVersionHeader"
    " StreamingEnabledHeader"
)
"""Headers of calls that write."""
_READERS = "MruHeader PackageVersionHeader QueryOptions"
_DESCRIBERS = "LocaleOptions PackageVersionHeader"
_QUERY_FAULTS = (
    "InvalidFieldFault InvalidIdFault InvalidQueryLocatorFault InvalidSObjectFault MalformedQueryFault"
)
_WRITE_FAULTS = "InvalidFieldFault InvalidIdFault InvalidSObjectFault"


@dataclass(frozen=True, slots=True)
class CallShape:
    """A call: its arguments, its result, the headers besides those of every call, and its faults."""

    takes: str = ""
    answers: str = ""
    headers: str = ""
    faults: str = ""


CALLS: dict[str, CallShape] = {
    "login": CallShape("username password", "result:LoginResult", faults="LoginFault InvalidIdFault"),
    "changeOwnPassword": CallShape(
        "oldPassword newPassword",
        "result:ChangeOwnPasswordResult",
        faults="InvalidNewPasswordFault InvalidOldPasswordFault",
    ),
    "convertLead": CallShape("leadConverts:LeadConvert*", "result:LeadConvertResult*", SETTERS),
    "create": CallShape("sObjects:ens:sObject*", "result:SaveResult*", SETTERS, _WRITE_FAULTS),
    "delete": CallShape("ids:ID*", "result:DeleteResult*", SETTERS),
    "describeAllTabs": CallShape("", "result:DescribeTab*~", _DESCRIBERS),
    "describeAppMenu": CallShape(
        "appMenuType:AppMenuType networkId:ID?~", "result:DescribeAppMenuResult~", _DESCRIBERS
    ),
    "describeApprovalLayout": CallShape(
        "sObjectType approvalProcessNames*", "result:DescribeApprovalLayoutResult~", _DESCRIBERS
    ),
    "describeCompactLayouts": CallShape(
        "sObjectType recordTypeIds:ID*", "result:DescribeCompactLayoutsResult~", _DESCRIBERS
    ),
    "describeGlobal": CallShape("", "result:DescribeGlobalResult", _DESCRIBERS),
    "describeGlobalTheme": CallShape("", "result:DescribeGlobalTheme", _DESCRIBERS),
    "describeLayout": CallShape(
        "sObjectType layoutName?~ recordTypeIds:ID*",
        "result:DescribeLayoutResult~",
        _DESCRIBERS,
        "InvalidIdFault InvalidSObjectFault",
    ),
    "describePrimaryCompactLayouts": CallShape("sObjectTypes+", "result:DescribeCompactLayout*", _DESCRIBERS),
    "describeSObject": CallShape(
        "sObjectType", "result:DescribeSObjectResult~", _DESCRIBERS, "InvalidSObjectFault"
    ),
    "describeSObjects": CallShape(
        "sObjectType*", "result:DescribeSObjectResult*~", _DESCRIBERS, "InvalidSObjectFault"
    ),
    "describeSearchLayouts": CallShape(
        "sObjectType*", "result:DescribeSearchLayoutResult*~", _DESCRIBERS, "InvalidSObjectFault"
    ),
    "describeSearchScopeOrder": CallShape(
        "includeRealTimeEntities:boolean?", "result:DescribeSearchScopeOrderResult*", _DESCRIBERS
    ),
    "describeTabs": CallShape("", "result:DescribeTabSetResult*~", _DESCRIBERS),
    "describeTheme": CallShape("sobjectType*", "result:DescribeThemeResult", _DESCRIBERS),
    "emptyRecycleBin": CallShape("ids:ID+", "result:EmptyRecycleBinResult*"),
    "getDeleted": CallShape(
        "sObjectType startDate:dateTime endDate:dateTime",
        "result:GetDeletedResult",
        faults="InvalidSObjectFault",
    ),
    "getServerTimestamp": CallShape("", "result:GetServerTimestampResult"),
    "getUpdated": CallShape(
        "sObjectType startDate:dateTime endDate:dateTime",
        "result:GetUpdatedResult",
        faults="InvalidSObjectFault",
    ),
    "getUserInfo": CallShape("", "result:GetUserInfoResult"),
    "invalidateSessions": CallShape("sessionIds*", "result:InvalidateSessionsResult*"),
    "logout": CallShape(),
    "merge": CallShape("request:MergeRequest*", "result:MergeResult*", SETTERS, _WRITE_FAULTS),
    "query": CallShape("queryString", "result:QueryResult", _READERS, _QUERY_FAULTS),
    "queryAll": CallShape("queryString", "result:QueryResult", _READERS, _QUERY_FAULTS),
    "queryMore": CallShape("queryLocator:QueryLocator", "result:QueryResult", _READERS, _QUERY_FAULTS),
    "resetPassword": CallShape("userId:ID", "result:ResetPasswordResult", "EmailHeader", "InvalidIdFault"),
    "retrieve": CallShape("fieldList sObjectType ids:ID*", "result:ens:sObject*~", _READERS, _QUERY_FAULTS),
    "search": CallShape(
        "searchString",
        "result:SearchResult",
        "PackageVersionHeader",
        "InvalidFieldFault InvalidSObjectFault MalformedSearchFault",
    ),
    "setPassword": CallShape(
        "userId:ID password", "result:SetPasswordResult", faults="InvalidIdFault InvalidNewPasswordFault"
    ),
    "undelete": CallShape("ids:ID+", "result:UndeleteResult*", SETTERS),
    "update": CallShape("sObjects:ens:sObject*", "result:SaveResult*", SETTERS, _WRITE_FAULTS),
    "upsert": CallShape(
        "externalIDFieldName sObjects:ens:sObject*", "result:UpsertResult*", SETTERS, _WRITE_FAULTS
    ),
}

HEADERS: dict[str, str] = {
    "AllOrNoneHeader": "allOrNone:boolean",
    "AllowFieldTruncationHeader": "allowFieldTruncation:boolean",
    "AssignmentRuleHeader": "assignmentRuleId:ID?~ useDefaultRule:boolean?~",
    "CallOptions": "client?~ defaultNamespace?~",
    "DebuggingHeader": "categories:LogInfo* debugLevel?",
    "DisableFeedTrackingHeader": "disableFeedTracking:boolean",
    "DuplicateRuleHeader": "allowSave:boolean? includeRecordDetails:boolean? runAsCurrentUser:boolean?",
    "EmailHeader": "triggerAutoResponseEmail:boolean triggerOtherEmail:boolean triggerUserEmail:boolean",
    "LimitInfoHeader": "limitInfo:LimitInfo*",
    "LocaleOptions": "language? localizeErrors:boolean?",
    "LoginScopeHeader": "organizationId:ID? portalId:ID?",
    "MruHeader": "updateMru:boolean",
    "OwnerChangeOptions": "options:OwnerChangeOption*",
    "PackageVersionHeader": "packageVersions:PackageVersion*",
    "QueryOptions": "batchSize:int?",
    "SessionHeader": "sessionId",
    "StreamingEnabledHeader": "streamingEnabled:boolean",
}
"""Every block of the headers of calls and answers."""

_OBJECT_FLAGS = (
    "activateable:boolean {0}createable:boolean custom:boolean customSetting:boolean deepCloneable:boolean"
    " {1}deletable:boolean deprecatedAndHidden:boolean feedEnabled:boolean {2}hasSubtypes:boolean idEnabled:boolean"
    " {3}isInterface:boolean isSubtype:boolean keyPrefix?~ label labelPlural layoutable:boolean mergeable:boolean"
    " mruEnabled:boolean name {4}queryable:boolean {5}replicateable:boolean retrieveable:boolean"
    " {6}searchable:boolean {7}triggerable:boolean? undeletable:boolean updateable:boolean{8}"
)
_SAVED = "errors:Error* id:ID~ success:boolean"

TYPES: dict[str, str] = {
    "ActionOverride": "formFactor isAvailableInTouch:boolean name pageId:ID url?~",
    "AdditionalInformationMap": "name value",
    "ChangeOwnPasswordResult": "",
    "ChildRelationship": (
        "cascadeDelete:boolean childSObject deprecatedAndHidden:boolean field junctionIdListNames*"
        " junctionReferenceTo* relationshipName? restrictedDelete:boolean?"
    ),
    "DeleteResult": _SAVED,
    "DeletedRecord": "deletedDate:dateTime id:ID",
    "DescribeAppMenuItem": "colors:DescribeColor* content? icons:DescribeIcon* label name type url?",
    "DescribeAppMenuResult": "appMenuItems:DescribeAppMenuItem*",
    "DescribeApprovalLayout": "id:ID label layoutItems:DescribeLayoutItem* name",
    "DescribeApprovalLayoutResult": "approvalLayouts:DescribeApprovalLayout*",
    "DescribeColor": "color context theme",
    "DescribeColumn": "field format?~ label name",
    "DescribeCompactLayout": (
        "fieldItems:DescribeLayoutItem* id:ID~ imageItems:DescribeLayoutItem* label name objectType"
    ),
    "DescribeCompactLayoutsResult": (
        "compactLayouts:DescribeCompactLayout+ defaultCompactLayoutId:ID~"
        " recordTypeCompactLayoutMappings:RecordTypeCompactLayoutMapping*"
    ),
    "DescribeGlobalResult": "encoding~ maxBatchSize:int sobjects:DescribeGlobalSObjectResult*",
    "DescribeGlobalSObjectResult": _OBJECT_FLAGS.format(*[""] * 9),
    "DescribeGlobalTheme": "global:DescribeGlobalResult theme:DescribeThemeResult",
    "DescribeIcon": "contentType height:int~ theme url width:int~",
    "DescribeLayout": (
        "detailLayoutSections:DescribeLayoutSection* editLayoutSections:DescribeLayoutSection* id:ID~"
    ),
    "DescribeLayoutComponent": "displayLines:int tabOrder:int type value~",
    "DescribeLayoutItem": (
        "editableForNew:boolean editableForUpdate:boolean label~ layoutComponents:DescribeLayoutComponent*"
        " placeholder:boolean required:boolean"
    ),
    "DescribeLayoutResult": (
        "layouts:DescribeLayout+ recordTypeMappings:RecordTypeMapping* recordTypeSelectorRequired:boolean"
    ),
    "DescribeLayoutRow": "layoutItems:DescribeLayoutItem+ numItems:int",
    "DescribeLayoutSection": (
        "collapsed:boolean columns:int heading~ layoutRows:DescribeLayoutRow* layoutSectionId:ID?~"
        " parentLayoutId:ID rows:int tabOrder useCollapsibleSection:boolean useHeading:boolean"
    ),
    "DescribeSObjectResult": "actionOverrides:ActionOverride* "
    + _OBJECT_FLAGS.format(
        "childRelationships:ChildRelationship* compactLayoutable:boolean ",
        "defaultImplementation?~ ",
        "fields:Field* ",
        "implementedBy?~ implementsInterfaces?~ ",
        "namedLayoutInfos:NamedLayoutInfo* networkScopeFieldName?~ ",
        "recordTypeInfos:RecordTypeInfo* ",
        "searchLayoutable:boolean? ",
        "supportedScopes:ScopeInfo* ",
        " urlDetail?~ urlEdit?~ urlNew?~",
    ),
    "DescribeSearchLayoutResult": (
        "errorMsg?~ label?~ limitRows:int~ objectType searchColumns:DescribeColumn*"
    ),
    "DescribeSearchScopeOrderResult": "keyPrefix name",
    "DescribeTab": (
        "colors:DescribeColor* custom:boolean iconUrl icons:DescribeIcon* label miniIconUrl name sobjectName~ url"
    ),
    "DescribeTabSetResult": "description label logoUrl namespace?~ selected:boolean tabSetId tabs:DescribeTab*",
    "DescribeThemeItem": "colors:DescribeColor* icons:DescribeIcon* name",
    "DescribeThemeResult": "themeItems:DescribeThemeItem*",
    "EmptyRecycleBinResult": _SAVED,
    "Error": "fields* message statusCode:StatusCode",
    "Field": (
        "aggregatable:boolean autoNumber:boolean byteLength:int calculated:boolean calculatedFormula?"
        " cascadeDelete:boolean? caseSensitive:boolean compoundFieldName? controllerName? createable:boolean"
        " custom:boolean defaultValue:anyType? defaultValueFormula? defaultedOnCreate:boolean"
        " dependentPicklist:boolean? deprecatedAndHidden:boolean digits:int displayLocationInDecimal:boolean?"
        " encrypted:boolean? externalId:boolean? extraTypeInfo? filterable:boolean"
        " filteredLookupInfo:FilteredLookupInfo? formulaTreatNullNumberAsZero:boolean? groupable:boolean"
        " highScaleNumber:boolean? htmlFormatted:boolean? idLookup:boolean inlineHelpText? label length:int mask?"
        " maskType? name nameField:boolean namePointing:boolean? nillable:boolean permissionable:boolean"
        " picklistValues:PicklistEntry* polymorphicForeignKey:boolean precision:int queryByDistance:boolean"
        " referenceTargetField? referenceTo* relationshipName? relationshipOrder:int? restrictedDelete:boolean?"
        " restrictedPicklist:boolean scale:int searchPrefilterable:boolean soapType:soapType sortable:boolean?"
        " type:fieldType unique:boolean updateable:boolean writeRequiresMasterRead:boolean?"
    ),
    "FilteredLookupInfo": "controllingFields* dependent:boolean optionalFilter:boolean",
    "GetDeletedResult": (
        "deletedRecords:DeletedRecord* earliestDateAvailable:dateTime latestDateCovered:dateTime"
    ),
    "GetServerTimestampResult": "timestamp:dateTime",
    "GetUpdatedResult": "ids:ID* latestDateCovered:dateTime",
    "GetUserInfoResult": (
        "accessibilityMode:boolean chatterExternal:boolean currencySymbol~ orgAttachmentFileSizeLimit:int"
        " orgDefaultCurrencyIsoCode~ orgDefaultCurrencyLocale~ orgDisallowHtmlAttachments:boolean"
        " orgHasPersonAccounts:boolean organizationId:ID organizationMultiCurrency:boolean organizationName"
        " profileId:ID roleId:ID~ sessionSecondsValid:int userDefaultCurrencyIsoCode~ userEmail userFullName"
        " userId:ID userLanguage userLocale userName userTimeZone userType userUiSkin"
    ),
    "InvalidateSessionsResult": "errors:Error* success:boolean",
    "LeadConvert": (
        "accountId:ID?~ accountRecord:ens:sObject?~ bypassAccountDedupeCheck:boolean?~"
        " bypassContactDedupeCheck:boolean?~ contactId:ID?~ contactRecord:ens:sObject?~ convertedStatus"
        " doNotCreateOpportunity:boolean leadId:ID opportunityId:ID?~ opportunityName?~"
        " opportunityRecord:ens:sObject?~ overwriteLeadSource:boolean ownerId:ID?~ sendNotificationEmail:boolean"
    ),
    "LeadConvertResult": (
        "accountId:ID~ contactId:ID~ errors:Error* leadId:ID~ opportunityId:ID~ success:boolean"
    ),
    "LimitInfo": "current:int limit:int type",
    "LogInfo": "category level",
    "LoginResult": (
        "metadataServerUrl~ passwordExpired:boolean sandbox:boolean serverUrl~ sessionId~ userId:ID~"
        " userInfo:GetUserInfoResult?"
    ),
    "MergeRequest": (
        "additionalInformationMap:AdditionalInformationMap* masterRecord:ens:sObject recordToMergeIds:ID+"
    ),
    "MergeResult": "errors:Error* id:ID~ mergedRecordIds:ID* success:boolean updatedRelatedIds:ID*",
    "NamedLayoutInfo": "name",
    "OwnerChangeOption": "type execute:boolean",
    "PackageVersion": "majorNumber:int minorNumber:int namespace",
    "PicklistEntry": "active:boolean defaultValue:boolean label~ validFor:base64Binary? value",
    "PicklistForRecordType": "picklistName picklistValues:PicklistEntry*",
    "QueryResult": "done:boolean queryLocator:QueryLocator~ records:ens:sObject*~ size:int",
    "RecordTypeCompactLayoutMapping": (
        "available:boolean compactLayoutId:ID~ compactLayoutName recordTypeId:ID recordTypeName"
    ),
    "RecordTypeInfo": (
        "active:boolean available:boolean defaultRecordTypeMapping:boolean developerName master:boolean name"
        " recordTypeId:ID~"
    ),
    "RecordTypeMapping": (
        "active:boolean available:boolean defaultRecordTypeMapping:boolean developerName layoutId:ID"
        " master:boolean name picklistsForRecordType:PicklistForRecordType* recordTypeId:ID~"
    ),
    "ResetPasswordResult": "password",
    "SaveResult": _SAVED,
    "ScopeInfo": "label name",
    "SearchRecord": "record:ens:sObject",
    "SearchResult": "queryId? searchRecords:SearchRecord*",
    "SetPasswordResult": "",
    "UndeleteResult": _SAVED,
    "UpsertResult": f"created:boolean {_SAVED}",
    "location": "latitude:double~ longitude:double~",
}
ADDRESS = "city~ country~ countryCode~ geocodeAccuracy~ postalCode~ state~ stateCode~ street~"
"""The elements of an address besides its location."""

FAULTS: dict[str, str] = {
    "InvalidFieldFault": "ApiQueryFault",
    "InvalidIdFault": "ApiFault",
    "InvalidNewPasswordFault": "ApiFault",
    "InvalidOldPasswordFault": "ApiFault",
    "InvalidQueryLocatorFault": "ApiFault",
    "InvalidSObjectFault": "ApiQueryFault",
    "LoginFault": "ApiFault",
    "MalformedQueryFault": "ApiQueryFault",
    "MalformedSearchFault": "ApiQueryFault",
    "UnexpectedErrorFault": "ApiFault",
}
"""Each fault and the type that it extends."""


def render_word(word: str) -> str:
    """Render the schema element of one word of the notation."""
    found = _WORD.fullmatch(word)
    if found is None:
        raise ValueError(f"not a word of the notation: {word}")
    name, kind, occurs, nil = found.groups()
    kind = kind or "string"
    if ":" not in kind:
        kind = ("xsd:" if kind in _XSD else "tns:") + kind
    nillable = ' nillable="true"' if nil else ""
    return f'<element name="{name}" type="{kind}"{_OCCURS[occurs]}{nillable}/>'


def element_names(words: str) -> tuple[str, ...]:
    """Return the names of the elements of a type, in order."""
    return tuple(found[1] for found in _WORD.finditer(words))


def render_words(words: str) -> str:
    """Render the elements of a type, in order."""
    return "".join(render_word(word) for word in words.split())
