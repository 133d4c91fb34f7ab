"""Namespaces: let a caller omit the namespace prefix of names.

Requests get the prefix before anything else reads them, and responses lose it at the very end. Nothing in between
knows about it, so a name means the same to permissions, queries and events whoever wrote it.
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
    """A namespace prefix with its underscores, and the org's names that have it, in lower case."""

    prefix: str
    names: frozenset[str]

    def qualify(self, text: str) -> str:
        """Add the prefix to a name if the org has that name."""
        return self.prefix + text if self.prefix + text.lower() in self.names else text

    def qualify_path(self, text: str) -> str:
        """Add the prefix to the names of a dotted path."""
        return ".".join(self.qualify(part) for part in text.split("."))

    def qualify_query(self, soql: str) -> str:
        """Add the prefix to the names in a query; an invalid query is returned unchanged."""
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
        """Add the prefix to the names in a SOSL search, but not to its search text."""
        found = _FOUND.match(sosl)
        return sosl if found is None else found[0] + self.qualify_query(sosl[found.end() :])

    def qualify_column(self, text: str) -> str:
        """Add the prefix to a CSV column header, which may start with the type of a lookup target."""
        target, colon, path = text.strip().rpartition(":")
        return self.qualify(target) + colon + self.qualify_path(path)

    def qualify_record(self, values: Mapping[str, object]) -> dict[str, object]:
        """Add the prefix to the field names of a record and of the records nested in it."""
        return {self.qualify(name): self._qualify_value(name, value) for name, value in values.items()}

    def _qualify_value(self, name: str, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        if name != "attributes":
            return self.qualify_record(value)
        kind = value.get("type")
        return {**value, "type": self.qualify(kind)} if isinstance(kind, str) else value

    def unqualify(self, name: str) -> str:
        """Remove the prefix from a name."""
        return name[len(self.prefix) :] if name.lower() in self.names else name

    def unqualify_path(self, text: str) -> str:
        """Remove the prefix from the names of a dotted path."""
        return ".".join(self.unqualify(part) for part in text.split("."))


def try_namespace(catalog: Catalog, namespace: str) -> Namespace | None:
    """Return the namespace of a call, or None if the org has no names in it."""
    if len(namespace) > _MAX_PREFIX or _PREFIX.fullmatch(namespace) is None:
        return None
    prefix = namespace.lower() + "__"
    names = frozenset(name for name in _iter_names(catalog) if name.startswith(prefix))
    return Namespace(prefix, names) if names else None


def _iter_names(catalog: Catalog) -> Iterator[str]:
    """Yield every name that may have a prefix, in lower case."""
    types: list[ObjectType | EventType] = [*catalog.objects, *catalog.events]
    for each in types:
        yield each.name.lower()
        for f in each.fields:
            if f.custom:
                yield f.name.lower()
                yield f.relationship_name.lower()
                yield f.child_relationship_name.lower()
                yield f"{f.child_relationship_name.lower()}__r"
