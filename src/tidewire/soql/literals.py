"""Dates, datetimes and times of day as queries write them, and their stored form."""

from __future__ import annotations

import re
from datetime import date

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_MS = 86_400_000


def try_date_ms(text: str) -> int | None:
    """Midnight UTC of `2024-02-29` in epoch ms, or None if there is no such day."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        day = date(*(int(part) for part in match.groups()))
    except ValueError:
        return None
    return (day.toordinal() - _EPOCH_DAY) * _DAY_MS


def try_time_ms(text: str) -> int | None:
    """Milliseconds since midnight of `12:30:00.000Z`, or None. Finer fractions are cut, not rounded."""
    return _try_clock_ms(text[:-1]) if text[-1:] in ("Z", "z") else None


def try_datetime_ms(text: str) -> int | None:
    """Epoch ms of `2024-02-29T12:30:00Z`, with an offset or a fraction perhaps, or None."""
    day_ms = try_date_ms(text[:10])
    if day_ms is None or text[10:11] not in ("T", "t"):
        return None
    rest = text[11:]
    if rest[-1:] in ("Z", "z"):
        clock_ms = _try_clock_ms(rest[:-1])
        return None if clock_ms is None else day_ms + clock_ms
    sign_at = max(rest.find("+"), rest.find("-"))
    offset = _OFFSET.fullmatch(rest[sign_at:]) if sign_at >= 0 else None
    clock_ms = _try_clock_ms(rest[:sign_at])
    if offset is None or clock_ms is None:
        return None
    hours, minutes = int(offset[2]), int(offset[3])
    if hours > 23 or minutes > 59:
        return None
    offset_ms = (hours * 60 + minutes) * 60_000
    return day_ms + clock_ms + (offset_ms if offset[1] == "-" else -offset_ms)


def _try_clock_ms(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3])
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    fraction_ms = int((match[4] or "0")[:3].ljust(3, "0"))
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
