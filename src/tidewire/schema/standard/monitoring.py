"""The monitoring events of the server: logins and logouts, and reads through the APIs.

They have the fields that the platform documents. Fields that the server cannot know, such as the geographic
location of an address, are null in every event.
"""

from __future__ import annotations

from tidewire.schema.fields import datetime, double, integer, long_text, lookup, picklist, text
from tidewire.schema.model import EventType, Field

LOGIN = "LoginEventStream"
LOGOUT = "LogoutEventStream"
API = "ApiEventStream"
LIST_VIEW = "ListViewEventStream"
MAX_QUERY = 20_000
MAX_RECORDS_TEXT = 250_000
SESSION_LEVELS = "STANDARD;HIGH_ASSURANCE;LOW"


def _key_fields() -> tuple[Field, ...]:
    return (
        text("EventIdentifier", "Event Identifier", 80),
        lookup("UserId", "User ID", "User", "User"),
        text("Username", "Username", 255),
        datetime("EventDate", "Event Date"),
        text("RelatedEventIdentifier", "Related Event Identifier", 80),
    )


def _session_fields() -> tuple[Field, ...]:
    return (
        text("SessionKey", "Session Key", 24),
        text("LoginKey", "Login Key", 24),
        picklist("SessionLevel", "Session Level", SESSION_LEVELS, length=255, restricted=True),
        text("SourceIp", "Source IP", 255),
    )


def _policy_fields() -> tuple[Field, ...]:
    """Return the fields of security policies, which the server does not have."""
    return (
        text("PolicyId", "Transaction Security Policy ID", 18),
        text("PolicyOutcome", "Policy Outcome", 255),
        double("EvaluationTime", "Evaluation Time", 18, 0),
        text("LoginHistoryId", "Login History ID", 18),
    )


def _event(name: str, label: str, *fields: Field) -> EventType:
    return EventType(
        name=name, label=label, label_plural=label + "s", key_prefix="", fields=fields, custom=False
    )


STANDARD_EVENTS: tuple[EventType, ...] = (
    _event(
        LOGIN,
        "Login Event Stream",
        *_key_fields(),
        *_session_fields(),
        *_policy_fields(),
        text("AdditionalInfo", "Additional Information", 10_000),
        text("ApiType", "API Type", 64),
        text("ApiVersion", "API Version", 32),
        text("Application", "Application", 255),
        text("AuthMethodReference", "Authentication Method Reference", 128),
        text("AuthServiceId", "Authentication Service ID", 18),
        text("Browser", "Browser", 64),
        text("CipherSuite", "TLS Cipher Suite", 255),
        text("City", "City", 200),
        text("ClientVersion", "Client Version", 64),
        text("Country", "Country", 200),
        text("CountryIso", "Country Code", 3),
        text("ForwardedForIp", "Forwarded For IP", 256),
        text("HttpMethod", "HTTP Method", 255),
        text("LoginGeoId", "Login Geo Data ID", 18),
        double("LoginLatitude", "Latitude", 9, 6),
        double("LoginLongitude", "Longitude", 9, 6),
        text("LoginSubType", "Login Subtype", 255),
        text("LoginType", "Login Type", 255),
        text("LoginUrl", "Login URL", 1000),
        text("NetworkId", "Network ID", 18),
        text("Platform", "Platform", 255),
        text("PostalCode", "Postal Code", 20),
        text("RemoteIdentifier", "Remote Identifier", 255),
        text("Status", "Status", 128),
        text("Subdivision", "Subdivision", 200),
        text("TlsProtocol", "TLS Protocol", 255),
        text("UserType", "User Type", 255),
    ),
    _event(LOGOUT, "Logout Event Stream", *_key_fields(), *_session_fields()),
    _event(
        API,
        "API Event Stream",
        *_key_fields(),
        *_session_fields(),
        *_policy_fields(),
        text("AdditionalInfo", "Additional Information", 10_000),
        text("ApiType", "API Type", 80),
        double("ApiVersion", "API Version", 18, 0),
        text("Application", "Application", 255),
        text("Client", "Client", 255),
        text("ConnectedAppId", "Connected Application ID", 18),
        integer("ElapsedTime", "Elapsed Time", 9),
        text("Operation", "Operation", 255),
        text("Platform", "Platform", 255),
        text("QueriedEntities", "Queried Entities", 1000),
        long_text("Query", "Query", MAX_QUERY),
        long_text("Records", "Records", MAX_RECORDS_TEXT),
        text("RequestIdentifier", "Request Identifier", 80),
        double("RowsProcessed", "Rows Processed", 18, 0),
        double("RowsReturned", "Rows Returned", 18, 0),
        text("UserAgent", "User Agent", 1000),
    ),
    _event(
        LIST_VIEW,
        "List View Event Stream",
        *_key_fields(),
        *_session_fields(),
        *_policy_fields(),
        text("AppName", "Application Name", 255),
        text("ColumnHeaders", "Column Headers", 1000),
        text("DeveloperName", "Developer Name", 80),
        text("EventSource", "Event Source", 255),
        text("ExecutionIdentifier", "Execution Identifier", 80),
        text("FilterCriteria", "Filter Criteria", 10_000),
        text("ListViewId", "List View ID", 18),
        text("Name", "Name", 80),
        integer("NumberOfColumns", "Number Of Columns", 9),
        text("OrderBy", "Order By", 1000),
        text("OwnerId", "Owner ID", 18),
        text("QueriedEntities", "Queried Entities", 1000),
        long_text("Records", "Records", MAX_RECORDS_TEXT),
        double("RowsProcessed", "Rows Processed", 18, 0),
        text("Scope", "Scope", 255),
        integer("Sequence", "Sequence", 9),
    ),
)
"""Their key fields come first, then those of each event."""
