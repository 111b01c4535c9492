"""The bill of materials of a real engine: what it names, its form, its determinism."""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from packaging.requirements import Requirement
from sbom_case import Built

from compiler_kernels.errors import RefusedError
from compiler_kernels.stage import Artifact, sha3_512_hex
from compiler_kernels.toolchain.sources import RUNTIME_UNITS, SESSION_UNITS
from evidence.clauses.table import clause_table
from evidence.sbom import environment, toolchain
from evidence.sbom.check import problems, referential
from evidence.sbom.crypto import crypto_parts, crypto_properties
from evidence.sbom.linked import linked_parts
from evidence.sbom.make import make_sbom, sbom_name
from evidence.verifier.chain import read_chain
from evidence.verifier.digests import digest_bytes

pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib is not installed")


def components(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["bom-ref"]: item for item in found["components"]}


def hashes(item: dict[str, Any]) -> dict[str, str]:
    return {entry["alg"]: entry["content"] for entry in item["hashes"]}


def properties(item: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in item.get("properties", [])}


def test_two_builds_in_two_homes_have_the_same_bytes(engines: list[Built]) -> None:
    first, second = engines
    assert first.home != second.home
    assert first.bill.data == second.bill.data
    assert str(first.home).encode() not in first.bill.data


def test_the_form_is_sound_and_says_when_and_what(built: Built) -> None:
    found = built.bill.document
    assert problems(built.bill.data) == []
    assert built.bill.name == sbom_name("inference-engine.bin") == "inference-engine.cdx.json"
    assert found["metadata"]["timestamp"].startswith("2023-11-14T22:13:20")
    assert found["metadata"]["lifecycles"] == [{"phase": "build"}]
    assert found["metadata"]["manufacturer"] == {"name": "Example Medical"}
    root = found["metadata"]["component"]
    assert hashes(root)["SHA-256"] == hashlib.sha256(built.engine.read_bytes()).hexdigest()
    assert properties(root)["cuvil:sm3"] == digest_bytes(built.engine.read_bytes()).sm3


def test_names_musl_compiler_rt_kernels_and_model_with_hashes(built: Built, tiny_model: Callable[[], Any]) -> None:
    found = components(built.bill.document)
    for name in ("library:musl", "library:zig-libc", "library:compiler-rt"):
        item = found[name]
        assert {"SHA-256", "SHA3-512"} <= set(hashes(item)) and item["supplier"]["name"] and item["purl"]
        assert len(properties(item)["cuvil:sm3"]) == 64
        assert item["licenses"]
    assert found["library:musl"]["version"] == "1.2.5"
    assert "Permission is hereby granted" in found["library:musl"]["licenses"][0]["license"]["text"]["content"]
    assert found["library:compiler-rt"]["licenses"] == [{"expression": "MIT AND (Apache-2.0 WITH LLVM-exception)"}]
    objects = {ref for ref in found if ref.startswith("object:")}
    assert {"object:kernels_avx2.o", "object:kernels_avx512.o", "object:engine.c.o", "object:weights.S.o"} <= objects
    files = {ref.removeprefix("file:") for ref in found if ref.startswith("file:")}
    linked = {*RUNTIME_UNITS} - {*SESSION_UNITS}
    assert {*linked, "kernels.c", "engine.c", "weights.S", "engine_weights.bin", "cuvil_engine.h"} <= files
    model = tiny_model().read_bytes()
    assert found["model"]["type"] == "machine-learning-model"
    assert hashes(found["model"])["SHA-256"] == hashlib.sha256(model).hexdigest()


def test_digests_of_files_are_those_of_the_artefacts(built: Built) -> None:
    chain = read_chain(built.statement.chain, built.statement.head)
    generated = chain.record("generated_source")
    assert generated is not None
    found = components(built.bill.document)
    checked = 0
    for item in generated.artifacts:
        ref = f"file:{item.name}"
        if ref in found:
            assert hashes(found[ref]) == {"SHA-256": item.sha256, "SHA3-512": item.sha3_512}
            checked += 1
    assert checked == 4


def test_every_include_of_generated_source_names_clauses(built: Built) -> None:
    chain = read_chain(built.statement.chain, built.statement.head)
    generated = chain.record("generated_source")
    assert generated is not None
    known = set(clause_table().clauses)
    lines = []
    for name in ("engine.c", "kernels.c"):
        item = generated.artifact(name)
        assert item is not None
        text = (built.store.find(item.sha3_512) or b"").decode()
        lines += [line for line in text.splitlines() if line.lstrip().startswith("#include")]
    assert len(lines) > 20
    for line in lines:
        match = re.fullmatch(r'#include "[a-z0-9_]+\.h" /\* clauses: (.+) \*/', line)
        assert match is not None, line
        assert set(match[1].split("; ")) <= known


def test_digests_of_objects_are_of_bytes_of_the_engine(built: Built) -> None:
    """The weights lie in the engine as they are, so their object has the digest of the file."""
    found = components(built.bill.document)
    assert hashes(found["object:weights.S.o"]) == hashes(found["file:engine_weights.bin"])


def test_model_card_and_data_sets(built: Built) -> None:
    found = components(built.bill.document)
    card = found["model"]["modelCard"]
    assert card["modelParameters"]["task"] == "classification"
    assert card["modelParameters"]["inputs"] == [{"format": "image float32[1, 1, 8, 8]"}]
    assert card["modelParameters"]["outputs"] == [{"format": "prob float32[1, 2]"}]
    assert card["modelParameters"]["datasets"] == [{"ref": "dataset:0"}]
    assert card["considerations"]["useCases"] == ["Shows that a bill is complete."]
    assert hashes(found["dataset:0"]) == {"SHA-256": "ab" * 32}


def test_crypto_has_object_identifiers(built: Built) -> None:
    found = components(built.bill.document)
    oids = {ref: item["cryptoProperties"]["oid"] for ref, item in found.items() if ref.startswith("crypto:")}
    assert oids["crypto:sm2-sm3"] == "1.2.156.10197.1.501"
    assert oids["crypto:sm3"] == "1.2.156.10197.1.401"
    assert oids["crypto:ecdsa-p384-sha384"] == "1.2.840.10045.4.3.3"
    assert "crypto:ml-dsa-65" not in oids
    entry = next(e for e in built.bill.document["dependencies"] if e["ref"] == "file:cuvil_sha3.c")
    assert entry["provides"] == ["crypto:sha3-512"]


def test_a_further_signature_is_listed(built: Built) -> None:
    bill = make_sbom(built.statement, built.store.find, signatures=("ml-dsa-65",))
    assert components(bill.document)["crypto:ml-dsa-65"]["cryptoProperties"]["oid"] == "2.16.840.1.101.3.4.3.18"
    assert bill.document["serialNumber"] != built.bill.document["serialNumber"]


def test_the_digest_of_session_records_is_listed_where_they_are_kept() -> None:
    assert "crypto:shake256" not in {part.ref for part in crypto_parts()}
    assert "crypto:shake256" in {part.ref for part in crypto_parts(["shake256"])}
    assert crypto_properties("crypto:shake256")["oid"] == "2.16.840.1.101.3.4.2.12"


def test_licence_texts_are_named_by_digest(built: Built) -> None:
    for name, text in built.bill.licences.items():
        assert name == f"licences/{hashlib.sha256(text).hexdigest()}.txt"
    named = properties(components(built.bill.document)["library:musl"])["cuvil:licence-files"].split()
    assert len(named) == 1 and b"Rich Felker" in built.bill.licences[named[0]]


def test_the_compiler_is_recognised_by_its_wheel() -> None:
    wheel = toolchain.installed_zig().wheel
    assert wheel is not None and wheel.file.startswith("ziglang-0.17.1-") and len(wheel.sha256) == 64


def test_the_dependency_graph_is_that_of_the_installed_metadata(built: Built) -> None:
    """An own reading of Requires-Dist, without extras, for every distribution of the formulation."""
    found = built.bill.document
    edges = {entry["ref"]: set(entry.get("dependsOn", [])) for entry in found["dependencies"]}
    listed = {item["name"] for item in found["formulation"][0]["components"] if item["bom-ref"].startswith("pypi:")}
    assert {"cuvil", "ziglang", "numpy", "onnx", "cryptography"} <= listed
    installed = {environment.normal(d.metadata["Name"]) for d in importlib.metadata.distributions()}
    for name in listed - {"cuvil"}:
        plain = [Requirement(text) for text in importlib.metadata.requires(name) or []]
        needed = {
            environment.normal(r.name) for r in plain if r.marker is None or r.marker.evaluate({"extra": ""})
        } & installed
        assert {f"pypi:{n}" for n in needed} <= edges[f"pypi:{name}"], name


BREAKS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda d: d["components"].append(copy.deepcopy(d["components"][0])), "is given twice"),
    (lambda d: d["dependencies"][0].setdefault("dependsOn", []).append("nowhere"), "'nowhere' is referred to"),
    (lambda d: d["dependencies"].pop(), "has no entry"),
    (lambda d: d["components"].pop(0), "is referred to and does not exist"),
    (lambda d: next(e for e in d["dependencies"] if e["ref"] == "engine").pop("dependsOn"), "is reached from nothing"),
    (lambda d: d["compositions"][0]["dependencies"].append("gone"), "'gone' is referred to"),
    (lambda d: d["dependencies"].append(dict(d["dependencies"][0])), "two entries"),
]


@pytest.mark.parametrize(("change", "said"), BREAKS)
def test_broken_references_are_found(built: Built, change: Callable[[dict[str, Any]], Any], said: str) -> None:
    found = built.bill.document
    assert referential(found) == []
    change(found)
    assert any(said in problem for problem in referential(found))


def test_what_the_schema_refuses_is_found(built: Built) -> None:
    found = built.bill.document
    found["components"][0]["licenses"] = [{"license": {"id": "BSD"}}]
    assert "not valid CycloneDX 1.6" in problems(json.dumps(found).encode())[0]
    assert problems(b"no json") and problems(b"[]") == ["it is not a JSON object"]


def test_an_engine_without_list_or_with_other_bytes_is_refused(built: Built) -> None:
    chain = read_chain(built.statement.chain, built.statement.head)
    engine, generated = chain.record("engine"), chain.record("generated_source")
    assert engine is not None and generated is not None
    listed = engine.artifact("build.json")
    assert listed is not None
    sources = {item.name: built.store.find(item.sha3_512) or b"" for item in generated.artifacts}
    assert linked_parts(engine, built.store.find, sources)

    def with_report(**changes: Any) -> Callable[[str], bytes | None]:
        report = json.loads(built.store.find(listed.sha3_512) or b"")
        report.update(changes)
        data = Artifact("build.json", json.dumps(report).encode()).data
        return lambda digest: data if digest == listed.sha3_512 else built.store.find(digest)

    with pytest.raises(RefusedError, match="does not list what was linked"):
        linked_parts(engine, with_report(linked=None), sources)
    with pytest.raises(RefusedError, match=r"built with zig 0\.1, and zig .* is installed"):
        linked_parts(engine, with_report(compiler={"version": "0.1"}), sources)
    image = bytearray(built.store.find(engine.principal.sha3_512) or b"")
    report = json.loads(built.store.find(listed.sha3_512) or b"")
    start = next(e["ranges"][0][0] for e in report["linked"] if e["name"] == "vfprintf.o")
    image[start] ^= 1
    with pytest.raises(RefusedError, match=r"says vfprintf\.o is in the engine, but its bytes are others"):
        linked_parts(
            engine,
            lambda digest: bytes(image) if digest == engine.principal.sha3_512 else built.store.find(digest),
            sources,
        )
    with pytest.raises(RefusedError, match=r"kernels\.c differs from what the engine was built from"):
        linked_parts(engine, built.store.find, {**sources, "kernels.c": sources["kernels.c"] + b"\n"})
    with pytest.raises(RefusedError, match="store no longer holds the policy"):
        make_sbom(built.statement, lambda digest: None)
    assert sha3_512_hex(sources["kernels.c"]) == hashes(components(built.bill.document)["file:kernels.c"])["SHA3-512"]
