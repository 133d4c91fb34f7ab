"""Bayeux over a WebSocket: the same messages, each frame an array of them.

A page in a browser cannot add headers to the request that opens its socket. Its token may ride in any
message's `ext` instead, as `{"authorization": "Bearer ..."}`, and holds for the socket from then on.
"""

from __future__ import annotations

import orjson

_KEY = "authorization"
_MARK = b'"authorization"'
_LONGEST = 8192


def find_credentials(body: bytes) -> str:
    """What stands for the Authorization header in a frame, or nothing."""
    if _MARK not in body:
        return ""
    try:
        messages = orjson.loads(body)
    except ValueError:
        return ""
    for message in messages if isinstance(messages, list) else [messages]:
        ext = message.get("ext") if isinstance(message, dict) else None
        text = ext.get(_KEY) if isinstance(ext, dict) else None
        if isinstance(text, str) and len(text) <= _LONGEST:
            return text
    return ""
