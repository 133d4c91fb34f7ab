"""How what crosses the seam between edge and core is copied: made of its type, once, when a process starts.

The annotations of `delivery.link.CoreLink` say what a call takes and gives; from them comes a pair of functions for
each call, one that turns dataclasses and enumerations into tuples and numbers and one that turns them back. What is
left is written and read by `marshal`, the quickest that Python has. Both ends are one version of one program on one
machine, in processes that trust each other: nothing a client sends is ever read with it.
"""

from __future__ import annotations

import marshal
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Any, Union, get_args, get_origin, get_type_hints

from tidewire.delivery.link import CoreLink
from tidewire.errors import InternalError, PlatformError
from tidewire.events import CommittedBatch

Convert = Callable[[Any], Any]
ErrorForm = tuple[str, str, dict[str, Any]]

_AS_IT_IS = (str, int, float, bool, bytes, type(None))
_FORMAT = 2  # the last one that does not look for repeated objects, which costs more than it saves here


@dataclass(frozen=True, slots=True)
class Codec:
    """Both ways for one type. None stands for values that can be sent as they are."""

    pack: Convert | None
    unpack: Convert | None


@dataclass(frozen=True, slots=True)
class CallForm:
    """How the arguments and the result of one call cross."""

    arguments: tuple[Codec, ...]
    result: Codec

    def pack_arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments, ready to be sent."""
        return tuple([_apply(c.pack, value) for c, value in zip(self.arguments, values, strict=True)])

    def unpack_arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments as they were before `pack_arguments`."""
        return tuple([_apply(c.unpack, value) for c, value in zip(self.arguments, values, strict=True)])


def dump(message: tuple[Any, ...]) -> bytes:
    """A message as bytes."""
    return marshal.dumps(message, _FORMAT)


def load(data: bytes | bytearray) -> tuple[Any, ...]:
    """The message that `dump` made bytes of."""
    message: tuple[Any, ...] = marshal.loads(data)  # noqa: S302  # only our own processes write here
    return message


def make_codec(kind: Any) -> Codec:
    """The codec of a type. Raises InternalError for one that cannot be copied."""
    if kind in _AS_IT_IS:
        return Codec(None, None)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return Codec(int, {member.value: member for member in kind}.__getitem__)
    if isinstance(kind, type) and is_dataclass(kind):
        names = [f.name for f in fields(kind)]
        # A getter of one name gives the bare value.
        get = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
        return _record_codec(kind, names, get)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return _record_codec(kind, list(get_type_hints(kind)), tuple)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _optional_codec(parts)
    if origin is tuple and parts[-1:] != (Ellipsis,):
        return _fixed_codec([make_codec(part) for part in parts], tuple)
    if origin in (tuple, list, Sequence, frozenset):
        return _series_codec(make_codec(parts[0]), list if origin is Sequence else origin)
    raise InternalError(f"{kind!r} cannot cross between edge and core")


def pack_error(error: PlatformError) -> ErrorForm:
    """An error as plain values; details that are none are told as text."""
    details = {name: value if _is_plain(value) else str(value) for name, value in error.details.items()}
    return error.code, error.message, details


def unpack_error(form: ErrorForm) -> PlatformError:
    """The same leaf of the tree again."""
    code, message, details = form
    return _LEAVES.get(code, InternalError)(message, **details)


def _record_codec(kind: type, names: list[str], get: Convert) -> Codec:
    """The codec of a class that is made of its fields in order, dataclass or named tuple."""
    hints = get_type_hints(kind)
    codecs = [make_codec(hints[name]) for name in names]
    if all(c.pack is None for c in codecs):
        return Codec(get, lambda row: kind(*row))
    packs = [(at, c.pack) for at, c in enumerate(codecs) if c.pack is not None]
    unpacks = [(at, c.unpack) for at, c in enumerate(codecs) if c.unpack is not None]

    def pack(value: Any) -> Any:
        row = list(get(value))
        for at, convert in packs:
            row[at] = convert(row[at])
        return row  # a list: what is read from the wire may be changed in place

    def unpack(row: Any) -> Any:
        for at, convert in unpacks:
            row[at] = convert(row[at])
        return kind(*row)

    return Codec(pack, unpack)


def _optional_codec(parts: tuple[Any, ...]) -> Codec:
    others = [part for part in parts if part is not type(None)]
    if all(part in _AS_IT_IS for part in others):
        return Codec(None, None)
    if len(others) != 1 or len(parts) != 2:
        raise InternalError(f"{parts!r} cannot cross between edge and core: which one it is would be lost")
    inner = make_codec(others[0])
    return Codec(
        lambda value: None if value is None else _apply(inner.pack, value),
        lambda value: None if value is None else _apply(inner.unpack, value),
    )


def _fixed_codec(codecs: list[Codec], make: Callable[[Iterable[Any]], Any]) -> Codec:
    if all(c.pack is None for c in codecs):
        return Codec(None, None)
    return Codec(
        lambda values: make([_apply(c.pack, v) for c, v in zip(codecs, values, strict=True)]),
        lambda values: make([_apply(c.unpack, v) for c, v in zip(codecs, values, strict=True)]),
    )


def _series_codec(inner: Codec, make: Callable[[Iterable[Any]], Any]) -> Codec:
    pack, unpack = inner.pack, inner.unpack
    if pack is None or unpack is None:
        # Of a sequence anything may be given, but only lists and tuples can be sent.
        return Codec(make, None) if make is list else Codec(None, None)
    return Codec(lambda values: [pack(v) for v in values], lambda values: make([unpack(v) for v in values]))


def _apply(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _is_plain(value: Any) -> bool:
    try:
        marshal.dumps(value, _FORMAT)
    except ValueError:
        return False
    return True


def _make_form(name: str) -> CallForm:
    hints = get_type_hints(getattr(CoreLink, name))
    result = hints.pop("return")
    return CallForm(tuple(make_codec(kind) for kind in hints.values()), make_codec(result))


def _iter_leaves(kind: type[PlatformError]) -> Iterable[type[PlatformError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _iter_leaves(child)


_LEAVES = {leaf.code: leaf for leaf in _iter_leaves(PlatformError)}
# These have a way of their own: bodies in pieces, and a callable.
_APART = ("call_http", "watch_commits")
CALLS = {
    name: _make_form(name)
    for name, member in vars(CoreLink).items()
    if isinstance(member, types.FunctionType) and not name.startswith("_") and name not in _APART
}
"""The form of every call, by name."""

_BATCH = make_codec(CommittedBatch)


def pack_batch(batch: CommittedBatch) -> tuple[Any, ...]:
    """A committed batch, ready to be sent."""
    return typing.cast("tuple[Any, ...]", _apply(_BATCH.pack, batch))


def unpack_batch(form: Sequence[Any]) -> CommittedBatch:
    """The batch that `pack_batch` was given."""
    return typing.cast("CommittedBatch", _apply(_BATCH.unpack, form))
