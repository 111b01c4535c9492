"""A seal of a session archive whose signatures an RFC 3161 authority has stamped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tsa_case import Tsa, make_tsa

from evidence.keys import KeySet, init_keys
from evidence.sessions.archive import Archive
from evidence.sessions.check import check_archive
from evidence.sessions.record import ERASURE
from evidence.sessions.seal import make_seal

TIME = ("2026-01-31T08:00:00Z", "test")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    found = Archive(tmp_path / "s")
    found.append(ERASURE, {"subject": "0" * 32})
    return found


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeySet:
    return init_keys(tmp_path_factory.mktemp("keys"))


def test_a_stamped_seal(archive: Archive, keys: KeySet, tmp_path: Path) -> None:
    tsa: Tsa = make_tsa(tmp_path)
    make_seal(archive, keys.signers, TIME, tsa.token)
    root = replace(keys.trust_root, tsa_roots=(tsa.root,))
    report = check_archive(archive, root)
    assert report.ok and report.stamped.endswith("Z") and report.last_seal == TIME[0]
    assert check_archive(archive, keys.trust_root).stamped == ""  # no authority is trusted, so none is quoted
    # the token of another seal does not fit these signatures
    archive.append(ERASURE, {"subject": "1" * 32})
    make_seal(archive, keys.signers, TIME, tsa.token)
    first, second = (json.loads(line) for line in archive.seals.path.read_bytes().splitlines())
    second["verificationMaterial"] = first["verificationMaterial"]
    lines = [json.dumps(item, sort_keys=True, separators=(",", ":")) for item in (first, second)]
    archive.seals.path.write_text("\n".join(lines) + "\n")
    found = check_archive(archive, root)
    assert found.check == "session-seal" and "timestamp" in found.sentence
