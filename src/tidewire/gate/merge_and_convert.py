"""Merging records and converting leads, as one user may: what is checked of the objects, and of each record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tidewire.access.grants import Grants
from tidewire.access.principal import Principal
from tidewire.access.sharing import Level, Sharing
from tidewire.crm.leads import Conversion, Converted, convert_lead
from tidewire.crm.merge import Merged, merge
from tidewire.gate.editable_fields import check_editable
from tidewire.gate.user_views import Views
from tidewire.gate.write_guard import RecordGuard
from tidewire.gate.writes import check_allowed
from tidewire.ids import normalise_id
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType


def merge_work(
    catalog: Catalog,
    sharing: Sharing,
    obj: ObjectType,
    grants: Grants,
    master_id: str,
    loser_ids: Sequence[str],
    values: Mapping[str, object],
) -> Callable[[UnitOfWork], Merged]:
    """The work that makes one record of up to three, with these values."""
    grant = grants.on(obj.name)
    check_allowed(obj, grant.can_modify_all or (grant.can_edit and grant.can_delete))
    check_editable(catalog, obj, grants, values)
    master, losers = normalise_id(master_id), [normalise_id(i) for i in loser_ids]

    def work(unit: UnitOfWork) -> Merged:
        guard = RecordGuard(unit, sharing)
        with guard.redacting_hidden_ids():
            guard.check_update(obj, master, values)
            for loser in losers:
                guard.require(obj, loser, Level.FULL)
            return merge(unit, obj, master, losers, values)

    return work


async def conversion_work(
    catalog: Catalog, views: Views, principal: Principal, conversion: Conversion
) -> Callable[[UnitOfWork], Converted]:
    """The work that turns a lead into an account, a contact and perhaps an opportunity."""
    made = [("Account", conversion.account_id), ("Contact", conversion.contact_id)]
    if conversion.makes_opportunity:
        made.append(("Opportunity", conversion.opportunity_id))
    given = {
        "Account": conversion.account_values,
        "Contact": conversion.contact_values,
        "Opportunity": conversion.opportunity_values,
    }
    for entity, joined_id in (("Lead", conversion.lead_id), *made):
        obj, grants = await views.open(principal, entity)
        grant = grants.on(entity)
        check_allowed(obj, grant.can_create if joined_id is None else grant.can_edit)
        check_editable(catalog, obj, grants, given.get(entity, {}))
    asked = replace(
        conversion,
        lead_id=normalise_id(conversion.lead_id),
        account_id=conversion.account_id and normalise_id(conversion.account_id),
        contact_id=conversion.contact_id and normalise_id(conversion.contact_id),
        opportunity_id=conversion.opportunity_id and normalise_id(conversion.opportunity_id),
    )
    sharing = await views.sharing(principal)

    def work(unit: UnitOfWork) -> Converted:
        guard = RecordGuard(unit, sharing)
        for entity, record_id in (
            ("Lead", asked.lead_id),
            ("Account", asked.account_id),
            ("Contact", asked.contact_id),
            ("Opportunity", asked.opportunity_id),
        ):
            if record_id is not None:
                guard.require(unit.catalog.object(entity), record_id, Level.EDIT)
        with guard.redacting_hidden_ids():
            return convert_lead(unit, asked)

    return work
