"""Zip archives: untrusted ones are read within memory limits; written ones are reproducible."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping

from tidewire.errors import BodyMalformed, BodyTooLarge

MAX_ENTRIES = 10_000
MAX_UNPACKED_BYTES = 64 << 20
_MAX_DIRECTORY_BYTES = 4 << 20
_END_BYTES = 22
_LOCATOR_BYTES = 20
_MAX_COMMENT_BYTES = 65_535
_END_MARK = b"PK\x05\x06"
_LOCATOR_MARK = b"PK\x06\x07"
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)


def read_zip(data: bytes) -> dict[str, bytes]:
    """Read the files of an archive by path. Raises BodyMalformed or BodyTooLarge."""
    _check_directory(data)
    files: dict[str, bytes] = {}
    left = MAX_UNPACKED_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ENTRIES:
                raise BodyTooLarge(f"The zip file has more than {MAX_ENTRIES} entries")
            for entry in entries:
                if entry.is_dir():
                    continue
                name = _checked_name(entry.filename)
                if name in files:
                    raise BodyMalformed(f"The zip file has {name[:200]} twice")
                with archive.open(entry) as opened:
                    content = opened.read(left + 1)
                left -= len(content)
                if left < 0:
                    raise BodyTooLarge(
                        f"The zip file unpacks to more than {MAX_UNPACKED_BYTES} bytes",
                        limit_bytes=MAX_UNPACKED_BYTES,
                    )
                files[name] = content
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        struct.error,
        ValueError,
    ) as err:
        raise BodyMalformed("The zip file cannot be read") from err
    return files


def _check_directory(data: bytes) -> None:
    """Reject an archive with a huge directory before zipfile reads it into memory."""
    end = len(data) - _END_BYTES
    if data[end : end + 4] != _END_MARK:
        end = data.rfind(_END_MARK, max(0, len(data) - _END_BYTES - _MAX_COMMENT_BYTES))
    if end < 0 or end + _END_BYTES > len(data):
        raise BodyMalformed("The upload is not a zip file")
    (size,) = struct.unpack_from("<I", data, end + 12)
    has_locator = data[max(0, end - _LOCATOR_BYTES) : end].startswith(_LOCATOR_MARK)
    if size > _MAX_DIRECTORY_BYTES or has_locator:
        raise BodyTooLarge(f"The zip file has more than {MAX_ENTRIES} entries")


def _checked_name(name: str) -> str:
    parts = name.split("/")
    is_odd = "\\" in name or "\0" in name or ":" in parts[0]
    if is_odd or any(part in ("", ".", "..") for part in parts):
        raise BodyMalformed(f"The zip file has a path that is not allowed: {name[:200]}")
    return name


def write_zip(files: Mapping[str, bytes]) -> bytes:
    """Write an archive; the same files give the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, _FIXED_DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name])
    return out.getvalue()
