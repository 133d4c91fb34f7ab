"""The sections `objects`, `events` and `capture`: the types of the org.

Theory of operation. First the whole document is compared with the stored types and records, which gives a `TypePlan`;
every error about types is raised here, before anything is written, and a dry run ends here. Then, in the same
transaction and in this order:

1. `before`: records get renamed and replaced picklist values, while the old types are in force. These are ordinary
   updates: they publish events, and those events must have the schema that subscribers know.
2. Permissions, record types, queues and sharing rules of removed types are deleted, while the old catalog can still
   name their objects.
3. The catalog changes in one step (`Types.change`). A converted field has a new, empty column from here on; its old
   column is never reused, so events and pages that were read before stay valid.
4. `after`: new columns are filled: conversions, defaults of checkboxes, indexes, rows of status objects. This needs
   both the old column (to read) and the new one (to write), hence after the change.
5. Derived fields are computed last, because formulas and roll-ups read converted and filled columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tidewire.crm.person_fields import fill_contact_fields
from tidewire.gate.definitions.custom_fields import parse_custom_fields, parse_field, parse_text
from tidewire.gate.definitions.derived_fields import check_derived, fill_derived
from tidewire.gate.definitions.document import (
    check_keys,
    flag_of,
    keys_in,
    mapping,
    reject,
    text_list,
    text_of,
)
from tidewire.gate.definitions.events import plan_event
from tidewire.gate.definitions.field_changes import FieldChange, check_field, check_sizes, plan_change
from tidewire.gate.definitions.picklists import ValueChanges, split_value_changes, value_steps
from tidewire.gate.definitions.plan import differing_words
from tidewire.gate.definitions.removal import Removal, check_unused, forget_permissions, forget_records
from tidewire.gate.definitions.sharing import plan_sharing, store_sharing
from tidewire.gate.definitions.standard_fields import is_standard_name, plan_standard_field
from tidewire.gate.definitions.statuses import is_status, store_status_rows
from tidewire.ids import key_prefix
from tidewire.names import is_api_name
from tidewire.records.conversion import (
    ConversionNote,
    convert_column,
    count_records,
    ensure_index,
    fill_column,
    next_column,
)
from tidewire.records.numbers import take_number
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import STANDARD_CHANNEL, can_capture
from tidewire.schema.field_types import PICKLIST_TYPES, FieldType
from tidewire.schema.layout import FIRST_CUSTOM_TABLE, add_fields, custom_object
from tidewire.schema.model import EventType, Field, ObjectType

_OBJECT_KEYS = keys_in(
    "label plural description name fields capture record_types sharing grant_by_hierarchy sharing_rules"
)
_LABELS = {"label": "label", "plural": "label_plural", "description": "description"}
_NAME_TYPES = frozenset({FieldType.TEXT, FieldType.AUTO_NUMBER})
_Work = Callable[[], object]


@dataclass(slots=True)
class TypePlan:
    """The changes to types, collected while the document is read."""

    unit: UnitOfWork
    is_dry_run: bool
    lines: list[str] = field(default_factory=list)
    objects: list[ObjectType] = field(default_factory=list)
    events: list[EventType] = field(default_factory=list)
    captured: frozenset[str] | None = None
    removed_objects: list[str] = field(default_factory=list)
    removed_fields: list[tuple[str, str]] = field(default_factory=list)
    removed_events: list[str] = field(default_factory=list)
    before: list[_Work] = field(default_factory=list)  # run under the old types
    after: list[_Work] = field(default_factory=list)  # run once every column exists
    derived: list[str] = field(default_factory=list)  # objects with formulas or roll-ups to compute
    notes: list[ConversionNote] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether no type changes; records may change nevertheless."""
        has_removals = bool(self.removed_objects or self.removed_events)
        return not (self.objects or self.events or has_removals or self.captured is not None)

    def derive(self, entity: str) -> None:
        """Schedule the computation of an object's derived fields, and of roll-ups over it at any depth."""
        pending = [entity]
        for name in pending:  # grows: a roll-up may summarise a roll-up
            pending += [
                o.name
                for o in self.unit.catalog.objects
                if o.name not in pending and any(f.roll_up and f.roll_up.child == name for f in o.fields)
            ]
        self.derived += [name for name in pending if name not in self.derived]


def apply_types(
    unit: UnitOfWork, types: Types, document: Mapping[str, object], removal: Removal, *, is_dry_run: bool
) -> TypePlan:
    """Change the types as the document says; afterwards `unit.catalog` is the new catalog, also in a dry run."""
    plan = TypePlan(unit, is_dry_run)
    objects = mapping(document.get("objects"), "objects")
    events = mapping(document.get("events"), "events")
    spelling = _spelling(unit.catalog, objects, events)
    for name, spec in objects.items():
        _plan_object(plan, name, mapping(spec, f"objects.{name}"), spelling)
    _plan_events(plan, events, removal)
    _plan_removal(plan, removal)
    # The future catalog. Checks run against it, not the stored one: objects of the document may refer to each other,
    # and a formula may go together with the field that it uses.
    known = unit.catalog.with_objects(plan.objects).with_events(plan.events)
    known = known.without(plan.removed_objects).without_events(plan.removed_events)
    for obj in plan.objects:
        for target in (t for f in obj.fields for t in f.reference_to):
            known.object(target)  # raises ObjectUnknown for a lookup to nowhere
    check_unused(unit, known, removal, plan.notes, document)
    check_derived(known, plan.objects)
    plan.captured = _captured(known, document, plan.lines)
    if is_dry_run:
        # Later sections (permissions, channels) are planned against the future types.
        unit.catalog = known if plan.captured is None else known.with_captured(plan.captured)
        return plan
    # Before the test for an empty plan: `replace` may change records even if the stored list stays the same.
    for work in plan.before:
        work()
    if plan.is_empty:
        return plan
    forget_permissions(unit, [*plan.removed_objects, *plan.removed_events], plan.removed_fields)
    forget_records(unit, types, plan.removed_objects)
    # Cached grants name fields and topics; without a new generation, subscribers would keep the old ones.
    unit.tx.progress.access_generation += 1
    unit.catalog = types.change(
        unit.tx,
        objects=plan.objects,
        events=plan.events,
        captured=plan.captured,
        removed_objects=plan.removed_objects,
        removed_fields=plan.removed_fields,
        removed_events=plan.removed_events,
        base=unit.catalog,
    )
    for work in plan.after:
        work()
    # Person accounts mirror fields of their contact; copy before formulas of Account read the copies.
    fill_contact_fields(unit.tx, unit.catalog, (obj.name for obj in plan.objects))
    fill_derived(unit, plan.derived)
    store_sharing(unit, plan.objects)
    return plan


def _spelling(
    catalog: Catalog, objects: Mapping[str, object], events: Mapping[str, object]
) -> dict[str, str]:
    """Return the exact spelling of each object name, by its lower-case form."""
    for section, names in (("objects", objects), ("events", events)):
        if len({name.lower() for name in names}) < len(names):
            reject(section, "two names differ in letter case only")
    return {name.lower(): name for name in objects} | {o.name.lower(): o.name for o in catalog.objects}


def _respelt(f: Field, spelling: Mapping[str, str]) -> Field:
    targets = tuple(spelling.get(t.lower(), t) for t in f.reference_to)
    roll_up = f.roll_up
    if roll_up is not None:
        roll_up = replace(roll_up, child=spelling.get(roll_up.child.lower(), roll_up.child))
    return replace(f, reference_to=targets, roll_up=roll_up)


def _plan_object(plan: TypePlan, name: str, spec: Mapping[str, Any], spelling: Mapping[str, str]) -> None:
    path = f"objects.{name}"
    check_keys(spec, _OBJECT_KEYS, path)
    known = plan.unit.catalog.try_object(name)
    specs: dict[str, dict[str, Any]] = {}
    value_changes: dict[str, ValueChanges] = {}
    for field_name, raw in mapping(spec.get("fields"), f"{path}.fields").items():
        field_path = f"{path}.fields.{field_name}"
        specs[field_name], value_changes[field_name] = split_value_changes(
            mapping(raw, field_path), field_path
        )
        check_sizes(specs[field_name], field_path)
    # Names without __c on a known object are standard fields, which are planned separately below.
    own = {n: s for n, s in specs.items() if known is None or not is_standard_name(n)}
    completed = {n: _with_stored_values(known, n, s) for n, s in own.items()}
    fields = tuple(_respelt(f, spelling) for f in parse_custom_fields(completed, f"{path}.fields"))
    for f in fields:
        check_field(f, f"{path}.fields.{f.name}")
    if known is None:
        plan.objects.append(_new_object(plan, name, spec, fields))
        return
    # Each step below returns a new object that the next one starts from, so changes to several fields add up.
    changed = plan_sharing(known, spec, fields, path, plan.lines)
    changed = _relabelled(changed, spec, path, plan.lines)
    if spec.get("name") is not None:
        changed = _with_name(plan, changed, spec)
    for standard_name in filter(is_standard_name, specs):
        changes = value_changes[standard_name]
        changed = _plan_standard(plan, changed, standard_name, specs[standard_name], changes)
    missing = [f for f in fields if known.try_field(f.name) is None]
    for f in fields:
        stored = changed.try_field(f.name)
        if stored is None or f.compound:
            continue
        if stored.name != f.name or not stored.custom:
            reject(f"{path}.fields.{f.name}", f"{known.name} has a field {stored.name}")
        changes, field_path = value_changes[f.name], f"{path}.fields.{f.name}"
        change = plan_change(plan.unit, known, stored, f, specs[f.name], changes, field_path)
        if change is not None or changes != ValueChanges():
            changed = _plan_field(plan, changed, stored, change, changes)
    # New fields last: their columns are numbered after those that conversions above have taken.
    if missing:
        changed = _plan_missing(plan, changed, missing)
    if changed != known:
        plan.objects.append(changed)


def _plan_standard(
    plan: TypePlan, obj: ObjectType, name: str, spec: Mapping[str, Any], value_changes: ValueChanges
) -> ObjectType:
    """Return the object with one standard field changed; adds the work to the plan."""
    path = f"objects.{obj.name}.fields.{name}"
    change, lines = plan_standard_field(obj, name, spec, value_changes, path)
    if change is None and value_changes == ValueChanges():
        return obj
    changed = _plan_field(plan, obj, obj.by_name[name.lower()], change, value_changes)
    plan.lines += lines
    if change is not None and is_status(obj.name, name):
        plan.after.append(partial(store_status_rows, plan.unit, changed, value_changes.rename))
    return changed


def _plan_events(plan: TypePlan, events: Mapping[str, object], removal: Removal) -> None:
    losing: dict[str, object] = {name: {} for name in removal.event_fields if name not in events}
    for name, spec in {**events, **losing}.items():
        gone = removal.event_fields.get(name, frozenset())
        own = mapping(spec, f"events.{name}")
        event, lines = plan_event(plan.unit, name, own, gone, is_dry_run=plan.is_dry_run)
        plan.lines += lines
        if event is not None:
            plan.events.append(event)


def _with_stored_values(obj: ObjectType | None, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Add the stored values to the spec of a picklist that does not list any."""
    stored = obj.try_field(name) if obj is not None else None
    if stored is None or "values" in spec or not stored.picklist:
        return spec
    if str(spec.get("type", "")).lower() not in {t.value.lower() for t in PICKLIST_TYPES}:
        return spec
    return {**spec, "values": [v.value for v in stored.picklist if v.is_active]}


def _new_object(plan: TypePlan, name: str, spec: Mapping[str, Any], fields: tuple[Field, ...]) -> ObjectType:
    path = f"objects.{name}"
    if not (is_api_name(name) and name.endswith("__c")):
        reject(path, "the name of a custom object must end in __c")
    label = text_of(spec, "label", name.removesuffix("__c").replace("_", " "), path)
    plan.lines.append(f"create object {name} with {len(fields)} fields")
    number = 0 if plan.is_dry_run else take_number(plan.unit.tx, "custom objects", 0)
    obj = custom_object(
        name,
        label,
        text_of(spec, "plural", label + "s", path),
        key_prefix(number, "a"),
        FIRST_CUSTOM_TABLE + number,
        _name_field(spec.get("name"), label, f"{path}.name"),
        fields,
    )
    obj = replace(obj, description=parse_text(spec, "description", "", path))
    return plan_sharing(obj, spec, fields, path, [])


def _name_field(value: object, label: str, path: str) -> Field | None:
    if value is None:
        return None
    check_sizes(mapping(value, path), path)
    named = parse_field("Name", value, path, _NAME_TYPES)
    check_field(named, path)
    if "label" in mapping(value, path):
        label = named.label
    return replace(named, label=label, custom=False, length=min(named.length, 80))


def _relabelled(obj: ObjectType, spec: Mapping[str, Any], path: str, lines: list[str]) -> ObjectType:
    label = text_of(spec, "label", obj.label, path)
    plural = text_of(spec, "plural", obj.label_plural, path)
    description = parse_text(spec, "description", obj.description, path)
    if not obj.custom and (label, plural) != (obj.label, obj.label_plural):
        reject(path, f"{obj.name} is a standard object; its label cannot be changed")
    changed = replace(obj, label=label, label_plural=plural, description=description)
    words = differing_words(obj, changed, _LABELS)
    if not words:
        return obj
    lines.append(f"change {obj.name}: {', '.join(words)}")
    return changed


def _with_name(plan: TypePlan, obj: ObjectType, spec: Mapping[str, Any]) -> ObjectType:
    path = f"objects.{obj.name}.name"
    stored = obj.name_field
    wanted = _name_field(spec["name"], obj.label, path)
    if not obj.custom or stored is None or wanted is None:
        reject(path, f"{obj.name} is a standard object; its Name field cannot be changed")
    change = plan_change(plan.unit, obj, stored, wanted, mapping(spec["name"], path), ValueChanges(), path)
    return obj if change is None else _plan_field(plan, obj, stored, change, ValueChanges())


def _plan_field(
    plan: TypePlan, obj: ObjectType, old: Field, change: FieldChange | None, value_changes: ValueChanges
) -> ObjectType:
    """Return the object with one field changed; adds the work to the plan."""
    if change is None:
        change = FieldChange(old, old, "")
    new = change.new
    if change.note is not None:
        if value_changes != ValueChanges():
            reject(
                f"objects.{obj.name}.fields.{old.name}", "change the type first; its values in a later step"
            )
        # A conversion never rewrites a column in place: queries bound to the old catalog still read the old one.
        new = replace(new, column=f"c{next_column(plan.unit.tx, obj)}")
    changed = replace(obj, fields=tuple(new if f.name == old.name else f for f in obj.fields))
    if change.line:
        plan.lines.append(change.line)
    if change.note is not None:
        plan.notes.append(change.note)
        plan.after.append(partial(convert_column, plan.unit.tx, changed, old, new))
        return changed
    if new.type in PICKLIST_TYPES:
        for step in value_steps(plan.unit, changed, old, new, value_changes):
            plan.lines.append(step.line)
            plan.before.append(step.run)
    if (new.unique or new.external_id) and not (old.unique or old.external_id):
        plan.after.append(partial(ensure_index, plan.unit.tx, changed, new))
    if change.has_new_values:
        plan.derive(obj.name)
    return changed


def _plan_missing(plan: TypePlan, obj: ObjectType, missing: list[Field]) -> ObjectType:
    tx = plan.unit.tx
    number = next_column(tx, obj)
    placed: list[Field] = []
    for f in missing:
        placed.append(f if f.is_compound else replace(f, column=f"c{number}"))
        number += not f.is_compound
    grown = add_fields(obj, placed)
    for f in placed:
        if not f.compound:
            plan.lines.append(f"add field {obj.name}.{f.name} ({f.type.value})")
        if f.type is FieldType.CHECKBOX and not f.formula:
            plan.after.append(partial(fill_column, tx, grown, f, f.default is True))
        if f.formula or f.roll_up is not None:
            plan.derive(obj.name)
        if f.is_master_detail and count_records(tx, obj):
            path = f"objects.{obj.name}.fields.{f.name}"
            reject(path, f"{obj.name} has records, which would have no master; delete them first")
    return grown


def _plan_removal(plan: TypePlan, removal: Removal) -> None:
    unit = plan.unit
    for name in removal.events:
        plan.lines.append(f"remove platform event {name}")
        plan.removed_events.append(name)
    for name in removal.objects:
        obj = unit.catalog.object(name)
        plan.lines.append(f"remove object {name} and its {count_records(unit.tx, obj)} records")
        plan.removed_objects.append(name)
    for name, field_names in removal.fields.items():
        pending = {o.name: o for o in plan.objects}
        obj = pending.get(name) or unit.catalog.object(name)
        gone = {f.name for f in obj.fields if f.name in field_names or f.compound in field_names}
        cleared = unit.catalog.object(name)  # still has the column, which is emptied after the change
        for f in (f for f in obj.fields if f.name in gone):
            if not f.compound:
                plan.lines.append(f"remove field {name}.{f.name}")
            plan.removed_fields.append((name, f.name))
            if f.column:
                plan.after.append(partial(fill_column, unit.tx, cleared, f, None))
        kept = replace(obj, fields=tuple(f for f in obj.fields if f.name not in gone))
        plan.objects = [o for o in plan.objects if o.name != name] + [kept]


def _captured(catalog: Catalog, document: Mapping[str, object], lines: list[str]) -> frozenset[str] | None:
    names = {catalog.object(name).name for name in text_list(document.get("capture"), "capture")}
    stopped: set[str] = set()
    for name, spec in mapping(document.get("objects"), "objects").items():
        path = f"objects.{name}"
        if "capture" in mapping(spec, path):
            wanted = names if flag_of(spec, "capture", False, path) else stopped
            wanted.add(catalog.object(name).name)
    if names & stopped:
        reject("capture", f"{min(names & stopped)} is listed, but its `capture` is false")
    selected = frozenset(member.entity for member in catalog.selection.members_of(STANDARD_CHANNEL))
    added = sorted(names - selected)
    ended = sorted(stopped & selected)
    for name in added:
        if not can_capture(catalog.object(name)):
            reject("capture", f"changes of {name} cannot be captured")
    lines += [f"capture changes of {name}" for name in added]
    lines += [f"stop capturing changes of {name}" for name in ended]
    return (selected | names) - stopped if added or ended else None
