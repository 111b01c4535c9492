"""The budget gate through real builds: met, exceeded, and not executed."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import POLICY, ModelMaker

from compiler_kernels.errors import RefusedError
from compiler_kernels.targets.registry import TARGETS, runs_natively
from cuvil_assets import inputs as inputs_module
from cuvil_assets.builder import build
from cuvil_assets.inputs import BuildOptions
from evidence.timing.machine import processor

X86, ARM = "x86_64-linux-musl", "aarch64-linux-musl"
Make = Callable[..., BuildOptions]
native = pytest.mark.skipif(not runs_natively(TARGETS[X86]), reason="this machine runs no x86-64 engine itself")


@pytest.fixture(scope="module")
def shared_home(home_maker: Callable[[], Path]) -> Path:
    return home_maker()


@pytest.fixture
def make(shared_home: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: ModelMaker, tmp_path: Path) -> Make:
    """``make(budget, target, extra)``: options of a build whose policy has that section ``budget``."""
    monkeypatch.setenv("CUVIL_HOME", str(shared_home))

    def options(budget: str, target: str = X86, extra: str = "") -> BuildOptions:
        policy = tmp_path / "policy.yaml"
        policy.write_text(f"{POLICY}budget: {budget}\n{extra}")
        return BuildOptions(tiny_model(), policy, target, tmp_path / "out" / "e.bin", equivalence_inputs=2)

    return options


def refused(options: BuildOptions) -> str:
    """The sentence of a refused build, of which nothing is left."""
    with pytest.raises(RefusedError) as caught:
        build(options)
    assert caught.value.exit_code == 3
    assert not options.output.parent.exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_memory_within_the_budget_is_recorded_and_signed(make: Make) -> None:
    options = make("{memory_mb: 1}")
    outcome = build(options)
    budget = outcome.facts["budget"]
    assert isinstance(budget, dict)
    assert (budget["verdict"], budget["memory_limit_bytes"], budget["latency"]) == ("met", 1_000_000, None)
    assert budget["memory_bytes"] == outcome.facts["memory_bytes"]
    payload = json.loads(base64.b64decode(json.loads(outcome.proof.read_text())["payload"]))
    (record,) = [r["record"] for r in payload["predicate"]["chain"] if r["record"]["stage"] == "budget"]
    assert record["facts"]["verdict"] == "met"
    assert record["facts"]["memory_bytes"] == budget["memory_bytes"]
    assert record["config"]["budget_machine"] is None


def test_memory_over_the_budget_says_by_how_much_and_what_to_change(make: Make) -> None:
    outcome = build(make("{memory_mb: 1}"))
    needed = outcome.facts["memory_bytes"]
    assert isinstance(needed, int)
    for path in outcome.files.values():
        path.unlink()
    outcome.engine.parent.rmdir()
    text = refused(make(f"{{memory_mb: {(needed - 1) / 1e6}}}"))
    assert f"the engine needs {needed / 1e6:.3g} MB" in text
    assert "largest buffers: " in text and "conv" in text and "take a smaller input" in text
    assert build(make(f"{{memory_mb: {needed / 1e6}}}")).facts["memory_bytes"] == needed


def test_scratch_of_every_thread_counts(make: Make) -> None:
    one, four = (build(make(f"{{memory_mb: 9, threads: {n}}}")).facts["memory_bytes"] for n in (1, 4))
    assert isinstance(one, int) and isinstance(four, int)
    assert four > one and (four - one) % 3 == 0


@native
def test_latency_within_the_budget_is_measured_on_the_named_machine(make: Make) -> None:
    outcome = build(make("{latency_ms: 1000, threads: 2}"))
    budget = outcome.facts["budget"]
    assert isinstance(budget, dict) and isinstance(budget["latency"], dict)
    latency = budget["latency"]
    assert budget["verdict"] == "met" and budget["threads"] == 2
    assert latency["machine"] == processor() and latency["limit_ms"] == 1000
    assert 0 < latency["min_ms"] <= latency["median_ms"] <= 1000 and latency["runs"] >= 5
    again = build(make("{latency_ms: 1000, threads: 2}")).facts["budget"]
    assert again == budget  # the cache answers, with the measurement


@native
def test_latency_over_the_budget_names_layers_and_remedies(make: Make) -> None:
    text = refused(make("{latency_ms: 0.000001}", extra="numerics: {winograd: forbid}\n"))
    assert re.search(r"an inference takes [\d.e-]+ ms \(median of \d+, 1 thread\(s\), avx", text)
    assert processor() in text
    assert "slowest layers on one thread: " in text and re.search(r"(conv|gemm|pool|softmax)\S* [^,;]*ms", text)
    assert "set numerics.winograd: allow" in text and "or raise budget.latency_ms" in text


@native
def test_another_machine_than_the_named_one_is_not_executed(make: Make) -> None:
    text = refused(make("{latency_ms: 1000, machine: Alpha 21264}"))
    assert "not executed: it holds for 'Alpha 21264'" in text and processor() in text


@pytest.mark.skipif(runs_natively(TARGETS[ARM]), reason="this machine runs aarch64 engines itself")
def test_a_target_that_does_not_run_here_cannot_meet_a_latency(make: Make) -> None:
    text = refused(make("{latency_ms: 1000}", ARM))
    assert "not executed: this machine does not run aarch64-linux-musl engines itself" in text
    assert build(make("{memory_mb: 1}", ARM)).facts["budget"] != {}


@native
def test_a_measurement_of_another_processor_is_not_reused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    build(make("{latency_ms: 999}"))
    monkeypatch.setattr(inputs_module, "processor", lambda: "another one")
    stages = build(make("{latency_ms: 999}")).facts["stages"]
    assert isinstance(stages, dict)
    assert [name for name, item in stages.items() if isinstance(item, dict) and not item["cache_hit"]] == [
        "budget",
        "build_proof",
    ]


def test_no_budget_measures_nothing(shared_home: Path, make: Make, tiny_policy: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    outcome = build(replace(make("{memory_mb: 1}"), policy=tiny_policy))
    budget = outcome.facts["budget"]
    assert isinstance(budget, dict)
    assert (budget["verdict"], budget["latency"], budget["memory_limit_bytes"]) == ("no budget", None, None)


def test_the_second_engine_of_lockstep_counts(make: Make) -> None:
    single = build(make("{memory_mb: 9}")).facts["memory_bytes"]
    options = make("{memory_mb: 9}", extra="safety: {lockstep: true}\n")
    both = build(options).facts["memory_bytes"]
    assert isinstance(single, int) and isinstance(both, int) and 1.5 * single < both <= 2.1 * single
    program = subprocess.run([options.output, "--version", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(program.stdout)["lockstep"] is True
