"""The rows of a stored upload, a bounded number at a time, each time in a read transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tidewire.errors import InternalError
from tidewire.jobs import store
from tidewire.jobs.model import JobRequest
from tidewire.jobs.uploads import InputRow, iter_input
from tidewire.storage.store import Reader

_MAX_LENGTH = 4 << 20  # characters of the rows taken at once; records of JSON and XML are in memory anyway


class RowSource:
    """Reads on whichever thread asks for rows; `take` is given the reader to use."""

    def __init__(self, request: JobRequest, batch_id: str) -> None:
        self._reader: Reader | None = None
        self._rows: Iterator[InputRow] = iter_input(request, store.iter_parts(self._current, batch_id))

    def take(self, reader: Reader, count: int) -> list[InputRow]:
        """The next rows, at most `count`, and fewer where they are long; none after the last. Raises JobInvalid."""
        self._reader = reader
        taken: list[InputRow] = []
        length = 0
        try:
            for row in islice(self._rows, count):
                taken.append(row)
                length += sum(map(len, row)) if isinstance(row, list) else 0
                if length > _MAX_LENGTH:
                    break
        finally:
            self._reader = None
        return taken

    def _current(self) -> Reader:
        if self._reader is None:
            raise InternalError("rows are read outside a transaction")
        return self._reader
