from __future__ import annotations

import pytest

from tidewire.errors import SoqlSyntaxError
from tidewire.soql.tokens import MAX_QUERY_CHARS, MAX_STRING_CHARS, TokenKind, parse_tokens


def test_tokens_of_a_query_carry_kind_text_and_position() -> None:
    found = [(token.kind.value, token.text, token.position) for token in parse_tokens("a_1 >=-5.5 'x'")]
    assert found == [
        ("name", "a_1", 0),
        ("symbol", ">=", 4),
        ("number", "-5.5", 6),
        ("string", "'x'", 11),
        ("end", "<EOF>", 14),
    ]


@pytest.mark.parametrize(
    "text, kind",
    [
        ("2024-02-29", TokenKind.DATE),
        ("2024-02-29T12:00:00Z", TokenKind.DATETIME),
        ("2024-02-29t12:00:00.5+01:00", TokenKind.DATETIME),
        ("12:30:00.000Z", TokenKind.TIME),
        (".5", TokenKind.NUMBER),
        ("+7", TokenKind.NUMBER),
    ],
)
def test_token_of_a_literal_is_read_whole(text: str, kind: TokenKind) -> None:
    token, end = parse_tokens(text)
    assert (token.kind, token.text, end.kind) == (kind, text, TokenKind.END)


def test_string_escapes_are_resolved_and_escaped_wildcards_remembered() -> None:
    token = parse_tokens(r"""'a\n\r\t\b\f\"\'\\\%_\_%'""")[0]
    assert token.value == "a\n\r\t\b\f\"'\\%__%"
    assert token.escaped_wildcards == (9, 11)


def test_string_with_unknown_escape_is_refused() -> None:
    with pytest.raises(SoqlSyntaxError, match=r"Illegal character sequence '\\u'"):
        parse_tokens(r"'\u0041'")


def test_string_over_the_limit_is_refused() -> None:
    assert len(parse_tokens("'" + "x" * MAX_STRING_CHARS + "'")) == 2
    with pytest.raises(SoqlSyntaxError, match="longer than 4000 characters"):
        parse_tokens("'" + "x" * (MAX_STRING_CHARS + 1) + "'")


def test_query_over_the_limit_is_refused_without_repeating_it() -> None:
    with pytest.raises(SoqlSyntaxError) as caught:
        parse_tokens(" " * (MAX_QUERY_CHARS + 1))
    assert caught.value.message == "SOQL statements can not be longer than 100000 characters"


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_empty_query_is_refused(text: str) -> None:
    with pytest.raises(SoqlSyntaxError) as caught:
        parse_tokens(text)
    assert caught.value.message == "SOQL statements cannot be empty or null"


@pytest.mark.parametrize("text", ["a \x00", "'\x00'", "'\ud800'", "\udfff"])
def test_character_that_cannot_be_stored_is_refused_with_a_message_that_can_be_sent(text: str) -> None:
    with pytest.raises(SoqlSyntaxError, match="no viable alternative at character") as caught:
        parse_tokens(text)
    caught.value.message.encode()
    str(caught.value.details["query"]).encode()


@pytest.mark.parametrize("text", ["é", "a # b", "\u00a0", "a -- b", "/* a", "a / b", "٣"])
def test_character_outside_the_language_is_refused(text: str) -> None:
    with pytest.raises(SoqlSyntaxError, match="no viable alternative at character"):
        parse_tokens(text)
