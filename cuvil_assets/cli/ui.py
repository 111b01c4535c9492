"""``cuvil ui``: Dagster's webserver and daemon as children, on 127.0.0.1 only, ended with this command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from compiler_kernels.errors import CuvilError, UsageError
from cuvil_assets.builder import open_instance
from cuvil_assets.home import current_home

HOST = "127.0.0.1"
MODULE = "cuvil_assets.definitions"
START_SECONDS = 180.0
STOP_SECONDS = 6.0


class _Stopped(BaseException):
    """A signal asked us to end."""


def run(port: int, *, daemon: bool) -> None:
    """Serve until interrupted. ``UsageError`` for a busy port, ``CuvilError`` when a child ends by itself."""
    home = current_home()
    with open_instance(home):
        folder = home.dagster
    _check_port(port)
    # Installed before the children start, so that they get the default action even where the caller ignores SIGTERM.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    log = home.ensure(home.log)
    commands = {
        "dagster-webserver": [
            "-m",
            "dagster_webserver",
            "-h",
            HOST,
            "-p",
            str(port),
            "-m",
            MODULE,
            "--log-level",
            "warning",
        ]
    }
    if daemon:
        commands["dagster-daemon"] = ["-m", "dagster._daemon", "run", "-m", MODULE, "--log-level", "warning"]
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in commands.items():
            children[name] = _start(words, folder, log / f"{name}.log")
        _wait_for_port(port, children, log)
        print(f"http://{HOST}:{port}/locations/__repository__@{MODULE}/asset-groups/lifecycle/lineage", flush=True)
        print("serving on this machine only; end with Ctrl-C", file=sys.stderr, flush=True)
        while True:
            _check_alive(children, log)
            time.sleep(0.5)
    except (_Stopped, KeyboardInterrupt):
        print("stopped", file=sys.stderr)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        _end(children)


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(f"--port {port}: cannot be used ({error.strerror}); choose another port") from None


def _start(words: list[str], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start ``python WORDS`` in a session of its own, in Dagster's folder: it puts its folder on the import path."""
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(folder),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "CUVIL_HOME": str(folder.parent),
        "PYTHONPATH": os.pathsep.join(filter(None, [_package_root(), os.environ.get("PYTHONPATH", "")])),
    }
    with log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )


def _package_root() -> str:
    """Where this package is imported from, in case it is a checkout that was not installed."""
    return str(Path(__file__).resolve().parents[2])


def _wait_for_port(port: int, children: dict[str, subprocess.Popen[bytes]], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        _check_alive(children, log)
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.3)
    raise CuvilError(f"the web interface did not answer within {START_SECONDS:.0f} s; see the files in {log}")


def _check_alive(children: dict[str, subprocess.Popen[bytes]], log: Path) -> None:
    for name, child in children.items():
        if child.poll() is not None:
            raise CuvilError(f"{name} ended with exit code {child.returncode}; see {log / name}.log")


def _end(children: dict[str, subprocess.Popen[bytes]]) -> None:
    """End every child with the processes it started: politely first, then by force."""
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 5.0)):
        for child in children.values():
            try:
                os.killpg(child.pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + seconds
        for child in children.values():
            try:
                child.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue
