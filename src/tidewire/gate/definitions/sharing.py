"""Org-wide defaults and sharing rules: who sees the records of others.

An object's `sharing` is `private`, `read`, `read_write` or `controlled_by_parent`; with `grant_by_hierarchy` false
the records of a custom object are not open to people above their owner. A rule under `sharing_rules`
opens records that somebody in `owned_by` owns, or that meet all `criteria`, to those in `share_with`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tidewire.errors import RequestError
from tidewire.gate.definitions.custom_fields import check_keys, mapping, parse_filter
from tidewire.gate.definitions.document import flag_of, refuse, text_of
from tidewire.gate.definitions.groups import check_party, ensure_party, try_party_id
from tidewire.gate.definitions.plan import Step
from tidewire.names import is_api_name
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
# Standard objects that may leave the decision to the account, or whatever else they belong to.
_HAVE_PARENTS = frozenset({"Contact", "Order", "Asset", "Task", "Event", "CampaignMember"})
# Organization tells the defaults of these objects, in words of its own.
_TOLD = ("Account", "Contact", "Opportunity", "Lead", "Case", "Campaign")
_TOLD_WORDS = {
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
    """The object with the org-wide default that the document says. A detail follows its master."""
    is_detail = any(f.is_master_detail for f in (*obj.fields, *added))
    model = obj.internal_sharing
    if obj.custom and is_detail:
        model = "ControlledByParent"
    if "sharing" in spec:
        word = text_of(spec, "sharing", "", path)
        if word not in _MODELS:
            refuse(f"{path}.sharing", f"must be one of {', '.join(_MODELS)}")
        model = _checked(obj, _MODELS[word], is_detail, f"{path}.sharing")
    uses_hierarchy = flag_of(spec, "grant_by_hierarchy", obj.uses_hierarchy, path)
    if not uses_hierarchy and not obj.custom:
        refuse(f"{path}.grant_by_hierarchy", f"{obj.name} is a standard object: people above have access")
    if model != obj.internal_sharing:
        lines.append(f"share {obj.name}: {_WORDS[model]}")
    if uses_hierarchy != obj.uses_hierarchy:
        lines.append(f"share {obj.name} with people above: {'yes' if uses_hierarchy else 'no'}")
    if (model, uses_hierarchy) == (obj.internal_sharing, obj.uses_hierarchy):
        return obj
    return replace(obj, internal_sharing=model, uses_hierarchy=uses_hierarchy)


def _checked(obj: ObjectType, model: str, is_detail: bool, path: str) -> str:
    if obj.is_setup:
        refuse(path, f"{obj.name} is not shared by defaults")
    if obj.custom and is_detail and model != "ControlledByParent":
        refuse(path, f"{obj.name} is the detail of another object, which controls it")
    if model == "ControlledByParent" and not is_detail and obj.name not in _HAVE_PARENTS:
        refuse(path, f"{obj.name} has no parent that could control it")
    if obj.name == "User" and model not in ("Private", "Read"):
        refuse(path, "User is private or read")
    if obj.try_field("OwnerId") is None and model != "ControlledByParent" and obj.name != "User":
        refuse(path, f"{obj.name} has no owner and is not shared by defaults")
    return model


def store_sharing(unit: UnitOfWork, objects: Iterable[ObjectType]) -> None:
    """Let the org's own record tell the defaults of the objects that it speaks of."""
    told = {f"Default{o.name}Access": _TOLD_WORDS[o.internal_sharing] for o in objects if o.name in _TOLD}
    organization = unit.catalog.object("Organization")
    for row in read_all_rows(unit.tx, organization) if told else ():
        if any(row.get(name) != word for name, word in told.items()):
            unit.store(organization, row, told)


def sharing_rule_steps(unit: UnitOfWork, types: Types, document: Mapping[str, object]) -> list[Step]:
    """A step for each rule that is missing or differs."""
    steps: list[Step] = []
    held = {rule.key: rule for rule in read_sharing_rules(unit.tx)}
    for entity, value in mapping(document.get("objects"), "objects").items():
        path = f"objects.{entity}.sharing_rules"
        specs = mapping(mapping(value, f"objects.{entity}").get("sharing_rules"), path)
        for name, raw in specs.items():
            obj = unit.catalog.object(entity)
            own_path = f"{path}.{name}"
            spec = mapping(raw, own_path)
            wanted = _read_rule(unit, document, obj, name, spec, own_path)
            stored = held.get(wanted.key)
            if stored != wanted:
                word = "create" if stored is None else "update"
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
    """The rule; a group that is made only with it has no id yet."""
    check_keys(spec, _RULE_KEYS, path)
    if not is_api_name(name):
        refuse(path, "the name has letters, digits and underscores only")
    if obj.is_setup or obj.try_field("OwnerId") is None:
        refuse(path, f"{obj.name} is not shared by rules")
    access = _ACCESS.get(text_of(spec, "access", "read", path))
    if access is None:
        refuse(f"{path}.access", f"must be one of {', '.join(_ACCESS)}")
    if ("owned_by" in spec) == ("criteria" in spec):
        refuse(path, "a rule has either `owned_by` or `criteria`")
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
        refuse(path, "must be a list of conditions")
    out = []
    for i, item in enumerate(value):
        name, operator, literal = parse_filter(item, f"{path}[{i}]")
        found = obj.try_field(name)
        if found is None or not found.is_filterable or not found.column:
            refuse(f"{path}[{i}]", f"{obj.name} has no field {name} to filter by")
        try:
            parse_value(replace(found, restricted=False), literal)
        except RequestError as error:
            refuse(f"{path}[{i}]", error.message)
        out.append((found.name, operator, literal))
    return tuple(out)


def _store(unit: UnitOfWork, types: Types, rule: SharingRule, spec: Mapping[str, Any]) -> None:
    owned_by = ensure_party(unit, spec["owned_by"]) if "owned_by" in spec else ""
    shared_with = ensure_party(unit, spec["share_with"])
    types.change_sharing_rules(unit.tx, [replace(rule, owned_by_id=owned_by, shared_with_id=shared_with)])
