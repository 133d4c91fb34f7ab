"""Codecs for the values that cross between edge and core, built from type hints when a process starts.

The declarations in `delivery/link.py` say what each call takes and returns. From them comes a pair of functions per
type: `pack` turns dataclasses and enumerations into tuples, lists and numbers, `unpack` turns them back. `marshal`
writes and reads the rest, because it is the fastest serializer that Python has. Both ends are the same version of one
program on one machine and trust each other; data that a client sent is never unmarshalled.
"""

from __future__ import annotations

import inspect
import marshal
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any, Union, get_args, get_origin, get_type_hints

from tidewire.delivery.link import CALL_ROLES
from tidewire.errors import InternalError, PlatformError
from tidewire.events import CommittedBatch

Convert = Callable[[Any], Any]
ErrorForm = tuple[str, str, dict[str, Any]]

_PASSED_AS_IS = (str, int, float, bool, bytes, type(None))
# The last version that does not look for repeated objects, which costs more than it saves here.
_MARSHAL_VERSION = 2


@dataclass(frozen=True, slots=True)
class Codec:
    """Both directions for one type. None means that values are sent as they are."""

    pack: Convert | None
    unpack: Convert | None


@dataclass(frozen=True, slots=True)
class CallForm:
    """How the arguments and the result of one call cross."""

    is_request: bool
    """Whether the caller waits for a result; otherwise the call is a notice."""
    pack_arguments: Callable[[tuple[Any, ...]], Sequence[Any]]
    unpack_arguments: Callable[[Sequence[Any]], Sequence[Any]]
    result: Codec


def dump(message: tuple[Any, ...]) -> bytes:
    """Return a message as bytes."""
    return marshal.dumps(message, _MARSHAL_VERSION)


def load(data: bytes | bytearray) -> tuple[Any, ...]:
    """Return the message that `dump` wrote."""
    message: tuple[Any, ...] = marshal.loads(data)  # noqa: S302  # only our own processes write here
    return message


def make_codec(kind: Any) -> Codec:
    """Return the codec of a type. Raises InternalError for a type that cannot be copied."""
    if kind in _PASSED_AS_IS:
        return Codec(None, None)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        # A dict lookup is several times faster than calling the enumeration.
        return Codec(int, {member.value: member for member in kind}.__getitem__)
    if isinstance(kind, type) and is_dataclass(kind):
        names = [f.name for f in fields(kind)]
        # attrgetter with one name returns the bare value instead of a tuple.
        get = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
        return _record_codec(kind, names, get)
    if isinstance(kind, type) and issubclass(kind, tuple):
        # A named tuple: marshal refuses subclasses, so it is copied into a plain tuple.
        return _record_codec(kind, list(get_type_hints(kind)), tuple)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _optional_codec(parts)
    if origin is tuple and parts[-1:] != (Ellipsis,):
        return _fixed_codec([make_codec(part) for part in parts])
    if origin in (tuple, list, Sequence, frozenset):
        return _series_codec(make_codec(parts[0]), list if origin is Sequence else origin)
    raise InternalError(f"{kind!r} cannot cross between edge and core")


def pack_error(error: PlatformError) -> ErrorForm:
    """Return an error as plain values; details that cannot be copied become text."""
    details = {name: value if _is_plain(value) else str(value) for name, value in error.details.items()}
    return error.code, error.message, details


def unpack_error(form: ErrorForm) -> PlatformError:
    """Return an error of the class that `pack_error` was given."""
    code, message, details = form
    return _LEAVES.get(code, InternalError)(message, **details)


def _record_codec(kind: type, names: list[str], get: Convert) -> Codec:
    """Return the codec of a dataclass or named tuple, which is constructed from its fields in order."""
    hints = get_type_hints(kind)
    codecs = [make_codec(hints[name]) for name in names]
    # Most records hold plain values only: then no field is looked at one by one. Events are of this kind but for
    # their family, and there are as many of them as rows in a page.
    if all(c.pack is None for c in codecs):
        return Codec(get, lambda row: kind(*row))
    packs = [(at, c.pack) for at, c in enumerate(codecs) if c.pack is not None]
    unpacks = [(at, c.unpack) for at, c in enumerate(codecs) if c.unpack is not None]

    def pack(value: Any) -> Any:
        row = list(get(value))
        for at, convert in packs:
            row[at] = convert(row[at])
        return row

    def unpack(row: Any) -> Any:
        # In place: `pack` sent a list, marshal made a new one, and nobody else has it.
        for at, convert in unpacks:
            row[at] = convert(row[at])
        return kind(*row)

    return Codec(pack, unpack)


def _optional_codec(parts: tuple[Any, ...]) -> Codec:
    others = [part for part in parts if part is not type(None)]
    if all(part in _PASSED_AS_IS for part in others):
        return Codec(None, None)
    # The receiver has to know which type of a union it gets, and nothing in the message says so.
    if len(others) != 1 or len(parts) != 2:
        raise InternalError(f"{parts!r} cannot cross between edge and core: its type would be lost")
    inner = make_codec(others[0])
    return Codec(
        lambda value: None if value is None else _apply(inner.pack, value),
        lambda value: None if value is None else _apply(inner.unpack, value),
    )


def _fixed_codec(codecs: list[Codec]) -> Codec:
    """Return the codec of a tuple with one type per place."""
    if all(c.pack is None for c in codecs):
        return Codec(None, None)
    return Codec(
        lambda values: tuple([_apply(c.pack, v) for c, v in zip(codecs, values, strict=True)]),
        lambda values: tuple([_apply(c.unpack, v) for c, v in zip(codecs, values, strict=True)]),
    )


def _series_codec(inner: Codec, make: Callable[[Iterable[Any]], Any]) -> Codec:
    """Return the codec of a collection of one type."""
    pack, unpack = inner.pack, inner.unpack
    if pack is None or unpack is None:
        # A Sequence may be of any class, but marshal takes lists and tuples only.
        return Codec(make, None) if make is list else Codec(None, None)
    return Codec(lambda values: [pack(v) for v in values], lambda values: make([unpack(v) for v in values]))


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _is_plain(value: Any) -> bool:
    try:
        marshal.dumps(value, _MARSHAL_VERSION)
    except ValueError:
        return False
    return True


def _make_form(call: types.FunctionType) -> CallForm:
    """Return the form of one declared call."""
    hints = get_type_hints(call)
    result = make_codec(hints.pop("return"))
    codecs = [make_codec(kind) for kind in hints.values()]
    return CallForm(
        inspect.iscoroutinefunction(call),
        _make_convert([(at, c.pack) for at, c in enumerate(codecs) if c.pack is not None]),
        _make_convert([(at, c.unpack) for at, c in enumerate(codecs) if c.unpack is not None]),
        result,
    )


def _make_convert(converts: list[tuple[int, Convert]]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that converts some of a call's arguments. Arguments that need nothing cost nothing."""
    if not converts:
        return lambda arguments: arguments

    def convert_all(arguments: Sequence[Any]) -> Sequence[Any]:
        row = list(arguments)
        for at, convert in converts:
            row[at] = convert(row[at])
        return row

    return convert_all


def _iter_leaves(kind: type[PlatformError]) -> Iterable[type[PlatformError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _iter_leaves(child)


_LEAVES = {leaf.code: leaf for leaf in _iter_leaves(PlatformError)}
# Built at import, so that a declaration that cannot cross stops the process before it serves anybody.
CALLS = {
    name: _make_form(member)
    for role in CALL_ROLES
    for name, member in vars(role).items()
    if isinstance(member, types.FunctionType) and not name.startswith("_")
}
"""The form of every call, by name."""

_BATCH = make_codec(CommittedBatch)


def pack_batch(batch: CommittedBatch) -> tuple[Any, ...]:
    """Return a committed batch, ready to be sent."""
    return typing.cast("tuple[Any, ...]", _apply(_BATCH.pack, batch))


def unpack_batch(form: Sequence[Any]) -> CommittedBatch:
    """Return the batch that `pack_batch` was given."""
    return typing.cast("CommittedBatch", _apply(_BATCH.unpack, form))
