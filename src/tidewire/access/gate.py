"""Records as one user may use them: every read and write passes here, whatever protocol it came by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidewire.access.definitions.apply import apply_definition
from tidewire.access.grants import GRANT_OBJECTS, Grants, read_grants
from tidewire.access.logins import end_sessions
from tidewire.access.principal import Principal
from tidewire.access.publishing import (
    Outcome,
    Submitted,
    append_submitted,
    draft_from_values,
    publishable_event,
)
from tidewire.access.view import View
from tidewire.clock import Clock
from tidewire.errors import (
    AccessDenied,
    FieldUnknown,
    ObjectUnknown,
    PlatformError,
    RecordNotFound,
    TopicUnknown,
)
from tidewire.eventlog.log import EventLog
from tidewire.events import Change, CommitContext, Value
from tidewire.ids import normalise_id
from tidewire.records.derived import refresh_volatile
from tidewire.records.leads import Conversion, Converted, convert_lead
from tidewire.records.merge import Merged, merge
from tidewire.records.query import Cell, Record, run_query
from tidewire.records.service import RecordService
from tidewire.records.table import try_read_row
from tidewire.records.work import UnitOfWork, living, not_writeable
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import BoundQuery, Selected
from tidewire.soql.parser import parse_query
from tidewire.soql.sosl import narrow, parse_search, searched_fields
from tidewire.storage.store import Reader, read_progress


@dataclass(frozen=True, slots=True)
class Call:
    """What one API call brings along; `origin` becomes the change events' changeOrigin."""

    principal: Principal
    origin: str


@dataclass(frozen=True, slots=True)
class Write:
    """One record of a write that covers several: a create without `record_id`, a delete without `values`."""

    entity: str
    record_id: str | None
    values: Mapping[str, object] | None


@dataclass(frozen=True)
class Rows:
    """A query's answer: stored values by field name; a selected compound's parts stand under their own names.

    `position` is the log's head in the snapshot that was read. `columns` are the record's own fields. A query
    that selects more than those has all of it in `select`; one with `is_aggregate` has groups for rows, whose
    fields `columns` names as the answer does.
    """

    entity: ObjectType
    columns: tuple[Field, ...]
    rows: list[Record]
    count: int | None
    position: int
    select: tuple[Selected, ...] = ()
    is_aggregate: bool = False


class Gate:
    """One org's records behind its permissions."""

    def __init__(
        self, records: RecordService, log: EventLog, clock: Clock, generation: Callable[[], int]
    ) -> None:
        self._records = records
        self._log = log
        self._clock = clock
        self._generation = generation
        self._grants: dict[str, tuple[int, Grants]] = {}
        self._views: dict[str, View] = {}

    @property
    def catalog(self) -> Catalog:
        """The current types."""
        return self._records.types.catalog

    async def create(self, call: Call, entity: str, values: Mapping[str, object]) -> str:
        """Store a new record; returns its id once it is durable."""
        return await self._write(call, Write(entity, None, values))

    async def update(self, call: Call, entity: str, record_id: str, values: Mapping[str, object]) -> None:
        """Store new values of some fields."""
        await self._write(call, Write(entity, record_id, values))

    async def delete(self, call: Call, entity: str, record_id: str) -> None:
        """Put a record into the recycle bin."""
        await self._write(call, Write(entity, record_id, None))

    async def _write(self, call: Call, write: Write) -> str:
        (result,) = await self.write_together(call, [write], all_or_none=True)
        if isinstance(result, PlatformError):
            raise result
        return result

    async def write_together(
        self, call: Call, writes: Sequence[Write], *, all_or_none: bool
    ) -> list[str | PlatformError]:
        """Several writes in one transaction: for each, its record's id or why it failed.

        With `all_or_none`, one failure undoes them all; the others then hold the ids they would have had.
        """
        allowed = [await self._check_write(call.principal, write) for write in writes]
        results: list[str | PlatformError] = []

        def work(unit: UnitOfWork) -> None:
            results.clear()  # a group that has to run again runs this again
            for write, obj in zip(writes, allowed, strict=True):
                results.append(obj if isinstance(obj, PlatformError) else _run_write(unit, obj, write))
            failure = next((r for r in results if isinstance(r, PlatformError)), None)
            if all_or_none and failure is not None:
                raise failure

        is_solo = any(isinstance(obj, ObjectType) and _is_solo(obj) for obj in allowed)
        try:
            await self._records.write(work, user_id=call.principal.user_id, origin=call.origin, solo=is_solo)
        except PlatformError as error:
            if error not in results:
                raise
        return results

    async def _check_write(self, principal: Principal, write: Write) -> ObjectType | PlatformError:
        try:
            obj, grants = await self._open(principal, write.entity)
            grant = grants.on(obj.name)
            if write.record_id is None:
                is_allowed = obj.createable and grant.can_create
            elif write.values is None:
                is_allowed = obj.deletable and (grant.can_delete or grant.can_modify_all)
            else:
                is_allowed = obj.updateable and (grant.can_edit or grant.can_modify_all)
            if not is_allowed:
                raise AccessDenied("insufficient access rights on object id", entity=obj.name)
            _check_editable(obj, grants, write.values or {})
        except PlatformError as error:
            return error
        return obj

    async def read(
        self, principal: Principal, entity: str, record_id: str, fields: Sequence[str] | None
    ) -> Rows:
        """One living record: the named fields, or all that the user may see."""
        obj, grants = await self._open(principal, entity)
        record_id = normalise_id(record_id)
        columns = _columns(obj, grants, fields)
        hidden = self._view(principal, grants).hidden_fields(obj)
        now_ms = self._clock.now_ms()

        def work(reader: Reader) -> Rows:
            row = living(try_read_row(reader, obj, record_id), record_id)
            row |= refresh_volatile(obj, row, now_ms)
            return Rows(obj, columns, [_without(row, hidden)], None, self._log.read_head(reader))

        return await self._records.read(work)

    async def query(self, principal: Principal, soql: str, *, include_deleted: bool = False) -> Rows:
        """Answer a SOQL query. What the user may not see does not exist for it."""
        grants = await self.grants(principal)
        now_ms = self._clock.now_ms()
        bound = self._view(principal, grants).bind(soql, now_ms)

        def work(reader: Reader) -> Rows:
            found = run_query(reader, bound, now_ms, include_deleted=include_deleted)
            head = self._log.read_head(reader)
            if bound.aggregate is not None:
                columns = tuple(replace(field, name=name) for name, field in bound.aggregate.select)
                return Rows(bound.entity, columns, found.rows, None, head, is_aggregate=True)
            return Rows(bound.entity, bound.columns, found.rows, found.count, head, bound.select)

        return await self._records.read(work)

    async def search(self, principal: Principal, sosl: str) -> list[Rows]:
        """Answer a SOSL search: one answer for each object it returns, in its order, empty ones included."""
        search = parse_search(sosl)
        grants = await self.grants(principal)
        view = self._view(principal, grants)
        wanted = search.returning or [
            parse_query(f"SELECT Id FROM {o.name}")  # noqa: S608  # SOQL, and the name is the catalog's
            for o in view.catalog.objects
            if not o.is_setup and o.name_field
        ]
        now_ms = self._clock.now_ms()
        narrowed: list[BoundQuery] = []
        for query in wanted:
            bound = bind_query(query, view.catalog, grants.can_read_field, now_ms=now_ms)
            hidden = view.hidden_fields(bound.entity)
            found = narrow(bound, search, searched_fields(bound.entity, search.scope, hidden))
            if found is not None:
                narrowed.append(found)

        def work(reader: Reader) -> list[Rows]:
            head = self._log.read_head(reader)
            answers: list[Rows] = []
            left = search.limit
            for bound in narrowed:
                rows = run_query(reader, bound, now_ms).rows[:left]
                left -= len(rows)
                answers.append(Rows(bound.entity, bound.columns, rows, None, head, bound.select))
            return answers

        return await self._records.read(work)

    async def visible_objects(self, principal: Principal) -> list[ObjectType]:
        """The objects whose records the user may read."""
        grants = await self.grants(principal)
        return list(self._view(principal, grants).catalog.objects)

    async def visible_fields(
        self, principal: Principal, entity: str
    ) -> tuple[ObjectType, frozenset[str], frozenset[str]]:
        """An object with the names of its fields that the user may read, and edit."""
        obj, grants = await self._open(principal, entity)
        readable = frozenset(f.name for f in obj.fields if grants.can_read_field(obj, f))
        editable = frozenset(f.name for f in obj.fields if grants.can_edit_field(obj, f))
        return obj, readable, editable

    async def grants(self, principal: Principal) -> Grants:
        """What the user may do now."""
        return (await self.current_grants(principal))[1]

    async def current_grants(self, principal: Principal) -> tuple[int, Grants]:
        """What the user may do now, and the access generation it was read at."""
        found = self._grants.get(principal.user_id)
        # The generation is read with the grants, in one snapshot, so a cached pair can be old but never
        # mixed.
        if found is None or found[0] != self._generation():
            found = await self._records.read(
                lambda reader: (
                    read_progress(reader).access_generation,
                    read_grants(reader, self.catalog, principal.user_id),
                )
            )
            self._grants[principal.user_id] = found
        return found

    def on_changes(self, unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        """Follow changes to users and permissions, inside their transaction."""
        relevant = [c for c in changes if c.entity in GRANT_OBJECTS]
        if not relevant:
            return
        unit.tx.progress.access_generation += 1
        for change in relevant:
            if change.entity == "User" and change.after is not None and not change.after["IsActive"]:
                end_sessions(unit.tx, "user_id", change.record_id)

    async def publish_event(self, call: Call, event: str, values: Mapping[str, object]) -> str:
        """Publish one platform event from JSON-decoded values; returns its uuid once it is durable."""
        event_type = publishable_event(self._records.types, await self.grants(call.principal), event)
        schema = self._records.types.schemas[event_type.name]
        now_ms = self._clock.now_ms()
        draft = draft_from_values(event_type, schema, values, call.principal.user_id, now_ms)
        await self._records.write_plain(lambda tx: self._log.append(tx, [draft], now_ms))
        return draft.event_uuid

    async def publish(
        self, principal: Principal, event: str, submitted: Sequence[Submitted]
    ) -> list[Outcome]:
        """Publish Avro events in one transaction; returns, in order, once they are durable."""
        event_type = publishable_event(self._records.types, await self.grants(principal), event)
        now_ms = self._clock.now_ms()
        return await self._records.write_plain(
            lambda tx: append_submitted(tx, self._log, event_type, submitted, now_ms)
        )

    async def apply_definition(
        self, call: Call, document: Mapping[str, object], *, dry_run: bool
    ) -> list[str]:
        """Bring the org to what a definition says; returns the plan. Needs Customize Application."""
        grants = await self.grants(call.principal)
        if not grants.has("CustomizeApplication"):
            raise AccessDenied("applying a definition needs the permission Customize Application")
        records = self._records
        applied = await records.write(
            lambda unit: apply_definition(
                unit, records.types, document, is_dry_run=dry_run, on_conversion=records.on_conversion
            ),
            user_id=call.principal.user_id,
            origin=call.origin,
            solo=True,
        )
        return applied.lines

    async def schema_json(self, schema_id: str) -> str:
        """An event schema by id. Raises SchemaUnknown."""
        return await self._records.read(lambda reader: self._log.read_schema(reader, schema_id))

    async def event_schema(self, name: str) -> str:
        """The newest schema of an event type, such as `Order__e` or `AccountChangeEvent`. Raises
        TopicUnknown.
        """
        return self.latest_schema(name).json

    def latest_schema(self, name: str) -> EventSchema:
        """The newest schema of an event type in any letter case. Raises TopicUnknown."""
        for topic, schema in self._records.types.schemas.items():
            if topic.lower() == name.lower():
                return schema
        raise TopicUnknown(f"The requested resource does not exist: {name}", topic=name)

    def _view(self, principal: Principal, grants: Grants) -> View:
        view = self._views.get(principal.user_id)
        if view is None or not view.is_current(grants, self.catalog):
            view = self._views[principal.user_id] = View(grants, self.catalog)
        return view

    async def _open(self, principal: Principal, entity: str) -> tuple[ObjectType, Grants]:
        """An object the user may know of; to anybody else it does not exist."""
        grants = await self.grants(principal)
        obj = self.catalog.try_object(entity)
        if obj is None or not grants.can_read(obj.name):
            raise ObjectUnknown(f"sObject type '{entity}' is not supported.", entity=entity)
        return obj, grants

    async def upsert(
        self, call: Call, entity: str, field: str, value: object, values: Mapping[str, object]
    ) -> tuple[str, bool]:
        """Update the record with this external id, or create it; returns its id and whether it is new."""
        obj, grants = await self._open(call.principal, entity)
        key = obj.try_field(field)
        _check_editable(obj, grants, values if key is None else {**values, key.name: value})
        grant = grants.on(obj.name)

        def work(unit: UnitOfWork) -> tuple[str, bool]:
            record_id, is_new = unit.upsert(obj, field, value, values)
            if is_new:
                _check_allowed(obj, obj.createable and grant.can_create)
            else:
                _check_allowed(obj, obj.updateable and (grant.can_edit or grant.can_modify_all))
            return record_id, is_new

        return await self._records.write(
            work, user_id=call.principal.user_id, origin=call.origin, solo=_is_solo(obj)
        )

    async def undelete(self, call: Call, record_ids: Sequence[str]) -> list[str | PlatformError]:
        """Bring records back from the recycle bin in one transaction: for each, its id or why it stays there."""
        return await self._from_bin(call, record_ids, UnitOfWork.undelete)

    async def purge(self, call: Call, record_ids: Sequence[str]) -> list[str | PlatformError]:
        """Remove records in the recycle bin for good: for each, its id or why it stays there."""
        return await self._from_bin(call, record_ids, UnitOfWork.purge)

    async def merge(
        self, call: Call, entity: str, master_id: str, loser_ids: Sequence[str], values: Mapping[str, object]
    ) -> Merged:
        """Make one record of up to three, with these values."""
        obj, grants = await self._open(call.principal, entity)
        grant = grants.on(obj.name)
        _check_allowed(obj, grant.can_modify_all or (grant.can_edit and grant.can_delete))
        _check_editable(obj, grants, values)
        master, losers = normalise_id(master_id), [normalise_id(i) for i in loser_ids]
        return await self._records.write(
            lambda unit: merge(unit, obj, master, losers, values),
            user_id=call.principal.user_id,
            origin=call.origin,
        )

    async def convert_lead(self, call: Call, conversion: Conversion) -> Converted:
        """Turn a lead into an account, a contact and perhaps an opportunity, in one transaction."""
        made = [("Account", conversion.account_id), ("Contact", conversion.contact_id)]
        if conversion.makes_opportunity:
            made.append(("Opportunity", conversion.opportunity_id))
        for entity, joined_id in (("Lead", conversion.lead_id), *made):
            obj, grants = await self._open(call.principal, entity)
            grant = grants.on(entity)
            _check_allowed(obj, grant.can_create if joined_id is None else grant.can_edit)
        asked = replace(
            conversion,
            lead_id=normalise_id(conversion.lead_id),
            account_id=conversion.account_id and normalise_id(conversion.account_id),
            contact_id=conversion.contact_id and normalise_id(conversion.contact_id),
            opportunity_id=conversion.opportunity_id and normalise_id(conversion.opportunity_id),
        )
        return await self._records.write(
            lambda unit: convert_lead(unit, asked), user_id=call.principal.user_id, origin=call.origin
        )

    async def _from_bin(
        self,
        call: Call,
        record_ids: Sequence[str],
        act: Callable[[UnitOfWork, ObjectType, str], None],
    ) -> list[str | PlatformError]:
        allowed = [await self._check_bin(call.principal, record_id) for record_id in record_ids]
        results: list[str | PlatformError] = []

        def work(unit: UnitOfWork) -> None:
            results.clear()  # a group that has to run again runs this again
            for found in allowed:
                if isinstance(found, PlatformError):
                    results.append(found)
                    continue
                try:
                    act(unit, *found)
                    results.append(found[1])
                except PlatformError as error:
                    results.append(error)

        is_solo = any(not isinstance(found, PlatformError) and _is_solo(found[0]) for found in allowed)
        await self._records.write(work, user_id=call.principal.user_id, origin=call.origin, solo=is_solo)
        return results

    async def _check_bin(
        self, principal: Principal, record_id: str
    ) -> tuple[ObjectType, str] | PlatformError:
        try:
            record_id = normalise_id(record_id)
            known = self.catalog.try_object_of_id(record_id)
            if known is None:
                raise RecordNotFound("The requested resource does not exist", record_id=record_id)
            obj, grants = await self._open(principal, known.name)
            grant = grants.on(obj.name)
            _check_allowed(obj, obj.deletable and (grant.can_delete or grant.can_modify_all))
        except PlatformError as error:
            return error
        return obj, record_id


def _run_write(unit: UnitOfWork, obj: ObjectType, write: Write) -> str | PlatformError:
    # A write checks everything before it touches a row, so one that fails has left nothing behind.
    try:
        if write.record_id is None:
            return unit.create(obj, write.values or {})
        record_id = normalise_id(write.record_id)
        if write.values is None:
            unit.delete(obj, record_id)
        else:
            unit.update(obj, record_id, write.values)
    except PlatformError as error:
        return error
    return record_id


def _check_allowed(obj: ObjectType, is_allowed: bool) -> None:
    if not is_allowed:
        raise AccessDenied("insufficient access rights on object id", entity=obj.name)


def _without(row: Mapping[str, Value], hidden: frozenset[str]) -> Record:
    """A record without what the user may not see."""
    if not hidden:
        return dict[str, Cell](row)
    return {name: value for name, value in row.items() if name not in hidden}


def _is_solo(obj: ObjectType) -> bool:
    return obj.is_setup or obj.name in GRANT_OBJECTS


def _columns(obj: ObjectType, grants: Grants, fields: Sequence[str] | None) -> tuple[Field, ...]:
    if fields is None:
        return tuple(f for f in obj.fields if grants.can_read_field(obj, f))
    columns = []
    for name in fields:
        field = obj.try_field(name)
        if field is None or not grants.can_read_field(obj, field):
            raise FieldUnknown(
                f"No such column '{name}' on sobject of type {obj.name}", field=name, entity=obj.name
            )
        columns.append(field)
    return tuple(columns)


def _check_editable(obj: ObjectType, grants: Grants, values: Mapping[str, object]) -> None:
    refused = []
    for name in values:
        field = obj.try_field(name)
        if field is None or grants.can_edit_field(obj, field):
            continue
        if not grants.can_read_field(obj, field):
            raise FieldUnknown(
                f"No such column '{name}' on sobject of type {obj.name}", field=name, entity=obj.name
            )
        refused.append(field.name)
    if refused:
        raise not_writeable(refused)
