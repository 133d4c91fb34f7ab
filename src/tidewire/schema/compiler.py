"""Compiles an Avro schema to a reader, a checker and a writer: plain Python code for that one schema.

A general Avro library looks the schema up again for every value. Here the schema is walked once and becomes
source text, one function per named record, which is compiled and kept; docs/adr/0009 has the figures. Words of
a schema enter the source only through `repr` or as constants of its scope, never bare, because a schema may
come from a foreign server.

A reader is `read(buf, p) -> (value, p)`. Nothing checks that a length stays inside the buffer: `p` never
moves back, so one comparison of the last `p` with the buffer's end finds every overrun, and reading a byte
past the end raises IndexError. Checked on the spot is only what would move `p` back, or let a loop run long
without consuming bytes: negative lengths, and counts larger than the whole buffer.

A checker is `check(buf, p) -> p`: it rejects what the reader rejects, in the same way, but builds no values.

A writer is `write(value, add)`, where `add` takes byte strings in order. Besides PayloadInvalid, generated
code raises the errors of MISFITS when bytes or values do not fit.

Names in generated code: `buf` and `p` are the payload and the position, `b` a branch or boolean byte, `n` a
length or a small number, `s` encoded text, `t1`, `t2`... temporaries of loops, which may nest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn, cast

from tidewire.errors import PayloadInvalid

Reader = Callable[[bytes, int], tuple[Any, int]]
Checker = Callable[[bytes, int], int]
Writer = Callable[[Any, Callable[[bytes], None]], None]

# What Python itself raises when bytes or values do not fit. Testing for each case first would cost more than
# all the rest; callers turn these into PayloadInvalid.
MISFITS = (
    struct.error,  # a double cut short
    ValueError,  # bad UTF-8 and lone surrogates among them
    TypeError,
    AttributeError,  # a value of another type, which has no `encode` or `get`
    LookupError,  # a byte past the end, an enum's unknown symbol
    ArithmeticError,
    RecursionError,  # a schema may refer to itself
)

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_INT_LIMIT = 1 << 31
_LONG_LIMIT = 1 << 63


def reject(what: str) -> NoReturn:
    """Raise PayloadInvalid; a function, so that generated code can use it inside an expression."""
    raise PayloadInvalid(f"The event does not fit its schema: {what}.")


def read_long(buf: bytes, p: int) -> tuple[int, int]:
    """Read a zigzag varint of at most ten bytes."""
    # Avro 1.11, "Primitive Types": seven bits a byte, the lowest first; a set top bit means that more follow.
    six = buf[p : p + 6]
    if len(six) == 6:
        a, b, c, d, e, f = six
        # Milliseconds of our time take six bytes and are most of the large numbers in events, so they skip the
        # loop. The AND has its top bit set only if all five bytes have.
        if f < 128 <= a & b & c & d & e:
            z = a & 127 | (b & 127) << 7 | (c & 127) << 14 | (d & 127) << 21 | (e & 127) << 28 | f << 35
            return (z >> 1) ^ -(z & 1), p + 6
    byte = buf[p]
    p += 1
    z = byte & 127
    shift = 7
    while byte > 127:
        if shift > 63:
            reject("a number of more than 64 bits")  # or the shift would grow with the payload
        byte = buf[p]
        p += 1
        z |= (byte & 127) << shift
        shift += 7
    if z >> 64:  # the tenth byte has room for 70 bits
        reject("a number of more than 64 bits")
    return (z >> 1) ^ -(z & 1), p


def read_int(buf: bytes, p: int) -> tuple[int, int]:
    """Read a zigzag varint that fits 32 bits."""
    value, p = read_long(buf, p)
    if not -_INT_LIMIT <= value < _INT_LIMIT:
        reject("an int of more than 32 bits")
    return value, p


def read_size(buf: bytes, p: int) -> tuple[int, int]:
    """Read the length of what follows."""
    size, p = read_long(buf, p)
    if size < 0:  # would move the position back, and a reader could loop forever
        reject("a negative length")
    return size, p


def read_count(buf: bytes, p: int) -> tuple[int, int]:
    """Read the number of items in the next block; zero ends an array or map.

    A negative count is followed by the block's size in bytes, which only a reader that skips blocks needs.
    """
    count, p = read_long(buf, p)
    if count < 0:
        _, p = read_size(buf, p)
        count = -count
    # Items of an empty record have no bytes: a few bytes could ask for 2^63 of them.
    if count > len(buf):
        reject("more items than bytes")
    return count, p


def varint(z: int) -> bytes:
    """Render an unsigned number in variable length."""
    out = bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    out.append(z)
    return bytes(out)


_SMALL = tuple(varint(z) for z in range(1 << 11))


@lru_cache(maxsize=4096, typed=True)
def long_bytes(value: int) -> bytes:
    """Render the zigzag varint of a long. Cached: the events of one transaction share their times.

    `typed`, because True and 1.0 equal 1 but are no longs: a cached 1 must not answer for them.
    """
    z = value << 1 if value >= 0 else ~(value << 1)
    if z < 2048:
        return _SMALL[z]
    if 0x800000000 <= z < 0x40000000000:  # today's milliseconds: six bytes
        return bytes(
            (
                z & 127 | 128,
                z >> 7 & 127 | 128,
                z >> 14 & 127 | 128,
                z >> 21 & 127 | 128,
                z >> 28 & 127 | 128,
                z >> 35,
            )
        )
    if z >> 64:
        reject("a long of more than 64 bits")
    return varint(z)


def int_bytes(value: int) -> bytes:
    """Render the zigzag varint of an int."""
    if not -_INT_LIMIT <= value < _INT_LIMIT:
        reject("an int of more than 32 bits")
    return long_bytes(value)


def is_long(value: object) -> bool:
    """Return whether a union's long branch takes the value."""
    return type(value) is int and -_LONG_LIMIT <= value < _LONG_LIMIT


def is_int(value: object) -> bool:
    """Return whether a union's int branch takes the value."""
    return type(value) is int and -_INT_LIMIT <= value < _INT_LIMIT


_NAMESPACE: dict[str, Any] = {
    "reject": reject,
    "read_long": read_long,
    "read_int": read_int,
    "read_size": read_size,
    "read_count": read_count,
    "read_double": _DOUBLE.unpack_from,
    "read_float": _FLOAT.unpack_from,
    "double_bytes": _DOUBLE.pack,
    "float_bytes": _FLOAT.pack,
    "long_bytes": long_bytes,
    "int_bytes": int_bytes,
    "is_long": is_long,
    "is_int": is_int,
    "LENGTH": tuple(varint(n << 1) for n in range(1024)),
    "SOME_LENGTH": tuple(b"\2" + varint(n << 1) for n in range(1024)),
}

# How a writer finds the branch of a value; `type()` where bool, a subclass of int, must not pass.
_UNION_TESTS = {
    "null": "{v} is None",
    "boolean": "type({v}) is bool",
    "int": "is_int({v})",
    "long": "is_long({v})",
    "float": "type({v}) in (float, int)",
    "double": "type({v}) in (float, int)",
    "string": "isinstance({v}, str)",
    "bytes": "isinstance({v}, (bytes, bytearray))",
    "fixed": "isinstance({v}, (bytes, bytearray))",
    "enum": "isinstance({v}, str)",
    "array": "isinstance({v}, (list, tuple))",
    "map": "hasattr({v}, 'keys')",
    "record": "hasattr({v}, 'keys')",
}


class _Source:
    """Source text in the making, with the records that still need a function."""

    def __init__(self, named: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.named = named
        self.functions: dict[str, str] = {}
        self.pending: list[tuple[str, Any]] = []
        self._temporaries = 0

    def emit(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def constant(self, value: object) -> str:
        """Return a name for the value in the source; it is bound in the scope, so no text of it is executed."""
        name = f"K{len(self.constants)}"
        self.constants[name] = value
        return name

    def resolve(self, schema: Any) -> Any:
        """Return the definition behind a reference by name, or behind `{"type": ...}` around one."""
        if isinstance(schema, str) and schema in self.named:
            return self.named[schema]
        if isinstance(schema, dict) and not isinstance(schema["type"], str):
            return self.resolve(schema["type"])
        return schema

    def function_of(self, record: Any) -> str:
        """Return the function for a record, queued to be written when it is new.

        A call instead of inlined code lets a record hold itself, and keeps the source as long as the schema.
        """
        full_name = record["name"]
        if full_name not in self.functions:
            self.functions[full_name] = f"record{len(self.functions)}"
            self.pending.append((self.functions[full_name], record))
        return self.functions[full_name]


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    kind = schema["type"] if isinstance(schema, dict) else schema
    return "record" if kind == "error" else str(kind)


def compile_reader(schema: Any, named: dict[str, Any]) -> Reader:
    """Compile a reader for a schema whose names are all full, as fastavro's parser leaves them."""
    source = _Source(named)
    source.emit(0, "def root(buf, p):")
    _emit_read(source, 1, schema, "v")
    source.emit(1, "return v, p")
    # Writing a function may name further records.
    while source.pending:
        function, record = source.pending.pop()
        source.emit(0, f"def {function}(buf, p):")
        variables = []
        for i, field in enumerate(record["fields"]):
            variables.append((field["name"], f"v{i}"))
            _emit_read(source, 1, field["type"], f"v{i}")
        # One dict display at the end is quicker than an assignment per field.
        items = ", ".join(f"{name!r}: {variable}" for name, variable in variables)
        source.emit(1, f"return {{{items}}}, p")
    return cast("Reader", _load(source))


def compile_checker(schema: Any, named: dict[str, Any]) -> Checker:
    """Compile a checker for a schema whose names are all full, as fastavro's parser leaves them."""
    source = _Source(named)
    source.emit(0, "def root(buf, p):")
    _emit_check(source, 1, schema)
    source.emit(1, "return p")
    while source.pending:
        function, record = source.pending.pop()
        source.emit(0, f"def {function}(buf, p):")
        for field in record["fields"]:
            _emit_check(source, 1, field["type"])
        source.emit(1, "return p")
    return cast("Checker", _load(source))


def compile_writer(schema: Any, named: dict[str, Any]) -> Writer:
    """Compile a writer for a schema whose names are all full, as fastavro's parser leaves them."""
    source = _Source(named)
    source.emit(0, "def root(v, add):")
    _emit_write(source, 1, schema, "v")
    while source.pending:
        function, record = source.pending.pop()
        source.emit(0, f"def {function}(r, add):")
        source.emit(1, "get = r.get")
        for field in record["fields"]:
            # An absent field takes its default. Defaults are JSON of the schema: constants, never source.
            default = "" if field.get("default") is None else ", " + source.constant(field["default"])
            source.emit(1, f"v = get({field['name']!r}{default})")
            _emit_write(source, 1, field["type"], "v")
    return cast("Writer", _load(source))


def _load(source: _Source) -> Any:
    scope = _NAMESPACE | source.constants
    # The text is made above from fixed templates; a schema's own words enter it only as literals.
    exec(compile("\n".join(source.lines), "<avro schema>", "exec"), scope)  # noqa: S102
    return scope["root"]


def _emit_read(source: _Source, depth: int, schema: Any, target: str) -> None:
    schema = source.resolve(schema)
    kind = _kind(schema)
    emit = source.emit
    if kind == "union":
        # The branch's number is a zigzag varint: 0, 2, 4... in one byte, since no schema of ours has 64 branches.
        emit(depth, "b = buf[p]; p += 1")
        # Null is by far the most frequent branch of a change event, so it is tested first wherever it stands.
        order = sorted(range(len(schema)), key=lambda i: _kind(source.resolve(schema[i])) != "null")
        if len(schema) > 63:
            emit(depth, "reject('a union of more than 63 branches')")
        for place, branch in enumerate(order):
            emit(depth, f"{'elif' if place else 'if'} b == {branch * 2}:")
            _emit_read(source, depth + 1, schema[branch], target)
        emit(depth, "else: reject('a union branch that does not exist')")
    elif kind == "null":
        emit(depth, f"{target} = None")
    elif kind == "boolean":
        emit(depth, "b = buf[p]; p += 1")
        emit(depth, f"{target} = True if b == 1 else False if b == 0 else reject('neither true nor false')")
    elif kind in ("int", "long"):
        # Small numbers without a call: counts and sequence numbers are one byte.
        emit(depth, "n = buf[p]")
        emit(depth, f"if n > 127: {target}, p = read_{kind}(buf, p)")
        emit(depth, f"else: {target} = (n >> 1) ^ -(n & 1); p += 1")
    elif kind in ("float", "double"):
        emit(depth, f"{target} = read_{kind}(buf, p)[0]; p += {4 if kind == 'float' else 8}")
    elif kind in ("string", "bytes"):
        # A length below 64 is one even byte. An odd one is negative, which read_size rejects.
        emit(depth, "n = buf[p]")
        emit(depth, "if n > 127 or n & 1: n, p = read_size(buf, p)")
        emit(depth, "else: n >>= 1; p += 1")
        # A slice past the end is short without an error; the last `p` then lies behind the buffer's end.
        decode = ".decode()" if kind == "string" else ""
        emit(depth, f"{target} = buf[p:p + n]{decode}; p += n")
    elif kind == "fixed":
        size = int(schema["size"])
        emit(depth, f"{target} = buf[p:p + {size}]; p += {size}")
    elif kind == "enum":
        emit(depth, "n = buf[p]")
        emit(depth, "if n > 127 or n & 1: n, p = read_size(buf, p)")
        emit(depth, "else: n >>= 1; p += 1")
        emit(depth, f"{target} = {source.constant(tuple(schema['symbols']))}[n]")
    elif kind in ("array", "map"):
        _emit_read_items(source, depth, schema, kind, target)
    else:
        emit(depth, f"{target}, p = {source.function_of(schema)}(buf, p)")


def _emit_read_items(source: _Source, depth: int, schema: Any, kind: str, target: str) -> None:
    items, count, item = source.temporary(), source.temporary(), source.temporary()
    emit = source.emit
    emit(depth, f"{items} = {'[]' if kind == 'array' else '{}'}")
    _emit_read_count(source, depth, count)
    emit(depth, f"while {count}:")
    # Items of no bytes at all could come in block after block, so their sum is limited as well as each count.
    emit(depth + 1, f"if len({items}) + {count} > len(buf): reject('more items than bytes')")
    emit(depth + 1, f"for _ in range({count}):")
    if kind == "map":
        key = source.temporary()
        _emit_read(source, depth + 2, "string", key)
        _emit_read(source, depth + 2, schema["values"], item)
        emit(depth + 2, f"{items}[{key}] = {item}")
    else:
        _emit_read(source, depth + 2, schema["items"], item)
        emit(depth + 2, f"{items}.append({item})")
    _emit_read_count(source, depth + 1, count)
    emit(depth, f"{target} = {items}")


def _emit_read_count(source: _Source, depth: int, count: str) -> None:
    """Read the count of a block; most have few items, so their count is one byte."""
    source.emit(depth, "n = buf[p]")
    source.emit(depth, f"if n > 127 or n & 1 or n >> 1 > len(buf): {count}, p = read_count(buf, p)")
    source.emit(depth, f"else: {count} = n >> 1; p += 1")


def _emit_check(source: _Source, depth: int, schema: Any) -> None:
    schema = source.resolve(schema)
    kind = _kind(schema)
    emit = source.emit
    if kind == "union":
        emit(depth, "b = buf[p]; p += 1")
        if len(schema) > 63:
            emit(depth, "reject('a union of more than 63 branches')")
        for branch, definition in enumerate(schema):
            emit(depth, f"{'elif' if branch else 'if'} b == {branch * 2}:")
            _emit_check(source, depth + 1, definition)
        emit(depth, "else: reject('a union branch that does not exist')")
    elif kind == "null":
        emit(depth, "pass")
    elif kind == "boolean":
        emit(depth, "if buf[p] > 1: reject('neither true nor false')")
        emit(depth, "p += 1")
    elif kind in ("int", "long"):
        # Skip to the last byte. A number of so few bytes always fits; only a longer one is decoded and tested.
        emit(depth, "q = p")
        emit(depth, "while buf[p] > 127: p += 1")
        emit(depth, "p += 1")
        emit(depth, f"if p - q > {4 if kind == 'int' else 9}: read_{kind}(buf, q)")
    elif kind in ("float", "double"):
        emit(depth, f"p += {4 if kind == 'float' else 8}")
    elif kind in ("string", "bytes"):
        emit(depth, "n = buf[p]")
        emit(depth, "if n > 127 or n & 1: n, p = read_size(buf, p)")
        emit(depth, "else: n >>= 1; p += 1")
        if kind == "string":
            # ASCII is valid UTF-8, and testing for it builds no text.
            emit(depth, "s = buf[p:p + n]")
            emit(depth, "if not s.isascii(): s.decode()")
        emit(depth, "p += n")
    elif kind == "fixed":
        emit(depth, f"p += {int(schema['size'])}")
    elif kind == "enum":
        # The reader fails by looking the symbol up; here nothing is looked up.
        emit(depth, "n, p = read_size(buf, p)")
        emit(depth, f"if n >= {len(schema['symbols'])}: reject('a symbol that does not exist')")
    elif kind in ("array", "map"):
        # As in the reader, the items of all blocks together are limited.
        total, count = source.temporary(), source.temporary()
        emit(depth, f"{total} = 0")
        emit(depth, f"{count}, p = read_count(buf, p)")
        emit(depth, f"while {count}:")
        emit(depth + 1, f"{total} += {count}")
        emit(depth + 1, f"if {total} > len(buf): reject('more items than bytes')")
        emit(depth + 1, f"for _ in range({count}):")
        if kind == "map":
            _emit_check(source, depth + 2, "string")
        _emit_check(source, depth + 2, schema["values" if kind == "map" else "items"])
        emit(depth + 1, f"{count}, p = read_count(buf, p)")
    else:
        emit(depth, f"p = {source.function_of(schema)}(buf, p)")


def _emit_write(source: _Source, depth: int, schema: Any, value: str) -> None:
    schema = source.resolve(schema)
    kind = _kind(schema)
    emit = source.emit
    if kind == "union":
        _emit_write_union(source, depth, schema, value)
    elif kind == "null":
        emit(depth, f"if {value} is not None: reject('a value where only null can be')")
    elif kind == "boolean":
        emit(
            depth,
            f"add(b'\\1' if {value} is True else b'\\0' if {value} is False else reject('not a boolean'))",
        )
    elif kind in ("int", "long", "float", "double"):
        emit(depth, f"add({kind}_bytes({value}))")
    elif kind in ("string", "bytes"):
        _emit_write_text(source, depth, kind, value, "LENGTH", "")
    elif kind == "fixed":
        emit(depth, f"if len({value}) != {int(schema['size'])}: reject('a fixed of another size')")
        emit(depth, f"add(bytes({value}))")
    elif kind == "enum":
        codes = {symbol: long_bytes(i) for i, symbol in enumerate(schema["symbols"])}
        emit(depth, f"add({source.constant(codes)}[{value}])")
    elif kind == "array":
        # A text is a sequence too, and would be written as an array of its characters.
        item = source.temporary()
        emit(depth, f"if type({value}) not in (list, tuple): reject('not a list')")
        # One block with all items, then the count 0; an empty array is the 0 alone.
        emit(depth, f"if {value}:")
        emit(depth + 1, f"add(long_bytes(len({value})))")
        emit(depth + 1, f"for {item} in {value}:")
        _emit_write(source, depth + 2, schema["items"], item)
        emit(depth, "add(b'\\0')")
    elif kind == "map":
        key, item = source.temporary(), source.temporary()
        emit(depth, f"if {value}:")
        emit(depth + 1, f"add(long_bytes(len({value})))")
        emit(depth + 1, f"for {key}, {item} in {value}.items():")
        _emit_write(source, depth + 2, "string", key)
        _emit_write(source, depth + 2, schema["values"], item)
        emit(depth, "add(b'\\0')")
    else:
        emit(depth, f"{source.function_of(schema)}({value}, add)")


def _emit_write_union(source: _Source, depth: int, schema: list[Any], value: str) -> None:
    emit = source.emit
    kinds = [_kind(source.resolve(branch)) for branch in schema]
    # Nearly every field is `["null", X]`: no test of the value's type, and a text's branch and length in one piece.
    if len(schema) == 2 and kinds[0] == "null" and kinds[1] != "null":
        emit(depth, f"if {value} is None: add(b'\\0')")
        emit(depth, "else:")
        if kinds[1] == "string":
            _emit_write_text(source, depth + 1, "string", value, "SOME_LENGTH", "b'\\2' + ")
        else:
            emit(depth + 1, "add(b'\\2')")
            _emit_write(source, depth + 1, schema[1], value)
        return
    for branch, kind in enumerate(kinds):
        test = _UNION_TESTS[kind].format(v=value)
        emit(depth, f"{'elif' if branch else 'if'} {test}:")
        emit(depth + 1, f"add({long_bytes(branch)!r})")
        _emit_write(source, depth + 1, schema[branch], value)
    emit(depth, "else: reject('a value of no branch of the union')")


def _emit_write_text(source: _Source, depth: int, kind: str, value: str, table: str, prefix: str) -> None:
    emit = source.emit
    emit(depth, f"s = {value}.encode()" if kind == "string" else f"s = bytes({value})")
    emit(depth, "n = len(s)")
    emit(depth, f"add({table}[n] if n < 1024 else {prefix}long_bytes(n))")
    emit(depth, "add(s)")
