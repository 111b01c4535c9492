"""Section ``timestamp``: the authority that stamps a release (RFC 3161)."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from compiler_kernels.policy.section import Section


class TimestampAuthority(Section):
    """Where a timestamp is requested, and which of the authority's policies must be named in it."""

    url: str = Field(max_length=2000, description="http or https address that takes RFC 3161 requests.")
    policy_oid: Annotated[str, Field(pattern=r"^[0-2](\.(0|[1-9][0-9]*))+$", max_length=200)] | None = Field(
        default=None, description="Dotted object identifier of the policy the token must name; any if absent."
    )
    timeout_s: Annotated[int, Field(ge=1, le=300)] = Field(
        default=20, description="Most seconds to wait for each read of the answer."
    )

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        except ValueError:
            good = False
        if not good or not value.isascii() or any(c <= " " for c in value):
            raise ValueError("must be an http or https address without user name, such as https://tsa.example/ts")
        return value
