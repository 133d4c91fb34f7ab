"""`defaultNamespace` of CallOptions: names in calls that leave their prefix out. Descriptions show every name whole."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from tidewire.frontends.soap.wire import XSI_TYPE, SoapRequest
from tidewire.gate.namespaces import Namespace, try_namespace
from tidewire.schema.catalog import Catalog
from tidewire.transport.xml_trees import local_name

_NAMES = frozenset({"type", "sObjectType", "externalIDFieldName", "externalIdFieldName", "fieldsToNull"})
_TAG = re.compile(r"(</?(?:[A-Za-z]\w*:)?)(\w+)")


def namespace_of(request: SoapRequest, catalog: Catalog) -> Namespace | None:
    """The namespace that a call leaves out, or None if its names are whole."""
    given = request.header("CallOptions", "defaultNamespace")
    if not given or request.operation.startswith("describe"):
        return None
    return try_namespace(catalog, given)


def enter(namespace: Namespace, body: Element) -> None:
    """Give the names in a call their prefix, in place."""
    for element in body.iter():
        name = local_name(element)
        text = (element.text or "").strip()
        if name in _NAMES:
            element.text = namespace.qualify(text)
        elif name == "queryString":
            element.text = namespace.qualify_query(text)
        elif name == "searchString":
            element.text = namespace.qualify_search(text)
        elif name == "fieldList":
            element.text = ",".join(namespace.qualify_path(each.strip()) for each in text.split(","))
        typed = element.get(XSI_TYPE)
        if typed is not None:
            prefix, colon, kind = typed.rpartition(":")
            element.set(XSI_TYPE, prefix + colon + namespace.qualify(kind))
        element.tag = element.tag.removesuffix(name) + namespace.qualify(name)


def leave(namespace: Namespace, content: str) -> str:
    """An answer whose records name their fields as the caller does."""
    return _TAG.sub(lambda found: found[1] + namespace.unqualify(found[2]), content)
