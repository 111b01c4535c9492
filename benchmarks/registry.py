"""The registry under load: requests a second, latency, and the server's CPU time for each request, audit on.

``python -m benchmarks.registry [--json] [--resources N] [--seconds S] [--connections C]`` starts ``cuvil registry
serve`` as a process of its own over a temporary home with N models and measures, for reads, identifier searches and
creates (each with a token of its own): full speed (wrk if installed), then half of that rate on a fixed schedule.
Then every kind of search alone on one connection, and at the end the audit trail is verified.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.registry_home import SYSTEM, Server, fill, model, running
from benchmarks.registry_load import Load, Measured, cpu_seconds, full_speed, paced
from fhir_registry.audit.outbox import Outbox
from fhir_registry.json_text import write_json
from fhir_registry.store.open import open_store

WANTED = {"read": 2500, "identifier": 1500, "create": 300}
"""Requests a second on two idle cores, load generator included."""
MOST_CREATES = 1200
"""Creates a second that are prepared: wrk cannot tell how long it took when it has no more."""
LATENCY_MS = 50.0
"""What the 99th percentile may be at half load."""
SEARCH_MS = 20.0
SEARCHES = {
    "identifier": r"identifier={system}|model-{n}\|1.0.0",
    "identifier, any system": r"identifier=model-{n}\|1.0.0",
    "device-name": "device-name=pneumonia finder {n}",
    "device-name, many": "device-name=pneumonia",
    "device-name:exact": "device-name:exact=nodule finder {n}",
    "device-name:contains": "device-name:contains=finder {n}",
    "model-purpose": "model-purpose=second reading for embolism",
    "model-purpose:contains": "model-purpose:contains=stenosis",
    "model-purpose:contains, none": "model-purpose:contains=nothing like it",
    "input-profile": r"input-profile=image: tensor(float32)[1\,1\,64",
    "artifact-status": "artifact-status=retired",
    "artifact-status:not": "artifact-status:not=retired",
    "specification": "specification={system}|standard-3",
    "manufacturer": "manufacturer=Organization/maker-5",
    "manufacturer.name": "manufacturer.name=manufacturer 13",
    "manufacturer:missing": "manufacturer:missing=true",
    "two conditions": "specification=standard-3&artifact-status=retired",
    "two conditions, none": "model-purpose=second reading for embolism&device-name=pneumonia",
    "_id": "_id=m-{n}",
    "_lastUpdated": "_lastUpdated=gt2020-01-01",
    "_sort": "_sort=-_lastUpdated",
    "_sort by name": "_sort=device-name",
    "_sort by token": "_sort=artifact-status",
    "_include": "artifact-status=active&_include=DeviceDefinition:manufacturer",
    "_total": "artifact-status=active&_total=accurate",
    "all": "",
}


def _identifier(system: str, number: int) -> str:
    return f"DeviceDefinition?identifier={quote(f'{system}|model-{number}', safe='')}%5C%7C1.0.0"


def loads(server: Server, resources: int) -> list[Load]:
    chance = random.Random(8)
    some = [chance.randrange(resources) for _ in range(5000)]
    return [
        Load("read", [server.get(f"DeviceDefinition/m-{n}") for n in some]),
        Load("identifier", [server.get(_identifier(SYSTEM, n)) for n in some]),
        Load("create", [], once=True),
    ]


def measure(server: Server, load: Load, seconds: float, connections: int, resources: int) -> dict[str, Any]:
    full = _with_bodies(server, load, resources, round(MOST_CREATES * seconds))
    _answers(server, full)
    used = cpu_seconds(server.pid)
    fast = full_speed(server.host, server.port, full, seconds, connections)
    used = cpu_seconds(server.pid) - used
    if load.once and fast.requests >= len(full.requests) - connections:
        raise RuntimeError(f"{load.name}: more than {MOST_CREATES} a second, and wrk ran out of requests; raise that")
    slow_load = _with_bodies(server, load, resources + len(full.requests), round(fast.rate / 2 * seconds) + 1)
    slow = paced(server.host, server.port, slow_load, seconds, connections, fast.rate / 2)
    return {
        "phase": load.name,
        "per_second": round(fast.rate, 1),
        "wanted_per_second": WANTED[load.name],
        "p50_ms": round(fast.p50, 2),
        "p99_ms": round(fast.p99, 2),
        "cpu_us_per_request": round(used / max(1, fast.requests) * 1e6, 1),
        "half_load": {"per_second": round(slow.rate, 1), "p50_ms": round(slow.p50, 2), "p99_ms": round(slow.p99, 2)},
        "server_mib": resident(server.pid),
        "requests": fast.requests + slow.requests,
        "errors": fast.errors + slow.errors,
    }


def resident(pid: int) -> int:
    """Memory of the server's process in MiB, which should not grow with what it has answered."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) >> 10


def _with_bodies(server: Server, load: Load, first: int, count: int) -> Load:
    """Requests that count once are made when they are used: a token holds for five minutes."""
    if not load.once:
        return load
    texts = [server.post("DeviceDefinition", write_json(model(first + n))) for n in range(count)]
    return Load(load.name, texts, once=True)


def _answers(server: Server, load: Load) -> None:
    """Caches are filled and the requests are right before anything is timed."""
    if not load.once:
        first = paced(server.host, server.port, load, 0.5, 2, 0.0)
        if first.errors:
            raise RuntimeError(f"{load.name}: {first.errors} of {first.requests} requests are not answered with 2xx")


def searches(server: Server, resources: int, rounds: int) -> list[dict[str, Any]]:
    """Each search alone: median and largest latency over ``rounds`` requests."""
    found = []
    for name, text in SEARCHES.items():
        requests = []
        for number in random.Random(8).choices(range(0, resources, 8), k=rounds):
            pairs = text.format(n=number, system=SYSTEM).split("&")
            query = "&".join("=".join(quote(side, safe=":") for side in pair.split("=", 1)) for pair in pairs)
            requests.append(server.get(f"DeviceDefinition?_count=20{'&' + query if query else ''}"))
        one: Measured = paced(server.host, server.port, Load(name, requests, once=True), 30, 1, 0.0)
        found.append({"search": name, "p50_ms": round(one.p50, 2), "max_ms": round(one.p99, 2), "errors": one.errors})
    return found


def sync_ms(folder: Path) -> float:
    """Median time of one 4 KB append and fsync: what every durable commit waits for."""
    times = []
    with (folder / "sync").open("wb") as file:
        for _ in range(50):
            start = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return sorted(times)[25] * 1e3


def run(
    resources: int, seconds: float, connections: int, only: list[str], kept: Path | None, database: str, say: Any
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="cuvil-registry-") as folder:
        home = kept or Path(folder)
        data = home / "registry"
        start = time.perf_counter()
        store = open_store(data, database)
        if store.read("DeviceDefinition", f"m-{resources - 1}") is None:
            fill(store, resources, lambda done: say(f"filled {done} of {resources}"))
            if database:
                with store.database.session() as session:
                    session.run("ANALYZE")  # as autovacuum does within a minute
        report: dict[str, Any] = {
            "resources": resources,
            "fill_s": round(time.perf_counter() - start, 1),
            "fsync_ms": round(sync_ms(home), 2),
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "connections": connections,
        }
        options = ["--database", database] if database else []
        with running(home, "--read-rate", "0", "--write-rate", "0", *options) as server:
            report["phases"] = []
            for load in loads(server, resources):
                if not only or load.name in only:
                    say(f"measuring {load.name}")
                    report["phases"].append(measure(server, load, seconds, connections, resources))
            if not only or "searches" in only:
                say("measuring searches")
                report["searches"] = searches(server, resources, 15)
        outbox = Outbox(store.database)
        report["audit_events"] = outbox.verify()[0]
        outbox.close()
        store.close()
    return report


def main() -> None:
    """Parse the arguments and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resources", type=int, default=20000, help="models in the store (default 20000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (default 10)")
    parser.add_argument("--connections", type=int, default=32, help="open at once (default 32)")
    parser.add_argument("--only", nargs="+", default=[], choices=[*WANTED, "searches"], help="leave out the others")
    parser.add_argument("--home", type=Path, help="fill this folder, or use it as it is, and keep it")
    parser.add_argument("--database", default="", metavar="URL", help="an empty PostgreSQL database instead of SQLite")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    report = run(
        arguments.resources,
        arguments.seconds,
        arguments.connections,
        arguments.only,
        arguments.home,
        arguments.database,
        say,
    )
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    print(f"{resources_line(report)}\n")
    print("phase        req/s  wanted   p50 ms   p99 ms  CPU us/req   half load req/s   p99 ms  errors  MiB")
    for row in report["phases"]:
        half = row["half_load"]
        print(
            f"{row['phase']:10} {row['per_second']:7.0f} {row['wanted_per_second']:7} {row['p50_ms']:8.2f} "
            f"{row['p99_ms']:8.2f} {row['cpu_us_per_request']:11.0f} {half['per_second']:17.0f} "
            f"{half['p99_ms']:8.2f} {row['errors']:7} {row['server_mib']:4}"
        )
    print()
    for row in report.get("searches", ()):
        mark = "" if row["p50_ms"] < SEARCH_MS else f"  above {SEARCH_MS:.0f} ms"
        print(f"{row['search']:32} {row['p50_ms']:8.2f} ms, at most {row['max_ms']:8.2f} ms{mark}")


def resources_line(report: dict[str, Any]) -> str:
    return (
        f"{report['resources']} models (filled in {report['fill_s']} s), fsync {report['fsync_ms']} ms, "
        f"{report['cpus']} CPUs, {report['connections']} connections, {report['audit_events']} audit events verified"
    )


if __name__ == "__main__":
    main()
