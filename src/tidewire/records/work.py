"""A unit of work: all DML of one request, in one transaction, and the changes that result.

For each record, the first operation and the final data count as one change: others, who see only the states
before and after the transaction, see a record appear, differ, vanish or return. Rows are written as the
statements come, so that later statements of the same request see them; the changes are reported at the end.
Every statement checks everything before it writes its first row, so one that fails leaves nothing behind.
What single objects additionally require is in `RecordRules`, called at the points that `object_rules` names.
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
"""Raises unless a row may be stored; the last argument is the row before, or None."""


class UnitOfWork:
    """The DML of one request. `now_ms` is cut to whole seconds for the audit fields."""

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
        self.database_key = ""  # of changes made below the API: the database's name of the transaction

    def create(self, obj: ObjectType, values: Mapping[str, object]) -> str:
        """Store a new record from JSON-decoded values; return its id."""
        if not ID_NAMES.isdisjoint(values):
            raise FieldUnknown(
                "The Id field should not be specified in the sobject data.", field="Id", entity=obj.name
            )
        submitted = self._parse(obj, values, is_create=True)
        row = defaults(obj) | submitted
        rules = self.rules.rules_of(obj)
        if rules.complete is not None:
            rules.complete(self.tx, self.catalog, obj, submitted, row)
        missing = [name for name in required_names(obj) if row[name] is None]
        if missing:
            raise RequiredFieldMissing(f"Required fields are missing: [{', '.join(missing)}]", fields=missing)
        # The id comes before the checks, which compare it: a record may refer to itself.
        record_id = row["Id"] = take_record_id(self.tx, obj.key_prefix)
        self._keys.check(obj, submitted, record_id)
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
        """Update the record whose external id is `value`, or create it; return its id and whether it is new.

        The field may also be Id: without a value that creates, with one it updates. `check` is called with
        the id of the record, None for a new one, before anything is written, and may raise. Raises
        ExternalIdAmbiguous.
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
        # Only what is set to null: a record from before a field was required can still be edited.
        nulled = [n for n, v in fresh.items() if v is None and obj.by_name[n.lower()].required]
        if nulled:
            raise RequiredFieldMissing(f"Required fields are missing: [{', '.join(nulled)}]", fields=nulled)
        ignored = frozenset() if rules.ignored_fields is None else rules.ignored_fields(before)
        changed = {n: v for n, v in fresh.items() if v != before.get(n) and n not in ignored}
        # Unchanged values are not checked again: a lookup may point at a record that was deleted since.
        self._keys.check(obj, changed, str(before["Id"]))
        self._check(obj, before | changed, before)
        plan = None
        if rules.plan_update is not None:
            plan = rules.plan_update(self.tx, self.catalog, obj, before, changed, self.now_ms)
        # Also if nothing changed: a save counts as one, with new audit fields.
        self.store(obj, before, changed if plan is None else changed | plan.values)
        if plan is not None:
            self._carry_out(plan)

    def delete(self, obj: ObjectType, record_id: str) -> None:
        """Move a living record, with what its delete takes along, into the recycle bin.

        Raises DeleteRestricted.
        """
        before = self.read(obj, record_id)
        rules = self.rules.rules_of(obj)
        if rules.check_delete is not None:
            rules.check_delete(before)
        if rules.extend_delete is not None:
            plan = plan_delete(self.tx, self.catalog, obj, before)
            self.recycle(rules.extend_delete(self.tx, self.catalog, plan))
            return
        # Most deletes are small. A plan that grows too large is dropped and made again in the database: finding out
        # costs at most _MAX_PLANNED rows.
        few = try_plan_delete(self.tx, self.catalog, obj, before, _MAX_PLANNED)
        if few is not None:
            self.recycle(few)
        else:
            self._recycle_many(obj, record_id)

    def undelete(self, obj: ObjectType, record_id: str) -> None:
        """Restore a record from the recycle bin, with everything that its delete took along.

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
        # After all are back: a lookup must not point at a record that is still deleted.
        for edit in plan.iter_relinked():
            self.store(edit.obj, edit.row, edit.values)
        for page in plan.iter_rows() if has_relations else ():
            self._update_related(page)
        remove_steps(self.tx, record_id)  # last, because the pages above are read from them

    def purge(self, obj: ObjectType, record_id: str) -> None:
        """Remove a record from the recycle bin for good, with what was deleted because of it."""
        row = try_read_row(self.tx, obj, record_id)
        if row is None:
            raise RecordNotFound("The requested resource does not exist", record_id=record_id)
        if not row.get("IsDeleted") or not purge(
            self.tx, self.catalog, record_id, self._touched.complete_rows
        ):
            raise UndeleteRefused("Entity is not in the recycle bin", record_id=record_id)

    def read(self, obj: ObjectType, record_id: str) -> dict[str, Value]:
        """Return a living record. Raises RecordNotFound or RecordDeleted."""
        return read_living(self.tx, obj, record_id)

    def store(
        self,
        obj: ObjectType,
        before: Mapping[str, Value],
        values: Mapping[str, Value],
        *,
        is_edit: bool = True,
    ) -> None:
        """Store checked values, and the fields that follow from them. `before` is the stored row.

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
        # Only what differs is written; the index entries of equal values stay as they are.
        changed = {n: v for n, v in after.items() if v != before.get(n)}
        record_id = str(before["Id"])
        if changed:
            self._rewrite(obj, record_id, changed)
        self._track(obj, record_id, before, None if after.get("IsDeleted") else after)

    def _store_deleted(
        self, obj: ObjectType, before: Mapping[str, Value], values: Mapping[str, Value]
    ) -> None:
        """Mark a record as deleted; its derived fields stay as they are."""
        # `before` may be a partial row: nothing here may read its other fields, which would cost a statement each.
        fresh = {**values, **self._stamps(obj, is_edit=True)}
        record_id = str(before["Id"])
        self._rewrite(obj, record_id, {n: v for n, v in fresh.items() if v != before.get(n)})
        self._track(obj, record_id, before, None)

    def store_derived(self, obj: ObjectType, record_id: str, values: Mapping[str, Value]) -> None:
        """Store computed values, such as roll-ups, of a living record; a no-op if nothing differs."""
        before = try_read_row(self.tx, obj, record_id)
        if before is None or before.get("IsDeleted"):
            return
        if any(before.get(name) != value for name, value in values.items()):
            self.store(obj, before, values, is_edit=False)

    def store_copies(self, obj: ObjectType, row: Mapping[str, Value], values: Mapping[str, Value]) -> None:
        """Store values that are copied from other records, which is not a change of the record."""
        touched = self._rewrite(obj, str(row["Id"]), values)
        if touched is not None and touched.after is not None:
            # If the record changed anyway, its change shows the newest values.
            touched.after = touched.after | dict(values)

    def recycle(self, plan: DeletePlan) -> None:
        """Carry out a delete and store its steps in the recycle bin."""
        for edit in (*plan.gone, *plan.cleared):
            self.store(edit.obj, edit.row, edit.values)
        for edit in (*plan.gone[1:], *plan.cleared):
            self.never_merge(edit.record_id)
        self._update_related(plan.gone)
        append_steps(self.tx, plan.gone[0].record_id, plan.steps(), self.now_ms)

    def _recycle_many(self, obj: ObjectType, record_id: str) -> None:
        """Delete a record with more others than fit in memory, a page at a time."""
        delete = LargeDelete(self.tx, self.catalog, obj, record_id)
        delete.plan()
        for each, rows in delete.iter_gone():
            ids = list(rows)
            self._touched.fetch(ids)  # before the rows change: what was spilled is a difference from them
            update_rows(self.tx, each, ids, {"IsDeleted": True, **self._stamps(each, is_edit=True)})
            for gone_id, before in rows.items():
                self._track(each, gone_id, before, None)
                if gone_id != record_id:
                    self.never_merge(gone_id)
        delete.append_steps(self.now_ms)  # first: iter_cleared reads these steps
        for edit in delete.iter_cleared():
            self.store(edit.obj, edit.row, edit.values)
            self.never_merge(edit.record_id)
        for page in delete.iter_gone_of(self.rules.entities_with_relations()):
            self._update_related(page)
        delete.close()

    def suppress_notifications(self, record_id: str) -> None:
        """Suppress push-topic notifications for a written record, whose change is only a consequence."""
        touched = self._touched.try_get(record_id)
        if touched is not None:
            touched.suppress_notifications = True

    def never_merge(self, record_id: str) -> None:
        """Give a written record a change event of its own, however many others changed alike."""
        touched = self._touched.try_get(record_id)
        if touched is not None:
            touched.never_merge = True

    def watch_references(self, watch: ReferenceWatch | None, is_seen: IsSeen | None = None) -> None:
        """Call `watch` with every lookup that a create or update sets from now on; it may raise.

        A lookup that is set by a key of its target finds only records for which `is_seen` is true.
        """
        self._keys.watch = watch
        self._is_seen = is_seen

    def changes(self) -> Sequence[Change]:
        """Return the changes of the unit, in the order in which records were first written."""
        return self._touched.changes()

    def touched(self, entities: Collection[str]) -> Iterator[Written]:
        """Yield the unflushed records of these entities: entity, row at the last flush, and row now."""
        return self._touched.iter_unflushed(entities)

    def has_only_new(self, others: Collection[str]) -> bool:
        """Return whether every unflushed record is new and none is in `others`."""
        return self._touched.has_only_new(others)

    def mark_flushed(self) -> None:
        """Mark everything written so far as flushed: its effects on other records are stored."""
        self._touched.mark_flushed()

    def close(self) -> None:
        """Release what the unit holds. Its changes can no longer be read."""
        # The watcher refers to the unit in turn: the cycle would keep all rows until the garbage collector runs.
        self.watch_references(None)
        self._touched.close()

    def _check(self, obj: ObjectType, row: Mapping[str, Value], before: Mapping[str, Value] | None) -> None:
        for check in (*self.rules.rules_of(obj).checks, *self.rules.checks):
            check(self.tx, self.catalog, obj, row, before)
        if obj.name in self._row_rules:
            self._row_rules[obj.name](self.tx, self.catalog, row, before)

    def _carry_out(self, plan: WritePlan) -> None:
        """Write a plan. Its order is that of the changes, and so that of the events."""
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
        """Update a stored row; return what is tracked of the record if it was written before."""
        # Loaded before the row changes: of a spilled record only the difference from its stored row is known.
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
_MAX_PLANNED = 2000  # records that a delete planned in memory may concern
