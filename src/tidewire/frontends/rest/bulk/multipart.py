"""A job and its data in one request: a form with the parts `job` and `content`. Pure."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesParser

import orjson

from tidewire.errors import BodyMalformed, BodyTooLarge
from tidewire.transport.http import HttpRequest

MAX_BYTES = 1024 * 1024


def parse_form_job(request: HttpRequest) -> tuple[dict[str, object], bytes]:
    """What the job is, and its data. Raises BodyTooLarge or BodyMalformed."""
    if len(request.body) > MAX_BYTES:
        raise BodyTooLarge(
            f"A job with its data in one request may have {MAX_BYTES} bytes", limit_bytes=MAX_BYTES
        )
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode("latin-1", "replace")
    message = BytesParser().parsebytes(head + request.body)
    parts = message.get_payload()
    if not isinstance(parts, list):
        raise BodyMalformed("The request body is not a form of several parts")
    found: dict[str, bytes] = {}
    for part in parts:
        if isinstance(part, Message):
            name = part.get_param("name", header="content-disposition")
            data = part.get_payload(decode=True)
            if isinstance(name, str) and isinstance(data, bytes):
                found[name] = data
    if "job" not in found or "content" not in found:
        raise BodyMalformed("The form needs the parts job and content")
    try:
        job = orjson.loads(found["job"])
    except orjson.JSONDecodeError as error:
        raise BodyMalformed(f"{error.msg} at [line:{error.lineno}, column:{error.colno}]") from error
    if not isinstance(job, dict):
        raise BodyMalformed("The part job must be a JSON object")
    return job, found["content"]
