"""Mutations of valid models: accepted, or refused in one sentence; accepted ones compute what others compute."""

from __future__ import annotations

import os
import time
from collections import Counter

import numpy as np
import pytest
from fuzz_campaign import all_seeds, engines, imports
from fuzz_compare import compare, value_difference
from fuzz_import import attempt, fault
from fuzz_mutate import Mutant, mutant
from fuzz_seeds import real_models, small_networks
from fuzz_workers import MEMORY, Ended, run_all


def misbehave(task: str) -> object:
    """What a worker must survive; run in one."""
    if task == "hang":
        while True:
            pass
    if task == "sleep":
        time.sleep(60)
    if task == "die":
        os.kill(os.getpid(), 11)
    if task == "allocate":
        return len(bytearray(2 * MEMORY))
    return task.upper()


def test_workers_survive_what_they_run() -> None:
    tasks = ["one", "hang", "die", "sleep", "allocate", "two"]
    found = dict(run_all(misbehave, tasks, seconds=0.4))
    assert (found["one"], found["two"]) == ("ONE", "TWO")
    assert [found[t].kind for t in ("hang", "sleep", "die", "allocate")] == ["hang", "hang", "died", "raised"]
    assert isinstance(found["allocate"], Ended) and "MemoryError" in found["allocate"].text


def test_faults_of_sentences() -> None:
    assert fault("node 'a' (Add, domain ai.onnx, opset 17) lacks its input 1") == ""
    assert fault(" ") and fault("two\nlines") and fault("Traceback (most recent call last)")


def test_mutations_are_functions_of_their_number() -> None:
    seeds = small_networks()
    first = [mutant(n, seeds) for n in range(40)]
    assert [m.data for m in first] == [mutant(n, seeds).data for n in range(40)]
    assert sum(m.data != m.seed.data for m in first) > 30
    assert len({m.how for m in first}) > 15


def test_values_that_differ_are_found() -> None:
    ours = np.linspace(-1, 1, 50, dtype=np.float32)
    assert value_difference(ours, ours) == ("", 50)
    assert value_difference(ours, np.where(np.arange(50) == 7, np.float32(0.5), ours))[0]
    assert value_difference(ours, ours.astype(np.float64))[0] and value_difference(ours, ours[:49])[0]
    assert value_difference(ours, np.full(50, np.nan, np.float32)) == ("", 0)


def test_seeds_are_accepted() -> None:
    for seed in small_networks():
        assert attempt(Mutant(0, seed, "", seed.data)).kind == "accepted", seed.name


def test_some_mutations_and_engines() -> None:
    found = imports([*small_networks() * 2, *real_models()], range(150), campaign=3, workers=2)
    wrong = [(m.number, m.seed.name, m.how, v) for m, v in found if v.defect]
    assert not wrong
    kinds = Counter(v.kind for _, v in found)
    assert kinds["accepted"] >= 15 and kinds["refused"] >= 60
    compared = engines(found, 12, 2)
    assert [(c.mutant.number, c.kind, c.text) for c in compared if c.defect] == []
    assert sum(c.kind == "passed" for c in compared) >= 6


@pytest.mark.slow
def test_many_mutations_and_engines() -> None:
    """`make test-fuzz` is the whole campaign, of other numbers."""
    found = imports(all_seeds(), range(1500), campaign=1, workers=2)
    assert [(m.number, m.seed.name, m.how, v) for m, v in found if v.defect] == []
    compared = engines(found, 60, 2)
    assert [(c.mutant.number, c.kind, c.text) for c in compared if c.defect] == []


def test_a_wrong_engine_is_found() -> None:
    """The comparison sees an engine whose model is not the one onnxruntime is given."""
    seeds = small_networks()[:1]
    one = Mutant(1, seeds[0], "", seeds[0].data)
    (result,) = compare([one], workers=1)
    assert result.kind == "passed"
    from fuzz_compare import ask_peer, judge, prepare

    made = prepare(one)
    assert made.prepared is not None and not isinstance(made.prepared.reference, str)
    values = dict(made.prepared.reference)
    peer = ask_peer((one.data, made.feeds, {}))
    assert judge(made.prepared, values, peer)[0] == "passed"
    changed = {n: v + np.float32(0.01) for n, v in values.items()}
    assert judge(made.prepared, changed, peer)[0] == "other bits"
    assert not isinstance(peer, str)
    assert judge(made.prepared, values, {n: v + np.float32(0.01) for n, v in peer.items()})[0] == "other values"
