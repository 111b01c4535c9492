"""Times in signed JSON: whole seconds in UTC, ``YYYY-MM-DDThh:mm:ssZ``, one spelling each."""

from __future__ import annotations

from datetime import UTC, datetime

from evidence.verifier.canonical import Json, MalformedError, expect_text

_FORM = "%Y-%m-%dT%H:%M:%SZ"


def time_text(moment: datetime) -> str:
    """The text of an aware ``moment``; fractions of a second are cut off."""
    return moment.astimezone(UTC).strftime(_FORM)


def parse_time(value: Json, where: str) -> datetime:
    """The aware moment (UTC) of its text; ``MalformedError`` for any other spelling."""
    text = expect_text(value, where)
    try:
        moment = datetime.strptime(text, _FORM).replace(tzinfo=UTC)
    except ValueError:
        moment = None
    if moment is None or time_text(moment) != text:
        raise MalformedError(f"{where} is not a time of the form 2026-01-31T23:59:59Z")
    return moment
