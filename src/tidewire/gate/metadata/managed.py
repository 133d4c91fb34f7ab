"""ManagedEventSubscription: subscriptions whose positions the server keeps."""

from __future__ import annotations

from tidewire.gate.metadata.objects import Draft
from tidewire.gate.metadata.properties import Component, check_properties, names_in, ordered, refuse, text_of
from tidewire.schema.catalog import Catalog

_KNOWN = names_in("fullName defaultReplay errorRecoveryReplay label state topicName version urls")


def try_read_managed(catalog: Catalog, full_name: str) -> dict[str, object] | None:
    """A managed subscription's properties, or None if there is none of that name."""
    managed = catalog.selection.try_managed(full_name)
    if managed is None:
        return None
    return ordered(
        "",
        {
            "defaultReplay": managed.default_replay,
            "errorRecoveryReplay": managed.error_replay,
            "label": managed.label,
            "state": managed.state,
            "topicName": managed.topic,
        },
    )


def add_managed(draft: Draft, component: Component) -> None:
    """Add a managed subscription to the definition."""
    properties = component.properties
    check_properties(properties, _KNOWN, f"ManagedEventSubscription {component.full_name}")
    for needed in ("label", "topicName"):
        if not text_of(properties, needed).strip():
            refuse(f"Required field is missing: {needed}", "REQUIRED_FIELD_MISSING", [needed])
    draft.section("managed_subscriptions")[component.full_name] = {
        "label": text_of(properties, "label"),
        "topic": text_of(properties, "topicName"),
        "default_replay": text_of(properties, "defaultReplay"),
        "error_replay": text_of(properties, "errorRecoveryReplay"),
        "state": text_of(properties, "state"),
    }
