"""The section `roles`: the role hierarchy.

A role is identified by its DeveloperName, which is its name in the document; `parent` names another role. The order
of roles in the document does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidewire.events import Value
from tidewire.gate.definitions.document import check_name, iter_entries, one_of, reject, text_of
from tidewire.gate.definitions.plan import Step
from tidewire.records.table import read_all_rows
from tidewire.records.work import UnitOfWork

_ACCESS = {
    "opportunity_access": "OpportunityAccessForAccountOwner",
    "case_access": "CaseAccessForAccountOwner",
    "contact_access": "ContactAccessForAccountOwner",
}
_LEVELS = {"none": "None", "read": "Read", "edit": "Edit"}
_KEYS = ("label", "parent", "description", *_ACCESS)


def read_roles(unit: UnitOfWork) -> dict[str, dict[str, Value]]:
    """Read the roles by DeveloperName, or by name if they have none."""
    rows = read_all_rows(unit.tx, unit.catalog.object("UserRole"))
    return {str(r["DeveloperName"] or r["Name"]): r for r in rows if not r["IsDeleted"]}


def role_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """Return a step for each role that is missing or differs, parents before their children."""
    specs = {name: spec for name, _, spec in iter_entries(document, "roles", _KEYS)}
    stored = read_roles(unit)
    parents = _parents(stored, specs)
    steps: list[Step] = []
    for name in sorted(specs, key=lambda n: _depth(parents, n)):
        path, spec = f"roles.{name}", specs[name]
        wanted = _values(spec, path)
        row = stored.get(name)
        if row is None:
            wanted.setdefault("Name", name.replace("_", " "))
            steps.append(Step(f"create role {name}", partial(_create, unit, name, wanted, parents.get(name))))
            continue
        differing = {key: value for key, value in wanted.items() if row.get(key) != value}
        above = stored.get(parents.get(name) or "", {}).get("Id")
        moves = "parent" in spec and (row.get("ParentRoleId") != above or (parents[name] and above is None))
        if differing or moves:
            words = sorted([*differing, *(["ParentRoleId"] if moves else [])])
            run = partial(_update, unit, str(row["Id"]), differing, parents.get(name) if moves else row["Id"])
            steps.append(Step(f"update role {name}: {', '.join(words)}", run))
    return steps


def _parents(
    stored: Mapping[str, Mapping[str, Value]], specs: Mapping[str, Mapping[str, Any]]
) -> dict[str, str | None]:
    """Return the parent of every role once the document is applied. Rejects unknown parents and cycles."""
    names = {str(row["Id"]): name for name, row in stored.items()}
    parents = {name: names.get(str(row.get("ParentRoleId"))) for name, row in stored.items()}
    for name, spec in specs.items():
        path = f"roles.{name}"
        check_name(name, path)
        parents.setdefault(name, None)
        if "parent" in spec:
            parents[name] = text_of(spec, "parent", "", path) or None
    for name in specs:
        above = parents[name]
        if above is not None and above not in parents:
            reject(f"roles.{name}.parent", f"there is no role {above}")
        _depth(parents, name)
    return parents


def _depth(parents: Mapping[str, str | None], name: str) -> int:
    seen = [name]
    while (above := parents[seen[-1]]) is not None:
        if above in seen:
            reject(f"roles.{name}.parent", f"{name} would be above itself in the hierarchy")
        seen.append(above)
        if above not in parents:
            reject(f"roles.{name}.parent", f"there is no role {above}")
    return len(seen)


def _values(spec: Mapping[str, Any], path: str) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for key, field_name, limit in (("label", "Name", 80), ("description", "RollupDescription", 80)):
        if key in spec:
            text = text_of(spec, key, "", path).strip()
            if len(text) > limit or (key == "label" and not text):
                reject(f"{path}.{key}", f"must have 1 to {limit} characters")
            values[field_name] = text or None
    for key, field_name in _ACCESS.items():
        if key in spec:
            values[field_name] = one_of(spec, key, _LEVELS, "None", path)
    return values


def try_role_id(unit: UnitOfWork, name: str) -> str | None:
    """Return the id of the role with this name, or None."""
    row = read_roles(unit).get(name)
    return None if row is None else str(row["Id"])


def _create(unit: UnitOfWork, name: str, values: Mapping[str, Value], parent: str | None) -> None:
    above = try_role_id(unit, parent) if parent else None
    unit.create(unit.catalog.object("UserRole"), {**values, "DeveloperName": name, "ParentRoleId": above})


def _update(unit: UnitOfWork, role_id: str, values: dict[str, Value], parent: Value) -> None:
    """Update a role; `parent` is a role name, None for no parent, or the role's own id to keep its parent."""
    changed: dict[str, object] = dict(values)
    if parent != role_id:
        changed["ParentRoleId"] = try_role_id(unit, str(parent)) if parent else None
    unit.update(unit.catalog.object("UserRole"), role_id, changed)
