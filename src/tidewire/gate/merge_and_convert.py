"""Merging records and converting leads as one user may: checks on the objects, then on each record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tidewire.access.sharing import Level
from tidewire.crm.leads import Conversion, Converted, convert_lead
from tidewire.crm.merge import Merged, merge
from tidewire.gate.editable_fields import check_editable
from tidewire.gate.user_view import UserView
from tidewire.gate.write_guard import RecordGuard
from tidewire.gate.writes import check_allowed
from tidewire.ids import normalise_id
from tidewire.records.work import UnitOfWork


def merge_work(
    view: UserView, entity: str, master_id: str, loser_ids: Sequence[str], values: Mapping[str, object]
) -> Callable[[UnitOfWork], Merged]:
    """Check a merge against grants; returns the work that merges up to three records, with these values."""
    obj = view.open(entity)
    grant = view.grants.on(obj.name)
    check_allowed(obj, grant.can_modify_all or (grant.can_edit and grant.can_delete))
    check_editable(view.org_catalog, obj, view.grants, values)
    master, losers = normalise_id(master_id), [normalise_id(i) for i in loser_ids]

    def work(unit: UnitOfWork) -> Merged:
        guard = RecordGuard(unit, view.sharing)
        with guard.redacting_hidden_ids():
            guard.check_update(obj, master, values)
            for loser in losers:
                guard.require(obj, loser, Level.FULL)
            return merge(unit, obj, master, losers, values)

    return work


def conversion_work(view: UserView, conversion: Conversion) -> Callable[[UnitOfWork], Converted]:
    """Check a conversion against grants; returns the work that converts the lead."""
    # The existing record of each object, or None if the conversion creates one, and the values to set.
    targets: list[tuple[str, str | None, Mapping[str, object]]] = [
        ("Lead", conversion.lead_id, {}),
        ("Account", conversion.account_id, conversion.account_values),
        ("Contact", conversion.contact_id, conversion.contact_values),
    ]
    if conversion.makes_opportunity:
        targets.append(("Opportunity", conversion.opportunity_id, conversion.opportunity_values))
    for entity, record_id, values in targets:
        obj, grant = view.open(entity), view.grants.on(entity)
        check_allowed(obj, grant.can_create if record_id is None else grant.can_edit)
        check_editable(view.org_catalog, obj, view.grants, values)
    wanted = replace(
        conversion,
        lead_id=normalise_id(conversion.lead_id),
        account_id=conversion.account_id and normalise_id(conversion.account_id),
        contact_id=conversion.contact_id and normalise_id(conversion.contact_id),
        opportunity_id=conversion.opportunity_id and normalise_id(conversion.opportunity_id),
    )

    def work(unit: UnitOfWork) -> Converted:
        guard = RecordGuard(unit, view.sharing)
        for entity, record_id in (
            ("Lead", wanted.lead_id),
            ("Account", wanted.account_id),
            ("Contact", wanted.contact_id),
            ("Opportunity", wanted.opportunity_id),
        ):
            if record_id is not None:
                guard.require(unit.catalog.object(entity), record_id, Level.EDIT)
        with guard.redacting_hidden_ids():
            return convert_lead(unit, wanted)

    return work
