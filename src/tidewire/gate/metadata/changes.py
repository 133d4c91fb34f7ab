"""Changes to one component inside a transaction: translate it into a definition, and apply that.

Each action returns whether the component is new, and raises DefinitionInvalid with the `status_code` of the Metadata
API in its details.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidewire.errors import DefinitionInvalid, RequestError
from tidewire.gate.definitions.apply import apply_definition
from tidewire.gate.metadata.field_parse import Context
from tidewire.gate.metadata.objects import Draft, field_components
from tidewire.gate.metadata.permissions import profile_name
from tidewire.gate.metadata.properties import Component, Properties, reject, text_of
from tidewire.gate.metadata.registry import Source, metadata_type
from tidewire.gate.metadata.rename import rename_field, rename_object, rename_row
from tidewire.records.service import Records
from tidewire.records.work import UnitOfWork

Action = Callable[[Records, Component, UnitOfWork], bool]
_STATUS_CODES = {
    "ObjectUnknown": "INVALID_CROSS_REFERENCE_KEY",
    "AccessDenied": "INSUFFICIENT_ACCESS",
    "LimitExceeded": "LIMIT_EXCEEDED",
}
_INTEGRITY = "FIELD_INTEGRITY_EXCEPTION"
_DEPENDENCY = "DEPENDENCY_EXISTS"


def create(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Create a component, which must not exist."""
    if _exists(unit, component):
        reject(_taken(component), "DUPLICATE_DEVELOPER_NAME", ["fullName"])
    return upsert(records, component, unit)


def _taken(component: Component) -> str:
    entity, _, name = component.full_name.partition(".")
    if component.kind == "CustomField":
        return f"There is already a field named {name} on {entity}."
    return f"There is already a {component.kind} named {component.full_name}."


def update(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Change a component, which must exist."""
    _must_exist(unit, component)
    return upsert(records, component, unit)


def upsert(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Create or change a component."""
    is_new = not _exists(unit, component)
    if component.kind == "CustomField":
        _must_exist(unit, Component("CustomObject", component.full_name.partition(".")[0], {}))
    draft = Draft()
    add_component(draft, component, context_of(unit, [component]))
    apply_draft(records, unit, draft)
    return is_new


def delete(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Remove a component, which must exist and must not be in use."""
    _must_exist(unit, component)
    draft = Draft()
    metadata_type(component.kind).remove(draft, component.full_name)
    apply_draft(records, unit, draft, usual_code=_DEPENDENCY)
    return False


def rename(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Rename a component to the name in its property `newFullName`."""
    metadata_type(component.kind)
    new = text_of(component.properties, "newFullName")
    _must_exist(unit, component)
    wanted = Component(component.kind, new, {})
    if new.lower() != component.full_name.lower() and _exists(unit, wanted):
        reject(_taken(wanted), "DUPLICATE_DEVELOPER_NAME", ["fullName"])
    match component.kind:
        case "CustomField":
            with_status_code(lambda: rename_field(records, unit, component.full_name, new), _DEPENDENCY)
        case "CustomObject":
            with_status_code(lambda: rename_object(records, unit, component.full_name, new), _DEPENDENCY)
        case "PermissionSet" | "Profile":
            entity, names = component.kind, (component.full_name, new)
            old_name, new_name = map(profile_name, names) if entity == "Profile" else names
            with_status_code(lambda: rename_row(unit, entity, old_name, new_name), _INTEGRITY)
        case _:
            reject(f"A {component.kind} cannot be renamed", "INVALID_OPERATION")
    return False


def add_component(draft: Draft, component: Component, context: Context) -> None:
    """Add one component to a definition."""
    if not component.full_name.strip():
        reject("Required field is missing: fullName", "REQUIRED_FIELD_MISSING", ["fullName"])
    metadata_type(component.kind).add(draft, component, context)


def context_of(unit: UnitOfWork, components: Iterable[Component]) -> Context:
    """Return what components of one request may refer to: the org, and fields among the components."""
    found: dict[str, Properties] = {}
    for component in components:
        inner = field_components(component) if component.kind == "CustomObject" else [component]
        found |= {each.full_name.lower(): each.properties for each in inner if each.kind == "CustomField"}
    return Context(unit.catalog, unit.tx, found)


def apply_draft(
    records: Records,
    unit: UnitOfWork,
    draft: Draft,
    *,
    is_dry_run: bool = False,
    usual_code: str = _INTEGRITY,
) -> list[str]:
    """Apply a draft in the current transaction; returns the lines of the plan. Raises DefinitionInvalid."""

    def run() -> list[str]:
        lines: list[str] = []
        for document in (draft.document, draft.later):
            if document:
                applied = apply_definition(
                    unit,
                    records.types,
                    document,
                    is_dry_run=is_dry_run,
                    on_conversion=records.on_conversion,
                )
                lines += applied.lines
        return lines

    return with_status_code(run, usual_code)


def with_status_code(work: Callable[[], list[str]], usual: str) -> list[str]:
    """Run `work`; gives its errors the status code of the Metadata API."""
    try:
        return work()
    except DefinitionInvalid as error:
        path = str(error.details.get("path", ""))
        if "status_code" in error.details and not path:
            raise
        message = error.message.removeprefix(f"{path}: ") if path else error.message
        code = error.details.get("status_code", usual)
        raise DefinitionInvalid(message, path=path, status_code=code) from error
    except RequestError as error:
        code = _STATUS_CODES.get(type(error).__name__, usual)
        raise DefinitionInvalid(error.message, status_code=code) from error


def _exists(unit: UnitOfWork, component: Component) -> bool:
    type_ = metadata_type(component.kind)
    source = Source(unit.tx, unit.catalog, component.api_version)
    return type_.try_read(source, component.full_name) is not None


def _must_exist(unit: UnitOfWork, component: Component) -> None:
    if not _exists(unit, component):
        reject(
            f"no {component.kind} named {component.full_name[:200]} found",
            "INVALID_CROSS_REFERENCE_KEY",
            ["fullName"],
        )
