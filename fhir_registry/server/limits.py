"""Limits that keep one client from taking the server from the others: requests a second, and requests at once."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fhir_registry.server.http import App, HttpError, Incoming, Receive, Scope, Send, send_response

BURST_SECONDS: Final = 5
"""How many seconds of its rate a client that was quiet may use at once."""
MOST_CLIENTS: Final = 100_000
_WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")


class Rates:
    """A token bucket for each name, separate for reads and writes. Rates are requests a second; 0 is no limit."""

    def __init__(self, reads: float, writes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = (reads, writes)
        self._clock = clock
        self._buckets: OrderedDict[tuple[str, bool], tuple[float, float]] = OrderedDict()

    def check(self, name: str, writing: bool) -> None:
        """Take one request from the bucket of ``name``; ``HttpError`` 429 with Retry-After when it is empty."""
        rate = self._rates[writing]
        if not rate:
            return
        now = self._clock()
        most = max(1.0, rate * BURST_SECONDS)
        left, then = self._buckets.pop((name, writing), (most, now))
        left = min(most, left + (now - then) * rate)
        allowed = left >= 1
        self._buckets[name, writing] = left - allowed, now
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)  # who was quiet longest has a full bucket by now, or soon
        if not allowed:
            wait = math.ceil((1 - left) / rate)
            what = "writes" if writing else "requests"
            text = f"more than {rate:g} {what} a second; ask again in {wait} s"
            raise HttpError(429, "throttled", text, {"Retry-After": str(wait)})


class Limited:
    """An application behind limits. ``rates``: for each address; ``at_once``: requests being answered.

    What is refused here reached nothing and is not in the audit trail, which an attacker could fill with it.
    """

    def __init__(self, app: App, rates: Rates, at_once: int) -> None:
        self._app, self._rates, self._at_once = app, rates, at_once
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._running >= self._at_once:
                text = f"{self._at_once} requests are being answered; ask again in a second"
                raise HttpError(503, "throttled", text, {"Retry-After": "1"})
            self._rates.check(network(str((scope.get("client") or ("",))[0])), _writing(scope))
        except HttpError as error:
            incoming = Incoming(receive)
            incoming.ended = scope["method"] not in _WRITES
            await send_response(send, error.response(), incoming, head=scope["method"] == "HEAD")
            return
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1


def _writing(scope: Scope) -> bool:
    path = str(scope["path"])
    return scope["method"] in _WRITES and not path.endswith("_search") and "$" not in path


def network(address: str) -> str:
    """Whose bucket it is: an IPv4 address, or the /64 an IPv6 client chooses its addresses from.

    A server that listens on IPv6 sees clients of IPv4 as ::ffff:A.B.C.D, which are all of one /64.
    """
    if ":" not in address:
        return address
    try:
        if (mapped := ipaddress.IPv6Address(address).ipv4_mapped) is not None:
            return str(mapped)
        return str(ipaddress.ip_network(f"{address.partition('%')[0]}/64", strict=False))
    except ValueError:
        return address
