"""Calls on single components: list, read, create, update, upsert, delete, rename.

Every call needs Customize Application. Without all-or-none, each component is a separate transaction; with it, all are
one transaction, and one error rolls all of them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from tidewire.access.principal import Principal
from tidewire.errors import RecordNotFound, RequestError, TooManyRecords
from tidewire.gate.gate import Gate
from tidewire.gate.metadata.changes import Action, create, delete, rename, update, upsert
from tidewire.gate.metadata.listing import Creators, Listed
from tidewire.gate.metadata.properties import Component
from tidewire.gate.metadata.registry import Source, metadata_type
from tidewire.gate.metadata.stored_requests import StoredRequest, try_read_request
from tidewire.gate.requests import Call
from tidewire.ids import try_normalise_id
from tidewire.records.work import UnitOfWork
from tidewire.storage.store import Reader

MAX_COMPONENTS = 10
"""Components per call."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SaveResult:
    """The result of one component. `is_undone` means that it was rolled back because of another one."""

    full_name: str
    error: RequestError | None = None
    is_created: bool = False
    is_undone: bool = False


_Work = Callable[[UnitOfWork], bool]


class Metadata:
    """The metadata of one org, for users with Customize Application."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    async def check(self, principal: Principal) -> None:
        """Raise AccessDenied unless the caller may use the Metadata API."""
        message = "use of the Metadata API requires a user with the ModifyAllData or CustomizeApplication permission"
        await self.gate.require(principal, "CustomizeApplication", message=message)

    async def request(self, principal: Principal, kind: str, request_id: str) -> StoredRequest:
        """Read the stored result of a deploy or retrieve. Raises RecordNotFound, AccessDenied."""
        await self.check(principal)
        found = try_normalise_id(request_id)
        kept = (
            None
            if found is None
            else await self.gate.records.read(lambda reader: try_read_request(reader, found))
        )
        if kept is None or kept.kind != kind:
            raise RecordNotFound(f"no {kind} {request_id[:18]}", record_id=request_id[:18])
        return kept

    async def create(
        self, call: Call, components: Sequence[Component], *, all_or_none: bool
    ) -> list[SaveResult]:
        """Create components."""
        return await self._save(call, components, create, all_or_none=all_or_none)

    async def update(
        self, call: Call, components: Sequence[Component], *, all_or_none: bool
    ) -> list[SaveResult]:
        """Change existing components."""
        return await self._save(call, components, update, all_or_none=all_or_none)

    async def upsert(
        self, call: Call, components: Sequence[Component], *, all_or_none: bool
    ) -> list[SaveResult]:
        """Create or change components."""
        return await self._save(call, components, upsert, all_or_none=all_or_none)

    async def delete(
        self, call: Call, kind: str, full_names: Sequence[str], *, all_or_none: bool
    ) -> list[SaveResult]:
        """Remove components."""
        components = [Component(kind, name, {}) for name in full_names]
        return await self._save(call, components, delete, all_or_none=all_or_none)

    async def rename(self, call: Call, kind: str, old: str, new: str) -> SaveResult:
        """Rename a component."""
        component = Component(kind, old, {"newFullName": new})
        (saved,) = await self._save(call, [component], rename, all_or_none=False)
        return saved

    async def read(
        self, principal: Principal, kind: str, full_names: Sequence[str], *, api_version: int | None = None
    ) -> list[dict[str, object] | None]:
        """Read the properties of components, None for those that do not exist."""
        await self.check(principal)
        check_count(full_names)
        type_ = metadata_type(kind)
        catalog = self.gate.catalog

        def work(reader: Reader) -> list[dict[str, object] | None]:
            source = Source(reader, catalog, api_version)
            return [type_.try_read(source, name) for name in full_names]

        return await self.gate.records.read(work)

    async def entries(
        self, principal: Principal, kinds: Iterable[str], *, api_version: int | None = None
    ) -> list[Listed]:
        """List the components of some types."""
        await self.check(principal)
        types = [metadata_type(kind) for kind in kinds]
        catalog = self.gate.catalog

        def work(reader: Reader) -> list[Listed]:
            source = Source(reader, catalog, api_version)
            creators = Creators(source)
            return [
                creators.listed(entry, type_.name, type_.path(entry.full_name))
                for type_ in types
                for entry in type_.entries(source)
            ]

        return await self.gate.records.read(work)

    async def _save(
        self,
        call: Call,
        components: Sequence[Component],
        action: Action,
        *,
        all_or_none: bool,
    ) -> list[SaveResult]:
        await self.check(call.principal)
        check_count(components)
        dated = [replace(each, api_version=call.api_version) for each in components]
        works = [partial(action, self.gate.records, each) for each in dated]
        names = [each.full_name for each in components]
        if all_or_none and len(works) > 1:
            return await self._save_together(call, names, works)
        return [await self._save_one(call, name, work) for name, work in zip(names, works, strict=True)]

    async def _save_one(self, call: Call, name: str, work: _Work) -> SaveResult:
        try:
            return SaveResult(name, is_created=await self.commit(call, work))
        except RequestError as error:
            return SaveResult(name, error)

    async def _save_together(
        self, call: Call, names: Sequence[str], works: Sequence[_Work]
    ) -> list[SaveResult]:
        failed: list[int] = []

        def work(unit: UnitOfWork) -> list[bool]:
            failed.clear()  # the writer runs the work again if its commit group failed
            made = []
            for place, each in enumerate(works):
                failed[:] = [place]
                made.append(each(unit))
            failed.clear()
            return made

        try:
            made = await self.commit(call, work)
        except RequestError as error:
            if not failed:
                raise
            return [
                SaveResult(name, error) if place == failed[0] else SaveResult(name, is_undone=True)
                for place, name in enumerate(names)
            ]
        return [SaveResult(name, is_created=new) for name, new in zip(names, made, strict=True)]

    async def commit(self, call: Call, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` in one transaction that is alone in its commit group."""
        return await self.gate.records.write(
            work, user_id=call.principal.user_id, origin=call.origin, exclusive=True
        )


def check_count(items: Sequence[object], limit: int = MAX_COMPONENTS) -> None:
    """Raise TooManyRecords if a call has too many components."""
    if len(items) > limit:
        raise TooManyRecords(
            f"record limit reached. cannot submit more than {limit} records into this call", limit=limit
        )
