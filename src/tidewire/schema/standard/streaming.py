"""The objects of streaming: push topics, streaming channels, subscribers and usage metrics."""

from __future__ import annotations

from tidewire.schema.fields import checkbox, datetime, double, integer, picklist, read_only, text
from tidewire.schema.layout import audit_fields, identity_fields, owner_field, standard_object, viewed_fields

PUSH_TOPIC = standard_object(
    11,
    "0IF",
    "PushTopic",
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
        read_only(
            picklist(
                "NotifyForOperations", "Notify For Operations", "All;Create;Extended;Update", restricted=True
            )
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

STREAMING_CHANNEL = standard_object(
    45,
    "0M6",
    "StreamingChannel",
    (
        *identity_fields(),
        owner_field(),
        text("Name", "Streaming Channel Name", 80, required=True, unique=True),
        *audit_fields(),
        read_only(checkbox("IsDynamic", "Is Dynamic")),
        text("Description", "Description", 255),
        *viewed_fields(),
    ),
    label="Streaming Channel",
    id_lookup="Name",
)

USAGE_METRIC = standard_object(
    50,
    "0Mu",
    "PlatformEventUsageMetric",
    (
        *identity_fields(has_is_deleted=False),
        text("ExternalId", "External ID", 255),
        picklist(
            "Name",
            "Name",
            "CHANGE_EVENTS_DELIVERED;CHANGE_EVENTS_PUBLISHED;PLATFORM_EVENTS_DELIVERED;PLATFORM_EVENTS_PUBLISHED",
            restricted=True,
        ),
        datetime("StartDate", "Start Date"),
        datetime("EndDate", "End Date"),
        integer("Value", "Value", 18),
    ),
    label="Platform Event Usage Metric",
    is_setup=True,
    createable=False,
    updateable=False,
    deletable=False,
)

# Lists triggers only, never clients; as there are no triggers, it stays empty.
EVENT_BUS_SUBSCRIBER = standard_object(
    51,
    "0Mb",
    "EventBusSubscriber",
    (
        *identity_fields(has_is_deleted=False),
        text("ExternalId", "External ID", 18),
        text("Name", "Name", 255),
        picklist("Type", "Type", "ApexTrigger", restricted=True),
        text("Topic", "Topic", 255),
        integer("Position", "Position", 18),
        integer("Tip", "Tip", 18),
        integer("Retries", "Retries", 9),
        text("LastError", "Last Error", 1000),
        picklist("Status", "Status", "Running;Error;Suspended;Expired", restricted=True),
    ),
    label="Event Bus Subscriber",
    is_setup=True,
    createable=False,
    updateable=False,
    deletable=False,
)

TOPIC_OBJECTS = frozenset({"Account", "Campaign", "Case", "Contact", "Lead", "Opportunity", "Task"})
"""Standard objects that push topics may watch; custom objects all may."""

PILOT_TOPIC_OBJECTS = frozenset(
    {"ContractLineItem", "Entitlement", "LiveChatTranscript", "Quote", "QuoteLineItem", "ServiceContract"}
)
"""Standard objects that push topics may watch in an org that takes part in the pilot."""
