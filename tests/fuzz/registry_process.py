"""A registry as the process a user starts, with keys of its own, for tests that attack it."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from evidence.keys import init_keys
from evidence.verifier.signing import P384, Signer
from fhir_registry.server.access import make_token

UNLIMITED: Final = ("--read-rate", "0", "--write-rate", "0")


class Server:
    """`cuvil registry serve` over an empty home below ``folder``; ``options`` are those of the command."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.home / "keys").exists():
            init_keys(self.home)
        from evidence.keys import load_keys

        self.signer: Signer = next(s for s in load_keys(self.home).signers if s.algorithm == P384)
        self.log = folder / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cuvil_assets.cli", "registry", "serve", "--port", "0", *UNLIMITED, *options],
                env={**os.environ, "CUVIL_HOME": str(self.home)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        assert address.endswith("/metadata"), self.log.read_text()
        self.base = address.removesuffix("/metadata")
        self.host, self.port = "127.0.0.1", int(self.base.split(":")[2].split("/")[0])

    def token(self) -> str:
        return make_token(self.signer, self.base)

    def connection(self, seconds: float = 30.0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=seconds)

    def resident(self) -> int:
        """Memory in MiB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) >> 10

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)

    def stop(self) -> str:
        """End it in order; what it wrote to its log."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            until = time.monotonic() + 40
            while self.process.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
        if self.process.poll() is None:
            self.kill()
            raise AssertionError("the server did not end within 40 s of SIGTERM")
        if self.process.stdout is not None:
            self.process.stdout.close()
        return self.log.read_text()
