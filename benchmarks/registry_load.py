"""Load on a server: raw HTTP/1.1 requests sent by wrk as fast as they are answered, or by asyncio at a given rate."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import uvloop

TICK = os.sysconf("SC_CLK_TCK")
# wrk's own request() is called for each request; a load whose requests count once ends when they are used up.
_LUA = """
local requests, at, once = {}, 0, false

function init(args)
  once = args[2] == "once"
  local file = assert(io.open(args[1], "rb"))
  while true do
    local size = file:read("*n")
    if not size then break end
    file:read(1)
    requests[#requests + 1] = file:read(size)
  end
  file:close()
end
function request()
  at = at + 1
  if at > #requests then
    if once then wrk.thread:stop() end
    at = 1
  end
  return requests[at]
end
function done(summary, latency, unused)
  local e = summary.errors
  io.write(string.format('\\nRESULT {"requests":%d,"seconds":%.6f,"p50":%.3f,"p99":%.3f,"errors":%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""


@dataclass(frozen=True)
class Load:
    """``requests``: whole requests as bytes, sent in order and again from the start unless each counts ``once``."""

    name: str
    requests: Sequence[bytes]
    once: bool = False


@dataclass(frozen=True)
class Measured:
    """Latencies in milliseconds; ``errors``: answers other than 2xx and broken connections."""

    requests: int
    seconds: float
    p50: float
    p99: float
    errors: int

    @property
    def rate(self) -> float:
        return self.requests / self.seconds if self.seconds else 0.0


def cpu_seconds(root: int) -> float:
    """CPU time of the process ``root`` and everything below it, to 10 ms (``/proc/PID/stat``)."""
    ticks: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            ticks[int(entry.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        total += ticks.get(process, (0, 0))[1]
        waiting += [child for child, (parent, _) in ticks.items() if parent == process]
    return total / TICK


def full_speed(host: str, port: int, load: Load, seconds: float, connections: int) -> Measured:
    """As many requests as are answered: wrk with one thread if it is installed, asyncio otherwise."""
    if shutil.which("wrk") is None:
        return paced(host, port, load, seconds, connections, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        script, texts = Path(folder) / "load.lua", Path(folder) / "requests"
        script.write_text(_LUA)
        texts.write_bytes(b"".join(b"%d\n%b" % (len(text), text) for text in load.requests))
        command = ["wrk", "-t", "1", "-c", str(connections), "-d", str(max(1, round(seconds))), "--latency"]
        command += ["-s", str(script), f"http://{host}:{port}", "--", str(texts), "once" if load.once else "again"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    found = [line for line in said.stdout.splitlines() if line.startswith("RESULT ")]
    if not found:
        raise RuntimeError(f"wrk failed: {said.stderr or said.stdout}")
    return Measured(**json.loads(found[0].removeprefix("RESULT ")))


def paced(host: str, port: int, load: Load, seconds: float, connections: int, rate: float) -> Measured:
    """``rate`` requests a second on a fixed schedule; a late answer counts from when its request was due.

    ``rate`` 0: no schedule, each connection asks again when it is answered.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_paced(host, port, load, seconds, connections, rate))


async def _paced(host: str, port: int, load: Load, seconds: float, connections: int, rate: float) -> Measured:
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(_Connection, host, port) for _ in range(connections)]
    most = round(seconds * rate) if rate else len(load.requests) if load.once else 1 << 60
    numbers = itertools.count()
    times: list[float] = []
    errors = 0
    start = time.perf_counter()

    async def ask(connection: _Connection) -> None:
        nonlocal errors
        while True:
            number = next(numbers)
            now = time.perf_counter()
            if number >= most or now - start >= seconds or (load.once and number >= len(load.requests)):
                return
            due = start + number / rate if rate else now
            if due > now:
                await asyncio.sleep(due - now)
            status = await connection.ask(load.requests[number % len(load.requests)])
            times.append(time.perf_counter() - due)
            errors += not 200 <= status < 300
            if status == 0:
                return

    await asyncio.gather(*(ask(connection) for _, connection in pairs))
    spent = time.perf_counter() - start
    for transport, _ in pairs:
        transport.close()
    times.sort()
    return Measured(len(times), spent, percentile(times, 50) * 1e3, percentile(times, 99) * 1e3, errors)


def percentile(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


class _Connection(asyncio.Protocol):
    """One connection that asks one thing at a time; status 0 when it breaks."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # no isinstance: uvloop's transports are not asyncio's
        self._transport = cast(asyncio.Transport, transport)
        self._data = b""
        self._answer: asyncio.Future[int] | None = None

    def ask(self, request: bytes) -> asyncio.Future[int]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        length = next((int(v) for n, _, v in _fields(head) if n.lower() == b"content-length"), 0)
        if len(body) >= length:
            self._data = body[length:]
            self._done(int(head[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        self._done(0)

    def _done(self, status: int) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(status)


def _fields(head: bytes) -> list[tuple[bytes, bytes, bytes]]:
    return [line.partition(b":") for line in head.split(b"\r\n")[1:]]
