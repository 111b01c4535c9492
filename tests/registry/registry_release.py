"""A release that was really built and signed, and `cuvil registry serve` over a home with its keys."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from databases import DATABASES
from registry_client import Client
from tiny_models import ModelMaker

from cuvil_assets.cli import main

POLICY = """version: 1
model: {name: tiny, version: "1.0.0", purpose: "Finds nothing; made for tests."}
inputs:
  image: {range: [0.0, 1.0]}
thresholds:
  cutoff: {value: 0.5, source: "tuning report 7"}
quantities:
  p_finding: prob[0, 1]
  exposure: {value: mean(image), unit: grey}
decisions:
  finding: p_finding >= cutoff
safety:
  guards: {not_blank: exposure > 0}
fallbacks:
  default: {action: answer, decisions: {finding: false}, message: "Refer to a radiologist."}
release: {demand: [equivalence, sbom]}
sbom: {manufacturer: "Example Hospital Devices"}
registry:
  classification: [{text: "Class III", system: "https://example.org/classes", code: "III"}, {text: "21-03-02"}]
  regulatory_identifiers:
    - {number: "2026-0001", issuer: "https://authority.example.org", jurisdiction: "urn:iso:std:iso:3166#CN"}
  conforms_to: [{specification: "IEC 62304", versions: ["2006+A1:2015"], category: "software life cycle"}]
"""


@dataclass(frozen=True)
class Released:
    home: Path
    folder: Path


@dataclass
class Running:
    client: Client
    home: Path
    process: subprocess.Popen[str]


def cuvil(*words: str | Path) -> None:
    assert main([str(word) for word in words]) == 0, words


@pytest.fixture(scope="session")
def released(
    home_maker: Callable[[], Path], tiny_model: ModelMaker, tmp_path_factory: pytest.TempPathFactory
) -> Released:
    """A release of a model that was really built, signed with the development keys of a home."""
    with pytest.MonkeyPatch.context() as patch:
        home, folder = home_maker(), tmp_path_factory.mktemp("released")
        patch.setenv("CUVIL_HOME", str(home))
        policy, engine = folder / "policy.yaml", folder / "build" / "inference-engine.bin"
        policy.write_text(POLICY)
        cuvil("build", "--model", tiny_model(), "--policy", policy, "--target", "x86_64-linux-musl",
              "--input-shape", "image=1,1,8,8", "--output", engine, "--equivalence-inputs", "1")  # fmt: skip
        cuvil("sbom", engine)
        cuvil("release", engine, "--output", folder / "release")
    return Released(home, folder / "release")


@pytest.fixture(params=DATABASES)
def running(
    request: pytest.FixtureRequest, released: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    """`cuvil registry serve` as a process over a home with keys and nothing registered."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    shutil.copytree(released.home / "keys", home / "keys")
    monkeypatch.setenv("CUVIL_HOME", str(home))
    if request.param == "postgresql":
        monkeypatch.setenv("CUVIL_REGISTRY_DATABASE", request.getfixturevalue("cluster").emptied())
    process = subprocess.Popen(
        [sys.executable, "-m", "cuvil_assets.cli", "registry", "serve", "--port", "0"],
        env={**os.environ, "CUVIL_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.endswith("/metadata"), process.communicate(timeout=10)
    yield Running(Client(address.removesuffix("/metadata")), home, process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0 and "Traceback" not in err, err
