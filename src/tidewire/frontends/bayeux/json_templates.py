"""JSON templates: render a change event with one regular expression match and one `%` format.

A template serves events with one kind of header and one body shape. Everything those events share is literal, both in
the pattern that is matched and in the bytes that are written; only the values vary. It takes less than
half of the time of reading field by field (docs/adr/0010-json-templates.md).

Security: the generated source depends only on the kinds of the values (text, double, datetime). Bytes of an event or a
schema go into the pattern and the template as data and are escaped; they never become source text.
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

JsonTemplate = Callable[[bytes, int], bytes | None]
"""Renders a payload at a position; None if the payload does not match."""

_EXPRESSIONS = {TEXT: "v{}[1:]", DOUBLE: "dumps(read_double(v{})[0])", MOMENT: "moment_of(v{})"}


# Events delivered together were mostly committed within a few seconds, so timestamps repeat.
@lru_cache(maxsize=4096)
def _render_datetime_bytes(raw: bytes) -> bytes:
    """Render a timestamp from the Avro bytes of its milliseconds."""
    return render_datetime(read_long(raw, 0)[0], "Z").encode()


_SCOPE: dict[str, Any] = {
    "render_number": render_number,
    "read_number": read_number,
    "moment_of": _render_datetime_bytes,
    "dumps": orjson.dumps,
    "read_double": struct.Struct("<d").unpack,
}


def make_template(header: bytes, shape: BodyShape, frame: tuple[bytes, bytes, bytes, bytes]) -> JsonTemplate:
    """Return the template for payloads whose header matches `header` and whose body has `shape`.

    `frame` holds the literal JSON before the record id, before the transaction key, after the user and after the
    replay id.
    """
    # A "%" in a literal would be taken for a placeholder by the format below.
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
    return cast("JsonTemplate", scope["write"])


@lru_cache(maxsize=256)
def _source(values: tuple[tuple[int, bool], ...]) -> Any:
    """Compile the function for values of these kinds; the flag says whether a value is rendered. Cached by kinds."""
    names = "".join(f", v{place}" for place in range(len(values)))
    # The pattern stops a text at its first unusual character. The Avro length prefix decides whether that was the end.
    misfits = [f"v{n}[0] != 2 * len(v{n}) - 2" for n, (kind, _) in enumerate(values) if kind == TEXT]
    rendered = "".join(_EXPRESSIONS[kind].format(n) + ", " for n, (kind, shown) in enumerate(values) if shown)
    lines = (
        "def write(payload, position):",
        "    found = match(payload)",
        "    if found is None: return None",
        f"    record_id, key, sequence, moment, number, user{names} = found.groups()",
        f"    if {' or '.join(misfits) or 'False'}: return None",
        "    return template % (record_id, key, render_number(sequence), render_number(moment),",
        f"        read_number(number), user, {rendered}position)",
    )
    return compile("\n".join(lines), "<change event>", "exec")


def _escape(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
