"""What strangers may send as XML, and what they may not."""

from __future__ import annotations

import pytest

from tidewire.errors import BodyMalformed, BodyTooLarge, PlatformError
from tidewire.transport.xml_trees import is_nil, local_name, parse_tree

XSI = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
BOMB = '<!DOCTYPE a [<!ENTITY x "xx"><!ENTITY y "&x;&x;">]><a>&y;</a>'


def test_document_becomes_a_tree_with_names_and_nils() -> None:
    tree = parse_tree(f'<?xml version="1.0"?><n:a xmlns:n="urn:n" {XSI}><b xsi:nil="true"/></n:a>'.encode())
    assert local_name(tree) == "a"
    assert is_nil(tree[0])
    assert not is_nil(tree)


@pytest.mark.parametrize(
    "body, error",
    [
        (b"", BodyMalformed),
        (b"<a>", BodyMalformed),
        (b"<a/><b/>", BodyMalformed),
        (BOMB.encode(), BodyMalformed),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', BodyMalformed),
        ("<a/>".encode("utf-16"), BodyMalformed),
        ("<a/>".encode("utf-16-le"), BodyMalformed),
        (b'<?xml version="1.0" encoding="utf-7"?><a/>', BodyMalformed),
        (b"<a>\xff</a>", BodyMalformed),
        (b"<a>" * 5 + b"</a>" * 5, BodyMalformed),
        (b"<a>" + b"<b/>" * 10 + b"</a>", BodyTooLarge),
    ],
)
def test_dangerous_or_broken_document_is_rejected(body: bytes, error: type[PlatformError]) -> None:
    with pytest.raises(error):
        parse_tree(body, max_depth=4, max_elements=10)
