"""What clients make to be told of changes: push topics and streaming channels."""

from __future__ import annotations

from tidewire.schema.fields import checkbox, double, picklist, read_only, text
from tidewire.schema.layout import audit_fields, identity_fields, owner_field, standard_object, viewed_fields

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
    "Streaming Channels",
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
)
