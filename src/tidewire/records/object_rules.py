"""The points at which the engine calls rules of single objects, and the plans that those rules return.

The engine knows fields, lookups, formulas and summaries; what an account or a task additionally requires is a
rule. `RecordRules` is one frozen value, passed in where the engine is opened. Rules read and check, and
return plans: only the engine writes. A rule that raises makes its statement fail before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidewire.events import Value
from tidewire.records.cascade import DeletePlan, RowEdit
from tidewire.records.settings import OrgSettings
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType, RollUp
from tidewire.storage.store import Transaction

Row = Mapping[str, Value]
NewRow = tuple[ObjectType, dict[str, Value]]


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Everything that a create or update of one record leads to, in the order in which it is written.

    `values` are added to those of the updated record. What is `gone` goes into the recycle bin under
    `bin_root`, and `cleared` are the lookups that pointed at it. `created` rows have their ids; the plan of a
    create includes the new record itself. Each of the `gone`, `cleared` and `cascaded` records has a change
    event of its own; `edited` records may share one with others that changed alike; `copied` values are not a
    change of their record.
    """

    values: dict[str, Value] = field(default_factory=dict)
    gone: tuple[RowEdit, ...] = ()
    cleared: tuple[RowEdit, ...] = ()
    cascaded: tuple[RowEdit, ...] = ()
    created: tuple[NewRow, ...] = ()
    edited: tuple[RowEdit, ...] = ()
    copied: tuple[RowEdit, ...] = ()
    bin_root: str = ""


class FlushUnit(Protocol):
    """The part of a unit of work that stores what follows from its writes for other records."""

    tx: Transaction
    catalog: Catalog
    now_ms: int
    rules: RecordRules

    def touched(self, entities: Collection[str]) -> Iterable[tuple[str, Row | None, Row | None]]:
        """Return the unflushed records of these entities: entity, row at the last flush, and row now."""

    def store_derived(self, obj: ObjectType, record_id: str, values: Row) -> None:
        """Store computed values of a living record."""

    def store_copies(self, obj: ObjectType, row: Row, values: Row) -> None:
        """Store values that are not a change of their record."""


CompleteRule = Callable[[Transaction, Catalog, ObjectType, Row, dict[str, Value]], None]
"""Completes a new row from the submitted values, which come first; called before required fields are checked."""

Check = Callable[[Transaction, Catalog, ObjectType, Row, Row | None], None]
"""Raises unless a row may be stored; the last argument is the row before, None for a new record."""

CreateRule = Callable[[Transaction, Catalog, ObjectType, dict[str, Value]], WritePlan | None]
"""Plans a create from the checked row; None if only the row is to be stored."""

UpdateRule = Callable[
    [Transaction, Catalog, ObjectType, dict[str, Value], dict[str, Value], int], WritePlan | None
]
"""Plans an update from the row before, its changed values and the time; None if nothing else is stored."""

DeleteRule = Callable[[Transaction, Catalog, DeletePlan], DeletePlan]
"""Extends the plan of a delete whose root is a record of the object."""

RelationRule = Callable[[Transaction, Catalog, Sequence[RowEdit]], Sequence[RowEdit]]
"""Plans the edits that follow for other records when these records were deleted or undeleted."""

CopiedRule = Callable[[Transaction, Catalog, ObjectType, Row, Row | None], dict[str, Value]]
"""Computes the fields that a row copies from other records; the last argument is the row before, or None."""

DerivedRule = Callable[[ObjectType, Row, Row | None, int], dict[str, Value]]
"""Computes fields from a row alone; the other arguments are the row before, or None, and the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRules:
    """The rules of one object's records, in the order in which a statement calls them."""

    check_editable: Callable[[Row], None] | None = None
    complete: CompleteRule | None = None
    ignored_fields: Callable[[Row], frozenset[str]] | None = None
    checks: tuple[Check, ...] = ()
    plan_create: CreateRule | None = None
    plan_update: UpdateRule | None = None
    copied: CopiedRule | None = None
    derived: DerivedRule | None = None
    check_delete: Callable[[Row], None] | None = None
    extend_delete: DeleteRule | None = None
    plan_relations: RelationRule | None = None
    reset_on_undelete: frozenset[str] = frozenset()  # lookups that an undeleted record does not keep


NO_OBJECT_RULES = ObjectRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRules:
    """How the types of an org depend on its settings and on each other.

    `optional_objects` replace the standard objects of the same names in orgs whose settings are `enabled`.
    `with_dependents` completes objects that are about to change by those that change with them; `lost_fields`
    are the fields, as entity and name, that changed objects lose because of others.
    """

    optional_objects: tuple[ObjectType, ...] = ()
    enabled: Callable[[OrgSettings], bool] = lambda settings: False
    with_dependents: Callable[[Transaction, Catalog, tuple[ObjectType, ...]], tuple[ObjectType, ...]] = (
        lambda tx, base, objects: objects
    )
    lost_fields: Callable[[Catalog, Sequence[ObjectType]], list[tuple[str, str]]] = lambda base, objects: []


# Compared by identity: caches key on the one value that an org is opened with.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordRules:
    """All rules of an org. `checks` hold for every object's records.

    `summary_fields` are roll-ups of standard objects, by object and field; those in `set_by_hand` keep their
    own value as long as there is nothing to sum up. Each function of `flush` is called after the last
    statement of a unit, to update other records; a new record of `flushed_entities` can concern others.
    """

    objects: Mapping[str, ObjectRules] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    summary_fields: Mapping[str, Mapping[str, RollUp]] = field(default_factory=dict)
    set_by_hand: frozenset[tuple[str, str]] = frozenset()
    flush: tuple[Callable[[FlushUnit], None], ...] = ()
    flushed_entities: frozenset[str] = frozenset()
    types: TypeRules = TypeRules()

    def roll_up_of(self, obj: ObjectType, known: Field) -> RollUp | None:
        """Return what a field sums up, by its definition or by `summary_fields`; None for other fields."""
        return known.roll_up or self.summary_fields.get(obj.name, {}).get(known.name)

    def rules_of(self, obj: ObjectType) -> ObjectRules:
        """Return the rules of an object."""
        return self.objects.get(obj.name, NO_OBJECT_RULES)

    def entities_with_relations(self) -> tuple[str, ...]:
        """Return the entities that have `plan_relations`."""
        return tuple(name for name, rules in self.objects.items() if rules.plan_relations is not None)


NO_RULES = RecordRules()
"""An engine of custom objects only."""
