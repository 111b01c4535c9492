"""Probes of a real engine: what the ring holds, what it loses, and that the answers are the same without it."""

from __future__ import annotations

import ctypes
import json
import struct
from pathlib import Path

import clinical_case as case
import numpy as np
import pytest

from compiler_kernels.compile import build_frozen, freeze_model
from compiler_kernels.engine import Engine
from compiler_kernels.errors import VerificationFailed
from compiler_kernels.policy import load_policy
from compiler_kernels.policy.logic import resolve, tensors_of
from compiler_kernels.targets.c.probes import probes_of
from compiler_kernels.targets.registry import resolve_target
from evidence.coverage.execute import encode_vectors, execute
from evidence.coverage.finder import Finder
from evidence.coverage.grids import policy_bounds
from evidence.coverage.mcdc import Record
from evidence.coverage.ring import empty_ring, read_ring

HEAD_BYTES = 320


@pytest.fixture(scope="module")
def finder() -> Finder:
    policy = load_policy(case.POLICY, "policy.yaml")
    module = freeze_model(case.model_bytes(), None, policy).module
    found = Finder(resolve(policy, *tensors_of(module)), policy_bounds(policy))
    found.search()
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> case.Program:
    """The engine of the case without probes."""
    text = case.POLICY.replace("coverage: {}\n", "")
    frozen = freeze_model(case.model_bytes(), None, load_policy(text, "policy.yaml"))
    path = tmp_path_factory.mktemp("plain") / "engine"
    path.write_bytes(build_frozen(frozen, resolve_target("x86_64-linux-musl"), "bin"))
    path.chmod(0o755)
    return case.Program(path)


def test_the_engine_records_what_the_search_believes(program: case.Program, finder: Finder) -> None:
    numbers = {probe.id: probe.number for probe in probes_of(finder.logic)}
    encoded = encode_vectors(finder.logic.tensors, finder.found.vectors)
    done = execute(program.path.read_bytes(), program.prefix, encoded, 20 * len(finder.found.vectors))
    assert done.dropped == 0 and len(done.answers) == len(finder.found.vectors) > 30
    kinds = set()
    for vector, answer, records in zip(finder.found.vectors, done.answers, done.records, strict=True):
        believed = finder.evaluator.decide(vector.world, vector.flags)
        failure = believed.failure.partition(":")[0] if believed.failure else None
        assert (answer["failure"] or {}).get("kind") == failure, vector.purpose
        decided = [(n, r) for n, r in records if r.evaluated]
        assert decided == [(numbers[name], record) for name, record in believed.records], vector.purpose
        kinds.add(failure)
    assert kinds == {None, "input_guard", "output_guard", "safety_guard", "not_a_number", "refusal", "lockstep"}


def test_probes_change_no_bit(program: case.Program, plain: case.Program, finder: Finder, tmp_path: Path) -> None:
    for name, inputs in case.CASES.items():
        folders = [tmp_path / f"{name}-{side}".replace(":", "-") for side in ("with", "without")]
        answers = []
        for folder, engine in zip(folders, (program, plain), strict=True):
            folder.mkdir()
            done = engine.infer(folder, inputs, "--json")
            shown = json.loads(done.stdout)
            shown.get("answer", {}).pop("config_digest", None)
            files = {p.name: p.read_bytes() for p in (folder / "out").glob("*.npy")} if done.returncode == 0 else {}
            answers.append((done.returncode, shown, files))
        assert answers[0] == answers[1]
    path = tmp_path / "vectors"
    path.write_bytes(encode_vectors(finder.logic.tensors, finder.found.vectors))
    lines = [engine.run("--decide", "--vectors", path, "--json").stdout.splitlines() for engine in (program, plain)]
    parsed = [[{**json.loads(line), "config_digest": ""} for line in side] for side in lines]
    assert parsed[0] == parsed[1] and len(parsed[0]) == len(finder.found.vectors)


def test_inferences_follow_each_other_in_one_file(program: case.Program, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    for name in ("decided", "safety_guard"):
        assert program.infer(tmp_path, case.CASES[name], "--coverage", ring).returncode == 0
    found = read_ring(ring.read_bytes())
    assert found.dropped == 0 and [n for n, _ in found.records].count(0) == 2
    assert len(found.config_digest) == 128
    assert ring.stat().st_mode & 0o777 == 0o600


def test_a_full_ring_counts_what_it_loses(program: case.Program, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    ring.write_bytes(empty_ring(3))
    done = program.infer(tmp_path, case.CASES["decided"], "--coverage", ring)
    assert done.returncode == 0 and "status: decided" in done.stdout
    found = read_ring(ring.read_bytes())
    whole = tmp_path / "whole"
    program.infer(tmp_path, case.CASES["decided"], "--coverage", whole)
    everything = read_ring(whole.read_bytes()).records
    assert found.records == everything[:4] and found.dropped == len(everything) - 4
    # a host that has read moves the tail on, and there is room again
    data = bytearray(ring.read_bytes())
    struct.pack_into("<Q", data, 256, 4)
    ring.write_bytes(data)
    program.infer(tmp_path, case.CASES["decided"], "--coverage", ring)
    assert read_ring(ring.read_bytes()).records == everything[:4]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:-1], "is truncated"),
        (lambda data: data[:100], "is truncated"),
        (lambda data: b"x" + data[1:], "is no ring"),
        (lambda data: data[:8] + struct.pack("<Q", 3) + data[16:], "no power of two"),
        (lambda data: data[:8] + struct.pack("<Q", 2**63) + data[16:], "no power of two"),
        (lambda data: data[:24] + b"ab" + data[26:], "belongs to another engine"),
        (lambda data: data[:192] + struct.pack("<Q", 99) + data[200:], "is damaged"),
    ],
)
def test_a_file_that_is_no_ring_is_refused(program: case.Program, tmp_path: Path, damage: object, words: str) -> None:
    ring = tmp_path / "ring"
    ring.write_bytes(damage(empty_ring(4)))  # type: ignore[operator]
    before = ring.read_bytes()
    done = program.infer(tmp_path, case.CASES["decided"], "--coverage", ring)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists() and ring.read_bytes() == before


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: b"x" + d[1:], lambda d: d[:192] + b"\xff" * 8 + d[200:]]
)
def test_a_damaged_ring_is_not_read(damage: object) -> None:
    with pytest.raises(VerificationFailed, match="coverage file"):
        read_ring(damage(empty_ring(4)))  # type: ignore[operator]


def test_coverage_where_there_is_none(program: case.Program, plain: case.Program, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    done = plain.infer(tmp_path, case.CASES["decided"], "--coverage", ring)
    assert done.returncode == 2 and "has no probes" in done.stderr and not ring.exists()
    for words in (["--version"], ["--bench", "1"], ["--self-test"]):
        done = program.run(*words, "--coverage", ring)
        assert done.returncode == 2 and "leave out --coverage" in done.stderr and not ring.exists()
    for path in (tmp_path, tmp_path / "none" / "ring", "/dev/null"):
        done = program.infer(tmp_path, case.CASES["decided"], "--coverage", path)
        assert done.returncode == 2 and "coverage file" in done.stderr


def test_a_library_keeps_its_own_ring_and_forgets_it(engine: Engine) -> None:
    logic = engine._raw.clinical[0]
    engine.decide(case.CASES["decided"])
    ring = ctypes.cast(logic.ring, ctypes.POINTER(ctypes.c_void_p))[0]
    assert ring is not None
    size = HEAD_BYTES + 16 * 1024
    held = read_ring(ctypes.string_at(ring, size))
    assert (held.records[0][0], held.records[0][1].outcome) == (0, True)
    assert any(record != Record(0, 0, True) for _, record in held.records)
    logic.erase()  # what cuvil_erase calls
    assert not np.frombuffer(ctypes.string_at(ring + HEAD_BYTES, size - HEAD_BYTES), np.uint8).any()
    assert read_ring(ctypes.string_at(ring, size)).records == []
