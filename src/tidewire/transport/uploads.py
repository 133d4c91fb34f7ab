"""Request bodies that are too large for memory, kept in an anonymous temporary file."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import SpooledTemporaryFile

from tidewire.errors import BodyMalformed, BodyTooLarge

_IN_MEMORY_BYTES = 1 << 20
_READ_BYTES = 256 << 10


class Upload:
    """One body, complete once its request reaches a handler. `is_packed` means gzip."""

    __slots__ = ("_file", "is_packed", "size_bytes")

    def __init__(self, directory: Path) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES, dir=str(directory))  # noqa: SIM115  # lives on
        self.size_bytes = 0
        self.is_packed = False

    def append(self, piece: bytes) -> None:
        """Write the next piece. Raises OSError."""
        self._file.write(piece)
        self.size_bytes += len(piece)

    def iter_blocks(self, limit_bytes: int) -> Iterator[bytes]:
        """Yield the body in blocks, decompressed. Reads the file: not for the loop's thread.

        Raises BodyTooLarge or BodyMalformed, perhaps after some blocks.
        """
        self._file.seek(0)
        unpacker = zlib.decompressobj(31) if self.is_packed else None
        total = 0
        while raw := self._file.read(_READ_BYTES):
            for block in _unpack(unpacker, raw) if unpacker is not None else (raw,):
                total += len(block)
                if total > limit_bytes:
                    raise BodyTooLarge(
                        f"The upload is larger than {limit_bytes} bytes", limit_bytes=limit_bytes
                    )
                yield block
        if unpacker is not None and self.size_bytes and (not unpacker.eof or unpacker.unused_data):
            raise BodyMalformed("the request body is not one whole gzip member")

    def iter_raw(self) -> Iterator[bytes]:
        """Yield the body in blocks, as received. Reads the file: not for the loop's thread."""
        self._file.seek(0)
        while raw := self._file.read(_READ_BYTES):
            yield raw

    def close(self) -> None:
        """Close the file, which deletes it."""
        self._file.close()


def _unpack(unpacker: zlib._Decompress, raw: bytes) -> Iterator[bytes]:
    try:
        while raw:
            block = unpacker.decompress(raw, _READ_BYTES)
            raw = unpacker.unconsumed_tail
            if block:
                yield block
    except zlib.error as error:
        raise BodyMalformed("the request body is not valid gzip") from error
