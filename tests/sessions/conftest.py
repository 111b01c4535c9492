"""Engines whose policy has audit.sessions, built once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from session_case import Engine, Maker
from tiny_models import POLICY, tiny_model_bytes

from compiler_kernels import compile_model
from compiler_kernels.compile import native_target
from compiler_kernels.targets.registry import TARGETS, runner
from cuvil_assets.cli import main

CLINICAL = """\
quantities: {p: "prob[0, 1]", exposure: mean(image)}
decisions: {dark: exposure < 0.05, positive: p >= 0.5 and not dark}
safety: {guards: {not_blank: max(image) > min(image)}}
fallbacks: {safety_guard: {action: answer, decisions: {dark: true, positive: false}, message: refer}}
"""


@pytest.fixture(scope="session")
def maker(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """``maker(inputs, target)``: the small engine with this ``audit.sessions.inputs``, "" for no hook.

    ``clinical-keep`` has decisions, guards and a fallback too.
    """
    folder = tmp_path_factory.mktemp("session-engines")
    (folder / "tiny.onnx").write_bytes(tiny_model_bytes())
    made: dict[tuple[str, str], Engine] = {}

    def make(inputs: str = "digest", target: str = "") -> Engine:
        triple = target or native_target().triple
        prefix = runner(TARGETS[triple])
        if prefix is None:
            pytest.skip(f"{triple} cannot run here: install {TARGETS[triple].qemu_programs[0]}")
        if (inputs, triple) not in made:
            policy = folder / f"policy-{inputs}.yaml"
            kept = f"audit: {{sessions: {{inputs: {inputs.removeprefix('clinical-')}}}}}\n" if inputs else ""
            policy.write_text(POLICY + (CLINICAL if inputs.startswith("clinical") else "") + kept)
            path = folder / f"engine-{inputs}-{triple}.bin"
            compile_model(folder / "tiny.onnx", policy=policy, kind="bin", target=triple, output=path)
            made[inputs, triple] = Engine(path, tuple(prefix))
        return made[inputs, triple]

    return make


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """``cli(words...)`` to ``(exit code, standard output, standard error)``."""

    def call(*words: str | Path) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return call
