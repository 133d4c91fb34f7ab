"""The one writer of an org, and its group commit.

Theory of operation. Callers hand in *work*: a function of a Transaction. The writer thread drains whatever
has queued, runs one piece after the other, commits them all with one fsync, and only then lets anyone know. Failure
rules:

- Work that raises is undone and fails alone: rolled back to its savepoint if it has written anything, forgotten if
  it has only left rows to be inserted. Its numbers are given back.
- A statement that fails outside of any savepoint, or an insert of the rows that the members have left, does not tell
  whose fault it is. Nothing was acknowledged: the whole group is rolled back and runs again, each piece in a
  savepoint from its start to its end.
- Some database errors (a full disk, an interrupt) roll back the whole transaction. Then nothing was
  acknowledged: the piece that
  hit it fails, the others run again in a new group.
- A failed COMMIT leaves the outcome open. The connection is thrown away, and the group number that a fresh
  connection reads tells whether the
  commit happened. If durability itself is in doubt (a failed fsync), nothing is retried: the callers get
  OutcomeUnknown and the writer stops for good.
- A connection that is lost at any other moment took nothing acknowledged with it: a new one goes on, if it finds
  the counters just as the old one left them. If another process has taken the org over, the writer stops for good.

In-memory state changes only in `after_commit` callbacks. Work marked `exclusive` (metadata, access, anything
large) is a group by itself, so that
what runs after it sees its effects.

Threads: `submit` may be called from any thread that runs a loop, `stop` from any; everything else happens on
the writer thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidewire.errors import InternalError, OutcomeUnknown, PlatformError, StoreClosed
from tidewire.faults import crash_point
from tidewire.storage.store import (
    BufferedInserts,
    Connection,
    Progress,
    Store,
    Transaction,
    read_progress,
    write_progress,
)
from tidewire.telemetry import TIMINGS, counters, timer_s
from tidewire.tracing import INTERNAL, Trace, add_span, current_trace

T = TypeVar("T")
log = logging.getLogger(__name__)

GROUP_LIMIT = 256  # beyond this a group's latency grows faster than its throughput


@dataclass(slots=True)
class _Member(Generic[T]):
    work: Callable[[Transaction], T]
    is_exclusive: bool
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]
    queued_s: float
    trace: Trace | None
    result: Any = None
    error: BaseException | None = None
    transaction: Transaction | None = None
    is_guarded: bool = False  # runs in a savepoint from start to end


CommitListener = Callable[[list[Transaction], Progress], None]
"""Told of each durable group, on the writer thread, before its members are acknowledged."""


class GroupWriter:
    """Start with `start`, end with `stop`. `failure` is set once the writer has stopped for good."""

    def __init__(self, store: Store, on_commit: CommitListener) -> None:
        self._store = store
        self._on_commit = on_commit
        self._queue: queue.SimpleQueue[list[_Member[Any]] | None] = queue.SimpleQueue()
        self._connection: Connection = store.connect_writer()
        self._progress = read_progress(self._connection)
        self._taken: deque[_Member[Any]] = deque()  # from the queue, for this group or a later one
        self._is_ending = False  # nothing that counts is left in the queue
        self._handed_in: dict[asyncio.AbstractEventLoop, list[_Member[Any]]] = {}
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._is_closed = False
        self._lock = threading.Lock()  # of what is handed in, which nobody takes once the writer is closed
        self._failure_watchers: list[Callable[[], object]] = []
        self.failure: PlatformError | None = None
        self._submitted = 0
        self._settled = 0

    @property
    def queued_count(self) -> int:
        """How many pieces of work have been submitted and are not settled yet; of a moment ago."""
        return max(0, self._submitted - self._settled)

    @property
    def progress(self) -> Progress:
        """The counters of the last durable commit."""
        return self._progress

    def watch_failure(self, stopped: Callable[[], object]) -> None:
        """Call `stopped`, on the writer thread, if the writer ever has to stop for good."""
        self._failure_watchers.append(stopped)

    def start(self) -> None:
        """Begin to take work."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is queued, then stop. Later submissions are refused."""
        with self._lock:
            self._is_closed = True
            for members in self._handed_in.values():
                self._queue.put(members)
            self._handed_in.clear()
            self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def submit(self, work: Callable[[Transaction], T], *, exclusive: bool = False) -> asyncio.Future[T]:
        """Queue work; the future resolves on the calling loop once it is durable, or with the error that
        undid it.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        member = _Member(work, exclusive, loop, future, timer_s(), current_trace())
        with self._lock:
            if self._is_closed or self.failure is not None:
                future.set_exception(StoreClosed("the server is not taking writes now; try again later"))
                return future
            self._submitted += 1
            waiting = self._handed_in.get(loop)
            if waiting is None:
                # What one turn of the loop hands in goes over at its end, in one piece: the writer's thread
                # would otherwise begin with the first of it and contend with the loop for the interpreter
                # over the rest.
                self._handed_in[loop] = [member]
                loop.call_soon(self._hand_over, loop)
            else:
                waiting.append(member)
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            members = self._handed_in.pop(loop, None)
            if members is not None:  # or `stop` has handed them over
                self._queue.put(members)

    def _run(self) -> None:
        stopping = False
        while not stopping:
            group, stopping = self._next_group()
            while group and self.failure is None:
                group = self._commit_group(group)
            if group:
                self._refuse(group)
        while True:
            try:
                left = self._queue.get_nowait()
            except queue.Empty:
                return
            if left is not None:
                self._refuse(left)

    def _next_group(self) -> tuple[list[_Member[Any]], bool]:
        """Wait for work, then take what is there: up to the limit, and a exclusive piece alone."""
        taken = self._taken
        if not taken:
            self._take(self._wait_first())
        while len(taken) < GROUP_LIMIT and not self._is_ending:
            try:
                self._take(self._queue.get_nowait())
            except queue.Empty:
                break
        group: list[_Member[Any]] = []
        while taken and len(group) < GROUP_LIMIT and not (group and taken[0].is_exclusive):
            group.append(taken.popleft())
            if group[0].is_exclusive:
                break
        return group, self._is_ending and not taken

    def _take(self, members: list[_Member[Any]] | None) -> None:
        if members is None:
            self._is_ending = True
        else:
            self._taken.extend(members)

    def _wait_first(self) -> list[_Member[Any]] | None:
        """The next pieces of work. While there are none, a lost connection is noticed all the same."""
        while True:
            try:
                return self._queue.get(timeout=self._store.idle_check_s)
            except queue.Empty:
                if self.failure is None:
                    self._check_connection()

    def _check_connection(self) -> None:
        try:
            self._connection.execute("SELECT 1")
        except self._store.driver_errors as error:
            log.warning("storage.connection_lost", exc_info=error)
            self._reopen(self._progress)

    def _commit_group(self, group: list[_Member[Any]]) -> list[_Member[Any]]:
        """Run and commit a group; returns the members that must run again."""
        progress = self._progress.copy()
        connection = self._connection
        begun_s = timer_s()
        for member in group:
            TIMINGS["storage.work_queued"].observe(begun_s - member.queued_s)
        try:
            connection.begin()
        except self._store.driver_errors as error:
            if connection.is_open():
                self._fail(group, error)
                return []
            log.warning("storage.connection_lost", exc_info=error)
            self._reopen(self._progress)
            return group
        done: list[_Member[Any]] = []
        rows = BufferedInserts()
        for index, member in enumerate(group):
            transaction = member.transaction = Transaction(connection, progress, rows)
            is_whole = self._run_member(member, transaction, progress)
            if transaction.has_broken_group and not member.is_guarded:
                return self._guard(group)
            if is_whole:
                if member.error is None:
                    done.append(member)
                continue
            # The database has rolled everything back. Nothing was acknowledged, so the innocent run again.
            self._settle([m for m in group[: index + 1] if m.error is not None])
            counters["storage.groups_rerun"] += 1
            return [m for m in group[:index] if m.error is None] + group[index + 1 :]
        failed = [m for m in group if m.error is not None]
        if not done:
            self._roll_back()
            self._settle(failed)
            return []
        try:
            rows.insert(connection)
        except Exception as error:  # whatever a value of one member made the driver say
            log.warning("storage.statement_failed", exc_info=error)
            return self._guard(group)
        progress.group_number += 1
        try:
            write_progress(connection, progress)
            crash_point("writer.before_commit")
            connection.commit()
        except self._store.driver_errors as error:
            self._settle(failed)
            self._after_failed_commit(done, progress, error)
            return []
        crash_point("writer.after_commit")
        TIMINGS["storage.group_committed"].observe(timer_s() - begun_s)
        self._announce(done, progress)
        self._settle(failed + done)
        return []

    def _guard(self, group: list[_Member[Any]]) -> list[_Member[Any]]:
        """Undo a group of which nobody knows what broke it; returns it, to be run again piece by piece."""
        self._roll_back()
        counters["storage.groups_rerun"] += 1
        for member in group:
            member.is_guarded = True
        return group

    def _run_member(self, member: _Member[Any], transaction: Transaction, progress: Progress) -> bool:
        """Run one piece. False means that the whole transaction is gone."""
        connection = self._connection
        member.result, member.error = None, None
        before = progress.copy()
        try:
            if member.is_guarded:
                transaction.guard()
            member.result = member.work(transaction)
            transaction.finish()
            if connection.is_in_transaction():
                if transaction.is_guarded:
                    connection.execute("RELEASE member")
                return True
            member.error = InternalError("the transaction ended early")
        except PlatformError as error:
            member.error = error
        except self._store.driver_errors as error:
            log.warning("storage.statement_failed", exc_info=error)
            kind, message, _ = self._store.explain_failure(error)
            member.error = kind(message)
        except Exception as error:  # the writer must outlive any bug in the work it is given
            log.exception("storage.work_failed")
            member.error = InternalError("internal error")
            member.error.__cause__ = error
        _undo(member)
        if not connection.is_in_transaction():
            return False
        try:
            if transaction.is_guarded:
                connection.execute("ROLLBACK TO member")
                connection.execute("RELEASE member")
        except self._store.driver_errors as error:
            log.warning("storage.savepoint_lost", exc_info=error)
            self._roll_back()
            return False
        for name in Progress.__slots__:
            setattr(progress, name, getattr(before, name))
        return True

    def _announce(self, done: list[_Member[Any]], progress: Progress) -> None:
        transactions = [m.transaction for m in done if m.transaction is not None]
        for transaction in transactions:
            for callback in transaction.callbacks:
                callback()
        for member in done:
            if member.trace is not None and member.transaction is not None:
                events = len(member.transaction.events)
                span = add_span(
                    member.trace, "commit", INTERNAL, member.queued_s, {"tidewire.events": events}
                )
                member.transaction.trace = "" if span is None else str(span)
        # Last: who finds the new counters here finds the new state too.
        self._progress = progress.copy()
        self._progress.numbers.clear()
        counters["storage.groups_committed"] += 1
        counters["storage.transactions_committed"] += len(done)
        self._on_commit(transactions, self._progress)
        crash_point("writer.before_ack")

    def _after_failed_commit(self, done: list[_Member[Any]], progress: Progress, error: Exception) -> None:
        log.error("storage.commit_failed", exc_info=error)
        kind, message, is_durability_in_doubt = self._store.explain_failure(error)
        if is_durability_in_doubt:
            self._connection.close()
            self._stop_for_good(OutcomeUnknown(message))
        else:
            found = self._reopen(self._progress, progress)
            if found is not None and found.group_number == progress.group_number:
                self._announce(done, progress)
                self._settle(done)
                return
        for member in done:
            member.error = kind(message) if self.failure is None else OutcomeUnknown(self.failure.message)
            if self.failure is None:
                _undo(member)
        self._settle(done)

    def _reopen(self, *expected: Progress) -> Progress | None:
        """Replace a broken connection; returns the counters that the new one finds.

        Stops for good, and returns None, if there is no new one or if it finds none of the expected states.
        """
        self._connection.close()
        try:
            self._connection = self._store.connect_writer()
            found = read_progress(self._connection)
        except PlatformError as error:
            log.exception("storage.reopen_failed")
            self._stop_for_good(error)
            return None
        except self._store.driver_errors:
            log.exception("storage.reopen_failed")
            self._stop_for_good(OutcomeUnknown("the store could not be reopened"))
            return None
        if found.group_number not in {progress.group_number for progress in expected}:
            self._stop_for_good(OutcomeUnknown("the store is not in the state in which this server left it"))
            return None
        counters["storage.connections_reopened"] += 1
        return found

    def _stop_for_good(self, failure: PlatformError) -> None:
        self.failure = failure
        for stopped in self._failure_watchers:
            stopped()

    def _roll_back(self) -> None:
        try:
            self._connection.rollback()
        except self._store.driver_errors as error:
            # The next BEGIN meets the same trouble, and says so to whom it concerns.
            log.warning("storage.rollback_failed", exc_info=error)

    def _fail(self, group: list[_Member[Any]], error: Exception) -> None:
        log.error("storage.begin_failed", exc_info=error)
        kind, message, _ = self._store.explain_failure(error)
        for member in group:
            member.error = kind(message)
        self._settle(group)

    def _refuse(self, group: list[_Member[Any]]) -> None:
        for member in group:
            member.error = StoreClosed("the server is not taking writes now; try again later")
        self._settle(group)

    def _settle(self, members: list[_Member[Any]]) -> None:
        self._settled += len(members)
        by_loop: dict[asyncio.AbstractEventLoop, list[_Member[Any]]] = {}
        for member in members:
            by_loop.setdefault(member.loop, []).append(member)
        for loop, settled in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, settled)
            except RuntimeError:
                # The loop is closed: nobody waits there any more, and the commit stands all the same.
                continue


def _undo(member: _Member[Any]) -> None:
    """Tell whom it concerns that a piece of work came to nothing."""
    if member.transaction is not None:
        for callback in member.transaction.undo_callbacks:
            callback()


def _resolve(members: list[_Member[Any]]) -> None:
    for member in members:
        if member.future.cancelled():
            continue
        if member.error is not None:
            member.future.set_exception(member.error)
        else:
            member.future.set_result(member.result)
