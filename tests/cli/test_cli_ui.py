"""The user interface as a process: it answers offline, and ends with all it started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from cli_case import Delivered

from cuvil_assets import chain


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(port: int, query: str) -> dict[str, object]:
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        document: dict[str, object] = json.load(answer)["data"]
    return document


def processes_of(home: Path) -> list[int]:
    """Processes whose environment names this home."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                environment = (folder / "environ").read_bytes()
                state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if f"CUVIL_HOME={home}\0".encode() in environment and state != "Z":
                found.append(int(folder.name))
    return found


def test_ui_serves_the_assets_and_leaves_nothing_running(delivered: Delivered) -> None:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "cuvil_assets.cli", "ui", "--port", str(port), "--no-daemon"],
        env={**os.environ, "CUVIL_HOME": str(delivered.home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert f"http://127.0.0.1:{port}/" in server.stdout.readline()
        answer = ask(port, "{ assetNodes { assetKey { path } assetMaterializations(limit: 1) { partition } } }")
        nodes = answer["assetNodes"]
        assert isinstance(nodes, list)
        assert {node["assetKey"]["path"][0] for node in nodes} == {
            *chain.NAMES,
            *chain.LATER,
            "release_proof",
            "model_resource",
        }
        made = [node["assetMaterializations"] for node in nodes if node["assetKey"]["path"][0] in chain.NAMES]
        assert {events[0]["partition"] for events in made} == {"tiny-1.0|x86_64-linux-musl"}
        assert len(processes_of(delivered.home)) >= 2
    finally:
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=60)
    assert server.returncode == 0, err
    deadline = time.monotonic() + 30
    while processes_of(delivered.home) and time.monotonic() < deadline:
        time.sleep(0.3)
    assert processes_of(delivered.home) == []


LAUNCH = """mutation {{ launchRun(executionParams: {{
  selector: {{repositoryLocationName: "cuvil_assets.definitions", repositoryName: "__repository__", jobName: "build"}},
  runConfigData: "{{}}", mode: "default",
  executionMetadata: {{tags: [{{key: "dagster/partition", value: "{0}|{1}"}},
    {{key: "dagster/partition/model_version", value: "{0}"}}, {{key: "dagster/partition/target", value: "{1}"}}]}}
}}) {{ __typename ... on LaunchRunSuccess {{ run {{ runId }} }} ... on PythonError {{ message }} }} }}"""


def test_a_run_launched_through_graphql_builds_the_partition(delivered: Delivered) -> None:
    """What the button "Materialize" does: the daemon starts the run in a process of its own."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "cuvil_assets.cli", "ui", "--port", str(port)],
        env={**os.environ, "CUVIL_HOME": str(delivered.home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert f"http://127.0.0.1:{port}/" in server.stdout.readline()
        launched = ask(port, LAUNCH.format("tiny-1.0", "x86_64-linux-musl"))["launchRun"]
        assert isinstance(launched, dict) and launched["__typename"] == "LaunchRunSuccess", launched
        run, state = launched["run"]["runId"], ""
        deadline = time.monotonic() + 180
        while state not in ("SUCCESS", "FAILURE", "CANCELED") and time.monotonic() < deadline:
            time.sleep(1.0)
            answer = ask(port, f'{{ runOrError(runId: "{run}") {{ ... on Run {{ status }} }} }}')["runOrError"]
            assert isinstance(answer, dict)
            state = str(answer["status"])
        assert state == "SUCCESS"
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
