"""CustomObject: custom objects, platform events, and an org's additions to standard objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewire.gate.metadata.field_parse import Context, parse_field_properties
from tidewire.gate.metadata.field_render import render_field_properties
from tidewire.gate.metadata.properties import (
    Component,
    Properties,
    as_mapping,
    check_properties,
    flag_of,
    items_of,
    names_in,
    ordered,
    reject,
    require,
    text_of,
    whole_of,
)
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import EventType, Field, ObjectType

_USED = names_in(
    "fullName description eventType fields label nameField pluralLabel publishBehavior recordTypes sharingModel"
)
_IGNORED = names_in(
    "actionOverrides allowInChatterGroups articleTypeChannelDisplay compactLayoutAssignment compactLayouts customHelp"
    " customHelpPage deploymentStatus deprecated enableActivities enableBulkApi enableDataTranslation enableDivisions"
    " enableEnhancedLookup enableFeeds enableHistory enableLicensing enablePublishStatusTracking enableReports"
    " enableSearch enableSharing enableStreamingApi externalSharingModel fieldSets gender household listViews"
    " profileSearchLayouts recordTypeTrackFeedHistory recordTypeTrackHistory searchLayouts startsWith"
    " visibility webLinks urls"
)
_SHARING = {
    "Private": "private",
    "Read": "read",
    "ReadWrite": "read_write",
    "ControlledByParent": "controlled_by_parent",
}
_NAME_KINDS = ("Text", "AutoNumber")
_VOLUMES = {"HighVolume": "high", "StandardVolume": "standard"}
_PUBLISHING = {"PublishAfterCommit": "after_commit", "PublishImmediately": "immediately"}


@dataclass(slots=True)
class Draft:
    """A definition under construction. `later` is applied after `document`, in the same transaction."""

    document: dict[str, Any] = field(default_factory=dict)
    later: dict[str, Any] = field(default_factory=dict)

    def section(self, name: str) -> dict[str, Any]:
        """Return a section of the document, created if missing."""
        found: dict[str, Any] = self.document.setdefault(name, {})
        return found

    def type_spec(self, name: str) -> dict[str, Any]:
        """Return the spec of an object or platform event, created if missing."""
        section = self.section("events" if name.endswith("__e") else "objects")
        spec: dict[str, Any] = section.setdefault(name, {})
        return spec

    def remove(self, section: str, name: str) -> None:
        """Add a name to the section `remove`."""
        removed: dict[str, list[str]] = self.section("remove")
        removed.setdefault(section, []).append(name)


def is_event(name: str) -> bool:
    """Return whether this is the name of a platform event."""
    return name.lower().endswith("__e")


def field_components(obj: Component) -> list[Component]:
    """Return the fields in the component of an object, under their full names."""
    found = []
    for properties in items_of(obj.properties, "fields"):
        require(properties, "fullName")
        name = text_of(properties, "fullName").strip()
        found.append(Component("CustomField", f"{obj.full_name}.{name}", properties))
    return found


def add_field(draft: Draft, component: Component, context: Context) -> None:
    """Add a field to the definition of its object."""
    entity, _, name = component.full_name.partition(".")
    if not name:
        reject(f"{component.full_name} must have the form Object.Field__c", "INVALID_FULL_NAME", ["fullName"])
    known = context.catalog.try_object(entity) or context.catalog.try_event(entity)
    if known is None and "label" not in draft.type_spec(entity):
        reject(
            f"Entity Enumeration Or ID: bad value for restricted picklist field: {entity[:80]}",
            "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
            ["fullName"],
        )
    entity = known.name if known is not None else entity
    definition = parse_field_properties(entity, name, component.properties, context)
    draft.type_spec(entity).setdefault("fields", {})[name] = definition.spec
    if definition.later:
        spec = {"type": definition.spec["type"], "deactivate": list(definition.later)}
        fields = draft.later.setdefault("objects", {}).setdefault(entity, {}).setdefault("fields", {})
        fields[name] = spec


def add_object(draft: Draft, component: Component, context: Context) -> None:
    """Add an object or platform event, without its fields, to the definition."""
    properties = component.properties
    name = component.full_name
    check_properties(properties, _USED | _IGNORED, f"CustomObject {name}")
    if is_event(name):
        _add_event(draft, component, context)
        return
    known = context.catalog.try_object(name)
    spec = draft.type_spec(known.name if known is not None else name)
    if known is None:
        require(properties, "label", "pluralLabel")
        if not as_mapping(properties.get("nameField"), "nameField"):
            reject(
                "Must specify a nameField of type Text or AutoNumber for a CustomObject", fields=["nameField"]
            )
    spec |= _labels(properties)
    if (known is None or known.custom) and "nameField" in properties:
        spec["name"] = _name_spec(as_mapping(properties["nameField"], "nameField"), known)
    model = text_of(properties, "sharingModel")
    if model and (known is None or known.internal_sharing != model):
        if model not in _SHARING:
            reject(f"The sharingModel {model[:80]} is not supported", fields=["sharingModel"])
        spec["sharing"] = _SHARING[model]
    record_types = items_of(properties, "recordTypes")
    if record_types:
        spec["record_types"] = {text_of(item, "fullName"): _record_type(item) for item in record_types}


def _labels(properties: Properties) -> dict[str, Any]:
    names = {"label": "label", "pluralLabel": "plural", "description": "description"}
    return {word: text_of(properties, name) for name, word in names.items() if name in properties}


def _add_event(draft: Draft, component: Component, context: Context) -> None:
    properties = component.properties
    known = context.catalog.try_event(component.full_name)
    spec = draft.type_spec(known.name if known is not None else component.full_name)
    for given, word, choices in (
        ("eventType", "volume", _VOLUMES),
        ("publishBehavior", "publish", _PUBLISHING),
    ):
        chosen = text_of(properties, given)
        if chosen and chosen not in choices:
            reject(
                f"The {given} {chosen[:80]} is not supported: use {' or '.join(choices)}",
                "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
                [given],
            )
        if chosen:
            spec[word] = choices[chosen]
    for given in ("nameField", "sharingModel", "recordTypes"):
        if given in properties:
            reject(f"A platform event has no {given}", fields=[given])
    if known is None:
        require(properties, "label")
    spec |= _labels(properties)


def _name_spec(properties: Properties, known: ObjectType | None) -> dict[str, Any]:
    check_properties(
        properties,
        ("fullName", "label", "type", "displayFormat", "startingNumber", "trackHistory", "trackFeedHistory"),
        "nameField",
    )
    kind = text_of(properties, "type") or "Text"
    if kind not in _NAME_KINDS:
        reject("The type of a nameField is Text or AutoNumber", fields=["nameField"])
    spec: dict[str, Any] = {"type": kind}
    if text_of(properties, "label"):
        spec["label"] = text_of(properties, "label")
    if kind == "AutoNumber":
        spec["format"] = text_of(properties, "displayFormat")
        start = whole_of(properties, "startingNumber")
        if start is not None and known is None:
            spec["start"] = start
    return spec


def _record_type(properties: Properties) -> dict[str, Any]:
    label = text_of(properties, "label")
    return {
        **({"label": label} if label else {}),
        "description": text_of(properties, "description"),
        "active": flag_of(properties, "active", default=True),
    }


def shown_fields(obj: ObjectType) -> list[Field]:
    """Return the fields that the Metadata API shows: no system fields, parts of compounds, or the Id."""
    return [
        f
        for f in obj.fields
        if not f.is_system and not f.compound and f.type is not FieldType.ID and not _is_own_name(obj, f)
    ]


def _is_own_name(obj: ObjectType, f: Field) -> bool:
    # Fields ending in __pc mirror those of the contact of a person account.
    return f.name.endswith("__pc") or (obj.custom and f.name in ("Name", "OwnerId"))


def render_object(
    obj: ObjectType, record_types: Iterable[Mapping[str, object]], fields: Iterable[Field] | None = None
) -> dict[str, object]:
    """Render an object with its fields; `fields` selects some of them."""
    chosen = shown_fields(obj) if fields is None else list(fields)
    found: dict[str, object] = {
        "fields": [render_field_properties(obj, f, f.name) for f in chosen] or None,
        "description": obj.description or None,
        "recordTypes": [dict(row) for row in record_types] or None,
    }
    if is_shared(obj):
        found["sharingModel"] = obj.internal_sharing
    if obj.custom:
        found |= {
            "deploymentStatus": "Deployed",
            "enableStreamingApi": True,
            "label": obj.label,
            "nameField": _name_properties(obj),
            "pluralLabel": obj.label_plural,
        }
    return ordered(**found)


def is_shared(obj: ObjectType) -> bool:
    """Return whether the object has an org-wide default."""
    return not obj.is_setup and (obj.custom or obj.try_field("OwnerId") is not None)


def _name_properties(obj: ObjectType) -> dict[str, object]:
    named = obj.by_name["name"]
    is_counted = named.type is FieldType.AUTO_NUMBER
    return ordered(
        displayFormat=named.display_format if is_counted else None,
        label=named.label,
        type="AutoNumber" if is_counted else "Text",
    )


def render_event(event: EventType, fields: Iterable[Field] | None = None) -> dict[str, object]:
    """Render a platform event with its fields; `fields` selects some of them."""
    chosen = event.fields if fields is None else list(fields)
    return ordered(
        deploymentStatus="Deployed",
        description=event.description or None,
        eventType="HighVolume" if event.is_high_volume else "StandardVolume",
        fields=[render_field_properties(None, f, f.name) for f in chosen] or None,
        label=event.label,
        pluralLabel=event.label_plural,
        publishBehavior="PublishImmediately" if event.publishes_immediately else "PublishAfterCommit",
    )
