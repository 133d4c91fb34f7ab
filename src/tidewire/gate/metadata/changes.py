"""What happens to one component inside a transaction: its definition is made of what the org has by then, and applied.

Each act returns whether the component is new, and raises DefinitionInvalid with `status_code` among its details: the
word that clients of the Metadata API know the refusal by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidewire.errors import DefinitionInvalid, RequestError
from tidewire.gate.definitions.apply import apply_definition
from tidewire.gate.metadata.field_parse import Context
from tidewire.gate.metadata.objects import Draft, field_components
from tidewire.gate.metadata.permissions import profile_name
from tidewire.gate.metadata.properties import Component, Properties, refuse, text_of
from tidewire.gate.metadata.registry import Source, metadata_type
from tidewire.gate.metadata.rename import rename_field, rename_object, rename_row
from tidewire.records.service import Records
from tidewire.records.work import UnitOfWork

Act = Callable[[Records, Component, UnitOfWork], bool]
_STATUS_CODES = {
    "ObjectUnknown": "INVALID_CROSS_REFERENCE_KEY",
    "AccessDenied": "INSUFFICIENT_ACCESS",
    "LimitExceeded": "LIMIT_EXCEEDED",
}
_INTEGRITY = "FIELD_INTEGRITY_EXCEPTION"
_DEPENDENCY = "DEPENDENCY_EXISTS"


def create(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Make a component; one of its name must not be there."""
    if _is_there(unit, component):
        refuse(_taken(component), "DUPLICATE_DEVELOPER_NAME", ["fullName"])
    return put(records, component, unit)


def _taken(component: Component) -> str:
    entity, _, name = component.full_name.partition(".")
    if component.kind == "CustomField":
        return f"There is already a field named {name} on {entity}."
    return f"There is already a {component.kind} named {component.full_name}."


def update(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Change a component, which must be there."""
    _must_exist(unit, component)
    return put(records, component, unit)


def put(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Make or change a component."""
    is_new = not _is_there(unit, component)
    if component.kind == "CustomField":
        _must_exist(unit, Component("CustomObject", component.full_name.partition(".")[0], {}))
    draft = draft_of(unit, [component])
    apply_draft(records, unit, draft)
    return is_new


def delete(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Remove a component, which must be there and which nothing else may need."""
    _must_exist(unit, component)
    draft = Draft()
    metadata_type(component.kind).remove(draft, component.full_name)
    apply_draft(records, unit, draft, usual_code=_DEPENDENCY)
    return False


def rename(records: Records, component: Component, unit: UnitOfWork) -> bool:
    """Give a component the name in its property `newFullName`."""
    metadata_type(component.kind)
    new = text_of(component.properties, "newFullName")
    _must_exist(unit, component)
    wanted = Component(component.kind, new, {})
    if new.lower() != component.full_name.lower() and _is_there(unit, wanted):
        refuse(_taken(wanted), "DUPLICATE_DEVELOPER_NAME", ["fullName"])
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
            refuse(f"A {component.kind} cannot be renamed", "INVALID_OPERATION")
    return False


def draft_of(unit: UnitOfWork, components: Iterable[Component]) -> Draft:
    """The definition of components, which may refer to each other."""
    listed = list(components)
    context = Context(unit.catalog, pending_fields(listed))
    draft = Draft()
    for component in listed:
        add_component(draft, component, unit, context)
    return draft


def add_component(draft: Draft, component: Component, unit: UnitOfWork, context: Context) -> None:
    """Add one component to a definition."""
    if not component.full_name.strip():
        refuse("Required field is missing: fullName", "REQUIRED_FIELD_MISSING", ["fullName"])
    metadata_type(component.kind).add(draft, component, unit, context)


def pending_fields(components: Iterable[Component]) -> dict[str, Properties]:
    """The fields among the components, those inside objects included, by lower-case full name."""
    found: dict[str, Properties] = {}
    for component in components:
        inner = field_components(component) if component.kind == "CustomObject" else [component]
        found |= {each.full_name.lower(): each.properties for each in inner if each.kind == "CustomField"}
    return found


def apply_draft(
    records: Records,
    unit: UnitOfWork,
    draft: Draft,
    *,
    is_dry_run: bool = False,
    usual_code: str = _INTEGRITY,
) -> list[str]:
    """Apply a draft in the running transaction; returns the plan. Raises DefinitionInvalid."""

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
    """What `work` returns; what it refuses gets the status code that clients know."""
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


def _is_there(unit: UnitOfWork, component: Component) -> bool:
    type_ = metadata_type(component.kind)
    source = Source(unit.tx, unit.catalog, component.api_version)
    return type_.try_read(source, component.full_name) is not None


def _must_exist(unit: UnitOfWork, component: Component) -> None:
    if not _is_there(unit, component):
        refuse(
            f"no {component.kind} named {component.full_name[:200]} found",
            "INVALID_CROSS_REFERENCE_KEY",
            ["fullName"],
        )
