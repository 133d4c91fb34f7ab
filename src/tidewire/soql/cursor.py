"""The parser's position in the tokens of a query: looks ahead, takes tokens, and raises errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidewire.errors import NumberOutOfRange, SoqlSyntaxError
from tidewire.soql.caret import pointing_error
from tidewire.soql.tokens import Token, TokenKind

MAX_NESTING = (
    100  # parentheses, NOTs and subqueries inside each other; far past any query written for a purpose
)
MAX_COUNT = 2_147_483_647


class Cursor:
    """Walks over the tokens, never past END. `token` is the one at hand."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.token = tokens[0]
        self._tokens = tokens
        self._index = 0
        self._nesting = 0

    @property
    def word(self) -> str:
        """The token at hand in the form in which keywords compare."""
        return self.token.word

    @property
    def position(self) -> int:
        """Where in the query the token at hand begins."""
        return self.token.position

    def is_at(self, kind: TokenKind) -> bool:
        """Return whether the token at hand is of this kind."""
        return self.token.kind is kind

    def is_at_word(self, word: str) -> bool:
        """Return whether the token at hand is this keyword."""
        return self.token.word == word and self.token.kind is TokenKind.NAME

    def is_at_symbol(self, symbol: str) -> bool:
        """Return whether the token at hand is this symbol."""
        return self.token.text == symbol and self.token.kind is TokenKind.SYMBOL

    def _next(self) -> Token:
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)]

    def is_next_kind(self, kind: TokenKind) -> bool:
        """Return whether the token after the one at hand is of this kind."""
        return self._next().kind is kind

    def is_next_word(self, word: str) -> bool:
        """Return whether the token after the one at hand is this keyword."""
        return self._next().kind is TokenKind.NAME and self._next().word == word

    def is_next_symbol(self, symbol: str) -> bool:
        """Return whether the token after the one at hand is this symbol."""
        return self._next().kind is TokenKind.SYMBOL and self._next().text == symbol

    def take_call(self, name: str) -> bool:
        """Take `name()`, a call without arguments, if it is at hand."""
        if not self.is_at_word(name):
            return False
        ahead = self._tokens[self._index + 1 : self._index + 3]
        found = [token.text for token in ahead] == ["(", ")"]
        if found:
            self._move(3)
        return found

    def advance(self) -> Token:
        """Take the token at hand."""
        token = self.token
        if token.kind is not TokenKind.END:
            self._move(1)
        return token

    def _move(self, count: int) -> None:
        self._index += count
        self.token = self._tokens[self._index]

    def take_word(self, word: str) -> bool:
        """Take this keyword if it is at hand."""
        found = self.is_at_word(word)
        if found:
            self.advance()
        return found

    def take_symbol(self, symbol: str) -> bool:
        """Take this symbol if it is at hand."""
        found = self.is_at_symbol(symbol)
        if found:
            self.advance()
        return found

    def expect_word(self, word: str) -> Token:
        """Take this keyword or raise SoqlSyntaxError."""
        if not self.is_at_word(word):
            raise self.unexpected()
        return self.advance()

    def expect_symbol(self, symbol: str) -> Token:
        """Take this symbol or raise SoqlSyntaxError."""
        if not self.is_at_symbol(symbol):
            raise self.unexpected()
        return self.advance()

    def expect_kind(self, kind: TokenKind) -> Token:
        """Take a token of this kind or raise SoqlSyntaxError."""
        if not self.is_at(kind):
            raise self.unexpected()
        return self.advance()

    def expect_count(self) -> int:
        """Take a whole number without a sign; raises NumberOutOfRange past 32 bits."""
        if self.is_at_symbol(":"):
            raise self.bind_variable()
        token = self.token
        if token.kind is not TokenKind.NUMBER or not token.text.isdigit():
            raise self.unexpected()
        digits = token.text.lstrip("0") or "0"
        # Python refuses to read thousands of digits, so the length is looked at first.
        if len(digits) > 10 or int(digits) > MAX_COUNT:
            raise pointing_error(
                NumberOutOfRange, self.text, token.position, f"numeric value out of range: {token.text[:64]}"
            )
        self.advance()
        return int(digits)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Enter one level of nesting; raises SoqlSyntaxError for a query that would exhaust the stack."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self.refused(f"conditions and subqueries nest more than {MAX_NESTING} deep")
        yield
        self._nesting -= 1

    def unexpected(self) -> SoqlSyntaxError:
        """Return the error for a token that cannot stand here."""
        return self.refused(f"unexpected token: '{self.token.text}'")

    def bind_variable(self) -> SoqlSyntaxError:
        """Return the error for a name where a value should be."""
        return self.refused("Bind variables only allowed in Apex code")

    def refused(self, reason: str, position: int | None = None) -> SoqlSyntaxError:
        """Return an error at the token at hand, or elsewhere."""
        return pointing_error(
            SoqlSyntaxError, self.text, self.position if position is None else position, reason
        )
