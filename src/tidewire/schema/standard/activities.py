"""Tasks, events and list emails, and who takes part in them."""

from __future__ import annotations

from dataclasses import replace

from tidewire.schema.fields import (
    checkbox,
    date,
    datetime,
    derived,
    detail,
    email,
    integer,
    long_text,
    lookup,
    picklist,
    read_only,
    required_parent,
    rich_text,
    text,
    text_area,
)
from tidewire.schema.layout import (
    added_from,
    audit_fields,
    identity_fields,
    owner_field,
    record_type_field,
    standard_object,
    viewed_fields,
)
from tidewire.schema.model import Field
from tidewire.schema.standard.choices import TIME_ZONES
from tidewire.schema.standard.statuses import TASK_STATUSES, status_field

PEOPLE = ("Contact", "Lead")
SUBJECTS_OF_WORK = (
    "Account",
    "Asset",
    "Campaign",
    "Case",
    "Contract",
    "ContractLineItem",
    "Entitlement",
    "ListEmail",
    "LiveChatTranscript",
    "Opportunity",
    "Order",
    "Product2",
    "Quote",
    "ServiceContract",
)
"""The objects that an activity can be about, other than people."""


def _related(child_relationship_name: str) -> tuple[Field, ...]:
    return (
        lookup("WhoId", "Name ID", PEOPLE, "Who", child_relationship_name),
        lookup(
            "WhatId",
            "Related To ID",
            SUBJECTS_OF_WORK,
            "What",
            child_relationship_name,
            delete_constraint="Cascade",
        ),
    )


def _account() -> Field:
    return read_only(lookup("AccountId", "Account ID", "Account", "Account"))


def _recurrence(entity: str, start: Field) -> tuple[Field, ...]:
    return (
        read_only(
            lookup(
                "RecurrenceActivityId",
                "Recurrence Activity ID",
                entity,
                "RecurrenceActivity",
                f"Recurring{entity}s",
                delete_constraint="Cascade",
            )
        ),
        checkbox("IsRecurrence", f"Create Recurring Series of {entity}s"),
        start,
        date("RecurrenceEndDateOnly", "Recurrence End"),
        picklist("RecurrenceTimeZoneSidKey", "Recurrence Time Zone", TIME_ZONES),
        picklist(
            "RecurrenceType",
            "Recurrence Type",
            "RecursDaily;RecursEveryWeekday;RecursMonthly;RecursMonthlyNth;RecursWeekly;RecursYearly;"
            "RecursYearlyNth",
            restricted=True,
        ),
        integer("RecurrenceInterval", "Recurrence Interval", 9),
        integer("RecurrenceDayOfWeekMask", "Recurrence Day of Week Mask", 9),
        integer("RecurrenceDayOfMonth", "Recurrence Day of Month", 9),
        picklist(
            "RecurrenceInstance", "Recurrence Instance", "First;Second;Third;Fourth;Last", restricted=True
        ),
        picklist(
            "RecurrenceMonthOfYear",
            "Recurrence Month of Year",
            "January;February;March;April;May;June;July;August;September;October;November;December",
            restricted=True,
        ),
    )


def _omitted_from_events(field: Field) -> Field:
    """Return a field that change events leave out, because others carry the same value."""
    return replace(field, in_change_events=False)


TASK = standard_object(
    18,
    "00T",
    "Task",
    (
        *identity_fields(),
        *_related("Tasks"),
        derived(integer("WhoCount", "Relation Count", 9, default=0)),
        derived(integer("WhatCount", "Related To Count", 9, default=0)),
        picklist("Subject", "Subject", "Call;Send Letter;Send Quote;Other", length=255),
        date("ActivityDate", "Due Date Only"),
        status_field(TASK_STATUSES, required=True),
        picklist("Priority", "Priority", "High;Normal;Low", required=True, default="Normal"),
        read_only(checkbox("IsHighPriority", "High Priority")),
        owner_field("Group", "User"),
        long_text("Description", "Description"),
        _account(),
        read_only(checkbox("IsClosed", "Closed")),
        *audit_fields(),
        derived(checkbox("IsArchived", "Archived")),
        integer("CallDurationInSeconds", "Call Duration", 8),
        picklist("CallType", "Call Type", "Internal;Inbound;Outbound"),
        text("CallDisposition", "Call Result", 255),
        text("CallObject", "Call Object Identifier", 255),
        datetime("ReminderDateTime", "Reminder Date/Time"),
        checkbox("IsReminderSet", "Reminder Set"),
        *_recurrence("Task", date("RecurrenceStartDateOnly", "Recurrence Start")),
        picklist(
            "RecurrenceRegeneratedType",
            "Repeat This Task",
            "RecurrenceRegenerateAfterDueDate;RecurrenceRegenerateAfterToday;RecurrenceRegenerated",
            restricted=True,
        ),
        picklist(
            "TaskSubtype",
            "Task Subtype",
            "Task;Email;Call;ListEmail;Cadence;LinkedIn",
            restricted=True,
            default="Task",
        ),
        read_only(datetime("CompletedDateTime", "Completed Date/Time")),
        record_type_field(),
    ),
    named_by="Subject",
)

EVENT = standard_object(
    19,
    "00U",
    "Event",
    (
        *identity_fields(),
        *_related("Events"),
        derived(integer("WhoCount", "Relation Count", 9, default=0)),
        derived(integer("WhatCount", "Related To Count", 9, default=0)),
        picklist("Subject", "Subject", "Call;Email;Meeting;Send Letter/Quote;Other", length=255),
        text("Location", "Location", 255),
        checkbox("IsAllDayEvent", "All-Day Event"),
        datetime("ActivityDateTime", "Due Date Time"),
        date("ActivityDate", "Due Date Only"),
        integer("DurationInMinutes", "Duration", 8),
        _omitted_from_events(datetime("StartDateTime", "Start Date Time")),
        _omitted_from_events(datetime("EndDateTime", "End Date Time")),
        derived(date("EndDate", "End Date")),
        long_text("Description", "Description"),
        _account(),
        owner_field(),
        checkbox("IsPrivate", "Private"),
        picklist("ShowAs", "Show Time As", "Busy;OutOfOffice;Free", restricted=True, default="Busy"),
        read_only(checkbox("IsChild", "Is Child")),
        read_only(checkbox("IsGroupEvent", "Is Group Event")),
        read_only(picklist("GroupEventType", "Group Event Type", "0;1;2;3", restricted=True)),
        *audit_fields(),
        derived(checkbox("IsArchived", "Archived")),
        *_recurrence("Event", datetime("RecurrenceStartDateTime", "Recurrence Start")),
        datetime("ReminderDateTime", "Reminder Date/Time"),
        checkbox("IsReminderSet", "Reminder Set"),
        _omitted_from_events(
            picklist("EventSubtype", "Event Subtype", "Event", restricted=True, default="Event")
        ),
        read_only(checkbox("IsRecurrence2Exclusion", "Historical Event, Not Following Recurrence")),
        text_area("Recurrence2PatternText", "Recurrence Pattern", 512),
        picklist("Recurrence2PatternVersion", "Pattern Version", "1;2", restricted=True),
        _omitted_from_events(read_only(checkbox("IsRecurrence2", "Repeat"))),
        _omitted_from_events(read_only(checkbox("IsRecurrence2Exception", "Is Exception"))),
        _omitted_from_events(
            read_only(datetime("Recurrence2PatternStartDate", "Recurrence Pattern Start Date"))
        ),
        _omitted_from_events(
            picklist(
                "Recurrence2PatternTimeZone", "Recurrence Pattern Time Zone Reference", TIME_ZONES, length=255
            )
        ),
        *added_from(
            51,
            read_only(text("ActivityRecurrence2Id", "Activity Recurrence2 ID", 18)),
            # Ours: the series of an occurrence, or the event that an invitee's own event mirrors.
            derived(
                lookup(
                    "ParentEventId", "Parent Event ID", "Event", "ParentEvent", delete_constraint="Cascade"
                )
            ),
        ),
        record_type_field(),
    ),
    named_by="Subject",
)


def _relation(*others: str) -> Field:
    targets = tuple(sorted((*PEOPLE, *SUBJECTS_OF_WORK, *others)))
    return required_parent("RelationId", "Relation ID", targets, "Relation")


EVENT_RELATION = standard_object(
    20,
    "0RE",
    "EventRelation",
    (
        *identity_fields(),
        _relation("User"),
        detail("EventId", "Event ID", "Event", "Event", "EventRelations"),
        checkbox("IsWhat", "Is What"),
        checkbox("IsParent", "Is Parent"),
        checkbox("IsInvitee", "Is Invitee"),
        picklist("Status", "Status", "New;Declined;Accepted;Uninvited;Maybe", restricted=True, default="New"),
        datetime("RespondedDate", "Response Date"),
        text("Response", "Comment", 255),
        *audit_fields(),
        _account(),
    ),
    label="Event Relation",
)

TASK_RELATION = standard_object(
    21,
    "0RT",
    "TaskRelation",
    (
        *identity_fields(),
        _relation(),
        detail("TaskId", "Task ID", "Task", "Task", "TaskRelations"),
        checkbox("IsWhat", "Is What"),
        *audit_fields(),
        _account(),
    ),
    label="Task Relation",
)

LIST_EMAIL = standard_object(
    35,
    "0XB",
    "ListEmail",
    (
        *identity_fields(),
        owner_field(),
        text("Name", "Name", 255, required=True),
        *audit_fields(),
        text("Subject", "Subject", 255),
        rich_text("HtmlBody", "HTML Body"),
        long_text("TextBody", "Text Body"),
        text("FromName", "From Name", 121),
        email("FromAddress", "From Address", 80),
        picklist(
            "Status", "Status", "Draft;Scheduled;InProgress;Sent;Failed", restricted=True, default="Draft"
        ),
        checkbox("HasAttachment", "Has Attachment"),
        datetime("ScheduledDate", "Scheduled Date"),
        read_only(integer("TotalSent", "Total Sent", 9, default=0)),
        lookup("CampaignId", "Campaign ID", "Campaign", "Campaign", "ListEmails"),
        checkbox("IsTracked", "Is Tracked"),
        *viewed_fields(),
    ),
    label="List Email",
)

ARCHIVED_FIELDS = {"Event": "IsArchived", "Task": "IsArchived"}
"""The flag, by object, of old records that a query returns only if it asks for all."""

WITHOUT_VIEW_ALL = frozenset({"Task", "Event", "TaskRelation", "EventRelation"})
"""The objects without the right View All: reading all their records takes View All Data."""

READ_AFTER_DELETE = ("ActivityDate", "IsClosed", "IsInvitee", "IsGroupEvent")
"""Fields of deleted activities and relations that decide over other records."""

COUNTS = frozenset({("Task", "WhoCount"), ("Task", "WhatCount")})
"""Counters, as object and field, that push topics cannot watch by themselves."""

CAUSES = {("Task", "IsClosed"): "Status", ("Task", "WhoCount"): "WhoId", ("Task", "WhatCount"): "WhatId"}
"""The field that decides over another one of its record, by object and decided field."""
