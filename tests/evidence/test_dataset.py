"""Data sets: equal items are found whatever holds them, they block a release, and a waiver covers one finding."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from release_case import Built, build_at, checked, copy_of
from release_people import Organisation

from compiler_kernels.errors import RefusedError, UsageError
from cuvil_assets.cli import main
from evidence.dataset.compare import Check, compare
from evidence.dataset.items import Item, array_items, pixel_digest, plain_pixels
from evidence.dataset.manifest import Manifest, manifest_of, read_manifest
from evidence.dataset.sources import read_source
from evidence.keys import KeySet
from evidence.release import release
from evidence.signing_keys import SigningKeys, load_signing_keys
from evidence.verifier.dataset import check_dataset
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.trust import load_trust_root
from evidence.verifier.waiver import read_report, read_waiver, with_waiver
from evidence.waiver import waive

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "pneumoniamnist.npz"


def images(seed: int, count: int = 4) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 12, 10), dtype=np.uint8)


def source(text: str | Path, *only: str, numbers: bool = False) -> Manifest:
    return manifest_of(read_source(str(text), only, numbers, lambda done, total: None))


def arrays(**splits: Any) -> dict[str, Manifest]:
    return {name: manifest_of(list(array_items(array))) for name, array in splits.items()}


def png(array: Any, **options: Any) -> bytes:
    image = pytest.importorskip("PIL.Image")
    stream = io.BytesIO()
    image.fromarray(array).save(stream, "PNG", **options)
    return stream.getvalue()


def test_disjoint_splits_pass() -> None:
    found = compare(arrays(train=images(1), tune=images(2), test=images(3)))
    assert found.verdict == "passed"
    assert [(p.a, p.b, p.of_a) for p in found.pairs] == [
        ("train", "tune", 0),
        ("train", "test", 0),
        ("tune", "test", 0),
    ]


def test_the_order_of_splits_does_not_change_the_report() -> None:
    splits = arrays(other=images(4), test=images(3), tune=images(2), train=images(1))
    turned = dict(reversed(splits.items()))
    assert compare(splits).encode() == compare(turned).encode()
    assert [(p.a, p.b) for p in compare(splits).pairs][:2] == [("train", "tune"), ("train", "test")]


def test_shared_and_repeated_items_are_named() -> None:
    train, test = images(1), images(2)
    test[2] = train[0]
    train[3] = train[0]
    test[1] = test[0]
    found = compare(arrays(train=train, test=test))
    assert found.verdict == "failed"
    (group,) = found.overlaps
    assert group.places == (("test", "row 2"), ("train", "row 0"), ("train", "row 3"))
    (pair,) = found.pairs
    assert (pair.of_a, pair.of_b) == (2, 1)
    assert (found.repeated("train"), found.repeated("test")) == (1, 1)


def test_duplicates_block_where_the_policy_says_so() -> None:
    train = images(1)
    train[1] = train[0]
    splits = arrays(train=train, test=images(2))
    assert compare(splits).verdict == "passed"
    assert compare(splits, refuse_duplicates=True).verdict == "failed"


def test_pixels_are_the_same_in_any_file(tmp_path: Path) -> None:
    array = images(1, 1)[0]
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "one.png").write_bytes(png(array))
    (tmp_path / "b" / "other name.png").write_bytes(png(array, compress_level=0))
    (tmp_path / "c" / "colour.png").write_bytes(png(np.stack([array] * 3, axis=-1)))
    np.save(tmp_path / "d" / "array.npy", array[None])
    np.savez(tmp_path / "set.npz", images=array[None], labels=np.zeros((1, 1)))
    sources = [*(tmp_path / name for name in "abcd"), f"{tmp_path / 'set.npz'}:images"]
    manifests = [source(text) for text in sources]
    assert len({item.pixels for m in manifests for item in m.items}) == 1
    assert len({m.items[0].content for m in manifests[:4]}) == 4
    changed = array.copy()
    changed[3, 4] ^= 1
    (tmp_path / "a" / "one.png").write_bytes(png(changed))
    assert compare({"a": source(tmp_path / "a"), "b": manifests[1]}).verdict == "passed"


def test_dicom_files_are_compared_by_stored_values(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    from pydicom.data import get_testdata_file

    path = get_testdata_file("CT_small.dcm", download=False)
    data = pydicom.dcmread(path)
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    shutil.copy(path, tmp_path / "train" / "a.dcm")
    data.PatientName = "Somebody^Else"
    data.save_as(tmp_path / "test" / "b.dcm")
    found = compare({"train": source(tmp_path / "train"), "test": source(tmp_path / "test")})
    assert [group.kind for group in found.overlaps] == ["pixels"]


def test_other_files_are_compared_by_their_bytes(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text("same")
        (tmp_path / name / "picture.png").write_bytes(png(images(len(name), 1)[0]))
    found = compare({name: source(tmp_path / name) for name in ("train", "test")})
    assert [(g.kind, g.places) for g in found.overlaps] == [("content", (("test", "test.txt"), ("train", "train.txt")))]
    assert found.to_json()["splits"]["train"]["compared_by_pixels"] == 1  # type: ignore[index, call-overload]
    assert compare({name: source(tmp_path / name, "*.png") for name in ("train", "test")}).verdict == "passed"
    assert [i.id for i in source(tmp_path / "train", numbers=True).items] == ["item 0", "item 1"]


@given(st.sampled_from(["u1", "<u2", ">u2", "<i4", "<f4", ">f8"]), st.integers(0, 2**32))
def test_byte_order_and_layout_of_memory_do_not_count(dtype: str, seed: int) -> None:
    array = np.random.default_rng(seed).integers(0, 100, (3, 4)).astype(dtype)
    native = array.astype(array.dtype.newbyteorder("="))
    same = {pixel_digest(plain_pixels(a)) for a in (array, native, np.asfortranarray(array), array[None, ..., None])}
    assert len(same) == 1
    assert pixel_digest(plain_pixels(array.T)) not in same
    assert pixel_digest(plain_pixels(array.astype("<f2"))) not in same


def test_near_pairs_are_found_by_every_stretch_and_never_block() -> None:
    base = int("0123456789abcdef", 16)
    for bits in range(5):
        flipped = base
        for bit in range(bits):
            flipped ^= 1 << (bit * 13 + 5)
        splits = {
            "train": Manifest([Item("a", content="1" * 64, perceptual=f"{base:016x}")]),
            "test": Manifest([Item("b", content="2" * 64, perceptual=f"{flipped:016x}")]),
        }
        for distance in range(6):
            found = compare(splits, distance=distance)
            assert found.near_count == (1 if bits <= distance else 0)
            assert found.verdict == "passed"


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=8), st.lists(st.integers(0, 2**64 - 1), max_size=8), st.integers(0, 16)
)
def test_near_pairs_are_those_of_a_plain_search(one: list[int], other: list[int], distance: int) -> None:
    def split(name: str, values: list[int]) -> Manifest:
        digit = "1" if name == "a" else "2"
        items = [Item(str(i), f"{digit}{i}".ljust(64, "0"), "", f"{value:016x}") for i, value in enumerate(values)]
        return Manifest(items)

    splits = {"a": split("a", one), "b": split("b", other)}
    expected = sum(bool(x and y) and (x ^ y).bit_count() <= distance for x in one for y in other)
    assert compare(splits, distance=distance).near_count == expected


def test_a_picture_looks_like_itself_brightened() -> None:
    dark = images(1, 1) // 2
    found = compare(arrays(train=dark, test=dark + 40))
    assert found.near_count == 1 and found.verdict == "passed"


def test_manifests_replace_data(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", images(1))
    made = source(tmp_path / "a.npy")
    (tmp_path / "a.json").write_bytes(made.encode())
    assert read_manifest(tmp_path / "a.json") == made
    assert compare({"train": made, "test": source(tmp_path / "a.json")}).pairs[0].of_a == 4


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{}", "cuvil-dataset/1"),
        (b"not json", "no manifest"),
        (b'{"format":"cuvil-dataset/1","items":[{"id":"a"}]}', "neither"),
        (b'{"format":"cuvil-dataset/1","items":[{"content":"xyz","id":"a"}]}', "64 hex"),
        (b'{"format":"cuvil-dataset/1", "items":[]}', "one form"),
    ],
)
def test_damaged_manifests(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(UsageError, match=why):
        read_manifest(tmp_path / "m.json")


def test_sources_that_cannot_be_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", images=images(1), labels=np.zeros(4))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.npy").write_text("x")
    for text, why in [
        ("s.npz", "say which"), ("s.npz:labels", "axes"), ("s.npz:none", "no array"), ("gone.npz:x", "gone"),
        ("text.npy", "no folder"), ("empty", "no file"),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match=why):
            source(tmp_path / text)


def failed_check(seed: int = 1) -> Check:
    train, test = images(seed), images(9)
    test[0] = train[0]
    return compare(arrays(train=train, test=test))


def test_a_waiver_covers_one_finding(tmp_path: Path) -> None:
    org = Organisation(tmp_path)
    tess = org.person("Tess", "tester")
    root = load_trust_root(org.trust_root())
    found = failed_check()
    signed = waive(found.encode(), "Tess", "one image, tuning only", tess, environment={})
    assert read_waiver(signed, found.to_json(), root).signer == "the keyring says that the keys are Tess's"
    with pytest.raises(VerificationFailed, match="another finding"):
        read_waiver(signed, failed_check(2).to_json(), root)
    with pytest.raises(VerificationFailed, match="Tess's, not Dora's"):
        read_waiver(waive(found.encode(), "Dora", "x", tess, environment={}), found.to_json(), root)
    report = with_waiver(found.to_json(), signed)
    digests = {name: {"sha256": m.sha256} for name, m in found.manifests.items()}
    assert "Tess waived" in check_dataset(report, {"dataset": {"splits": digests}}, root)  # type: ignore[dict-item]
    with pytest.raises(VerificationFailed, match="other data"):
        check_dataset(report, {"dataset": {"splits": {**digests, "test": {"sha256": "0" * 64}}}}, root)  # type: ignore[dict-item]
    forged = json.loads(report)
    forged["overlaps"] = []
    with pytest.raises(VerificationFailed, match="another finding"):
        read_waiver(signed, forged, root)


def test_what_cannot_be_waived(key_home: Path, keys: KeySet) -> None:
    signing = load_signing_keys(key_home)
    passed = compare(arrays(train=images(1), test=images(2)))
    for report, person, reason, why in [
        (passed, "A", "x", "nothing to waive"),
        (failed_check(), " ", "x", "--person"),
        (failed_check(), "A", " ", "--reason"),
    ]:
        with pytest.raises(UsageError, match=why):
            waive(report.encode(), person, reason, signing, environment={})


def policy_for(found: Check, more: str = "") -> bytes:
    splits = ", ".join(f"{name}: {{sha256: {m.sha256}}}" for name, m in found.manifests.items())
    text = 'version: 1\nmodel: {name: cxr, version: "1.0.0"}\nrelease: {demand: [dataset]}\n'
    return f"{text}dataset: {{splits: {{{splits}}}{more}}}\n".encode()


def test_a_release_needs_disjoint_data_or_a_waiver(tmp_path: Path) -> None:
    org = Organisation(tmp_path)
    berta, tess = org.person("Berta", "builder"), org.person("Tess", "tester")
    trust, found = org.trust_root(), failed_check()
    built = build_at(tmp_path / "build", berta, policy_for(found))
    report = built.engine.with_name("inference-engine.dataset.json")

    def make(name: str) -> Path:
        place, policy = tmp_path / name, built.policy_json
        release(built.engine, place, policy, berta, policy_yaml=built.policy_yaml, trust_root=trust, home=tmp_path)
        return tmp_path / name

    with pytest.raises(RefusedError, match="dataset check --engine"):
        make("without")
    report.write_bytes(found.encode())
    with pytest.raises(RefusedError, match="failed"):
        make("failed")
    signed = waive(found.encode(), "Tess", "one image", tess, environment={})
    report.write_bytes(with_waiver(found.to_json(), signed))
    folder = make("waived")
    assert checked(folder, trust).ok
    other = waive(failed_check(2).encode(), "Tess", "one image", tess, environment={})
    report.write_bytes(with_waiver(found.to_json(), other))
    with pytest.raises(VerificationFailed):
        make("forged")
    assert not (tmp_path / "forged").exists()
    assert copy_of(folder, tmp_path / "copy").is_dir()


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, Any, str]:
    capsys.readouterr()
    code = main([str(word) for word in words] + ["--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def test_command(
    tmp_path: Path, key_home: Path, keys: KeySet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(key_home))
    train, test = images(1), images(2)
    np.savez(tmp_path / "s.npz", train=train, test=test)
    splits = [f"{name}={tmp_path / 's.npz'}:{name}" for name in ("train", "test")]
    assert run(capsys, "dataset", "check", *splits)[:2][0] == 0
    test[1] = train[2]
    np.savez(tmp_path / "s.npz", train=train, test=test)
    report, waiver = tmp_path / "r.json", tmp_path / "w.json"
    code, document, _ = run(capsys, "dataset", "check", *splits, "--output", report)
    assert (code, document["check"], document["verdict"]) == (1, "dataset-overlap", "failed")
    assert read_report(report.read_bytes())["overlaps"] == document["overlaps"]
    assert main(["dataset", "check", *splits]) == 1
    assert "train row 2" in capsys.readouterr().out
    assert run(capsys, "waive", report, "--person", "Ada", "--reason", "x", "--output", waiver)[0] == 0
    code, document, _ = run(capsys, "dataset", "check", *splits, "--waiver", waiver)
    assert (code, document["verdict"], document["waiver"]["person"]) == (0, "waived", "Ada")
    digests = []
    for text in splits:
        code, made, _ = run(capsys, "dataset", "manifest", text.partition("=")[2], "--output", tmp_path / "m.json")
        digests.append(made["sha256"])
    found = compare({n: source(t.partition("=")[2]) for n, t in zip(("train", "test"), splits, strict=True)})
    policy = tmp_path / "p.yaml"
    policy.write_bytes(policy_for(found))
    assert [m.sha256 for m in found.manifests.values()] == digests
    assert run(capsys, "dataset", "check", *splits, "--policy", policy)[0] == 1
    policy.write_bytes(policy_for(found).replace(digests[0].encode(), b"a" * 64))
    assert run(capsys, "dataset", "check", *splits, "--policy", policy)[1]["check"] == "dataset-digest"
    for words in ([splits[0]], [splits[0], splits[0]], ["train"], [*splits, "--waiver", str(report)]):
        assert run(capsys, "dataset", "check", *words)[0] == 2


def test_the_report_goes_beside_its_engine(
    tmp_path: Path, key_home: Path, keys: KeySet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(key_home))
    np.savez(tmp_path / "s.npz", train=images(1), test=images(2))
    splits = [f"{name}={tmp_path / 's.npz'}:{name}" for name in ("train", "test")]
    found = compare({n: source(t.partition("=")[2]) for n, t in zip(("train", "test"), splits, strict=True)})
    (tmp_path / "p.yaml").write_bytes(policy_for(found))
    built: Built = build_at(tmp_path / "build", SigningKeys(tuple(keys.signers)), policy_for(found))
    words = ["dataset", "check", *splits, "--engine", str(built.engine)]
    assert "--policy" in run(capsys, *words)[1]["message"]
    code, document, _ = run(capsys, *words, "--policy", tmp_path / "p.yaml")
    assert code == 0
    assert Path(document["report"]) == built.engine.with_name("inference-engine.dataset.json")
    (tmp_path / "p.yaml").write_bytes(policy_for(found, ", duplicates: refuse"))
    assert "not the policy" in run(capsys, *words, "--policy", tmp_path / "p.yaml")[1]["message"]


@pytest.mark.skipif(not SHARED.exists(), reason="the images of PneumoniaMNIST are not beside the repository")
def test_the_images_that_two_splits_of_a_public_set_share() -> None:
    """8 training images are also in the validation set; 18 and 3 are repeated within theirs."""
    splits = {n: source(f"{SHARED}:{f}_images") for n, f in (("train", "train"), ("tune", "val"), ("test", "test"))}
    found = compare(splits)
    assert [(p.of_a, p.of_b) for p in found.pairs] == [(10, 8), (0, 0), (0, 0)]
    assert [found.repeated(name) for name in splits] == [18, 0, 3]
    assert found.verdict == "failed"
