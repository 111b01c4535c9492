"""Guards, decisions and fallbacks of a compiled policy: every failure, in the program and in the library."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import clinical_case as case
import numpy as np
import pytest

from compiler_kernels.answer import read_answer
from compiler_kernels.engine import Engine
from compiler_kernels.errors import RefusedError

DECISIONS = {
    "decided": {"bright": True, "dark": False, "review": True},
    "output_guard": {"bright": False, "dark": False, "review": True},
    "safety_guard": {"bright": False, "dark": True, "review": True},
    "safety_guard:plausible": {"bright": True, "dark": False, "review": True},
    "refusal": {"bright": False, "dark": False, "review": True},
}
MESSAGES = {"output_guard": "Outputs.", "safety_guard": "Blank.", "safety_guard:plausible": "Look at it."}


def test_an_inference_that_decides_writes_outputs_and_answer(program: case.Program, tmp_path: Path) -> None:
    done = program.infer(tmp_path, case.CASES["decided"], "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    written = json.loads((tmp_path / "out" / "decisions.json").read_text())
    assert shown["answer"] == written
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"decisions.json", "mask.npy", "logarithm.npy"}
    assert written["format"] == "cuvil-answer/1" and written["source"] == "inference"
    assert written["status"] == "decided" and written["failure"] is None and written["message"] == ""
    assert written["decisions"] == DECISIONS["decided"]
    assert written["guards"] == {"not_blank": True, "plausible": True}
    assert written["quantities"]["brightest"] == {"value": 1.5, "bits": "0x3ff8000000000000"}
    assert written["quantities"]["lesion"]["value"] == 1
    assert [o["sha3_512"] for o in written["outputs"]] == [o["sha3_512"] for o in shown["outputs"]]


@pytest.mark.parametrize("name", [n for n in case.CASES if n in DECISIONS and n != "decided"])
def test_a_fallback_that_answers(program: case.Program, tmp_path: Path, name: str) -> None:
    done = program.infer(tmp_path, case.CASES[name])
    assert done.returncode == 0, done.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["decisions.json"]
    answer = json.loads((tmp_path / "out" / "decisions.json").read_text())
    kind, _, guard = name.partition(":")
    assert answer["status"] == "fallback" and answer["outputs"] == []
    assert answer["failure"]["kind"] == kind and answer["message"] == MESSAGES.get(name, "")
    assert answer["failure"]["guard"] == (guard or "not_blank" if kind == "safety_guard" else None)
    assert answer["decisions"] == DECISIONS[name]
    assert done.stdout.startswith("status: fallback\n") and "review: yes" in done.stdout


@pytest.mark.parametrize("name", ["input_guard", "not_a_number"])
def test_a_fallback_that_refuses(program: case.Program, tmp_path: Path, name: str) -> None:
    done = program.infer(tmp_path, case.CASES[name], "--json")
    assert done.returncode == 3
    error = json.loads(done.stdout)
    assert error["failure"] == name and error["guard"] is None and error["exit"] == 3
    assert error.get("check") == ("guard" if name == "input_guard" else None)
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


def test_guards_over_inputs_come_before_the_inference(program: case.Program, tmp_path: Path) -> None:
    """A blank image with a shape the engine refuses: the safety guard answers, the refusal is never met."""
    both = {"image": case.image(), "steer": case.CASES["refusal"]["steer"]}
    assert program.infer(tmp_path, both).returncode == 0
    answer = json.loads((tmp_path / "out" / "decisions.json").read_text())
    assert answer["failure"]["guard"] == "not_blank" and answer["quantities"] == {}


def test_network_only_leaves_the_logic_out(program: case.Program, tmp_path: Path) -> None:
    done = program.infer(tmp_path, case.CASES["safety_guard"], "--network-only", "--json")
    assert done.returncode == 0 and "answer" not in json.loads(done.stdout)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"mask.npy", "logarithm.npy"}
    assert program.infer(tmp_path, case.CASES["output_guard"], "--network-only").returncode == 0
    assert program.infer(tmp_path, case.CASES["refusal"], "--network-only").returncode == 3


@pytest.mark.parametrize("name", case.CASES)
def test_the_library_answers_like_the_program(engine: Engine, program: case.Program, tmp_path: Path, name: str) -> None:
    answer = engine.decide(case.CASES[name])
    done = json.loads(program.infer(tmp_path, case.CASES[name], "--json").stdout)
    if answer.status == "refused":
        assert answer.failure is not None and done["failure"] == answer.failure.kind
        assert not answer.decisions and not answer.outputs
        return
    expected = {key: done["answer"][key] for key in answer.to_json()}
    found = answer.to_json()
    if name in ("output_guard", "input_guard"):  # the sentence is that of the host
        found["failure"] = {**expected["failure"]}
    assert found == expected
    assert set(answer.outputs) == ({"mask", "logarithm"} if name == "decided" else set())


def test_run_gives_outputs_only_when_the_logic_decides(engine: Engine) -> None:
    np.testing.assert_array_equal(engine.run(case.CASES["decided"])["mask"].reshape(-1)[:2], [1.5, 0.0])
    with pytest.raises(RefusedError, match="not_blank does not hold"):
        engine.run(case.CASES["safety_guard"])
    assert engine.decide(case.CASES["decided"]).status == "decided"  # nothing of the refusal is left


def test_erasing_the_engine_forgets_the_answer(engine: Engine) -> None:
    assert engine.decide(case.CASES["decided"]).quantities["brightest"] == 1.5
    ctypes.CDLL(str(engine.path)).cuvil_erase()
    left = read_answer(engine._raw.clinical[0], {})
    assert left.status == "open" and not left.quantities and not left.decisions and not left.guards
    raw = engine._raw.clinical[0].answer[0]
    assert [raw.quantities[i] for i in range(engine._raw.clinical[0].quantity_count)] == [0.0] * 4


def test_deciding_on_given_tensors(program: case.Program, tmp_path: Path) -> None:
    inputs = case.CASES["decided"]
    mask = np.zeros((4, 4), np.float32)
    outputs = {"mask": mask, "logarithm": np.array([-1.0], np.float32)}
    answer = program.decide(tmp_path, inputs, outputs)["answer"]
    assert answer["source"] == "given" and answer["decisions"] == {"bright": False, "dark": False, "review": False}
    mask[3, 3] = np.nan
    assert program.decide(tmp_path, inputs, outputs)["answer"]["failure"]["kind"] == "output_guard"
    mask[3, 3] = 0.75
    outputs["logarithm"][0] = -np.inf
    assert program.decide(tmp_path, inputs, outputs)["failure"] == "not_a_number"
    missing = program.run("--decide", *case.given(tmp_path, "input", inputs))
    assert missing.returncode == 2 and "output 'mask' is missing: add --output" in missing.stderr


def test_deciding_on_many_vectors(program: case.Program, tmp_path: Path) -> None:
    steer, low = case.STEER, np.array([-1.0], np.float32)
    mask = np.full((4, 4), 0.125, np.float32)
    first = [case.image(0.75, 0.0), steer, mask, low]
    path = tmp_path / "vectors"
    path.write_bytes(case.vectors([first, first, first, [case.image(), *first[1:]]], [0, 1, 2, 0]))
    done = program.run("--decide", "--vectors", path)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["status"] for a in answers] == ["decided", "fallback", "refused", "fallback"]
    kinds = [(a["failure"] or {}).get("kind") for a in answers]
    assert kinds == [None, "refusal", "lockstep", "safety_guard"]
    assert answers[2]["decisions"] == {} and answers[0]["decisions"]["bright"] is False
    for damage in (path.read_bytes()[:-1], path.read_bytes() + b"x", b"CVEC2" + path.read_bytes()[5:]):
        path.write_bytes(damage)
        assert program.run("--decide", "--vectors", path).returncode == 2
