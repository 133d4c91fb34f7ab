"""The gate: every read and write of records by a user passes here, whatever protocol it came by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TypeVar

from tidewire.access import user_record_access
from tidewire.access.grants import GRANT_OBJECTS, Grants
from tidewire.access.principal import Principal
from tidewire.access.sharing import Level, Sharing, forget_manual_shares
from tidewire.access.user_logins import follow_users
from tidewire.clock import Clock
from tidewire.crm.leads import Conversion, Converted
from tidewire.crm.merge import Merged
from tidewire.errors import AccessDenied, ObjectUnknown, PlatformError, SchemaUnknown, TopicUnknown
from tidewire.eventlog.log import EventLog
from tidewire.events import Change, CommitContext
from tidewire.gate.api_compat import upgrade_write
from tidewire.gate.api_usage import ApiUsage
from tidewire.gate.definitions.apply import apply_definition
from tidewire.gate.definitions.plan import Applied
from tidewire.gate.merge_and_convert import conversion_work, merge_work
from tidewire.gate.monitoring import Monitor
from tidewire.gate.publish_quota import Reservation
from tidewire.gate.publishing import Publisher, reject_event
from tidewire.gate.reads import (
    bind_search,
    read_record,
    read_user_access,
    readable_columns,
    rows_of,
    run_search,
)
from tidewire.gate.recent_items import RecentItems
from tidewire.gate.requests import Call, OnResults, Rows, Upsert, Write
from tidewire.gate.user_view import UserViews
from tidewire.gate.write_guard import RecordGuard
from tidewire.gate.writes import (
    BinAction,
    check_in_bin,
    check_upsert,
    check_write,
    needs_own_group,
    run_in_bin,
    run_upsert,
    run_write,
    try_check,
)
from tidewire.ids import normalise_id
from tidewire.records.query import run_query
from tidewire.records.service import Records
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
        self.records = records  # without any permission check
        self._log = log
        self._clock = clock
        self._views = UserViews(records, generation)
        self.usage = ApiUsage(clock)
        self.recent_items = RecentItems(clock)
        self.publisher = Publisher(records, log, clock, self.grants, lambda: Reservation(self.usage.quota))
        self.monitor = Monitor(records, log, clock)

    @property
    def catalog(self) -> Catalog:
        """The current types."""
        return self.records.types.catalog

    def with_records(
        self, records: Records, generation: int, grants: Mapping[str, tuple[int, Grants]]
    ) -> Gate:
        """Return a gate to other records, such as one transaction's view, at a fixed access generation.

        `grants` are known already, by user id, each with its access generation.
        """
        gate = Gate(records, self._log, self._clock, lambda: generation)
        gate.usage = self.usage
        gate.recent_items = self.recent_items
        gate._views.preload(grants)
        return gate

    # permissions

    async def grants(self, principal: Principal) -> Grants:
        """Return what the user may do now."""
        return await self._views.grants(principal)

    async def current_grants(self, principal: Principal) -> tuple[int, Grants]:
        """Return what the user may do now, and an access generation that it is no older than."""
        return await self._views.current_grants(principal)

    async def require(self, principal: Principal, *permissions: str, message: str) -> None:
        """Raise AccessDenied with `message` unless the user has all these system permissions."""
        grants = await self.grants(principal)
        if not all(map(grants.has, permissions)):
            raise AccessDenied(message)

    async def check_api(self, principal: Principal) -> None:
        """Raise AccessDenied if the org or the user lost API access since the login."""
        is_on = self.records.types.settings.api_enabled
        if not is_on or not (await self.grants(principal)).has("ApiEnabled"):
            raise AccessDenied("API is not enabled for this Organization or Partner", permission="ApiEnabled")

    def on_changes(self, unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        """React to changes of users and permissions, inside their transaction."""
        forget_manual_shares(unit, changes)
        follow_users(unit, changes)
        if any(changes_of(changes, *GRANT_OBJECTS)):
            unit.tx.progress.access_generation += 1

    # reads and queries

    async def read(
        self, principal: Principal, entity: str, record_id: str, fields: Sequence[str] | None
    ) -> Rows:
        """Read one record: the named fields, or all that the user may see."""
        view = await self._views.view(principal)
        obj = view.open(entity)
        record_id = normalise_id(record_id)
        columns = view.columns(obj) if fields is None else readable_columns(obj, view.grants, fields)
        now_ms = self._clock.now_ms()
        unflushed = self.recent_items.unflushed(principal.user_id, record_id)

        def work(reader: Reader) -> Rows:
            row = read_record(reader, view, obj, record_id, now_ms)
            row |= self.recent_items.read_dates(reader, principal.user_id, obj, record_id, unflushed)
            return Rows(obj, columns, [row], None, self._log.read_head(reader))

        return await self.records.read(work, is_short=True)

    async def query(self, principal: Principal, soql: str, *, include_deleted: bool = False) -> Rows:
        """Run a SOQL query. What the user may not see does not exist for it."""
        now_ms = self._clock.now_ms()
        bound = await self.bind(principal, soql, now_ms)

        def work(reader: Reader) -> Rows:
            found = run_query(reader, bound, now_ms, include_deleted=include_deleted)
            return rows_of(bound, found.rows, found.count, self._log.read_head(reader))

        rows = await self.records.read(work)
        self.recent_items.add_query_results(principal, soql, rows.entity.name, rows.rows)
        return rows

    async def bind(self, principal: Principal, soql: str, now_ms: int) -> BoundQuery:
        """Bind a query to what the user may see now; relative dates count from `now_ms`."""
        await self.recent_items.flush_if_queried(self.records, soql)
        view = await self._views.view(principal)
        if user_record_access.NAME.lower() in soql.lower():
            query = parse_query(soql)
            if user_record_access.is_access_query(query):
                rows = await self._read_user_access(principal, view.grants, query)
                return view.bind_access_query(query, rows, now_ms)
        try:
            return view.bind(soql, now_ms)
        except ObjectUnknown:
            reject_event(self.catalog, view.grants, parse_query(soql).entity, "query")
            raise

    async def _read_user_access(
        self, principal: Principal, grants: Grants, query: Query
    ) -> user_record_access.AccessRows:
        asked, catalog = user_record_access.parse_access_query(query), self.catalog
        if asked.user_id != principal.user_id and not grants.has("ManageUsers"):
            raise AccessDenied(
                "reading the record access of other users needs the permission Manage Users",
                entity=query.entity,
            )
        return await self.records.read(lambda reader: read_user_access(reader, catalog, asked))

    async def read_snapshot(self, work: Callable[[Reader], T]) -> tuple[T, int]:
        """Run `work` in one read transaction, off the loop; returns its result and the head of the log.

        Checks no permission: `work` runs queries that were bound for its user.
        """
        return await self.records.read(lambda reader: (work(reader), self._log.read_head(reader)))

    async def search(self, principal: Principal, sosl: str) -> list[Rows]:
        """Run a SOSL search; returns one result for each object in its order, empty ones included."""
        search = parse_search(sosl)
        view = await self._views.view(principal)
        now_ms = self._clock.now_ms()
        queries = bind_search(view, search, now_ms)
        return await self.records.read(
            lambda reader: run_search(reader, queries, search.limit, now_ms, self._log.read_head(reader))
        )

    async def visible_objects(self, principal: Principal) -> list[ObjectType]:
        """Return the objects that the user may read."""
        view = await self._views.view(principal)
        return [view.described(obj) for obj in view.catalog.objects]

    async def visible_fields(
        self, principal: Principal, entity: str, operation: str = "retrieve"
    ) -> tuple[ObjectType, frozenset[str], frozenset[str]]:
        """Return an object and the names of its fields that the user may read, and edit.

        `operation` is named in the error if `entity` is an event, which has no records.
        """
        view = await self._views.view(principal)
        obj = view.open(entity, operation)
        readable, editable = view.field_names(obj)
        return view.described(obj), readable, editable

    async def sees_all_records(self, principal: Principal, entity: str) -> bool:
        """Return whether the user may read every record of the object, whoever owns it."""
        view = await self._views.view(principal)
        return view.sharing.visibility(self.catalog.object(entity)) is None

    async def visible_record_ids(
        self, principal: Principal, entity: str, record_ids: Sequence[str], *, level: Level = Level.READ
    ) -> frozenset[str]:
        """Return the ids, of deleted records too, to which the user has access of this level.

        One query for several hundred ids, none where every record is visible.
        """
        view = await self._views.view(principal)
        obj = self.catalog.object(entity)
        if not view.can_read(obj):
            return frozenset()
        sharing = view.sharing
        if sharing.condition(obj, level) is None:
            return frozenset(record_ids)
        return await self.records.read(
            lambda reader: frozenset(sharing.filter_accessible(reader, obj, record_ids, level))
        )

    # writes

    def create(self, call: Call, entity: str, values: Mapping[str, object]) -> Coroutine[object, object, str]:
        """Store a new record; resolves to its id once the write is durable."""
        return self._write(call, Write(entity, None, values))

    async def update(self, call: Call, entity: str, record_id: str, values: Mapping[str, object]) -> None:
        """Store new values of some fields."""
        await self._write(call, Write(entity, record_id, values))

    async def delete(self, call: Call, entity: str, record_id: str) -> None:
        """Put a record into the recycle bin."""
        await self._write(call, Write(entity, record_id, None))

    async def _write(self, call: Call, write: Write) -> str:
        view = await self._views.view(call.principal)
        write = upgrade_write(write, call.api_version)
        obj = check_write(view, write, self._clock.now_ms())

        def work(unit: UnitOfWork) -> str:
            result = run_write(unit, RecordGuard(unit, view.sharing), obj, write)
            if isinstance(result, PlatformError):
                raise result
            return result

        return await self._commit(call, work, exclusive=needs_own_group(obj))

    async def write_together(
        self,
        call: Call,
        writes: Sequence[Write],
        *,
        all_or_none: bool,
        on_results: OnResults[str] | None = None,
    ) -> list[str | PlatformError]:
        """Run several writes in one transaction; returns the record id or the error of each.

        With `all_or_none`, one error rolls all of them back; the others then return the ids they would have
        had. `on_results` is called with the results inside the transaction.
        """
        view = await self._views.view(call.principal)
        writes = [upgrade_write(write, call.api_version) for write in writes]
        now_ms = self._clock.now_ms()
        checked = [try_check(check_write, view, write, now_ms) for write in writes]

        def run(unit: UnitOfWork, guard: RecordGuard) -> Iterator[str | PlatformError]:
            for write, obj in zip(writes, checked, strict=True):
                yield obj if isinstance(obj, PlatformError) else run_write(unit, guard, obj, write)

        exclusive = any(isinstance(obj, ObjectType) and needs_own_group(obj) for obj in checked)
        return await self._commit_each(
            call, view.sharing, run, all_or_none=all_or_none, exclusive=exclusive, on_results=on_results
        )

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
        """Run several upserts in one transaction; returns for each the id and whether it is new, or the error.

        `all_or_none` and `on_results` work as in `write_together`.
        """
        view = await self._views.view(call.principal)
        now_ms = self._clock.now_ms()
        checked = [try_check(check_upsert, view, upsert, now_ms) for upsert in upserts]

        def run(unit: UnitOfWork, guard: RecordGuard) -> Iterator[tuple[str, bool] | PlatformError]:
            for upsert, found in zip(upserts, checked, strict=True):
                yield found if isinstance(found, PlatformError) else run_upsert(unit, guard, *found, upsert)

        exclusive = any(
            not isinstance(found, PlatformError) and needs_own_group(found[0]) for found in checked
        )
        return await self._commit_each(
            call, view.sharing, run, all_or_none=all_or_none, exclusive=exclusive, on_results=on_results
        )

    async def undelete(
        self, call: Call, record_ids: Sequence[str], *, all_or_none: bool = False
    ) -> list[str | PlatformError]:
        """Restore records from the recycle bin in one transaction; returns the id or the error of each.

        With `all_or_none`, one error leaves all of them in the bin.
        """
        return await self._run_in_bin(call, record_ids, UnitOfWork.undelete, all_or_none=all_or_none)

    async def purge(self, call: Call, record_ids: Sequence[str]) -> list[str | PlatformError]:
        """Delete records in the recycle bin permanently; returns the id or the error of each."""
        return await self._run_in_bin(call, record_ids, UnitOfWork.purge)

    async def _run_in_bin(
        self, call: Call, record_ids: Sequence[str], action: BinAction, *, all_or_none: bool = False
    ) -> list[str | PlatformError]:
        view = await self._views.view(call.principal)
        checked = [try_check(check_in_bin, view, record_id) for record_id in record_ids]

        def run(unit: UnitOfWork, guard: RecordGuard) -> Iterator[str | PlatformError]:
            for found in checked:
                yield found if isinstance(found, PlatformError) else run_in_bin(unit, guard, *found, action)

        exclusive = any(
            not isinstance(found, PlatformError) and needs_own_group(found[0]) for found in checked
        )
        return await self._commit_each(call, view.sharing, run, all_or_none=all_or_none, exclusive=exclusive)

    async def merge(
        self, call: Call, entity: str, master_id: str, loser_ids: Sequence[str], values: Mapping[str, object]
    ) -> Merged:
        """Merge up to two records into a third, which gets these values."""
        view = await self._views.view(call.principal)
        return await self._commit(call, merge_work(view, entity, master_id, loser_ids, values))

    async def convert_lead(self, call: Call, conversion: Conversion) -> Converted:
        """Convert a lead into an account, a contact and optionally an opportunity, in one transaction."""
        view = await self._views.view(call.principal)
        return await self._commit(call, conversion_work(view, conversion))

    async def apply_definition(self, call: Call, document: Mapping[str, object], *, dry_run: bool) -> Applied:
        """Bring the org to the state that a definition describes; returns the plan."""
        message = "applying a definition needs the permission Customize Application"
        await self.require(call.principal, "CustomizeApplication", message=message)
        records = self.records
        return await self._commit(
            call,
            lambda unit: apply_definition(
                unit, records.types, document, is_dry_run=dry_run, on_conversion=records.on_conversion
            ),
            exclusive=True,
        )

    async def _commit_each(
        self,
        call: Call,
        sharing: Sharing,
        run: Callable[[UnitOfWork, RecordGuard], Iterator[T | PlatformError]],
        *,
        all_or_none: bool,
        exclusive: bool,
        on_results: OnResults[T] | None = None,
    ) -> list[T | PlatformError]:
        """Collect the results that `run` yields, in one transaction."""
        results: list[T | PlatformError] = []

        def work(unit: UnitOfWork) -> None:
            results.clear()  # the writer runs the work again if its commit group failed
            results.extend(run(unit, RecordGuard(unit, sharing)))
            failure = next((r for r in results if isinstance(r, PlatformError)), None)
            if all_or_none and failure is not None:
                raise failure
            if on_results is not None:
                on_results(unit, results)

        try:
            await self._commit(call, work, exclusive=exclusive)
        except PlatformError as error:
            if error not in results:
                raise
        return results

    def _commit(
        self, call: Call, work: Callable[[UnitOfWork], T], *, exclusive: bool = False
    ) -> Awaitable[T]:
        return self.records.write(
            work,
            user_id=call.principal.user_id,
            origin=call.origin,
            has_notifications=call.has_notifications,
            exclusive=exclusive,
        )

    # event schemas

    async def schema_json(self, schema_id: str) -> str:
        """Read the schema of an event that may have been published. Raises SchemaUnknown."""
        return await self.records.read(lambda reader: self._log.read_schema(reader, schema_id))

    async def any_schema_json(self, schema_id: str) -> str:
        """Read a schema by id, also of change events that no channel selects. Raises SchemaUnknown."""
        try:
            return await self.schema_json(schema_id)
        except SchemaUnknown:
            possible = self.records.types.try_possible_schema(schema_id)
            if possible is None:
                raise
            return possible

    async def event_schema(self, name: str) -> str:
        """Return the newest schema of an event type, such as `Order__e` or `AccountChangeEvent`, as JSON."""
        return self.latest_schema(name).json

    def latest_schema(self, name: str) -> EventSchema:
        """Return the newest schema of an event type in any letter case. Raises TopicUnknown."""
        schema = self.records.types.try_schema(name)
        if schema is None:
            raise TopicUnknown(f"The requested resource does not exist: {name}", topic=name)
        return schema
