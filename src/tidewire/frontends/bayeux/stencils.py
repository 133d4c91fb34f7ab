"""Whole change events that look like others before them: one match finds every value, one template takes them.

A stencil is made for one kind of header and one shape of body: all that such events have in common is literal, in what
is looked for and in what is written. Source text is made of the kinds of values only; nothing that an event or a schema
says is part of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import orjson

from tidewire.frontends.bayeux.body_shapes import DOUBLE, MOMENT, TEXT, BodyShape
from tidewire.schema.compiler import read_long
from tidewire.schema.header_matching import read_number, render_number
from tidewire.schema.values import render_datetime

Stencil = Callable[[bytes, int], bytes | None]
"""Writes the message of a payload at a position; None for one that looks different."""

_TOLD = {TEXT: "v{}[1:]", DOUBLE: "dumps(read_double(v{})[0])", MOMENT: "moment_of(v{})"}


# Events of one run were mostly made in the same few seconds.
@lru_cache(maxsize=4096)
def _moment_of(raw: bytes) -> bytes:
    """The text of a moment, by the bytes of its milliseconds."""
    return render_datetime(read_long(raw, 0)[0], "Z").encode()


_SCOPE: dict[str, Any] = {
    "render_number": render_number,
    "read_number": read_number,
    "moment_of": _moment_of,
    "dumps": orjson.dumps,
    "read_double": struct.Struct("<d").unpack,
}


def make_stencil(header: bytes, shape: BodyShape, frame: tuple[bytes, bytes, bytes, bytes]) -> Stencil:
    """The stencil of payloads with a header as the pattern `header` has it and a body of a shape. The `frame` is what
    stands before the record's id, before the key of the transaction, behind the user, and behind the replay id.
    """
    before_id, before_key, after_user, end = map(_escape, frame)
    body = b"".join(_escape(label) + b"%b" for _, label in shape.labels if label)
    template = b"".join(
        (
            before_id,
            b"%b",
            before_key,
            b'%b","sequenceNumber":%b,"commitTimestamp":%b,"commitNumber":%d,"commitUser":"%b',
            after_user,
            body,
            _escape(shape.tail),
            b',"event":{"replayId":%d',
            end,
        )
    )
    match = re.compile(header + shape.pattern, re.DOTALL).match
    scope = {**_SCOPE, "match": match, "template": template}
    exec(_source(tuple((kind, bool(label)) for kind, label in shape.labels)), scope)  # noqa: S102
    return cast("Stencil", scope["write"])


@lru_cache(maxsize=256)
def _source(values: tuple[tuple[int, bool], ...]) -> Any:
    """The code of a stencil with values of these kinds, of which some are told."""
    names = "".join(f", v{place}" for place in range(len(values)))
    # What looks like the end of a text is one only if the length says so.
    misfits = [f"v{n}[0] != 2 * len(v{n}) - 2" for n, (kind, _) in enumerate(values) if kind == TEXT]
    told = "".join(_TOLD[kind].format(n) + ", " for n, (kind, is_told) in enumerate(values) if is_told)
    lines = (
        "def write(payload, position):",
        "    found = match(payload)",
        "    if found is None: return None",
        f"    record_id, key, sequence, moment, number, user{names} = found.groups()",
        f"    if {' or '.join(misfits) or 'False'}: return None",
        "    return template % (record_id, key, render_number(sequence), render_number(moment),",
        f"        read_number(number), user, {told}position)",
    )
    return compile("\n".join(lines), "<change event>", "exec")


def _escape(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
