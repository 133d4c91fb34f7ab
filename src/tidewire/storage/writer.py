"""The single writer of an org, with group commit.

Callers submit *work*: a function of a Transaction. The writer thread drains its queue into a group, runs one
piece of work after the other, commits all of them with one fsync, and only then reports success. Failure
rules:

- Work that raises is undone and fails alone: rolled back to its savepoint if it has written anything, or its buffered
  inserts are dropped if it has not. The numbers that it took are given back.
- If a statement fails outside of any savepoint, or the insert of buffered rows fails, it is unknown which member caused
  it. Nothing was acknowledged yet: the whole group is rolled back and runs again, each piece in a savepoint of its own.
- Some database errors (a full disk, an interrupt) roll back the whole transaction. Nothing was acknowledged either: the
  piece that hit the error fails, the others run again in a new group.
- A failed COMMIT leaves the outcome open. The connection is discarded, and the group number that a new connection reads
  shows whether the commit happened. If durability itself is in doubt (a failed fsync), nothing is retried: the callers
  get OutcomeUnknown and the writer stops for good.
- A connection lost at any other time loses nothing acknowledged: a new one takes over if it finds the counters as the
  old one left them. If another process has taken over the org, the writer stops for good.

In-memory state changes only in `after_commit` callbacks. Work marked `exclusive` (metadata, access, anything
large) is a group by itself, so that the work after it sees its effects.

Threads: `submit` may be called from any thread that runs a loop, `stop` from any thread; everything else runs
on the writer thread.
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
"""Called with each durable group, on the writer thread, before its members are acknowledged."""


class GroupWriter:
    """Start with `start`, end with `stop`. `failure` is set once the writer has stopped for good."""

    def __init__(self, store: Store, on_commit: CommitListener) -> None:
        self._store = store
        self._on_commit = on_commit
        self._queue: queue.SimpleQueue[list[_Member[Any]] | None] = queue.SimpleQueue()
        self._connection: Connection = store.connect_writer()
        self._progress = read_progress(self._connection)
        self._taken: deque[_Member[Any]] = deque()  # taken from the queue, for this group or a later one
        self._is_ending = False  # the end marker was taken: only refused work can follow
        self._handed_in: dict[asyncio.AbstractEventLoop, list[_Member[Any]]] = {}
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._is_closed = False
        # Guards _handed_in and _is_closed together. Without it `stop` could queue the end marker between a submit's
        # check and its entry, and that work would wait forever.
        self._lock = threading.Lock()
        self._failure_watchers: list[Callable[[], object]] = []
        self.failure: PlatformError | None = None
        self._submitted = 0
        self._acknowledged = 0

    @property
    def queued_count(self) -> int:
        """Return how many submitted pieces of work have no result yet."""
        # Two threads count without a lock, so the difference may be off for an instant.
        return max(0, self._submitted - self._acknowledged)

    @property
    def progress(self) -> Progress:
        """Return the counters of the last durable commit."""
        return self._progress

    def watch_failure(self, stopped: Callable[[], object]) -> None:
        """Call `stopped`, on the writer thread, if the writer stops for good."""
        self._failure_watchers.append(stopped)

    def start(self) -> None:
        """Start the writer thread."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is queued, then stop. Later submissions are refused."""
        with self._lock:
            self._is_closed = True
            # Their loops may never run again, so what they have not handed over yet is queued here, before the end
            # marker.
            for members in self._handed_in.values():
                self._queue.put(members)
            self._handed_in.clear()
            self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def submit(self, work: Callable[[Transaction], T], *, exclusive: bool = False) -> asyncio.Future[T]:
        """Queue work; the future resolves on the calling loop once the work is durable, or with its error."""
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
                # Work submitted in one iteration of the loop is queued at its end, in one piece. Otherwise the
                # writer thread would start with the first of it and compete with the loop for the interpreter
                # while the rest is submitted, and the group would be smaller.
                self._handed_in[loop] = [member]
                loop.call_soon(self._hand_over, loop)
            else:
                waiting.append(member)
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            members = self._handed_in.pop(loop, None)
            if members is not None:  # else `stop` has queued them
                self._queue.put(members)

    def _run(self) -> None:
        stopping = False
        while not stopping:
            group, stopping = self._next_group()
            # What has to run again does so before anything newer: work is committed in the order of submission.
            while group and self.failure is None:
                group = self._commit_group(group)
            if group:
                self._refuse(group)
        # Past the end marker there is only work that was submitted before a failure was seen.
        while True:
            try:
                left = self._queue.get_nowait()
            except queue.Empty:
                return
            if left is not None:
                self._refuse(left)

    def _next_group(self) -> tuple[list[_Member[Any]], bool]:
        """Wait for work, then take all that is queued, up to the limit; exclusive work is a group by itself."""
        taken = self._taken
        if not taken:
            self._take(self._wait_first())
        while len(taken) < GROUP_LIMIT and not self._is_ending:
            try:
                self._take(self._queue.get_nowait())
            except queue.Empty:
                break
        # Exclusive work ends the group before it and is alone in its own; the order of submission stays.
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
        """Wait for the next pieces of work; meanwhile check the connection from time to time."""
        while True:
            try:
                return self._queue.get(timeout=self._store.idle_check_s)
            except queue.Empty:
                if self.failure is None:
                    self._check_connection()

    def _check_connection(self) -> None:
        # An idle server must notice that it lost its lock on the database, and must not wait for the next write.
        try:
            self._connection.execute("SELECT 1")
        except self._store.driver_errors as error:
            log.warning("storage.connection_lost", exc_info=error)
            self._reopen(self._progress)

    def _commit_group(self, group: list[_Member[Any]]) -> list[_Member[Any]]:
        """Run and commit a group; return the members that must run again."""
        # A copy: `self._progress` must stay that of the last durable commit until this one is durable.
        progress = self._progress.copy()
        connection = self._connection
        begun_s = timer_s()
        for member in group:
            TIMINGS["storage.work_queued"].observe(begun_s - member.queued_s)
        try:
            connection.begin()
        except self._store.driver_errors as error:
            if (
                connection.is_open()
            ):  # the database refuses, such as a full disk; retrying at once would not help
                self._fail(group, error)
                return []
            log.warning("storage.connection_lost", exc_info=error)
            self._reopen(self._progress)
            return group
        done: list[_Member[Any]] = []
        rows = (
            BufferedInserts()
        )  # of all members so far: one executemany per statement instead of one per row
        for index, member in enumerate(group):
            transaction = member.transaction = Transaction(connection, progress, rows)
            is_whole = self._run_member(member, transaction, progress)
            # A guarded member has a savepoint from its start, so its failures are its own. Any other may have failed
            # because of the buffered rows of an earlier one.
            if transaction.has_broken_group and not member.is_guarded:
                return self._guard(group)
            if is_whole:
                if member.error is None:
                    done.append(member)
                continue
            # The database has rolled back everything. Nothing was acknowledged, so the others run again; those that
            # had failed by themselves keep their errors.
            self._acknowledge([m for m in group[: index + 1] if m.error is not None])
            counters["storage.groups_rerun"] += 1
            return [m for m in group[:index] if m.error is None] + group[index + 1 :]
        failed = [m for m in group if m.error is not None]
        if not done:  # no fsync for nothing
            self._roll_back()
            self._acknowledge(failed)
            return []
        try:
            rows.insert(connection)
        except (
            Exception
        ) as error:  # drivers raise more than their own errors for values that they cannot bind
            log.warning("storage.statement_failed", exc_info=error)
            return self._guard(group)
        # Written in the same commit: after a failed COMMIT it shows whether the commit happened.
        progress.group_number += 1
        try:
            write_progress(connection, progress)
            crash_point("writer.before_commit")
            connection.commit()
        except self._store.driver_errors as error:
            self._acknowledge(failed)
            self._after_failed_commit(done, progress, error)
            return []
        crash_point("writer.after_commit")
        TIMINGS["storage.group_committed"].observe(timer_s() - begun_s)
        # First in-memory state, then the acknowledgement: who has an answer must find what it reports.
        self._announce(done, progress)
        self._acknowledge(failed + done)
        return []

    def _guard(self, group: list[_Member[Any]]) -> list[_Member[Any]]:
        """Roll back a group with an unknown culprit; return it, to run again with a savepoint for each piece."""
        self._roll_back()
        counters["storage.groups_rerun"] += 1
        for member in group:
            member.is_guarded = True
        return group

    def _run_member(self, member: _Member[Any], transaction: Transaction, progress: Progress) -> bool:
        """Run one piece. Return False if the database has rolled back the whole transaction."""
        connection = self._connection
        member.result, member.error = None, None
        before = progress.copy()  # positions and numbers of work that fails are given out again
        try:
            if member.is_guarded:
                transaction.guard()
            member.result = member.work(transaction)
            transaction.finish()
            if connection.is_in_transaction():
                if transaction.is_guarded:
                    connection.execute("RELEASE member")
                return True
            # The database may end a transaction by itself; the work cannot know.
            member.error = InternalError("the transaction ended early")
        except PlatformError as error:
            member.error = error
        except self._store.driver_errors as error:
            log.warning("storage.statement_failed", exc_info=error)
            kind, message, _ = self._store.explain_failure(error)
            member.error = kind(message)
        except Exception as error:  # the writer must survive any bug in the work
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
        # In place, because the transactions of the group share this object.
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
        # After the callbacks: who reads the new counters must find the new state too.
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
            # After a failed fsync the kernel may drop the dirty pages and report success for the next one, so neither
            # a retry nor a read would prove anything. Only a restart reads what is on disk.
            self._connection.close()
            self._stop_for_good(OutcomeUnknown(message))
        else:
            # COMMIT failed, but may have happened. The new connection finds the counters from before or from after it.
            found = self._reopen(self._progress, progress)
            if found is not None and found.group_number == progress.group_number:
                self._announce(done, progress)
                self._acknowledge(done)
                return
        for member in done:
            member.error = kind(message) if self.failure is None else OutcomeUnknown(self.failure.message)
            if self.failure is None:
                _undo(member)
        self._acknowledge(done)

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
            # The next BEGIN fails in the same way, and its callers get the error.
            log.warning("storage.rollback_failed", exc_info=error)

    def _fail(self, group: list[_Member[Any]], error: Exception) -> None:
        log.error("storage.begin_failed", exc_info=error)
        kind, message, _ = self._store.explain_failure(error)
        for member in group:
            member.error = kind(message)
        self._acknowledge(group)

    def _refuse(self, group: list[_Member[Any]]) -> None:
        for member in group:
            member.error = StoreClosed("the server is not taking writes now; try again later")
        self._acknowledge(group)

    def _acknowledge(self, members: list[_Member[Any]]) -> None:
        self._acknowledged += len(members)
        by_loop: dict[asyncio.AbstractEventLoop, list[_Member[Any]]] = {}
        for member in members:
            by_loop.setdefault(member.loop, []).append(member)
        for loop, of_loop in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, of_loop)
            except RuntimeError:
                # The loop is closed: nobody waits for the result any more, and the commit stands.
                continue


def _undo(member: _Member[Any]) -> None:
    """Call the undo callbacks of a failed piece of work."""
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
