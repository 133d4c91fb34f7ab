"""Applying a definition: its sections, in dependency order.

Removals of records come first, because push topics and permissions block the removal of types; then types; then what
refers to types. The steps of a section are planned after the earlier sections ran. Everything happens in the caller's
transaction, so an error anywhere leaves the org unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidewire.gate.definitions.channels import apply_channels
from tidewire.gate.definitions.connected_apps import connected_app_steps
from tidewire.gate.definitions.document import check_document, check_keys, keys_in, mapping
from tidewire.gate.definitions.groups import group_steps
from tidewire.gate.definitions.managed_subscriptions import apply_managed
from tidewire.gate.definitions.permissions import permission_set_steps, profile_steps
from tidewire.gate.definitions.plan import Applied, Step
from tidewire.gate.definitions.removal import read_removal, removal_steps
from tidewire.gate.definitions.roles import role_steps
from tidewire.gate.definitions.settings import setting_steps
from tidewire.gate.definitions.setup_records import push_topic_steps, record_type_steps
from tidewire.gate.definitions.sharing import sharing_rule_steps
from tidewire.gate.definitions.types import apply_types
from tidewire.gate.definitions.users import manager_steps, set_password, user_steps
from tidewire.records.service import ConversionHook
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork

__all__ = ["apply_definition", "set_password"]

SECTIONS = keys_in(
    "settings objects events capture channels channel_members managed_subscriptions roles permission_sets"
    " profiles users groups queues push_topics connected_apps remove"
)
"""The sections of a document, as docs/configuration.md describes them."""


def apply_definition(
    unit: UnitOfWork,
    types: Types,
    document: Mapping[str, object],
    *,
    is_dry_run: bool,
    on_conversion: ConversionHook | None = None,
) -> Applied:
    """Bring the org to the state that the document describes; returns the plan.

    Runs in a transaction that is alone in its commit group. `on_conversion` is called in it for each converted field,
    after its data is converted.
    """
    check_document(document)
    check_keys(mapping(document, "definition"), SECTIONS, "definition")
    lines: list[str] = []

    def take(steps: list[Step]) -> None:
        for step in steps:
            lines.append(step.line)
            if not is_dry_run:
                step.run()

    take(setting_steps(unit, types, document))
    removal = read_removal(unit, document)
    take(removal_steps(unit, types, removal.named))
    plan = apply_types(unit, types, document, removal, is_dry_run=is_dry_run)
    lines += plan.lines
    lines += apply_channels(unit, types, document, removal.named, is_dry_run=is_dry_run)
    lines += apply_managed(unit, types, document, removal.named, is_dry_run=is_dry_run)
    if on_conversion is not None and not is_dry_run:
        for note in plan.notes:
            on_conversion(unit, note)
    sections = (
        record_type_steps,
        role_steps,
        permission_set_steps,
        profile_steps,
        user_steps,
        manager_steps,
        group_steps,
        push_topic_steps,
    )
    for make_steps in sections:
        take(make_steps(unit, document))
    take(sharing_rule_steps(unit, types, document))
    secrets: dict[str, str] = {}
    take(connected_app_steps(unit, document, secrets))
    return Applied(lines, tuple(plan.notes), secrets)
