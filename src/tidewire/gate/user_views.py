"""What each user may do and see by now: kept by user, and worked out again when grants or types have changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidewire.access.grants import Grants, read_grants
from tidewire.access.principal import Principal
from tidewire.access.sharing import Sharing
from tidewire.errors import ObjectUnknown
from tidewire.gate.publishing import refuse_event
from tidewire.gate.user_view import View
from tidewire.records.service import Records
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType


class Views:
    """The grants and views of one org's users. Used on the loop only."""

    def __init__(self, records: Records, generation: Callable[[], int]) -> None:
        self._records = records
        self._generation = generation
        self._grants: dict[str, tuple[int, Grants]] = {}
        self._views: dict[str, View] = {}

    def begin_with(self, known: Mapping[str, tuple[int, Grants]]) -> None:
        """Take over grants that were read elsewhere, by user id, with the access generation of each."""
        self._grants.update(known)

    async def grants(self, principal: Principal) -> Grants:
        """What the user may do now."""
        found = self._grants.get(principal.user_id)
        if found is None or found[0] != self._generation():
            found = await self.current_grants(principal)
        return found[1]

    async def current_grants(self, principal: Principal) -> tuple[int, Grants]:
        """What the user may do now, and an access generation that it is no older than."""
        found = self._grants.get(principal.user_id)
        # Asked before reading: a commit that the snapshot has may have yet to reach the catalog, and then what is
        # derived from both has to be asked for again.
        generation = self._generation()
        if found is None or found[0] != generation:
            grants = await self._records.read(
                lambda reader: read_grants(reader, self._catalog, principal.user_id)
            )
            found = self._grants[principal.user_id] = (generation, grants)
        return found

    def over(self, principal: Principal, grants: Grants) -> View:
        """What the user sees with these grants."""
        view = self._views.get(principal.user_id)
        if view is None or not view.is_current(grants, self._catalog):
            view = self._views[principal.user_id] = View(grants, self._catalog)
        return view

    async def view(self, principal: Principal) -> View:
        """What the user sees now."""
        return self.over(principal, await self.grants(principal))

    async def sharing(self, principal: Principal) -> Sharing:
        """Which records the user may read and change now."""
        return (await self.view(principal)).sharing

    async def open(
        self, principal: Principal, entity: str, operation: str = "retrieve"
    ) -> tuple[ObjectType, Grants]:
        """An object the user may know of, and their grants; to anybody else it does not exist.

        `operation` is what it is asked for, in the words of a refusal. Raises ObjectUnknown.
        """
        grants = await self.grants(principal)
        obj = self._catalog.try_object(entity)
        if obj is None or not grants.can_read(obj.name):
            refuse_event(self._catalog, grants, entity, operation)
            raise ObjectUnknown(f"sObject type '{entity}' is not supported.", entity=entity)
        return obj, grants

    @property
    def _catalog(self) -> Catalog:
        return self._records.types.catalog
