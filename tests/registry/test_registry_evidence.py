"""What the model page says of the evidence of a release that was really built, and of evidence somebody changed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from registry_client import Client
from registry_release import Released, cuvil

from evidence.bundle import bundle
from evidence.signing_keys import load_signing_keys
from evidence.verifier import dsse
from fhir_registry.mapping.facts import read_facts
from fhir_registry.pipeline import register
from fhir_registry.search.extract import index_rows
from fhir_registry.store.base import Write


@dataclass(frozen=True)
class Shown:
    """The page of a registered model over the application, and its store."""

    client: Client
    model: str

    def page(self) -> str:
        return self.client.raw("GET", f"{self.client.base.removesuffix('/fhir')}/models/{self.model}")[2].decode()

    def documents(self, kind: str) -> list[dict[str, Any]]:
        found = self.client.call("GET", f"DocumentReference?type={kind}")[2]
        return [entry["resource"] for entry in found["entry"]]

    def put(self, resource: dict[str, Any]) -> None:
        write = Write("PUT", resource["resourceType"], resource["id"], resource, tuple(index_rows(resource)))
        self.client.store.commit([write])

    def states(self) -> list[str]:
        text = self.page().partition('<svg class="narrow"')[0]
        return re.findall(r'class="step (\w+)"', text)

    def replace_bytes(self, kind: str, data: bytes) -> None:
        """Another content for the document, whose reference says it is that."""
        (document,) = self.documents(kind)
        identifier = document["content"][0]["attachment"]["url"].partition("/")[2]
        self.put({"resourceType": "Binary", "id": identifier, "contentType": "application/json",
                  "data": base64.b64encode(data).decode()})  # fmt: skip


@pytest.fixture
def shown(registry: Client, released: Released, monkeypatch: pytest.MonkeyPatch) -> Shown:
    monkeypatch.setenv("CUVIL_HOME", str(released.home))
    return Shown(registry, register(registry.store, read_facts(released.folder)).id)


def test_the_picture_holds_for_a_release_as_it_was_registered(shown: Shown) -> None:
    assert shown.states() == ["holds"] * 12
    assert "every record and link holds" in shown.page()


def test_a_proof_that_was_exchanged_or_lost_is_not_drawn_as_holding(shown: Shown, released: Released) -> None:
    proof = json.loads((released.folder / "inference-engine.proof.json").read_text())
    payload = base64.b64decode(proof["payload"]).replace(b'"CA-1"', b'"CA-2"')
    assert payload != base64.b64decode(proof["payload"])
    proof["payload"] = base64.b64encode(payload).decode()
    shown.replace_bytes("proof", json.dumps(proof).encode())
    assert shown.states() == ["unknown", "unknown", "holds"]
    assert "could not be recomputed" in shown.page()
    (document,) = shown.documents("proof")
    shown.put({**document, "content": [{"attachment": {"url": "Binary/none", "title": "x"}}]})
    assert shown.states() == ["unknown", "unknown", "holds"]


def test_a_chain_that_does_not_hold_is_drawn_so_whatever_the_release_says(shown: Shown, released: Released) -> None:
    """Somebody who can sign writes a proof with a record changed, and a release over it."""
    envelope = json.loads((released.folder / "inference-engine.proof.json").read_text())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["chain"][3]["record"]["code_version"] = "another"
    signers = load_signing_keys(released.home / "keys").signers
    proof = dsse.sign(rfc8785.dumps(statement), signers).encode()
    outer = json.loads((released.folder / "inference-engine.release.json").read_text())
    release = json.loads(base64.b64decode(outer["payload"]))
    release["predicate"]["proof"]["sha3_512"] = hashlib.sha3_512(proof).hexdigest()
    shown.replace_bytes("proof", proof)
    shown.replace_bytes("release", dsse.sign(rfc8785.dumps(release), signers).encode())
    states = shown.states()
    assert states[:10] == ["broken"] * 10 and states[10] != "holds" and states[11] == "broken"
    assert "record 3 (ir_l1) or one before it was changed" in shown.page()


def test_a_resource_that_names_another_release_is_not_this_ones_registration(shown: Shown) -> None:
    model = shown.client.call("GET", f"DeviceDefinition/{shown.model}")[2]
    shown.put({**model, "identifier": model["identifier"][:1]})
    assert shown.states() == ["holds"] * 11 + ["broken"]
    assert "the registered resource does not name this release" in shown.page()


def test_a_release_that_another_replaced_is_kept_and_raises_no_alarm(
    shown: Shown, released: Released, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    cuvil("release", released.folder.parent / "build" / "inference-engine.bin", "--output", again)
    register(shown.client.store, read_facts(again))
    page = shown.page()
    assert shown.states() == ["holds"] * 12
    assert "Earlier releases of this version (1)" in page and read_facts(released.folder).digest in page
    outcome = shown.client.call("GET", f"DeviceDefinition/{shown.model}/$verify")[2]
    assert outcome["issue"][0]["details"]["text"] == "all 27 checks of the release hold"


def test_verify_says_what_does_not_hold_and_what_cannot_be_read(
    shown: Shown, released: Released, tmp_path: Path
) -> None:
    root = shown.client.base.removesuffix("/fhir")
    address = f"{root}/models/{shown.model}/verify"
    assert "all 27 checks passed" in shown.client.raw("GET", address)[2].decode()
    assert "every check held" in shown.page()
    assert '<span class="label"><bdi>executed natively</bdi></span>' in shown.page()
    changed = tmp_path / "release"
    shutil.copytree(released.folder, changed)
    (changed / "inference-engine.policy.yaml").write_text("version: 2")
    shown.replace_bytes("bundle", bundle(changed))
    text = shown.client.raw("GET", address)[2].decode()
    assert "The release does not hold" in text and "inference-engine.policy.yaml" in text
    assert "it did not hold" in shown.page()
    shown.replace_bytes("bundle", b"no zip")
    text = shown.client.raw("GET", address)[2].decode()
    assert "cannot be verified here" in text and "/tmp" not in text


def test_a_server_without_trust_root_says_so_and_not_where_it_would_lie(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "empty"))
    text = shown.client.raw("GET", f"{shown.client.base.removesuffix('/fhir')}/models/{shown.model}/verify")[2].decode()
    assert "this server trusts nobody yet" in text and str(tmp_path) not in text
    status, _, outcome = shown.client.call("GET", f"DeviceDefinition/{shown.model}/$verify")
    assert status == 422 and str(tmp_path) not in json.dumps(outcome)
