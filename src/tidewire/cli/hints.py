"""What to do next about an error, for a person at a terminal."""

from __future__ import annotations

from tidewire.errors import (
    AccessDenied,
    AuthHeaderInvalid,
    ChannelForbidden,
    ChannelUnknown,
    ConfigInvalid,
    DiskFull,
    LimitExceeded,
    LoginFailed,
    PlatformError,
    ReplayIdExpired,
    ReplayIdInvalid,
    RequestRefused,
    ServerUnreachable,
    SessionInvalid,
    StoreClosed,
    StoreLocked,
    TopicUnknown,
)

_START = "is the server running? `tidewire serve --dev` starts one here; --url names another; see `tidewire doctor`"
_SIGN_IN = "sign in again with `tidewire login`, or give --username and --password"
_NO_CHANNEL = "`tidewire channels` lists what there is"
_TRUST = "trust the server's certificate with --ca FILE (`tidewire ca` prints where ours is), or see `tidewire doctor`"
_REPLAY = "begin with `--replay -2` for all events that are kept, or `--replay -1` for new ones"

_HINTS: dict[type[PlatformError], str] = {
    LoginFailed: "check --username and --password (with the security token after it, if there is one); see "
    "`tidewire login --help`",
    SessionInvalid: _SIGN_IN,
    AuthHeaderInvalid: _SIGN_IN,
    ServerUnreachable: _START,
    StoreClosed: _START,
    StoreLocked: "stop the other server, or give this one a directory of its own with --data",
    DiskFull: "make room on the disk of the data directory",
    ChannelUnknown: _NO_CHANNEL,
    TopicUnknown: _NO_CHANNEL,
    ChannelForbidden: "ask for the rights that the object of this channel needs, or sign in as somebody who has them",
    AccessDenied: "ask for the rights that this needs, or sign in as somebody who has them",
    ReplayIdExpired: _REPLAY,
    ReplayIdInvalid: _REPLAY,
    LimitExceeded: "`tidewire status` shows what is in use",
}
_BY_REST_CODE = {
    "INVALID_TYPE": "`tidewire describe` lists the objects",
    "NOT_FOUND": "check the name and the id; `tidewire describe` lists the objects",
    "INVALID_FIELD": "`tidewire describe OBJECT` lists the fields",
    "INVALID_FIELD_FOR_INSERT_UPDATE": "`tidewire describe OBJECT` says which fields can be set",
    "REQUIRED_FIELD_MISSING": "give the missing fields as NAME=VALUE; `tidewire describe OBJECT` lists them",
    "INSUFFICIENT_ACCESS": "sign in as somebody who may do this, with `tidewire login`",
    "API_DISABLED_FOR_ORG": "the user needs the permission API Enabled",
}


def find_hint(error: PlatformError) -> str:
    """One line, empty if there is nothing to say beyond the message."""
    if isinstance(error, ServerUnreachable) and "CERTIFICATE_VERIFY_FAILED" in error.message:
        return _TRUST
    if error.details.keys() & {"lake", "query"}:
        return ""  # of the pipeline, whose messages say it
    if isinstance(error, ConfigInvalid) and "cannot listen" in error.message:
        flag = "--" + str(error.details.get("setting", "http")).replace("_", "-")
        return f"`tidewire doctor` tells who is there; {flag} HOST:PORT chooses another address"
    if isinstance(error, RequestRefused):
        return _BY_REST_CODE.get(str(error.details.get("error_code", "")), "")
    return _HINTS.get(type(error), "")
