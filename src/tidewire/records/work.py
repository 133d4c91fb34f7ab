"""A unit of work: all DML of one request, in one transaction, and the changes it adds up to.

Per record, the first operation and the final data count as one change: who looks before and after the
transaction sees a record appear, differ, vanish or return. Rows are written as the statements come, so that
later statements of the same request see them; the changes are told at the end. Every statement checks all it
has to check before it writes its first row, so one that fails leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tidewire.errors import (
    ExternalIdAmbiguous,
    FieldUnknown,
    RecordNotFound,
    RequiredFieldMissing,
    UndeleteRefused,
)
from tidewire.events import Change, UntrackedChange, Value
from tidewire.records.cascade import DeletePlan, RowEdit, plan_delete, plan_undelete, try_plan_delete
from tidewire.records.checks import KeyChecks, ReferenceWatch
from tidewire.records.derived import compute_derived, default_name, fit_values
from tidewire.records.large_delete import LargeDelete
from tidewire.records.numbers import auto_number_key, render_auto_number, take_number, take_record_id
from tidewire.records.object_rules import RecordRules, WritePlan
from tidewire.records.recycle_bin import append_steps, purge, remove_steps
from tidewire.records.references import IsSeen
from tidewire.records.submitted import (
    ID_NAMES,
    auto_numbers,
    defaults,
    parse_submitted,
    required_names,
    stamp_names,
)
from tidewire.records.table import (
    find_by_value,
    insert_row,
    read_living,
    try_read_row,
    update_row,
    update_rows,
)
from tidewire.records.touched import Touched, TouchedRecords, Written
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import ObjectType
from tidewire.schema.values import parse_value
from tidewire.storage.store import Transaction

RowRule = Callable[[Transaction, Catalog, Mapping[str, Value], Mapping[str, Value] | None], None]
"""Raises unless a row, and the row before it if there was one, may stand; for what only a later stage can
judge.
"""


class UnitOfWork:
    """One request's DML. `now_ms` is cut to whole seconds for the audit fields."""

    def __init__(
        self,
        tx: Transaction,
        catalog: Catalog,
        user_id: str,
        now_ms: int,
        rules: RecordRules,
        row_rules: Mapping[str, RowRule] | None = None,
    ) -> None:
        self.tx = tx
        self.rules = rules
        self._row_rules = row_rules or {}
        self.catalog = catalog
        self.user_id = user_id
        self.now_ms = now_ms
        self._second_ms = now_ms - now_ms % 1000
        self._keys = KeyChecks(tx, catalog)
        self._touched = TouchedRecords(tx, self._keys.forget)
        self._is_seen: IsSeen | None = None
        self.untracked_changes: list[UntrackedChange] = []
        self.database_key = ""  # set for work below the API: what the database calls the transaction

    def create(self, obj: ObjectType, values: Mapping[str, object]) -> str:
        """Store a new record from JSON-decoded values; returns its id."""
        if not ID_NAMES.isdisjoint(values):
            raise FieldUnknown(
                "The Id field should not be specified in the sobject data.", field="Id", entity=obj.name
            )
        given = self._parse(obj, values, is_create=True)
        row = defaults(obj) | given
        rules = self.rules.rules_of(obj)
        if rules.complete is not None:
            rules.complete(self.tx, self.catalog, obj, given, row)
        missing = [name for name in required_names(obj) if row[name] is None]
        if missing:
            raise RequiredFieldMissing(f"Required fields are missing: [{', '.join(missing)}]", fields=missing)
        record_id = row["Id"] = take_record_id(self.tx, obj.key_prefix)
        self._keys.check(obj, given, record_id)
        self._check(obj, row, None)
        plan = None if rules.plan_create is None else rules.plan_create(self.tx, self.catalog, obj, row)
        if plan is not None:
            self._carry_out(plan)
        else:
            self._insert(obj, row)
        return record_id

    def upsert(
        self,
        obj: ObjectType,
        field_name: str,
        value: object,
        values: Mapping[str, object],
        check: Callable[[str | None], None] = lambda record_id: None,
    ) -> tuple[str, bool]:
        """Update the one record whose external id is `value`, or create it; returns its id and whether it is
        new.

        The field may also be Id: without a value that creates, with one it updates. `check` hears the id of
        the record, None for a new one, before anything is written, and may raise. Raises ExternalIdAmbiguous.
        """
        field = obj.try_field(field_name)
        if field is None or field.name not in obj.keys:
            raise FieldUnknown(
                f"Provided external ID field does not exist or is not accessible: {field_name}",
                field=field_name,
                entity=obj.name,
            )
        if any(name.lower() == field.name.lower() for name in values):
            raise FieldUnknown(
                f"The {field.name} field should not be specified in the sobject data.",
                field=field.name,
                entity=obj.name,
            )
        key = parse_value(field, value)
        if field.type is FieldType.ID:
            check(None if key is None else str(key))
            if key is None:
                return self.create(obj, values), True
            self.update(obj, str(key), values)
            return str(key), False
        if key is None:
            raise RequiredFieldMissing(f"Required fields are missing: [{field.name}]", fields=[field.name])
        holders = find_by_value(self.tx, obj, field, key, _MAX_SHOWN_HOLDERS)
        if len(holders) > 1:
            raise ExternalIdAmbiguous(
                f"{field.name}: more than one record found for external id field: [{', '.join(holders)}]",
                fields=[field.name],
                entity=obj.name,
                record_ids=holders,
            )
        check(holders[0] if holders else None)
        if holders:
            self.update(obj, holders[0], values)
            return holders[0], False
        return self.create(obj, {**values, field.name: value}), True

    def update(self, obj: ObjectType, record_id: str, values: Mapping[str, object]) -> None:
        """Store new values of some fields of a living record."""
        before = self.read(obj, record_id)
        rules = self.rules.rules_of(obj)
        if rules.check_editable is not None:
            rules.check_editable(before)
        fresh = self._parse(obj, values, is_create=False)
        nulled = [n for n, v in fresh.items() if v is None and obj.by_name[n.lower()].required]
        if nulled:
            raise RequiredFieldMissing(f"Required fields are missing: [{', '.join(nulled)}]", fields=nulled)
        ignored = frozenset() if rules.ignored_fields is None else rules.ignored_fields(before)
        changed = {n: v for n, v in fresh.items() if v != before.get(n) and n not in ignored}
        self._keys.check(obj, changed, str(before["Id"]))
        self._check(obj, before | changed, before)
        plan = None
        if rules.plan_update is not None:
            plan = rules.plan_update(self.tx, self.catalog, obj, before, changed, self.now_ms)
        self.store(obj, before, changed if plan is None else changed | plan.values)
        if plan is not None:
            self._carry_out(plan)

    def delete(self, obj: ObjectType, record_id: str) -> None:
        """Put a living record into the recycle bin, with what goes along. Raises DeleteRestricted."""
        before = self.read(obj, record_id)
        rules = self.rules.rules_of(obj)
        if rules.check_delete is not None:
            rules.check_delete(before)
        if rules.extend_delete is not None:
            plan = plan_delete(self.tx, self.catalog, obj, before)
            self.recycle(rules.extend_delete(self.tx, self.catalog, plan))
            return
        few = try_plan_delete(self.tx, self.catalog, obj, before, _MAX_PLANNED)
        if few is not None:
            self.recycle(few)
        else:
            self._recycle_many(obj, record_id)

    def undelete(self, obj: ObjectType, record_id: str) -> None:
        """Bring a record back from the recycle bin, with all that its delete took along.

        Raises RecordNotFound, UndeleteRefused or, if a unique value was taken meanwhile, DuplicateValue.
        """
        plan = plan_undelete(
            self.tx,
            self.catalog,
            obj,
            record_id,
            self.user_id,
            lambda each: self.rules.rules_of(each).reset_on_undelete,
        )
        has_relations = False
        for page in plan.iter_returned():
            self._touched.fetch([edit.record_id for edit in page])
            for edit in page:
                self.store(edit.obj, edit.row, edit.values)
                has_relations |= self.rules.rules_of(edit.obj).plan_relations is not None
        for edit in plan.iter_relinked():
            self.store(edit.obj, edit.row, edit.values)
        for page in plan.iter_rows() if has_relations else ():
            self._update_related(page)
        remove_steps(self.tx, record_id)

    def purge(self, obj: ObjectType, record_id: str) -> None:
        """Remove a record in the recycle bin for good, with what was deleted because of it."""
        row = try_read_row(self.tx, obj, record_id)
        if row is None:
            raise RecordNotFound("The requested resource does not exist", record_id=record_id)
        if not row.get("IsDeleted") or not purge(
            self.tx, self.catalog, record_id, self._touched.complete_rows
        ):
            raise UndeleteRefused("Entity is not in the recycle bin", record_id=record_id)

    def read(self, obj: ObjectType, record_id: str) -> dict[str, Value]:
        """A living record. Raises RecordNotFound or RecordDeleted."""
        return read_living(self.tx, obj, record_id)

    def store(
        self,
        obj: ObjectType,
        before: Mapping[str, Value],
        values: Mapping[str, Value],
        *,
        is_edit: bool = True,
    ) -> None:
        """Store values that are known to fit, and what follows from them. `before` is the row as it stands.

        Without `is_edit` the record does not count as modified: only its SystemModstamp moves.
        """
        if values.get("IsDeleted"):
            self._store_deleted(obj, before, values)
            return
        if not isinstance(before, dict):
            before = dict(before)
        after: dict[str, Value] = before | dict(values) | self._stamps(obj, is_edit=is_edit)
        if not after.get("IsDeleted"):
            self._complete(obj, after, before)
        changed = {n: v for n, v in after.items() if v != before.get(n)}
        record_id = str(before["Id"])
        if changed:
            self._rewrite(obj, record_id, changed)
        self._track(obj, record_id, before, None if after.get("IsDeleted") else after)

    def _store_deleted(
        self, obj: ObjectType, before: Mapping[str, Value], values: Mapping[str, Value]
    ) -> None:
        """Store what puts a record into the recycle bin. Nothing follows from its other fields any more."""
        fresh = {**values, **self._stamps(obj, is_edit=True)}
        record_id = str(before["Id"])
        self._rewrite(obj, record_id, {n: v for n, v in fresh.items() if v != before.get(n)})
        self._track(obj, record_id, before, None)

    def store_derived(self, obj: ObjectType, record_id: str, values: Mapping[str, Value]) -> None:
        """Store computed values, such as roll-ups, of a living record; nothing happens if they are as before."""
        before = try_read_row(self.tx, obj, record_id)
        if before is None or before.get("IsDeleted"):
            return
        if any(before.get(name) != value for name, value in values.items()):
            self.store(obj, before, values, is_edit=False)

    def store_copies(self, obj: ObjectType, row: Mapping[str, Value], values: Mapping[str, Value]) -> None:
        """Store values that a record takes over from others. That is no change of the record."""
        touched = self._rewrite(obj, str(row["Id"]), values)
        if touched is not None and touched.after is not None:
            touched.after = touched.after | dict(values)

    def recycle(self, plan: DeletePlan) -> None:
        """Carry out a delete and keep its steps in the recycle bin."""
        for edit in (*plan.gone, *plan.cleared):
            self.store(edit.obj, edit.row, edit.values)
        for edit in (*plan.gone[1:], *plan.cleared):
            self.never_merge(edit.record_id)
        self._update_related(plan.gone)
        append_steps(self.tx, plan.gone[0].record_id, plan.steps(), self.now_ms)

    def _recycle_many(self, obj: ObjectType, record_id: str) -> None:
        """The same for a delete that memory should not hold: a page of records at a time."""
        delete = LargeDelete(self.tx, self.catalog, obj, record_id)
        delete.plan()
        for each, rows in delete.iter_gone():
            ids = list(rows)
            self._touched.fetch(ids)
            update_rows(self.tx, each, ids, {"IsDeleted": True, **self._stamps(each, is_edit=True)})
            for gone_id, before in rows.items():
                self._track(each, gone_id, before, None)
                if gone_id != record_id:
                    self.never_merge(gone_id)
        delete.append_steps(self.now_ms)
        for edit in delete.iter_cleared():
            self.store(edit.obj, edit.row, edit.values)
            self.never_merge(edit.record_id)
        for page in delete.iter_gone_of(self.rules.entities_with_relations()):
            self._update_related(page)
        delete.close()

    def suppress_notifications(self, record_id: str) -> None:
        """Let push topics stay silent about a record that was written: nobody asked for its change itself."""
        touched = self._touched.try_get(record_id)
        if touched is not None:
            touched.suppress_notifications = True

    def never_merge(self, record_id: str) -> None:
        """Let a record that was written have a change event of its own, however many others changed alike."""
        touched = self._touched.try_get(record_id)
        if touched is not None:
            touched.never_merge = True

    def watch_references(self, watch: ReferenceWatch | None, is_seen: IsSeen | None = None) -> None:
        """Tell `watch`, if there is one, of every lookup that a create or update sets from now on; it may
        raise.

        Lookups given by a key of their target find only records that `is_seen` says yes to.
        """
        self._keys.watch = watch
        self._is_seen = is_seen

    def changes(self) -> Sequence[Change]:
        """What the work adds up to, in the order in which records were first touched."""
        return self._touched.changes()

    def touched(self, entities: Collection[str]) -> Iterator[Written]:
        """The records of these entities that were written and are not settled yet: the entity, the row as it
        was when all was settled, and now.
        """
        return self._touched.iter_unflushed(entities)

    def has_only_new(self, others: Collection[str]) -> bool:
        """Whether all that is not settled yet are new records, none of them of these `others`."""
        return self._touched.has_only_new(others)

    def mark_flushed(self) -> None:
        """Note that what follows for other records from all that was written has been stored too."""
        self._touched.mark_flushed()

    def close(self) -> None:
        """Let go of what the work has held. Its changes can no longer be read."""
        # Whoever watches holds the unit in turn: let go, or all that it holds waits for the garbage collector.
        self.watch_references(None)
        self._touched.close()

    def _check(self, obj: ObjectType, row: Mapping[str, Value], before: Mapping[str, Value] | None) -> None:
        for check in (*self.rules.rules_of(obj).checks, *self.rules.checks):
            check(self.tx, self.catalog, obj, row, before)
        if obj.name in self._row_rules:
            self._row_rules[obj.name](self.tx, self.catalog, row, before)

    def _carry_out(self, plan: WritePlan) -> None:
        for edit in (*plan.gone, *plan.cleared, *plan.cascaded):
            self.store(edit.obj, edit.row, edit.values)
            self.never_merge(edit.record_id)
        if plan.gone:
            append_steps(self.tx, plan.bin_root, DeletePlan(plan.gone, plan.cleared).steps(), self.now_ms)
        for obj, row in plan.created:
            self._insert(obj, row)
        for edit in plan.edited:
            self.store(edit.obj, edit.row, edit.values)
        for edit in plan.copied:
            self.store_copies(edit.obj, edit.row, edit.values)

    def _update_related(self, edits: Sequence[RowEdit]) -> None:
        """Update the records that depend on relations which were deleted or undeleted."""
        for entity in self.rules.entities_with_relations():
            relations = [edit for edit in edits if edit.obj.name == entity]
            plan = self.rules.objects[entity].plan_relations
            for edit in plan(self.tx, self.catalog, relations) if plan is not None and relations else ():
                self.store(edit.obj, edit.row, edit.values)
                self.never_merge(edit.record_id)

    def _complete(self, obj: ObjectType, row: dict[str, Value], before: Mapping[str, Value] | None) -> None:
        """Set the fields of a row that follow from its others and from other records."""
        rules = self.rules.rules_of(obj)
        row |= default_name(obj, row)
        if rules.copied is not None:
            row |= fit_values(obj, rules.copied(self.tx, self.catalog, obj, row, before))
        row |= compute_derived(obj, row, self.now_ms, before, rules.derived)

    def _insert(self, obj: ObjectType, row: dict[str, Value]) -> None:
        if row.get("OwnerId") is None and "ownerid" in obj.by_name:
            row["OwnerId"] = self.user_id
        dates, people = stamp_names(obj, True, True)
        for name in dates:
            row[name] = self._second_ms
        for name in people:
            row[name] = self.user_id
        for field in auto_numbers(obj):
            number = take_number(self.tx, auto_number_key(obj.name, field.name), field.start_number)
            row[field.name] = render_auto_number(field.display_format or "{0}", number, self.now_ms)
        self._complete(obj, row, None)
        insert_row(self.tx, obj, row)
        record_id = str(row["Id"])
        self._track(obj, record_id, None, row)

    def _rewrite(self, obj: ObjectType, record_id: str, values: Mapping[str, Value]) -> Touched | None:
        """Store values in a row as it stands; returns what is known of the record if it was written before."""
        # First: how a record was that is set aside is known only by how it differs from its stored row.
        touched = self._touched.try_get(record_id)
        update_row(self.tx, obj, record_id, values)
        return touched

    def _track(
        self,
        obj: ObjectType,
        record_id: str,
        before: Mapping[str, Value] | None,
        after: dict[str, Value] | None,
    ) -> None:
        self._touched.track(obj, record_id, before, after)
        self._keys.track(obj, record_id, after)

    def _parse(self, obj: ObjectType, values: Mapping[str, object], *, is_create: bool) -> dict[str, Value]:
        return parse_submitted(self.tx, self.catalog, obj, values, is_create=is_create, is_seen=self._is_seen)

    def _stamps(self, obj: ObjectType, *, is_edit: bool) -> dict[str, Value]:
        dates, people = stamp_names(obj, is_edit, False)
        stamps: dict[str, Value] = dict.fromkeys(dates, self._second_ms)
        for name in people:
            stamps[name] = self.user_id
        return stamps


_MAX_SHOWN_HOLDERS = 10
_MAX_PLANNED = 2000  # records that a delete may concern to be planned in memory
