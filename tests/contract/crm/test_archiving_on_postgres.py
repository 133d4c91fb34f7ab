"""Archived activities, as on SQLite."""

from tests.unit.crm.test_archiving import (  # noqa: F401  # the tests that take any store
    test_archiving_goes_in_portions,
    test_old_events_and_closed_tasks_are_archived_and_nobody_is_told,
    test_recurring_task_is_never_archived_but_its_closed_occurrences_are,
    test_series_is_archived_with_its_last_occurrence,
)
