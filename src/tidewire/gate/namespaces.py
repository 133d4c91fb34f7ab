"""The namespace that a caller leaves out: names without a prefix stand for those that have it.

Requests get the prefix before anything else looks at them, answers lose it last. Nothing between the two knows of it,
so a name means the same to permissions, queries and events whoever wrote it, and how.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidewire.errors import SoqlSyntaxError
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import EventType, ObjectType
from tidewire.soql.tokens import TokenKind, parse_tokens

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*")
_MAX_PREFIX = 15
_FOUND = re.compile(r"\s*FIND\s*(?:\{(?:[^{}\\]|\\.)*\}|'(?:[^'\\]|\\.)*')", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A developer's prefix, underscores included, and the org's names in it, all in lower case."""

    prefix: str
    names: frozenset[str]

    def qualify(self, text: str) -> str:
        """A name as the org has it: with the prefix, if there is such a name."""
        return self.prefix + text if self.prefix + text.lower() in self.names else text

    def qualify_path(self, text: str) -> str:
        """A dotted path of names."""
        return ".".join(self.qualify(part) for part in text.split("."))

    def qualify_query(self, soql: str) -> str:
        """A query; one that cannot be read stays as it is, for whoever refuses it."""
        try:
            tokens = parse_tokens(soql)
        except SoqlSyntaxError:
            return soql
        pieces: list[str] = []
        end = 0
        for token in tokens:
            if token.kind is TokenKind.NAME:
                pieces += (soql[end : token.position], self.qualify(token.text))
                end = token.position + len(token.text)
        return "".join((*pieces, soql[end:]))

    def qualify_search(self, sosl: str) -> str:
        """A search; what it looks for is no name, whatever it looks like."""
        found = _FOUND.match(sosl)
        return sosl if found is None else found[0] + self.qualify_query(sosl[found.end() :])

    def qualify_column(self, text: str) -> str:
        """The header of a column of CSV, which may say of which type the target of a lookup is."""
        target, colon, path = text.strip().rpartition(":")
        return self.qualify(target) + colon + self.qualify_path(path)

    def qualify_record(self, values: Mapping[str, object]) -> dict[str, object]:
        """A record, and the records inside it, with whole names."""
        return {self.qualify(name): self._qualify_value(name, value) for name, value in values.items()}

    def _qualify_value(self, name: str, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        if name != "attributes":
            return self.qualify_record(value)
        kind = value.get("type")
        return {**value, "type": self.qualify(kind)} if isinstance(kind, str) else value

    def unqualify(self, name: str) -> str:
        """A name as the caller writes it."""
        return name[len(self.prefix) :] if name.lower() in self.names else name

    def unqualify_path(self, text: str) -> str:
        """A dotted path as the caller writes it."""
        return ".".join(self.unqualify(part) for part in text.split("."))


def try_namespace(catalog: Catalog, given: str) -> Namespace | None:
    """The namespace of a call, or None if it names none that this org has anything in."""
    if len(given) > _MAX_PREFIX or _PREFIX.fullmatch(given) is None:
        return None
    prefix = given.lower() + "__"
    names = frozenset(name for name in _iter_names(catalog) if name.startswith(prefix))
    return Namespace(prefix, names) if names else None


def _iter_names(catalog: Catalog) -> Iterator[str]:
    """Every name of the org's own in lower case."""
    types: list[ObjectType | EventType] = [*catalog.objects, *catalog.events]
    for each in types:
        yield each.name.lower()
        for f in each.fields:
            if f.custom:
                yield f.name.lower()
                yield f.relationship_name.lower()
                yield f.child_relationship_name.lower()
                yield f"{f.child_relationship_name.lower()}__r"
