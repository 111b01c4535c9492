"""A failed recertification puts a registered model in doubt, with its signed record; a passed one ends the doubt."""

from __future__ import annotations

import base64
import json
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from registry_release import Released, cuvil

from compiler_kernels.toolchain.zig import zig_executable
from cuvil_assets.cli import main
from cuvil_assets.home import Home
from cuvil_assets.nonconformities import listed, open_nonconformity
from cuvil_assets.recertify import FAILED, PASSED, Recertification, Recertified
from cuvil_assets.registry_status import reflect
from evidence.nonconformity import open_record
from evidence.verifier.digests import digest_file
from evidence.verifier.errors import UsageError
from evidence.verifier.subjects import subject_of
from fhir_registry.json_text import read_json
from fhir_registry.mapping import names
from fhir_registry.mapping.facts import read_facts
from fhir_registry.mapping.reading import properties, status_of
from fhir_registry.pages.model_view import summary_of
from fhir_registry.pages.site import Pages
from fhir_registry.pipeline import register
from fhir_registry.search.query import read_query
from fhir_registry.server.http import Request
from fhir_registry.server.operations import verify
from fhir_registry.store.sqlite import SqliteStore
from fhir_registry.validation.walk import validate

PARTITION = "tiny-1.0.0|x86_64-linux-musl"


@pytest.fixture
def home(
    released: Released, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Home:
    """A copy of the home that built the release, which is registered there."""
    shutil.copytree(released.home, tmp_path / "home", symlinks=True)
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "home"))
    cuvil("registry", "register", released.folder)
    capsys.readouterr()
    return Home(tmp_path / "home")


def models(home: Home) -> list[Any]:
    """The DeviceDefinitions: model version and engine."""
    store = SqliteStore(home.root / "registry" / "registry.sqlite")
    found = [read_json(item.body) for item in store.search(read_query("DeviceDefinition", [])).matches]
    store.close()
    return found


def statuses(home: Home) -> list[str]:
    return [status_of(item) for item in models(home)]


def report(*results: Recertified) -> Recertification:
    return Recertification("2026-12-01T00:00:00Z", "2026-12-01T00:00:01Z", {}, results)


def test_doubt_and_its_end(home: Home, released: Released, capsys: pytest.CaptureFixture[str]) -> None:
    engine, proof = (released.folder / f"inference-engine.{end}" for end in ("bin", "proof.json"))
    finding = "stage engine, inference-engine.bin: bytes differ"
    record = open_record(
        subject_of(engine.name, digest_file(engine)),
        subject_of(proof.name, digest_file(proof)),
        model_version="tiny-1.0.0",
        target="x86_64-linux-musl",
        check="recertification",
        finding=finding,
    )
    identifier = open_nonconformity(home, record)
    digest = digest_file(engine).sha3_512
    failed = report(Recertified(PARTITION, FAILED, finding, digest, identifier))
    (said,) = reflect(home, failed)
    assert identifier in said and statuses(home) == ["unknown", "unknown"]
    assert reflect(home, failed) == []  # the same again is no news
    model = next(item for item in models(home) if names.PROFILE in item["meta"]["profile"])
    assert properties(model, "nonconformity") == [f"{identifier}: {finding}"]
    store = SqliteStore(home.root / "registry" / "registry.sqlite")
    (document,) = store.search(read_query("DocumentReference", [("type", "nonconformity")])).matches
    reference: Any = read_json(document.body)
    binary = store.read("Binary", reference["content"][0]["attachment"]["url"].partition("/")[2])
    assert binary is not None
    body: Any = read_json(binary.body)
    assert base64.b64decode(body["data"]) == (home.root / "nonconformities" / f"{identifier}.json").read_bytes()
    for item in (*models(home), reference):
        assert [i for i in validate(item) if i.severity == "error"] == []
    view = summary_of(store.read("DeviceDefinition", model["id"]), model)  # type: ignore[arg-type]
    page = Pages(store, None)
    assert view.status == "unknown" and view.findings == (f"{identifier}: {finding}",)
    for path in (f"models/{model['id']}", f"models/{model['id']}/history", f"models/{model['id']}/verify", ""):
        _, shown = page.answer(Request("GET", path, "lang=en", {}, b"", "http://127.0.0.1/fhir"))
        assert b"In doubt" in shown.body, path
    outcome = json.loads(verify(store, model["id"], None).body)
    assert "recertification of this model version failed" in outcome["issue"][1]["details"]["text"]
    with pytest.raises(UsageError, match="failed its recertification"):
        register(store, read_facts(released.folder))
    passed = report(Recertified(PARTITION, PASSED, "as recorded", digest))
    assert reflect(home, passed) == []  # a person has to close the record first
    words = ["nonconformity", "close", identifier, "--person", "Quentin", "--reason", "the compiler was replaced"]
    assert main(words) == 0
    (said,) = reflect(home, passed)
    assert "active again" in said and statuses(home) == ["active", "active"]
    assert reflect(home, passed) == []
    (document,) = store.search(read_query("DocumentReference", [("type", "nonconformity")])).matches
    assert read_json(document.body)["status"] == "superseded"  # type: ignore[index, call-overload]
    assert register(store, read_facts(released.folder)).changed == 0
    store.close()
    cuvil("registry", "withdraw", "tiny|1.0.0", "--reason", "recalled")
    assert reflect(home, failed) == [] and statuses(home) == ["retired", "retired"]  # a withdrawal stays
    assert reflect(home, report(Recertified(PARTITION, FAILED, "the signed proof does not hold"))) == []
    unknown = report(Recertified(PARTITION, PASSED, "as recorded", "0" * 128))
    assert reflect(home, unknown) == []
    capsys.readouterr()


@pytest.mark.slow
def test_by_the_command_with_a_compiler_that_changes_a_byte(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "plant" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    script = package / "zig"
    script.write_text(
        f"#!{sys.executable} -IS\n"
        "import subprocess, sys\n"
        f"code = subprocess.call([{str(zig_executable())!r}, *sys.argv[1:]])\n"
        "if code == 0 and sys.argv[-2:] == ['-o', 'engine']:\n"
        "    with open('engine', 'ab') as stream:\n"
        "        stream.write(b'x')\n"
        "sys.exit(code)\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path / "plant"))
        assert main(["recertify", "--kept-cache", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert len(said["registry"]) == 1 and statuses(home) == ["unknown", "unknown"]
    (record,) = listed(home)
    assert main(["nonconformity", "close", record.id, "--person", "Quentin", "--reason", "replaced"]) == 0
    capsys.readouterr()
    assert main(["recertify", "--kept-cache", "--json"]) == 0
    assert "active again" in json.loads(capsys.readouterr().out)["registry"][0]
    assert statuses(home) == ["active", "active"]
