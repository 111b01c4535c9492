"""W3C Trace Context, level 1 (W3C Recommendation, 23 November 2021): ``traceparent`` and ``tracestate``.

What others put into ``tracestate`` is passed on unchanged and in its order; a changed or new member goes to the front
(3.3.1.5 and 3.5 there). A malformed ``traceparent`` discards both, a malformed ``tracestate`` only itself (3.3).
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace

MEMBER = "cuvil"
"""The key of Cuvil's own member of ``tracestate``."""
MEMBERS_MAX = 32
LONGEST_STATE = 512
SAMPLED = 1

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_KEY = re.compile(r"[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}")
_VALUE = re.compile(r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
_LONG_MEMBER = 128
_NOTHING = re.compile(r"0+")

Members = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TraceContext:
    """One trace context: ``trace_id`` (32 hexadecimal digits), ``parent_id`` (16), flags (0 to 255), members of
    ``tracestate`` in order."""

    trace_id: str
    parent_id: str
    flags: int = SAMPLED
    members: Members = ()

    @property
    def traceparent(self) -> str:
        """The header, always of version 00; of the flags only *sampled*, the one that level 1 defines."""
        return f"00-{self.trace_id}-{self.parent_id}-{self.flags & SAMPLED:02x}"

    @property
    def tracestate(self) -> str:
        """The header, empty without members (then it must not be sent), of at most 512 characters.

        What does not fit is left out by whole members: first those of more than 128 characters, then from the right
        (3.3.1.5 there); engines take no longer header.
        """
        members = [f"{key}={value}" for key, value in self.members]
        while len(",".join(members)) > LONGEST_STATE:
            long = [member for member in members if len(member) > _LONG_MEMBER]
            members.remove(long[-1] if long else members[-1])
        return ",".join(members)

    @property
    def pseudonym(self) -> str | None:
        """The value of Cuvil's member."""
        return dict(self.members).get(MEMBER)

    def with_pseudonym(self, value: str | None) -> TraceContext:
        """The same with Cuvil's member at the front, or without one. The rightmost goes when there were 32 others."""
        others = tuple(member for member in self.members if member[0] != MEMBER)
        if value is None:
            return replace(self, members=others)
        if not _VALUE.fullmatch(value):
            raise ValueError(f"{value!r} is no value of a member of tracestate")
        return replace(self, members=((MEMBER, value), *others)[:MEMBERS_MAX])


def new_context() -> TraceContext:
    """The root of a new trace, sampled, with random ids."""
    return TraceContext(_random(16), _random(8))


def read_context(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """The context in two headers; ``None`` where there is no valid ``traceparent``. Header fields that came several
    times are joined with commas by the caller (RFC 9110, 5.3)."""
    parent = read_traceparent(traceparent or "")
    if parent is None:
        return None
    return replace(parent, members=read_tracestate(tracestate or "") or ())


def read_traceparent(text: str) -> TraceContext | None:
    """``traceparent`` as a context without members; ``None`` when it is malformed (3.2 there).

    A version above 00 may carry more after a further dash, which is ignored; version ff and ids of zeros are invalid.
    """
    match = _PARENT.fullmatch(text.strip(" \t"))
    if match is None:
        return None
    version, trace_id, parent_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest is not None):
        return None
    if _NOTHING.fullmatch(trace_id) or _NOTHING.fullmatch(parent_id):
        return None
    return TraceContext(trace_id, parent_id, int(flags, 16))


def read_tracestate(text: str) -> Members | None:
    """The members of ``tracestate`` in order; ``None`` when any is malformed, one key comes twice, or there are more
    than 32. Empty members between commas are allowed and dropped."""
    members: dict[str, str] = {}
    for part in text.split(","):
        item = part.strip(" \t")
        if not item:
            continue
        key, equals, value = item.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value) or key in members:
            return None
        members[key] = value
    return tuple(members.items()) if len(members) <= MEMBERS_MAX else None


def _random(size: int) -> str:
    """Hexadecimal digits of ``size`` random bytes, not all zero."""
    while True:
        value = secrets.token_bytes(size)
        if any(value):
            return value.hex()
