"""Find the session token or login name at the start of a request, by which the server chooses the org.

Nothing is verified here: a malformed request yields no keys and fails where it is answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.parsers import expat

_PIECE_BYTES = 4096
_READ_BYTES = 65_536  # headers come first and are small; keys beyond this are not found
_MAX_DEPTH = 8
_MAX_TEXT = 2000


@dataclass(frozen=True, slots=True)
class RoutingKeys:
    """The session token or the login name of a request; both empty if it has neither."""

    token: str = ""
    username: str = ""


class _Found(Exception):
    """Stops the parser; never leaves this module."""


class _Reader:
    """Follows the elements of an envelope until a key is found or none can follow."""

    def __init__(self) -> None:
        self.token = ""
        self.username = ""
        self._path: list[str] = []
        self._text: list[str] = []

    def start(self, name: str, _attributes: dict[str, str]) -> None:
        self._path.append(name.rpartition(" ")[2])
        self._text.clear()
        if len(self._path) > _MAX_DEPTH or (
            self._path[1:2] == ["Body"] and self._path[2:3] not in ([], ["login"])
        ):
            raise _Found

    def text(self, text: str) -> None:
        if len(self._text) < _MAX_TEXT:
            self._text.append(text)

    def end(self, _name: str) -> None:
        match self._path[1:]:
            case ["Header", "SessionHeader", "sessionId"]:
                self.token = "".join(self._text).strip()
                raise _Found
            case ["Body", "login", "username"]:
                self.username = "".join(self._text).strip()
                raise _Found
            case _:
                self._path.pop()
                self._text.clear()

    def stop(self, *_given: object) -> None:
        raise _Found


def parse_routing_keys(body: bytes) -> RoutingKeys:
    """Parse an envelope only as far as its session token or login name."""
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.stop
    try:
        for start in range(0, min(len(body), _READ_BYTES), _PIECE_BYTES):
            parser.Parse(body[start : start + _PIECE_BYTES], False)
    except (_Found, expat.ExpatError, ValueError):
        pass
    return RoutingKeys(reader.token, reader.username)
