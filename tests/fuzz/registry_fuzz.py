"""Schema-based fuzzing of a running registry: ``python tests/fuzz/registry_fuzz.py --minutes 10 --seed 1``.

Ends with 1 when an answer was a 5xx, took too long, was a 4xx without a valid OperationOutcome, or a 2xx whose resource
does not validate; when the server died or grew. Each finding is printed with the request that made it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent))  # as pytest does

from registry_process import Server
from registry_requests import Ask, Asker, Seen

from fhir_registry.json_text import read_json
from fhir_registry.validation.walk import validate

ALLOWED: Final = ("--allow-endpoint", "127.0.0.1:9")
"""Subscriptions name a port of this machine at which nobody listens, so that nothing leaves it."""
SLOWEST: Final = 20.0
"""Seconds an answer may take on a machine that does other work too."""
LARGEST: Final = 900
"""MiB of memory the server may hold."""


@dataclass
class Found:
    """What a run saw: how many answers of each status, and what was wrong, each kind with the first request."""

    statuses: Counter[int] = field(default_factory=Counter)
    faults: dict[str, str] = field(default_factory=dict)
    slowest: float = 0.0
    memory: int = 0

    def fault(self, what: str, ask: Ask) -> None:
        self.faults.setdefault(what, f"{ask.method} {ask.target[:500]}\n  {ask.headers}\n  {ask.body[:1500]!r}")


class Fuzzer:
    """Sends requests to ``server`` and judges the answers."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.rng, self.seen, self.found = server, random.Random(seed), Seen(), Found()
        self.asker = Asker(self.rng, self.seen)
        self.connection = server.connection(SLOWEST + 10)

    def run(self, seconds: float, most: int = 1 << 60) -> Found:
        until = time.monotonic() + seconds
        number = 0
        while time.monotonic() < until and number < most and self.server.process.poll() is None:
            number += 1
            self.one(self.asker.ask())
            if number % 200 == 0:
                self.found.memory = max(self.found.memory, self.server.resident())
                self.seen.keep(self.rng)
            if number % 5000 == 0:
                print(f"{number} requests, {dict(sorted(self.found.statuses.items()))}", file=sys.stderr, flush=True)
        if self.server.process.poll() is not None:
            self.found.faults["the server ended"] = self.server.log.read_text()[-3000:]
        elif self.found.memory > LARGEST:
            self.found.faults["memory"] = f"{self.found.memory} MiB"
        self.connection.close()
        return self.found

    def one(self, ask: Ask) -> None:
        headers = dict(ask.headers)
        if "Authorization" not in headers and ask.method not in ("GET", "HEAD"):
            headers["Authorization"] = f"Bearer {self.server.token()}"
        begin = time.monotonic()
        fresh = self.connection.sock is None
        try:
            answer, data = self._exchange(ask, headers)
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected) as error:
            self.connection.close()
            if fresh:
                self.found.fault(f"no answer: {type(error).__name__}", ask)
                return
            # The server ends a connection that nothing came over for five seconds, which may cross with a request.
            self.one(ask)
            return
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            self.found.fault(f"no answer: {type(error).__name__}", ask)
            return
        took = time.monotonic() - begin
        self.found.slowest = max(self.found.slowest, took)
        self.found.statuses[answer.status] += 1
        if took > SLOWEST:
            self.found.fault(f"slow {ask.method}", ask)
        fault = self.judge(ask, answer, data)
        if fault:
            self.found.fault(fault, ask)

    def _exchange(self, ask: Ask, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        path = f"/{ask.target}" if ask.page else f"/fhir/{ask.target}"
        self.connection.request(ask.method, path, ask.body or None, headers)
        answer = self.connection.getresponse()
        return answer, answer.read()

    def judge(self, ask: Ask, answer: http.client.HTTPResponse, data: bytes) -> str:
        """What is wrong with an answer, in words that are the same for the same fault; else empty."""
        status, kind = answer.status, answer.headers.get("Content-Type", "")
        if status >= 500:
            return f"{status} on {ask.method}: {data[:200]!r}"
        if ask.page:
            return "" if status < 400 or b"<html" in data or ask.method == "HEAD" else f"{status} without a page"
        if ask.method == "HEAD" or status in (204, 304):
            return f"a body with {status}" if data else ""
        if status < 400 and not kind.startswith("application/fhir+json"):
            return ""
        if status < 300 and not data:  # Prefer: return=minimal
            return ""
        try:
            found = json.loads(data)
        except ValueError:
            return f"{status} without JSON: {data[:80]!r}"
        if status >= 400:
            return outcome_fault(status, found)
        self.learn(found, answer.headers.get("Location", ""))
        wrong = [i for i in validate(read_json(data)) if i.severity in ("error", "fatal")]
        if b"SUBSETTED" in data:  # as few elements as were asked for, which may be too few for an invariant
            wrong = [i for i in wrong if i.code != "invariant" and not i.text.startswith("a resource needs an element")]
        return (
            f"{status} with an invalid {found.get('resourceType')}: {wrong[0].expression} {wrong[0].text}"
            if wrong
            else ""
        )

    def learn(self, found: dict[str, Any], location: str) -> None:
        if location:
            place = location.partition("/fhir/")[2].partition("/_history")[0]
            self.seen.places.append(place)
            self.seen.bodies.append(found)
        for link in found.get("link", ()) if found.get("resourceType") == "Bundle" else ():
            if link.get("relation") == "next":
                self.seen.links.append(link["url"].partition("/fhir/")[2])


def outcome_fault(status: int, found: Any) -> str:
    """What is wrong with the body of an error: it is an OperationOutcome to our validator and to fhir.resources."""
    from fhir.resources.operationoutcome import OperationOutcome

    if not isinstance(found, dict) or found.get("resourceType") != "OperationOutcome":
        return f"{status} without an OperationOutcome"
    wrong = [i for i in validate(found) if i.severity in ("error", "fatal")]
    if wrong:
        return f"{status} with an invalid OperationOutcome: {wrong[0].expression} {wrong[0].text}"
    try:
        OperationOutcome.model_validate(found)
    except ValueError as error:
        return f"{status} with an OperationOutcome that fhir.resources refuses: {str(error)[:200]}"
    texts = [issue.get("details", {}).get("text", "") for issue in found["issue"]]
    return "" if all(texts) else f"{status} with an issue that says nothing"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cuvil-registry-fuzz-") as folder:
        server = Server(Path(folder), *ALLOWED)
        try:
            found = Fuzzer(server, options.seed).run(options.minutes * 60)
        finally:
            log = server.stop()
    if "Traceback" in log:
        found.faults["traceback in the log"] = log[-4000:]
    statuses = ", ".join(f"{number}x {status}" for status, number in sorted(found.statuses.items()))
    print(f"seed {options.seed}: {sum(found.statuses.values())} requests: {statuses}")
    print(f"slowest answer {found.slowest:.2f} s, memory at most {found.memory} MiB, {len(found.faults)} faults")
    for what, text in found.faults.items():
        print(f"\n{what}\n  {text}")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
