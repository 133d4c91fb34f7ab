"""Splits a formula into tokens, and says where in its text something is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from tidewire.errors import DefinitionInvalid

MAX_FORMULA_CHARS = 5_000
_SHOWN_LENGTH = 64


class TokenKind(Enum):
    """What a token is, as far as its characters tell."""

    NAME = "name"
    TEXT = "text"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `text` is as written, except that a text literal has no quotes and its escapes resolved."""

    kind: TokenKind
    text: str
    position: int


# A name may hold dots: the path to a related record's field is one name to the grammar.
_PATTERN = re.compile(
    r"""
    (?P<space>(?:[ \t\r\n\f]|/\*.*?\*/)+)
  | (?P<NAME>[A-Za-z$][A-Za-z0-9_$:.\#]*)
  | (?P<TEXT>"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
  | (?P<NUMBER>[0-9]+(?:\.[0-9]+)?)
  | (?P<SYMBOL><=|>=|<>|!=|==|&&|\|\||[-+*/^&=<>!(),])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\"}
# NUL and lone surrogates can be kept in no database, so no text may hold them.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def parse_tokens(text: str) -> list[Token]:
    """Split a formula into tokens, the last one END. Raises DefinitionInvalid."""
    if len(text) > MAX_FORMULA_CHARS:
        raise DefinitionInvalid(f"a formula has at most {MAX_FORMULA_CHARS} characters", row=1, column=1)
    if unstorable := _UNSTORABLE.search(text):
        raise formula_error(text, unstorable.start(), "a character that no text can hold")
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _PATTERN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        if match.lastgroup != "space":
            tokens.append(_token(text, match))
        position = match.end()
    tokens.append(Token(TokenKind.END, "", len(text)))
    return tokens


def formula_error(text: str, position: int, reason: str) -> DefinitionInvalid:
    """Return an error with the details `row` and `column`, both from 1, and `reason`."""
    row = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return DefinitionInvalid(
        f"formula, row {row}, column {column}: {reason}", row=row, column=column, reason=reason
    )


def shown(text: str) -> str:
    """Return a piece of a formula as an error message shows it."""
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "..."


def _token(text: str, match: re.Match[str]) -> Token:
    kind = TokenKind[match.lastgroup or ""]
    word = match.group()
    if kind is TokenKind.TEXT:
        word = _ESCAPE.sub(lambda escape: _resolve(text, match.start(), escape[1]), word[1:-1])
    return Token(kind, word, match.start())


def _resolve(text: str, position: int, char: str) -> str:
    if char not in _ESCAPES:
        raise formula_error(text, position, f"the text has an unknown escape '\\{char}'")
    return _ESCAPES[char]


def _unreadable(text: str, position: int) -> DefinitionInvalid:
    char = text[position]
    if char in "\"'":
        return formula_error(text, position, "the text has no closing quote on its line")
    return formula_error(text, position, f"unexpected character '{char}'")
