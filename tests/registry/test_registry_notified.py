"""Notifications between processes: a server that is killed, and a command line that writes beside it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from registry_client import Client
from registry_receiver import Receiver, receiving
from registry_release import Released, cuvil
from test_registry_subscriptions import subscription

from evidence.keys import load_keys
from fhir_registry.server.access import make_token
from fhir_registry.subscriptions.topics import CHANGED, NEW, WITHDRAWN


def started(home: Path, *options: str) -> tuple[subprocess.Popen[str], Client]:
    process = subprocess.Popen(
        [sys.executable, "-m", "cuvil_assets.cli", "registry", "serve", "--port", "0", *options],
        env={**os.environ, "CUVIL_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, Client(process.stdout.readline().strip().removesuffix("/metadata"))


def subscribed(client: Client, receiver: Receiver, token: Callable[[], str], topic: str) -> str:
    words = {"Authorization": f"Bearer {token()}"}
    wanted = subscription(receiver, topic, content="full-resource", timeout=2)
    status, _, made = client.call("POST", "Subscription", wanted, words)
    assert status == 201, made
    receiver.until(lambda: client.call("GET", f"Subscription/{made['id']}")[2]["status"] == "active")
    return str(made["id"])


def test_nothing_is_lost_when_the_server_is_killed(
    released: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    shutil.copytree(released.home / "keys", home / "keys")
    monkeypatch.setenv("CUVIL_HOME", str(home))
    signer = next(s for s in load_keys(home).signers if s.algorithm == "ecdsa-p384-sha384")
    with receiving() as receiver:
        process, client = started(home, "--allow-endpoint", receiver.host)
        try:
            refused = client.call("POST", "Subscription", subscription(receiver, NEW))[0]
            assert refused == 401  # it makes this server send requests: not for everybody
            names = {
                topic: subscribed(client, receiver, lambda: make_token(signer, client.base), topic)
                for topic in (NEW, CHANGED, WITHDRAWN)
            }
            receiver.answers += [500] * 2
            cuvil("registry", "register", released.folder)  # another process than the server
            receiver.until(lambda: len(receiver.answers) < 2)
            process.kill()
            process.communicate(timeout=30)
            receiver.answers.clear()
            process, client = started(home, "--allow-endpoint", receiver.host)
            place = f"Subscription/{names[NEW]}"
            receiver.until(lambda: client.base in str(receiver.bundles()[-1]))
            assert set(receiver.numbers()) == {1}  # again, and no other
            told = receiver.bundles()[-1]["entry"]
            assert told[1]["resource"]["modelNumber"] == "1.0.0"
            count = len(receiver.bundles())
            cuvil("registry", "register", released.folder)  # the same again: nothing changed, nobody is told
            cuvil("registry", "withdraw", "tiny|1.0.0", "--reason", "a test ended")
            cuvil("registry", "withdraw", "tiny|1.0.0", "--reason", "a test ended")
            capsys.readouterr()
            receiver.until(lambda: len(receiver.bundles()) == count + 2)
            topics = [b["entry"][0]["resource"]["topic"] for b in receiver.bundles()[count:]]
            assert sorted(topics) == sorted([CHANGED, WITHDRAWN])
            for identifier in names.values():
                status = client.call("GET", f"Subscription/{identifier}/$status")[2]["entry"][0]["resource"]
                assert status["eventsSinceSubscriptionStart"] == "1", identifier
            assert client.call("GET", place)[2]["status"] == "active"
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        assert process.returncode == 0
