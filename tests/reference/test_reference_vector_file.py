"""The committed vector file and its command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from evidence.reference import ReferenceError
from evidence.reference.vector_model import generate
from evidence.reference.vectors import cases, first_difference, load_vectors, main

FILE = Path(__file__).parents[2] / "docs" / "vectors" / "ca1.json"


def test_every_committed_vector_is_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", str(FILE)]) == 0
    assert "all reproduced" in capsys.readouterr().out


def test_file_is_complete_and_small() -> None:
    assert FILE.stat().st_size < 2_000_000
    assert {v.name for v in load_vectors(FILE)} == {case.name for case in cases()}


def test_sums_are_told_from_other_orders() -> None:
    """The distinctions the file exists for: each is held by several vectors of each kind of sum."""
    vectors = load_vectors(FILE)
    for op, order, least in (
        ("Conv", "single-chain", 15), ("Conv", "bias-first", 25), ("Conv", "leaf-8", 20), ("Conv", "leaf+8", 15),
        ("Conv", "no-tree", 4), ("Conv", "channel-outermost", 15), ("Gemm", "no-tree", 4), ("Gemm", "leaf+8", 8),
        ("ConvTranspose", "leaf-8", 5), ("GlobalAveragePool", "other-rule", 4), ("GlobalAveragePool", "no-tree", 2),
        ("ReduceMean", "other-rule", 6), ("ReduceSum", "single-chain", 2), ("LayerNormalization", "other-rule", 5),
        ("Softmax", "other-rule", 8),
    ):  # fmt: skip
        held = sum(1 for v in vectors if v.op_type == op and order in v.distinguishes)
        assert held >= least, (op, order, held)


def test_generator_is_the_lcg_of_the_text() -> None:
    state, expected = 12345, []
    for _ in range(20):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        expected.append(((state >> 40) - 2**23) * 2.0**-23 * 2.0 ** (((state >> 32) & 31) - 16) * 2.0**-3)
    assert generate(12345, 20, "wide", -3).tobytes() == np.array(expected, dtype=np.float32).tobytes()


def tampered(path: Path, name: str) -> Path:
    document = json.loads(FILE.read_text(encoding="utf-8"))
    record = next(r for r in document["vectors"] if r["name"] == name)
    last = record["expected"]["words"][-1]
    record["expected"]["words"] = record["expected"]["words"][:-1] + ("0" if last != "0" else "1")
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_check_names_the_first_vector_that_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tampered(tmp_path / "v.json", "gemm_k600")
    assert main(["--check", str(path)]) == 1
    assert "gemm_k600" in capsys.readouterr().err


def test_write_refuses_to_change_a_vector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tampered(tmp_path / "v.json", "softmax_100")
    before = path.read_bytes()
    assert main(["--write", str(path)]) == 1
    assert "softmax_100" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_write_appends_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    shutil.copyfile(FILE, path)
    document = json.loads(path.read_text(encoding="utf-8"))
    removed = document["vectors"].pop(3)
    path.write_text(json.dumps(document), encoding="utf-8")
    assert main(["--write", str(path)]) == 0
    after = json.loads(path.read_text(encoding="utf-8"))["vectors"]
    assert after == [*document["vectors"], removed]


@pytest.mark.parametrize("text", ["{", '{"format": "other"}', '{"format": "cuvil-vectors/1"}', "[]"])
def test_unreadable_files_give_one_sentence(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    assert main(["--check", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(ReferenceError):
        load_vectors(tmp_path / "absent.json")


def test_unwritable_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write", str(tmp_path / "no" / "such" / "folder.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_first_difference_of_nothing_is_none() -> None:
    assert first_difference([]) is None
