"""A backup file: one tar with a manifest, the database's copy and perhaps certificates.

Format. The first member, `manifest.json`, holds the manifest and the SHA-256 of its text; the manifest holds
the size and SHA-256 of every other member. `org.db` is a SQLite database that needs no write-ahead log,
`org.sql` what pg_dump wrote; `tls/*.pem` are optional. Members with other names are refused, so a file can
put nothing outside the directory it is unpacked into.

A file of the final name is either empty (the backup was cut short) or whole and on the disk.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tidewire.errors import ConfigInvalid, DiskFull, LogCorrupt, PlatformError

FORMAT = 1
SQLITE_MEMBER = "org.db"
POSTGRES_MEMBER = "org.sql"
_MANIFEST = "manifest.json"
_MAX_MANIFEST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20
_NAME = re.compile(r"org\.db|org\.sql|tls/[a-z0-9-]{1,60}\.pem", re.ASCII)


@dataclass(frozen=True, slots=True)
class Member:
    """One file in a backup."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a backup. `schema` is the PostgreSQL schema, or empty."""

    format: int
    tidewire: str
    layout: int
    org_id: str
    head: int
    created_ms: int
    schema: str
    files: Mapping[str, Member]


@contextmanager
def reserve_file(path: Path) -> Iterator[Path]:
    """Reserve the name `path` and yield a directory beside it for its content; refuses to overwrite.

    If the block fails, the name is released.
    """
    with explain_os_errors(path):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError as error:
            raise ConfigInvalid(
                f"{path} exists already; a backup overwrites nothing", setting="to"
            ) from error
        try:
            scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            try:
                yield scratch
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def written_bytes(path: Path) -> int:
    """Return the number of bytes written so far to a name that `reserve_file` reserved."""
    total_bytes = 0
    with suppress(OSError):  # such as what has just been renamed or removed; the next look is another
        for part in path.parent.glob(f".{glob.escape(path.name)}.*/*"):
            total_bytes += part.stat().st_size
    return total_bytes


def measure_file(path: Path) -> Member:
    """Return a file's size and checksum."""
    with path.open("rb") as source:
        return _copy(source, None)


def write_archive(path: Path, manifest: Manifest, sources: Mapping[str, Path], scratch: Path) -> None:
    """Write a backup to the name that `reserve_file` reserved, and sync it."""
    partial = scratch / "backup"
    text = _render_manifest(manifest)
    with partial.open("xb") as file:
        partial.chmod(0o600)
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(_header(_MANIFEST, len(text), manifest.created_ms), io.BytesIO(text))
            for name, source in sources.items():
                with source.open("rb") as content:
                    tar.addfile(_header(name, manifest.files[name].size_bytes, manifest.created_ms), content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_directory(path.parent)


class Archive:
    """A backup open for reading. Made by `open_archive`."""

    def __init__(self, tar: tarfile.TarFile, manifest: Manifest, path: Path) -> None:
        self._tar = tar
        self._path = path
        self.manifest = manifest

    def extract(self, name: str, target: Path) -> None:
        """Write one member to a new file and sync it. Raises LogCorrupt if it differs from the manifest."""
        with _explain_tar_errors(self._path), target.open("xb") as file:
            target.chmod(0o600)
            member = self._tar.getmember(name)
            source = self._tar.extractfile(member) if member.isreg() else None
            found = _copy(source, file) if source is not None else None
            file.flush()
            os.fsync(file.fileno())
        if found != self.manifest.files[name]:
            raise LogCorrupt(f"{self._path} is damaged: {name} does not have its checksum")


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a backup and check its manifest.

    Raises ConfigInvalid for a file that is not a backup or too new, LogCorrupt for a damaged one.
    """
    with explain_os_errors(path), path.open("rb") as file, _open_tar(file, path) as tar:
        with _explain_tar_errors(path):
            first = tar.next()
            source = tar.extractfile(first) if first is not None and first.isreg() else None
            if first is None or first.name != _MANIFEST or source is None:
                raise ConfigInvalid(f"{path} is not a backup", setting="file")
            text = source.read(_MAX_MANIFEST_BYTES)
        yield Archive(tar, _parse_manifest(text, path), path)


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Raise errors of the file system as errors of ours."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"the disk of {path} is full") from error
        raise ConfigInvalid(f"{error.filename or path}: {error.strerror or error}", setting="file") from error


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _open_tar(file: IO[bytes], path: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=file, mode="r:")
    except tarfile.TarError as error:
        raise ConfigInvalid(f"{path} is not a backup", setting="file") from error


@contextmanager
def _explain_tar_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except PlatformError:
        raise
    except (tarfile.TarError, EOFError, KeyError) as error:
        raise LogCorrupt(f"{path} is damaged: it ends early or lacks a file that it names") from error


def _header(name: str, size_bytes: int, created_ms: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size = size_bytes
    header.mode = 0o600
    header.mtime = created_ms // 1000
    return header


def _render_manifest(manifest: Manifest) -> bytes:
    content = asdict(manifest)
    return json.dumps({"manifest": content, "sha256": _digest(content)}, indent=1, sort_keys=True).encode()


def _parse_manifest(text: bytes, path: Path) -> Manifest:
    try:
        document = json.loads(text)
        content = document["manifest"]
        is_whole = document["sha256"] == _digest(content)
        if is_whole and content["format"] > FORMAT:
            raise ConfigInvalid(f"{path} was written by a newer Tidewire", setting="file")
        files = {name: Member(**member) for name, member in content["files"].items()}
        manifest = Manifest(**{**content, "files": files})
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorrupt(f"{path} is damaged: its manifest cannot be read") from error
    if not is_whole or not all(_NAME.fullmatch(name) for name in files):
        raise LogCorrupt(f"{path} is damaged: its manifest does not have its checksum")
    return manifest


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _copy(source: IO[bytes], target: IO[bytes] | None) -> Member:
    """Read to the end, writing to the target if there is one; return the size and checksum."""
    digest = hashlib.sha256()
    size_bytes = 0
    while chunk := source.read(_CHUNK_BYTES):
        digest.update(chunk)
        size_bytes += len(chunk)
        if target is not None:
            target.write(chunk)
    return Member(size_bytes, digest.hexdigest())
