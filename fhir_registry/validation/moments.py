"""FHIR date, dateTime and instant as intervals of time: a value means every moment it does not exclude."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone

_FORM = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d:\d\d)?)?)?)?", re.ASCII
)


def interval(text: str) -> tuple[datetime, datetime] | None:
    """First moment and the one after the last, in UTC; a value without offset is taken as UTC. ``None``: no moment."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    try:
        if month is None:
            return datetime(int(year), 1, 1, tzinfo=UTC), datetime(int(year) + 1, 1, 1, tzinfo=UTC)
        if day is None:
            first = datetime(int(year), int(month), 1, tzinfo=UTC)
            return first, (first + timedelta(days=32)).replace(day=1)
        start = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC
        )
        if hour is None:
            return start, start + timedelta(days=1)
        start = start.replace(tzinfo=_zone(offset)).astimezone(UTC)
        if second is None:
            return start, start + timedelta(minutes=1)
        if fraction is None:
            return start, start + timedelta(seconds=1)
        micro = int(fraction[:6].ljust(6, "0"))
        start = start.replace(microsecond=micro)
        return start, start + timedelta(microseconds=10 ** max(0, 6 - len(fraction)))
    except (ValueError, OverflowError):
        return None


def is_day(text: str) -> bool:
    """Whether the calendar has the day ``YYYY-MM-DD``."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 14 or minutes > 59:
        raise ValueError("no offset")
    delta = timedelta(hours=hours, minutes=minutes)
    return timezone(-delta if text[0] == "-" else delta)
