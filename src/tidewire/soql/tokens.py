"""Splits a query into tokens. Only this module looks at single characters."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from tidewire.errors import SoqlSyntaxError
from tidewire.soql.caret import locate, pointing_error

MAX_QUERY_CHARS = 100_000
MAX_STRING_CHARS = 4_000


class TokenKind(Enum):
    """What a token is, as far as its characters tell."""

    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """One token. `text` is as written; `word` is its upper-case form if it is a name, else the text.

    A string's `value` has its escapes resolved; `escaped_wildcards` are the places in `value` of a `%` or
    `_` that was written with a backslash and so stands for itself in LIKE.
    """

    kind: TokenKind
    text: str
    position: int
    word: str
    value: str = ""
    escaped_wildcards: tuple[int, ...] = ()


_PATTERN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\r\n]*|/\*.*?\*/)
  | (?P<NAME>[A-Za-z][A-Za-z0-9_]*)
  | (?P<STRING>'(?:[^'\\]|\\.)*')
  | (?P<DATETIME>\d{4}-\d\d-\d\d[Tt][0-9:.]*(?:[Zz]|[+-]\d\d:?\d\d)?)
  | (?P<DATE>\d{4}-\d\d-\d\d)
  | (?P<TIME>\d\d:\d\d:\d\d(?:\.\d+)?[Zz]?)
  | (?P<NUMBER>[+-]?(?:\d+(?:\.\d+)?|\.\d+))
  | (?P<SYMBOL><=|>=|!=|<>|[=<>(),.:])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KINDS = TokenKind.__members__
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""NUL and lone surrogates can be kept in no database, so no text may hold them, not even to compare with."""
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


def parse_tokens(text: str) -> list[Token]:
    """Split a query into tokens, the last one END. Raises SoqlSyntaxError."""
    if len(text) > MAX_QUERY_CHARS:
        raise pointing_error(
            SoqlSyntaxError,
            text,
            0,
            f"SOQL statements can not be longer than {MAX_QUERY_CHARS} characters",
            shows_place=False,
        )
    if unstorable := UNSTORABLE.search(text):
        raise _no_alternative(text, unstorable.start())
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _PATTERN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        if match.lastgroup != "space":
            tokens.append(_token(text, match))
        position = match.end()
    if not tokens:
        raise pointing_error(
            SoqlSyntaxError, text, 0, "SOQL statements cannot be empty or null", shows_place=False
        )
    tokens.append(Token(TokenKind.END, "<EOF>", len(text), "<EOF>"))
    return tokens


def _token(text: str, match: re.Match[str]) -> Token:
    kind = _KINDS[match.lastgroup or ""]
    word = match.group()
    if kind is TokenKind.NAME:
        return Token(kind, word, match.start(), word.upper())
    if kind is TokenKind.STRING:
        value, escaped = _resolve_escapes(text, match)
        return Token(kind, word, match.start(), word, value, escaped)
    return Token(kind, word, match.start(), word)


def _resolve_escapes(text: str, match: re.Match[str]) -> tuple[str, tuple[int, ...]]:
    inner = match.group()[1:-1]
    if len(inner) > MAX_STRING_CHARS:
        raise pointing_error(
            SoqlSyntaxError,
            text,
            match.start(),
            f"string literals can not be longer than {MAX_STRING_CHARS} characters",
        )
    if "\\" not in inner:
        return inner, ()
    chars: list[str] = []
    escaped: list[int] = []
    rest = iter(inner)
    for char in rest:
        if char != "\\":
            chars.append(char)
            continue
        following = next(rest)
        if following in "%_":
            escaped.append(len(chars))
            chars.append(following)
        elif following in _ESCAPES:
            chars.append(_ESCAPES[following])
        else:
            reason = (
                f"Invalid string literal {match.group()}. "
                f"Illegal character sequence '\\{following}' in string literal."
            )
            raise pointing_error(SoqlSyntaxError, text, match.start(), reason)
    return "".join(chars), tuple(escaped)


def _unreadable(text: str, position: int) -> SoqlSyntaxError:
    if text[position] != "'":
        return _no_alternative(text, position)
    row, column = locate(text, len(text))
    reason = f"line {row}:{column} mismatched character '<EOF>' expecting '''"
    return pointing_error(SoqlSyntaxError, text, position, reason)


def _no_alternative(text: str, position: int) -> SoqlSyntaxError:
    row, column = locate(text, position)
    # A lone surrogate cannot even be sent back.
    char = text[position].encode("utf-8", "replace").decode()
    clean = text.encode("utf-8", "replace").decode()
    return pointing_error(
        SoqlSyntaxError, clean, position, f"line {row}:{column} no viable alternative at character '{char}'"
    )
