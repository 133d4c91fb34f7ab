"""Managed subscriptions as an object of the Tooling API: only who may view the org's setup sees rows."""

from __future__ import annotations

from collections.abc import Mapping

from tidewire.frontends.rest.tooling.model import (
    FULL_NAME,
    METADATA,
    Row,
    Seen,
    ToolingObject,
    flags,
    made_fields,
    made_values,
    metadata_fields,
    tooling_type,
    words,
)
from tidewire.gate.metadata.managed import try_read_managed
from tidewire.gate.metadata.registry import managed_id
from tidewire.schema.fields import datetime

_MANAGED = tooling_type(
    "ManagedEventSubscription",
    "Managed Event Subscription",
    "Managed Event Subscriptions",
    "18x",
    [
        *flags("IsDeleted"),
        *words("DeveloperName", "Language", "MasterLabel", "NamespacePrefix", "ManageableState"),
        *made_fields(),
        datetime("SystemModstamp", "System Modstamp"),
        *words("TopicName", "DefaultReplay", "ErrorRecoveryReplay", "State"),
        *metadata_fields(),
    ],
    is_writeable=True,
)


def _rows(seen: Seen) -> list[Row]:
    if not (seen.grants.has("ViewSetup") or seen.grants.has("CustomizeApplication")):
        return []
    made = made_values(seen)
    return [
        {
            "Id": managed_id(managed.name),
            "IsDeleted": False,
            "DeveloperName": managed.name,
            "Language": "en_US",
            "MasterLabel": managed.label,
            "NamespacePrefix": None,
            "ManageableState": "unmanaged",
            "SystemModstamp": made["LastModifiedDate"],
            "TopicName": managed.topic,
            "DefaultReplay": managed.default_replay,
            "ErrorRecoveryReplay": managed.error_replay,
            "State": managed.state,
            FULL_NAME: managed.name,
        }
        | made
        for managed in seen.catalog.selection.managed
    ]


def _metadata(seen: Seen, row: Row) -> Mapping[str, object]:
    properties = try_read_managed(seen.catalog, str(row[FULL_NAME])) or {}
    return {METADATA: properties | {"urls": None, "version": None}}


MANAGED_OBJECT = ToolingObject(
    _MANAGED, _rows, complete=_metadata, kind="ManagedEventSubscription", is_reference=True
)
