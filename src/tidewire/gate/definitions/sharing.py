"""Org-wide defaults and sharing rules: who sees the records of others.

An object's `sharing` is `private`, `read`, `read_write` or `controlled_by_parent`; with `grant_by_hierarchy: false`
the role hierarchy gives no access to records of a custom object. A rule in `sharing_rules` gives those in `share_with`
access to records that somebody in `owned_by` owns, or that meet all `criteria`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tidewire.errors import RequestError
from tidewire.gate.definitions.custom_fields import parse_filter
from tidewire.gate.definitions.document import (
    check_name,
    flag_of,
    iter_object_entries,
    one_of,
    reject,
    text_of,
)
from tidewire.gate.definitions.groups import check_party, ensure_party, try_party_id
from tidewire.gate.definitions.plan import Step
from tidewire.records.table import read_all_rows
from tidewire.records.types import Types, read_sharing_rules
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.sharing_rules import SharingRule
from tidewire.schema.values import parse_value

_MODELS = {
    "private": "Private",
    "read": "Read",
    "read_write": "ReadWrite",
    "controlled_by_parent": "ControlledByParent",
}
_WORDS = {model: word for word, model in _MODELS.items()}
# Standard objects whose sharing a parent record may control.
_HAVE_PARENTS = frozenset({"Contact", "Order", "Asset", "Task", "Event", "CampaignMember"})
# The Organization record shows the defaults of these objects, in its own words.
_ORG_OBJECTS = ("Account", "Contact", "Opportunity", "Lead", "Case", "Campaign")
_ORG_WORDS = {
    "Private": "None",
    "Read": "Read",
    "ReadWrite": "Edit",
    "ControlledByParent": "ControlledByParent",
}
_RULE_KEYS = ("label", "owned_by", "criteria", "share_with", "access")
_SHARED_WITH = ("group", "role", "role_and_subordinates", "everyone")
_OWNED_BY = ("group", "queue", "role", "role_and_subordinates")
_ACCESS = {"read": "Read", "edit": "Edit"}


def plan_sharing(
    obj: ObjectType, spec: Mapping[str, Any], added: tuple[Field, ...], path: str, lines: list[str]
) -> ObjectType:
    """Return the object with the org-wide default of the document. A detail is controlled by its master."""
    is_detail = any(f.is_master_detail for f in (*obj.fields, *added))
    model = obj.internal_sharing
    if obj.custom and is_detail:
        model = "ControlledByParent"
    if "sharing" in spec:
        word = text_of(spec, "sharing", "", path)
        if word not in _MODELS:
            reject(f"{path}.sharing", f"must be one of {', '.join(_MODELS)}")
        model = _checked(obj, _MODELS[word], is_detail, f"{path}.sharing")
    uses_hierarchy = flag_of(spec, "grant_by_hierarchy", obj.uses_hierarchy, path)
    if not uses_hierarchy and not obj.custom:
        reject(f"{path}.grant_by_hierarchy", f"{obj.name} is a standard object; this cannot be changed")
    if model != obj.internal_sharing:
        lines.append(f"share {obj.name}: {_WORDS[model]}")
    if uses_hierarchy != obj.uses_hierarchy:
        lines.append(f"share {obj.name} by role hierarchy: {'yes' if uses_hierarchy else 'no'}")
    if (model, uses_hierarchy) == (obj.internal_sharing, obj.uses_hierarchy):
        return obj
    return replace(obj, internal_sharing=model, uses_hierarchy=uses_hierarchy)


def _checked(obj: ObjectType, model: str, is_detail: bool, path: str) -> str:
    if obj.is_setup:
        reject(path, f"{obj.name} is a setup object and has no org-wide default")
    if obj.custom and is_detail and model != "ControlledByParent":
        reject(path, f"{obj.name} is a detail; only controlled_by_parent is possible")
    if model == "ControlledByParent" and not is_detail and obj.name not in _HAVE_PARENTS:
        reject(path, f"{obj.name} has no parent that could control it")
    if obj.name == "User" and model not in ("Private", "Read"):
        reject(path, "User can only be private or read")
    if obj.try_field("OwnerId") is None and model != "ControlledByParent" and obj.name != "User":
        reject(path, f"{obj.name} has no owner, so it has no org-wide default")
    return model


def store_sharing(unit: UnitOfWork, objects: Iterable[ObjectType]) -> None:
    """Update the defaults that the Organization record shows."""
    shown = {
        f"Default{o.name}Access": _ORG_WORDS[o.internal_sharing] for o in objects if o.name in _ORG_OBJECTS
    }
    organization = unit.catalog.object("Organization")
    for row in read_all_rows(unit.tx, organization) if shown else ():
        if any(row.get(name) != word for name, word in shown.items()):
            unit.store(organization, row, shown)


def sharing_rule_steps(unit: UnitOfWork, types: Types, document: Mapping[str, object]) -> list[Step]:
    """Return a step for each rule that is missing or differs."""
    steps: list[Step] = []
    stored = {rule.key: rule for rule in read_sharing_rules(unit.tx)}
    for entity, name, path, spec in iter_object_entries(document, "sharing_rules", _RULE_KEYS):
        wanted = _read_rule(unit, document, unit.catalog.object(entity), name, spec, path)
        if stored.get(wanted.key) != wanted:
            word = "update" if wanted.key in stored else "create"
            store = partial(_store, unit, types, wanted, spec)
            steps.append(Step(f"{word} sharing rule {wanted.key}", store))
    return steps


def _read_rule(
    unit: UnitOfWork,
    document: Mapping[str, object],
    obj: ObjectType,
    name: str,
    spec: Mapping[str, Any],
    path: str,
) -> SharingRule:
    """Return the rule; a group that is created together with it has no id yet."""
    check_name(name, path)
    if obj.is_setup or obj.try_field("OwnerId") is None:
        reject(path, f"{obj.name} has no owner, so it cannot have sharing rules")
    access = one_of(spec, "access", _ACCESS, "Read", path)
    if ("owned_by" in spec) == ("criteria" in spec):
        reject(path, "needs either `owned_by` or `criteria`")
    shared_with = text_of(spec, "share_with", "", path)
    check_party(unit, document, shared_with, f"{path}.share_with", *_SHARED_WITH)
    owned_by = text_of(spec, "owned_by", "", path)
    if "owned_by" in spec:
        check_party(unit, document, owned_by, f"{path}.owned_by", *_OWNED_BY)
    return SharingRule(
        entity=obj.name,
        name=name,
        label=text_of(spec, "label", name.replace("_", " "), path),
        access=access,
        shared_with_id=try_party_id(unit, shared_with) or "",
        owned_by_id=(try_party_id(unit, owned_by) or "") if owned_by else "",
        criteria=_criteria(obj, spec.get("criteria", ()), f"{path}.criteria"),
    )


def _criteria(
    obj: ObjectType, value: object, path: str
) -> tuple[tuple[str, str, str | int | float | bool | None], ...]:
    if not isinstance(value, list | tuple):
        reject(path, "must be a list of conditions")
    out = []
    for i, item in enumerate(value):
        name, operator, literal = parse_filter(item, f"{path}[{i}]")
        found = obj.try_field(name)
        if found is None or not found.is_filterable or not found.column:
            reject(f"{path}[{i}]", f"{obj.name} has no field {name} to filter by")
        try:
            parse_value(replace(found, restricted=False), literal)
        except RequestError as error:
            reject(f"{path}[{i}]", error.message)
        out.append((found.name, operator, literal))
    return tuple(out)


def _store(unit: UnitOfWork, types: Types, rule: SharingRule, spec: Mapping[str, Any]) -> None:
    owned_by = ensure_party(unit, spec["owned_by"]) if "owned_by" in spec else ""
    shared_with = ensure_party(unit, spec["share_with"])
    types.change_sharing_rules(unit.tx, [replace(rule, owned_by_id=owned_by, shared_with_id=shared_with)])
