"""Where notifications may go, and how one is sent: an address that is checked when it is used, and nothing followed.

A subscription makes this server send requests, so by default they go to public addresses over TLS only: not to this
machine, its network, or what answers for clouds on link-local addresses. ``--allow-endpoint`` names hosts that may be
reached all the same, also without TLS. Names are resolved once for each request, and the connection goes to the very
address that was checked.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from evidence.verifier.errors import UsageError

LONGEST_ANSWER: Final = 4096
_HOST: Final = re.compile(r"(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_TRANSLATED: Final = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))


def read_allowed(listed: Sequence[str]) -> frozenset[str]:
    """Hosts that an operator names, HOST or HOST:PORT each; ``UsageError`` for anything else."""
    for text in listed:
        match = _HOST.fullmatch(text)
        if match is None or not 0 < int(match[1] or 1) < 65536:
            raise UsageError(f"--allow-endpoint is HOST or HOST:PORT, such as pacs.local:8443, not {text[:80]!r}")
    return frozenset(text.lower() for text in listed)


class EndpointError(Exception):
    """Why an address is not used, or a notification did not arrive."""


@dataclass(frozen=True)
class Endpoints:
    """``allowed``: HOST or HOST:PORT each, which may be private and without TLS."""

    allowed: frozenset[str] = frozenset()

    def check(self, text: str) -> SplitResult:
        """The parts of an address that may be subscribed with; ``EndpointError`` says why not."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise EndpointError("the endpoint is no address") from None
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not host:
            raise EndpointError("the endpoint is an address with https://")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise EndpointError("the endpoint has neither user nor fragment; secrets go into header parameters")
        if any(not 0x21 <= ord(c) <= 0x7E for c in text):
            raise EndpointError("the endpoint is written in ASCII")
        if self._named(host, port or (443 if parts.scheme == "https" else 80)):
            return parts
        if parts.scheme != "https":
            raise EndpointError(f"{host[:80]} is reached with https:// only, unless `--allow-endpoint` names it")
        try:
            literal: Address | None = ipaddress.ip_address(host)
        except ValueError:
            literal = None
        if literal is not None and not public(literal):
            raise EndpointError(f"{host[:80]} is no public address, and `--allow-endpoint` does not name it")
        if literal is None and (host == "localhost" or "." not in host):
            raise EndpointError(f"{host[:80]} is a name of this network, and `--allow-endpoint` does not name it")
        return parts

    def _named(self, host: str, port: int) -> bool:
        shown = f"[{host}]" if ":" in host else host
        return host in self.allowed or shown in self.allowed or f"{shown}:{port}" in self.allowed

    def post(self, text: str, body: bytes, headers: Mapping[str, str], seconds: float) -> None:
        """Send ``body``; done when a status of 2xx came within ``seconds``. ``EndpointError`` otherwise."""
        parts = self.check(text)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise EndpointError(f"{host[:80]} is not known to the name service") from None
        addresses = [str(item[4][0]).partition("%")[0] for item in found]
        wrong = [text for text in addresses if not public(ipaddress.ip_address(text))]
        if wrong and not self._named(host, port):
            raise EndpointError(f"{host[:80]} has the address {wrong[0]}, which is not public")
        try:
            self._send(parts, found[0][:3], found[0][4], body, headers, seconds)
        except (OSError, http.client.HTTPException) as error:
            raise EndpointError(f"{type(error).__name__}: {error}"[:200]) from None

    def _send(
        self,
        parts: SplitResult,
        kind: Sequence[int],
        address: tuple[object, ...],
        body: bytes,
        headers: Mapping[str, str],
        seconds: float,
    ) -> None:
        held = socket.socket(*kind)
        # The time limit of a socket is for each step; a receiver that sends a byte now and then meets this one. It
        # has a descriptor of its own: TLS takes the first one away from ``held``.
        same = held.dup()
        watch = threading.Timer(seconds, _end, (same,))
        watch.daemon = True
        watch.start()
        try:
            held.settimeout(seconds)
            held.connect(address)
            if parts.scheme == "https":
                held = ssl.create_default_context().wrap_socket(held, server_hostname=parts.hostname)
            connection = http.client.HTTPConnection(parts.netloc, timeout=seconds)
            connection.sock = held
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, dict(headers))
            answer = connection.getresponse()
            answer.read(LONGEST_ANSWER)
            if not 200 <= answer.status < 300:
                moved = " (redirects are not followed)" if 300 <= answer.status < 400 else ""
                raise EndpointError(f"the endpoint answered {answer.status}{moved}")
        finally:
            watch.cancel()
            watch.join()  # it must not meet a descriptor that is somebody else's by then
            same.close()
            held.close()


def _end(held: socket.socket) -> None:
    with contextlib.suppress(OSError):
        held.shutdown(socket.SHUT_RDWR)


def public(address: Address) -> bool:
    """Whether ``address`` is one of the public network, also where IPv6 carries one of IPv4."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return public(address.ipv4_mapped)
        if any(address in network for network in _TRANSLATED):
            return False
    return address.is_global and not address.is_multicast
