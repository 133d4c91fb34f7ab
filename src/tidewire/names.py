"""Names that users type: API names, URLs of resources and channel names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from tidewire.errors import ChannelInvalid

ALL_CHANGES = "/data/ChangeEvents"
MIN_API_VERSION = 20
MAX_API_VERSION = 67
_API_VERSION = re.compile(r"([1-9][0-9])\.0")
_WORD = r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*"
_SUFFIX = r"__(?:c|e|chn)"
# A namespace prefix has at most 15 characters; `A__c__c` is a suffix too many and not a name in namespace A.
_PREFIX = rf"(?=[A-Za-z0-9_]{{1,15}}?__){_WORD}__(?!(?:c|e|chn)__)"
_GENERIC_CHANNEL = re.compile(r"/u(?:/[A-Za-z0-9_]+)+")
_MAX_GENERIC_CHANNEL = 80
_API_NAME = re.compile(rf"{_WORD}(?:{_SUFFIX})?|{_PREFIX}{_WORD}{_SUFFIX}")


def try_parse_api_version(text: str) -> int | None:
    """Return the number of a supported API version such as `59.0`, or None."""
    found = _API_VERSION.fullmatch(text)
    version = int(found[1]) if found else 0
    return version if MIN_API_VERSION <= version <= MAX_API_VERSION else None


class ChannelKind(Enum):
    """The family of events that a channel delivers."""

    PUSH_TOPIC = "topic"
    GENERIC = "u"
    PLATFORM_EVENT = "event"
    CHANGE_EVENT = "data"


_KINDS = {kind.value: kind for kind in ChannelKind}


@dataclass(frozen=True, slots=True)
class ChannelName:
    """A parsed channel name. `filter_text` is the part after `?`."""

    kind: ChannelKind
    name: str
    filter_text: str = ""

    @property
    def path(self) -> str:
        """The name without the filter, which is the key of replay maps."""
        return f"/{self.kind.value}/{self.name}"


def parse_channel(text: str) -> ChannelName:
    """Parse a channel name. Raises ChannelInvalid."""
    if not text:
        raise ChannelInvalid("Channel name not specified")
    if not text.startswith("/"):
        raise ChannelInvalid("Channel subscriptions must start with a leading '/'")
    path, _, filter_text = text.partition("?")
    segments = path.split("/", 2)
    if len(segments) != 3 or not segments[2] or segments[1] not in _KINDS:
        raise ChannelInvalid(
            f"The channel you requested to subscribe to does not exist {{{text}}}", channel=text
        )
    return ChannelName(_KINDS[segments[1]], segments[2], filter_text)


def is_generic_channel(text: str) -> bool:
    """Whether a name that begins with `/u/` is a valid streaming channel."""
    return len(text) <= _MAX_GENERIC_CHANNEL and _GENERIC_CHANNEL.fullmatch(text) is not None


def is_api_name(text: str) -> bool:
    """Whether `text` is a valid name of an object, a field or an event."""
    return len(text) <= 80 and _API_NAME.fullmatch(text) is not None


def data_url(version: int, *segments: str) -> str:
    """Render a root-relative URL of the data API: `data_url(59, "query")` -> `/services/data/v59.0/query`."""
    return "/".join((f"/services/data/v{version}.0", *segments))


def change_event_name(entity: str) -> str:
    """Return the change event type of an object: `Account` -> `AccountChangeEvent`."""
    return entity[:-1] + "ChangeEvent" if entity.endswith("__c") else entity + "ChangeEvent"


def entity_of_change_event(event_name: str) -> str | None:
    """Return the object of a change event type, None if the name is not of that form."""
    if event_name.endswith("__ChangeEvent"):
        return event_name[: -len("ChangeEvent")] + "c"
    if event_name.endswith("ChangeEvent") and event_name != "ChangeEvent":
        return event_name[: -len("ChangeEvent")]
    return None
