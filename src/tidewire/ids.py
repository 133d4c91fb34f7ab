"""Record ids: 15 case-sensitive base-62 characters, shown as 18 with a checksum of the letters' case.

Form: key prefix (3) | pod (2) | reserved `0` (1) | record number (9, base 62). The three suffix characters
each encode which of five characters are upper case, so that systems that fold case can still tell ids apart.
"""

from __future__ import annotations

import os
import string
from functools import lru_cache

from tidewire.errors import IdMalformed

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SUFFIX = string.ascii_uppercase + "012345"
_ALNUM = frozenset(ALPHABET)
_PAIRS = [high + low for high in ALPHABET for low in ALPHABET]
_UPPER_MARKS = str.maketrans({c: "1" if c.isupper() else "0" for c in ALPHABET})
# The last two digits are the highest bits of the suffix's last character.
_PAIR_MARKS = [pair[0].isupper() << 3 | pair[1].isupper() << 4 for pair in _PAIRS]

POD = "TW"
EMPTY_ID = "000000000000000AAA"  # the record id of overflow events


def case_suffix(id15: str) -> str:
    """Return the checksum that turns a 15-character id into its 18-character form."""
    marks = id15.translate(_UPPER_MARKS)
    # The first character of a group is its lowest bit, so each group is read backwards.
    return _SUFFIX[int(marks[4::-1], 2)] + _SUFFIX[int(marks[9:4:-1], 2)] + _SUFFIX[int(marks[14:9:-1], 2)]


def make_id(prefix: str, number: int) -> str:
    """Return the 18-character id of record `number` of the object with this key prefix."""
    high, pair = divmod(number, 62 * 62)
    stem, suffix, marks = _stem(prefix, high)
    return stem + _PAIRS[pair] + suffix + _SUFFIX[marks | _PAIR_MARKS[pair]]


@lru_cache(maxsize=1024)
def _stem(prefix: str, high: int) -> tuple[str, str, int]:
    """Return the part that 3,844 consecutive ids share, with the first two characters of their suffix.

    The last value holds the bits of the third suffix character that the last two digits do not decide.
    """
    digits = ""
    rest = high
    for _ in range(3):
        rest, pair = divmod(rest, 62 * 62)
        digits = _PAIRS[pair] + digits
    if rest >= 62:
        raise OverflowError(f"record number {high * 62 * 62} does not fit in nine base-62 digits")
    stem = prefix + POD + "0" + ALPHABET[rest] + digits
    suffix = case_suffix(stem + "00")
    return stem, suffix[:2], _SUFFIX.index(suffix[2])


def key_prefix(number: int, lead: str) -> str:
    """Return the key prefix of the n-th custom object (`lead` "a") or platform event (`lead` "e")."""
    high, low = divmod(number, 62)
    if high >= 62:
        raise OverflowError(f"no key prefix left after {number} objects")
    return lead + ALPHABET[high] + ALPHABET[low]


def try_normalise_id(text: str) -> str | None:
    """Return the 18-character form of a 15- or 18-character id, None if `text` is not an id.

    An 18-character id whose letters lost their case is repaired from its suffix.
    """
    if len(text) == 15:
        return text + case_suffix(text) if _ALNUM.issuperset(text) else None
    if len(text) != 18 or not _ALNUM.issuperset(text):
        return None
    suffix = text[15:].upper()
    repaired = []
    for group, mark in enumerate(suffix):
        bits = _SUFFIX.find(mark)
        if bits < 0:
            return None
        for i in range(5):
            char = text[group * 5 + i]
            upper = bits >> i & 1
            if char.isdigit():
                if upper:
                    return None
                repaired.append(char)
            else:
                repaired.append(char.upper() if upper else char.lower())
    return "".join(repaired) + suffix


def normalise_id(text: str) -> str:
    """Like `try_normalise_id`, but raises IdMalformed."""
    found = try_normalise_id(text)
    if found is None:
        raise IdMalformed(f"malformed id {text[:64]}", value=text[:64])
    return found


def short_id(id18: str) -> str:
    """Return the 15-character form of an id."""
    return id18[:15]


def random_uuid() -> str:
    """Return a random UUID, version 4.

    Random bytes are fetched for many at a time, because the system call costs more than everything else.
    """
    try:
        return _uuids.pop()
    except IndexError:
        digits = os.urandom(16 * _UUIDS_AT_ONCE).hex()
        fresh = [_uuid_of(digits[start : start + 32]) for start in range(0, len(digits), 32)]
        own = fresh.pop()
        _uuids.extend(fresh)  # atomic: several threads may be here
        return own


def _uuid_of(digits: str) -> str:
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


_UUIDS_AT_ONCE = 64
_uuids: list[str] = []
# A forked process must not return the same ones.
os.register_at_fork(after_in_child=_uuids.clear)
