"""Records as one user may use them: every read and write passes here, whatever protocol it came by."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tidewire.access import user_record_access
from tidewire.access.grants import GRANT_OBJECTS, Grants, ObjectGrant, read_grants
from tidewire.access.principal import Principal
from tidewire.access.sharing import Level, Sharing, forget_manual_shares
from tidewire.access.user_logins import follow_users
from tidewire.clock import Clock
from tidewire.crm.leads import Conversion, Converted
from tidewire.crm.merge import Merged
from tidewire.errors import (
    AccessDenied,
    ObjectUnknown,
    PlatformError,
    RecordNotFound,
    SchemaUnknown,
    TopicUnknown,
)
from tidewire.eventlog.log import EventLog
from tidewire.events import Change, CommitContext
from tidewire.gate.api_compat import upgrade_write
from tidewire.gate.api_usage import ApiUsage
from tidewire.gate.definitions.apply import apply_definition
from tidewire.gate.definitions.plan import Applied
from tidewire.gate.editable_fields import check_editable
from tidewire.gate.merge_and_convert import conversion_work, merge_work
from tidewire.gate.monitoring import Monitor
from tidewire.gate.publish_quota import Reservation
from tidewire.gate.publishing import Publisher, refuse_event
from tidewire.gate.reads import bind_search, check_topic_query, read_record, readable_columns
from tidewire.gate.recent_items import RecentItems
from tidewire.gate.requests import Call, OnResults, Rows, Upsert, Write
from tidewire.gate.user_view import View
from tidewire.gate.user_views import Views
from tidewire.gate.write_guard import RecordGuard
from tidewire.gate.writes import (
    BinAct,
    check_allowed,
    check_write,
    needs_own_group,
    run_in_bin,
    run_upsert,
    run_write,
)
from tidewire.ids import normalise_id
from tidewire.records.query import run_query
from tidewire.records.service import Records
from tidewire.records.table import try_read_row
from tidewire.records.touched import changes_of
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.codec import EventSchema
from tidewire.schema.model import ObjectType
from tidewire.soql.ast import Query
from tidewire.soql.bound import BoundQuery
from tidewire.soql.parser import parse_query
from tidewire.soql.sosl import parse_search
from tidewire.storage.store import Reader

T = TypeVar("T")


class Gate:
    """One org's records behind its permissions."""

    def __init__(self, records: Records, log: EventLog, clock: Clock, generation: Callable[[], int]) -> None:
        self._records = records
        self._log = log
        self._clock = clock
        self._views = Views(records, generation)
        self.usage = ApiUsage(clock)
        self.recent_items = RecentItems(clock)
        self.publisher = Publisher(records, log, clock, self.grants, lambda: Reservation(self.usage.quota))
        self.monitor = Monitor(records, log, clock)

    @property
    def catalog(self) -> Catalog:
        """The current types."""
        return self._records.types.catalog

    @property
    def records(self) -> Records:
        """What stands behind the gate: nothing that is done there is checked."""
        return self._records

    def with_records(
        self, records: Records, generation: int, known: Mapping[str, tuple[int, Grants]]
    ) -> Gate:
        """A gate to other records, such as one transaction's view of these, at one access generation.

        It begins with the grants that are `known`, by user id.
        """
        gate = Gate(records, self._log, self._clock, lambda: generation)
        gate.usage = self.usage
        gate.recent_items = self.recent_items
        gate._views.begin_with(known)
        return gate

    def create(self, call: Call, entity: str, values: Mapping[str, object]) -> Coroutine[object, object, str]:
        """Store a new record; its id is to be had once it is durable."""
        return self._write(call, Write(entity, None, values))

    async def update(self, call: Call, entity: str, record_id: str, values: Mapping[str, object]) -> None:
        """Store new values of some fields."""
        await self._write(call, Write(entity, record_id, values))

    async def delete(self, call: Call, entity: str, record_id: str) -> None:
        """Put a record into the recycle bin."""
        await self._write(call, Write(entity, record_id, None))

    async def _write(self, call: Call, write: Write) -> str:
        principal = call.principal
        view = await self._views.view(principal)
        write = upgrade_write(write, call.api_version)
        obj = check_write(view, self.catalog, write, self._clock.now_ms())

        def work(unit: UnitOfWork) -> str:
            result = run_write(unit, RecordGuard(unit, view.sharing), obj, write)
            if isinstance(result, PlatformError):
                raise result
            return result

        return await self._records.write(
            work,
            user_id=principal.user_id,
            origin=call.origin,
            has_notifications=call.has_notifications,
            solo=needs_own_group(obj),
        )

    async def write_together(
        self,
        call: Call,
        writes: Sequence[Write],
        *,
        all_or_none: bool,
        on_results: OnResults[str] | None = None,
    ) -> list[str | PlatformError]:
        """Several writes in one transaction: for each, its record's id or why it failed.

        With `all_or_none`, one failure undoes them all; the others then hold the ids they would have had.
        `on_results` is called with the results inside the transaction.
        """
        view = await self._views.view(call.principal)
        writes = [upgrade_write(write, call.api_version) for write in writes]
        allowed = [self._try_check(view, write) for write in writes]

        def run(unit: UnitOfWork, guard: RecordGuard) -> Iterator[str | PlatformError]:
            for write, obj in zip(writes, allowed, strict=True):
                yield obj if isinstance(obj, PlatformError) else run_write(unit, guard, obj, write)

        is_solo = any(isinstance(obj, ObjectType) and needs_own_group(obj) for obj in allowed)
        return await self._commit_each(
            call, view.sharing, run, all_or_none=all_or_none, solo=is_solo, on_results=on_results
        )

    async def _commit_each(
        self,
        call: Call,
        sharing: Sharing,
        run: Callable[[UnitOfWork, RecordGuard], Iterator[T | PlatformError]],
        *,
        all_or_none: bool,
        solo: bool,
        on_results: OnResults[T] | None = None,
    ) -> list[T | PlatformError]:
        """Run what `run` yields a result for, one after the other, in one transaction."""
        results: list[T | PlatformError] = []

        def work(unit: UnitOfWork) -> None:
            results.clear()  # a group that has to run again runs this again
            results.extend(run(unit, RecordGuard(unit, sharing)))
            failure = next((r for r in results if isinstance(r, PlatformError)), None)
            if all_or_none and failure is not None:
                raise failure
            if on_results is not None:
                on_results(unit, results)

        try:
            await self._commit(call, work, solo=solo)
        except PlatformError as error:
            if error not in results:
                raise
        return results

    def _try_check(self, view: View, write: Write) -> ObjectType | PlatformError:
        try:
            return check_write(view, self.catalog, write, self._clock.now_ms())
        except PlatformError as error:
            return error

    async def read(
        self, principal: Principal, entity: str, record_id: str, fields: Sequence[str] | None
    ) -> Rows:
        """One living record: the named fields, or all that the user may see."""
        obj, grants = await self._views.open(principal, entity)
        record_id = normalise_id(record_id)
        view = self._views.over(principal, grants)
        columns = view.columns(obj) if fields is None else readable_columns(obj, grants, fields)
        now_ms = self._clock.now_ms()
        unflushed = self.recent_items.unflushed(principal.user_id, record_id)

        def work(reader: Reader) -> Rows:
            row = read_record(reader, view, obj, record_id, now_ms)
            row |= self.recent_items.read_dates(reader, principal.user_id, obj, record_id, unflushed)
            return Rows(obj, columns, [row], None, self._log.read_head(reader))

        return await self._records.read(work, is_brief=True)

    async def query(self, principal: Principal, soql: str, *, include_deleted: bool = False) -> Rows:
        """Answer a SOQL query. What the user may not see does not exist for it."""
        now_ms = self._clock.now_ms()
        bound = await self.bind(principal, soql, now_ms)

        def work(reader: Reader) -> Rows:
            found = run_query(reader, bound, now_ms, include_deleted=include_deleted)
            head = self._log.read_head(reader)
            if bound.aggregate is not None:
                columns = tuple(replace(field, name=name) for name, field in bound.aggregate.select)
                return Rows(bound.entity, columns, found.rows, None, head, is_aggregate=True)
            return Rows(bound.entity, bound.columns, found.rows, found.count, head, bound.select)

        rows = await self._records.read(work)
        self.recent_items.add_query_results(principal, soql, rows.entity.name, rows.rows)
        return rows

    async def bind(self, principal: Principal, soql: str, now_ms: int) -> BoundQuery:
        """The query tied to what the user sees by now, its dates counted from `now_ms`."""
        await self.recent_items.flush_if_queried(self._records, soql)
        grants = await self.grants(principal)
        view = self._views.over(principal, grants)
        if user_record_access.NAME.lower() in soql.lower():
            query = parse_query(soql)
            if user_record_access.is_access_query(query):
                return view.bind_over(query, await self._record_access(principal, query), now_ms)
        try:
            return view.bind(soql, now_ms)
        except ObjectUnknown:
            refuse_event(self.catalog, grants, parse_query(soql).entity, "query")
            raise

    async def _record_access(self, principal: Principal, query: Query) -> user_record_access.AccessRows:
        """The rows of a query on UserRecordAccess. Only whoever manages users may ask about others."""
        asked = user_record_access.parse_access_query(query)
        grants = await self.grants(principal)
        if asked.user_id != principal.user_id and not grants.has("ManageUsers"):
            raise AccessDenied("the access of other users is told to who manages users", entity=query.entity)
        users, catalog = self.catalog.object("User"), self.catalog

        def work(reader: Reader) -> dict[str, frozenset[str]]:
            row = try_read_row(reader, users, asked.user_id)
            if row is None or not row["IsActive"]:
                return dict.fromkeys(asked.record_ids, frozenset())
            sharing = Sharing(read_grants(reader, catalog, asked.user_id), catalog)
            return user_record_access.read_access(reader, catalog, sharing, asked.record_ids)

        access = await self._records.read(work)
        return user_record_access.AccessRows(catalog.object("Organization"), asked.user_id, access)

    async def read_snapshot(self, work: Callable[[Reader], T]) -> tuple[T, int]:
        """What `work` reads in one transaction, off the loop, and the log's head in it.

        Nothing is checked here: the work reads what was bound for its user.
        """
        return await self._records.read(lambda reader: (work(reader), self._log.read_head(reader)))

    async def search(self, principal: Principal, sosl: str) -> list[Rows]:
        """Answer a SOSL search: one answer for each object it returns, in its order, empty ones included."""
        search = parse_search(sosl)
        view = await self._views.view(principal)
        now_ms = self._clock.now_ms()
        narrowed = bind_search(view, search, now_ms)

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
        view = await self._views.view(principal)
        return [view.described(obj) for obj in view.catalog.objects]

    async def visible_fields(
        self, principal: Principal, entity: str, operation: str = "retrieve"
    ) -> tuple[ObjectType, frozenset[str], frozenset[str]]:
        """An object with the names of its fields that the user may read, and edit. `operation` is what they are
        asked for, in the words of a refusal.
        """
        obj, grants = await self._views.open(principal, entity, operation)
        view = self._views.over(principal, grants)
        readable, editable = view.field_names(obj)
        return view.described(obj), readable, editable

    async def sees_all_records(self, principal: Principal, entity: str) -> bool:
        """Whether every record of the object is open to the user, whoever owns it."""
        return (await self._views.sharing(principal)).visibility(self.catalog.object(entity)) is None

    async def visible_record_ids(
        self, principal: Principal, entity: str, record_ids: Sequence[str], *, level: Level = Level.READ
    ) -> frozenset[str]:
        """Those of these records, deleted or not, that the user may read, or that are open to a higher level.

        Asks the store once for several hundred, and not at all where every record is to be seen.
        """
        grants = await self.grants(principal)
        obj = self.catalog.object(entity)
        if not grants.can_read(obj.name):
            return frozenset()
        sharing = self._views.over(principal, grants).sharing
        if sharing.condition(obj, level) is None:
            return frozenset(record_ids)
        return await self._records.read(
            lambda reader: frozenset(sharing.filter_accessible(reader, obj, record_ids, level))
        )

    async def grants(self, principal: Principal) -> Grants:
        """What the user may do now."""
        return await self._views.grants(principal)

    async def current_grants(self, principal: Principal) -> tuple[int, Grants]:
        """What the user may do now, and an access generation that it is no older than."""
        return await self._views.current_grants(principal)

    async def check_api(self, principal: Principal) -> None:
        """Raise AccessDenied if the APIs were taken from the org, or from the user, since the login."""
        is_on = self._records.types.settings.api_enabled
        if not is_on or not (await self.grants(principal)).has("ApiEnabled"):
            raise AccessDenied("API is not enabled for this Organization or Partner", permission="ApiEnabled")

    def on_changes(self, unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        """Follow changes to users and permissions, inside their transaction."""
        forget_manual_shares(unit, changes)
        follow_users(unit, changes)
        if any(changes_of(changes, *GRANT_OBJECTS)):
            unit.tx.progress.access_generation += 1

    async def apply_definition(self, call: Call, document: Mapping[str, object], *, dry_run: bool) -> Applied:
        """Bring the org to what a definition says; returns the plan. Needs Customize Application."""
        grants = await self.grants(call.principal)
        if not grants.has("CustomizeApplication"):
            raise AccessDenied("applying a definition needs the permission Customize Application")
        records = self._records
        return await self._commit(
            call,
            lambda unit: apply_definition(
                unit, records.types, document, is_dry_run=dry_run, on_conversion=records.on_conversion
            ),
            solo=True,
        )

    async def schema_json(self, schema_id: str) -> str:
        """The schema by id of an event that may have been told. Raises SchemaUnknown."""
        return await self._records.read(lambda reader: self._log.read_schema(reader, schema_id))

    async def any_schema_json(self, schema_id: str) -> str:
        """A schema by id, also of change events that nobody has selected. Raises SchemaUnknown."""
        try:
            return await self.schema_json(schema_id)
        except SchemaUnknown:
            possible = self._records.types.try_possible_schema(schema_id)
            if possible is None:
                raise
            return possible

    async def event_schema(self, name: str) -> str:
        """The newest schema of an event type, such as `Order__e` or `AccountChangeEvent`. Raises
        TopicUnknown.
        """
        return self.latest_schema(name).json

    def latest_schema(self, name: str) -> EventSchema:
        """The newest schema of an event type in any letter case. Raises TopicUnknown."""
        schema = self._records.types.try_schema(name)
        if schema is None:
            raise TopicUnknown(f"The requested resource does not exist: {name}", topic=name)
        return schema

    async def upsert(
        self, call: Call, entity: str, field: str, value: object, values: Mapping[str, object]
    ) -> tuple[str, bool]:
        """Update the record with this external id, or create it; returns its id and whether it is new."""
        (result,) = await self.upsert_together(call, [Upsert(entity, field, value, values)], all_or_none=True)
        if isinstance(result, PlatformError):
            raise result
        return result

    async def upsert_together(
        self,
        call: Call,
        upserts: Sequence[Upsert],
        *,
        all_or_none: bool,
        on_results: OnResults[tuple[str, bool]] | None = None,
    ) -> list[tuple[str, bool] | PlatformError]:
        """Several upserts in one transaction: for each, its record's id and whether it is new, or why it failed.

        `all_or_none` and `on_results` work as in `write_together`.
        """
        sharing = await self._views.sharing(call.principal)
        allowed = [await self._check_upsert(call.principal, upsert) for upsert in upserts]

        def run(unit: UnitOfWork, guard: RecordGuard) -> Iterator[tuple[str, bool] | PlatformError]:
            for upsert, found in zip(upserts, allowed, strict=True):
                yield found if isinstance(found, PlatformError) else run_upsert(unit, guard, *found, upsert)

        is_solo = any(not isinstance(found, PlatformError) and needs_own_group(found[0]) for found in allowed)
        return await self._commit_each(
            call, sharing, run, all_or_none=all_or_none, solo=is_solo, on_results=on_results
        )

    async def _check_upsert(
        self, principal: Principal, upsert: Upsert
    ) -> tuple[ObjectType, ObjectGrant] | PlatformError:
        try:
            obj, grants = await self._views.open(principal, upsert.entity, "upsert")
            key = obj.try_field(upsert.field)
            given = upsert.values if key is None else {**upsert.values, key.name: upsert.value}
            check_editable(self.catalog, obj, grants, given)
            check_topic_query(self._views.over(principal, grants), obj, given, self._clock.now_ms())
        except PlatformError as error:
            return error
        return obj, grants.on(obj.name)

    async def _commit(self, call: Call, work: Callable[[UnitOfWork], T], *, solo: bool = False) -> T:
        return await self._records.write(
            work,
            user_id=call.principal.user_id,
            origin=call.origin,
            has_notifications=call.has_notifications,
            solo=solo,
        )

    async def undelete(
        self, call: Call, record_ids: Sequence[str], *, all_or_none: bool = False
    ) -> list[str | PlatformError]:
        """Bring records back from the recycle bin in one transaction: for each, its id or why it stays there.

        With `all_or_none`, one failure leaves them all there.
        """
        return await self._from_bin(call, record_ids, UnitOfWork.undelete, all_or_none=all_or_none)

    async def purge(self, call: Call, record_ids: Sequence[str]) -> list[str | PlatformError]:
        """Remove records in the recycle bin for good: for each, its id or why it stays there."""
        return await self._from_bin(call, record_ids, UnitOfWork.purge)

    async def merge(
        self, call: Call, entity: str, master_id: str, loser_ids: Sequence[str], values: Mapping[str, object]
    ) -> Merged:
        """Make one record of up to three, with these values."""
        obj, grants = await self._views.open(call.principal, entity)
        sharing = await self._views.sharing(call.principal)
        work = merge_work(self.catalog, sharing, obj, grants, master_id, loser_ids, values)
        return await self._commit(call, work)

    async def convert_lead(self, call: Call, conversion: Conversion) -> Converted:
        """Turn a lead into an account, a contact and perhaps an opportunity, in one transaction."""
        work = await conversion_work(self.catalog, self._views, call.principal, conversion)
        return await self._commit(call, work)

    async def _from_bin(
        self,
        call: Call,
        record_ids: Sequence[str],
        act: BinAct,
        *,
        all_or_none: bool = False,
    ) -> list[str | PlatformError]:
        sharing = await self._views.sharing(call.principal)
        allowed = [await self._check_bin(call.principal, record_id) for record_id in record_ids]

        def run(unit: UnitOfWork, guard: RecordGuard) -> Iterator[str | PlatformError]:
            for found in allowed:
                yield found if isinstance(found, PlatformError) else run_in_bin(unit, guard, *found, act)

        is_solo = any(not isinstance(found, PlatformError) and needs_own_group(found[0]) for found in allowed)
        return await self._commit_each(call, sharing, run, all_or_none=all_or_none, solo=is_solo)

    async def _check_bin(
        self, principal: Principal, record_id: str
    ) -> tuple[ObjectType, str] | PlatformError:
        try:
            record_id = normalise_id(record_id)
            known = self.catalog.try_object_of_id(record_id)
            if known is None:
                raise RecordNotFound("The requested resource does not exist", record_id=record_id)
            obj, grants = await self._views.open(principal, known.name)
            grant = grants.on(obj.name)
            check_allowed(obj, obj.deletable and (grant.can_delete or grant.can_modify_all))
        except PlatformError as error:
            return error
        return obj, record_id
