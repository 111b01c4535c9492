"""proof.html in a headless browser: its verdict on good and tampered folders, both languages."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import needs_browser, open_browser

from compiler_kernels.stage import Artifact, StageResult
from evidence.build_proof import build_proof
from evidence.keys import KeySet, init_keys
from evidence.page import SCRIPTS, proof_page
from evidence.verifier import dsse

ENGINE = Artifact("inference-engine.bin", bytes(range(256)) * 300)
STAGES = (
    "source_model",
    "ir_l0",
    "frozen_graph",
    "ir_l1",
    "ir_l2",
    "generated_source",
    "engine",
    "budget",
    "equivalence",
)


def results() -> list[StageResult]:
    """Nine stages whose artefacts feed each other; the page shows and chains them, whatever they hold."""
    made: list[StageResult] = []
    previous = {"model.onnx": hashlib.sha3_512(b"model").hexdigest()}
    for stage in STAGES:
        principal = ENGINE if stage == "engine" else Artifact(f"{stage}.txt", stage.encode() * 40)
        more = (Artifact("policy.json", b"{}"),) if stage == "source_model" else ()
        facts: dict[str, Any] = {"verdict": "passed", "grade": "executed natively"} if stage == "equivalence" else {}
        made.append(StageResult(stage, "1", dict(previous), {"note": "测试 <b>"}, (principal, *more), facts))
        previous = {f"{stage}/{principal.name}": principal.sha3_512}
    return made


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeySet:
    return init_keys(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def proof(keys: KeySet) -> bytes:
    arguments: dict[str, Any] = {"engine_name": ENGINE.name, "model_version": "1.0.0", "target": "x86_64-linux-musl"}
    return build_proof(results(), keys.signers, environment={}, **arguments).principal.data


@pytest.fixture
def folder(tmp_path: Path, proof: bytes) -> Path:
    found = tmp_path / "delivery"
    found.mkdir()
    (found / ENGINE.name).write_bytes(ENGINE.data)
    (found / "inference-engine.proof.json").write_bytes(proof)
    (found / "proof.html").write_bytes(proof_page(proof))
    return found


@pytest.fixture
def release(folder: Path, keys: KeySet) -> Path:
    """The folder with a release statement over every file in it."""
    subjects = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        digests = {n: hashlib.new(n.replace("_", "-"), data).hexdigest() for n in ("sha256", "sm3")}
        subjects.append({"name": path.name, "digest": {**digests, "sha3_512": hashlib.sha3_512(data).hexdigest()}})
    statement = {"_type": "https://in-toto.io/Statement/v1", "predicate": {"created": "2026-12-01T00:00:00Z"},
                 "predicateType": "https://cuvil.dev/release/v1", "subject": subjects}  # fmt: skip
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    (folder / "inference-engine.release.json").write_bytes(dsse.sign(payload, keys.signers).encode())
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from open_browser()


def judge(browser: Any, page: Path, folder: Path, root: Path) -> tuple[str, str]:
    """The page's verdict and what failed."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(page.as_uri())
    browser.find_element("id", "root").send_keys(str(root))
    browser.find_element("id", "folder").send_keys(str(folder))
    body = browser.find_element("tag name", "body")
    WebDriverWait(browser, 120).until(lambda _: body.get_attribute("data-verdict"))
    return body.get_attribute("data-verdict"), body.get_attribute("data-failed")


@pytest.fixture
def page(tmp_path: Path, proof: bytes) -> Path:
    """A copy of the page from elsewhere: what an auditor would open."""
    found = tmp_path / "page.html"
    found.write_bytes(proof_page(proof))
    return found


@needs_browser
def test_a_good_build_and_a_good_release_hold(browser: Any, page: Path, release: Path, keys: KeySet) -> None:
    root = keys.folder / "trust-root.json"
    assert judge(browser, page, release, root) == ("good", "")
    (release / "inference-engine.release.json").unlink()
    assert judge(browser, page, release, root) == ("good", "")
    assert "the folder holds" in browser.find_element("id", "verdict").text.lower()
    browser.find_element("id", "language").click()
    assert "验证通过" in browser.find_element("id", "verdict").text
    assert len(browser.find_elements("css selector", "#chain rect.good")) == len(STAGES)
    assert "sm2" in browser.find_element("id", "verdict").text.lower()


def flip(name: str, position: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[position] ^= 1
        (folder / name).write_bytes(bytes(data))

    return change


def spaces(folder: Path) -> None:
    path = folder / "inference-engine.release.json"
    path.write_bytes(path.read_bytes().replace(b'": "', b'":  "', 1))


def extra(folder: Path) -> None:
    (folder / "more.txt").write_text("not listed")


def other_proof(folder: Path) -> None:
    text = (folder / "inference-engine.proof.json").read_text()
    (folder / "inference-engine.proof.json").write_text(text.replace('"sig": "MEU', '"sig": "MEQ').replace("A", "B", 1))


@needs_browser
@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (flip("inference-engine.bin", 5), "file:inference-engine.bin"),
        (flip("proof.html", -1), "file:proof.html"),
        (lambda folder: (folder / "proof.html").unlink(), "file:proof.html"),
        (extra, "extra-file:more.txt"),
        (spaces, "envelope"),
        (flip("inference-engine.release.json", 40), ""),
        (other_proof, "inference-engine.proof.json"),
    ],
    ids=["engine", "page", "missing", "extra", "spaces", "payload", "proof"],
)
def test_tampered_folders_do_not_hold(
    browser: Any, page: Path, release: Path, keys: KeySet, change: Callable[[Path], None], failed: str
) -> None:
    change(release)
    verdict, why = judge(browser, page, release, keys.folder / "trust-root.json")
    assert verdict == "bad" and failed in why


@needs_browser
def test_keys_of_someone_else_are_not_trusted(browser: Any, page: Path, release: Path, tmp_path: Path) -> None:
    others = init_keys(tmp_path / "others")
    verdict, why = judge(browser, page, release, others.folder / "trust-root.json")
    assert verdict == "bad" and "signature-sm2-sm3" in why and "signature-ecdsa-p384-sha384" in why


def test_the_page_is_one_deterministic_file_that_loads_nothing(proof: bytes) -> None:
    page = proof_page(proof)
    assert page == proof_page(proof)
    text = page.decode()
    assert "src=" not in text.replace("script-src", "").replace("img-src", "") and "http-equiv" in text
    assert "fetch(" not in text and "XMLHttpRequest" not in text and "@import" not in text
    assert text.count("</script>") == 3, "nothing embedded ends its element"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_hashes_in_script_are_those_of_hashlib(tmp_path: Path) -> None:
    source = "".join(
        (Path(__file__).resolve().parents[2] / "evidence" / "page" / name).read_text().replace('"use strict";', "")
        for name in SCRIPTS[:2]
    )
    sizes = (0, 1, 55, 56, 63, 64, 71, 72, 73, 143, 144, 1000)
    script = tmp_path / "hashes.js"
    script.write_text(
        f"{source}\nfor (const n of {list(sizes)}) {{ const d = new Uint8Array(n).fill(7);"
        "console.log(Hashes.hex(Hashes.sha3_512(d)), Hashes.hex(Hashes.sm3(d))); }"
    )
    done = subprocess.run(["node", str(script)], capture_output=True, text=True, check=True)
    for size, line in zip(sizes, done.stdout.splitlines(), strict=True):
        data = bytes([7]) * size
        assert line.split() == [hashlib.sha3_512(data).hexdigest(), hashlib.new("sm3", data).hexdigest()]
