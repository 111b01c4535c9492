"""What the user brings to a build: files, options, and the checks that need no compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from compiler_kernels.doors import convert, is_door
from compiler_kernels.errors import UsageError
from compiler_kernels.policy import load_policy, merge_pins
from compiler_kernels.stage import Json
from compiler_kernels.stages.frontend import SOURCE_FILE
from compiler_kernels.targets.registry import Target, gpu_for, host_runs, resolve_target, runner
from cuvil_assets.home import Home
from cuvil_assets.request import BuildRequest
from cuvil_assets.store import ContentStore
from evidence.build_proof import EPOCH_VARIABLE, created_from
from evidence.peer import peer_version
from evidence.timing.machine import processor
from evidence.verifier.files import read_small

MODEL_LIMIT = 2 << 30
"""Largest model file in bytes: an ONNX file is one protocol-buffer message, which cannot be larger."""
POLICY_LIMIT = 4 << 20


@dataclass(frozen=True)
class BuildOptions:
    """Options of ``cuvil build``; ``input_shapes`` maps an input's name to its sizes."""

    model: Path
    policy: Path
    target: str
    output: Path
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    emit: tuple[str, ...] = ()
    equivalence_inputs: int | None = None
    use_cache: bool = True


def parse_input_shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """``NAME=1,1,28,28`` (as often as needed) to sizes by name; ``UsageError`` naming the text."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not equals or not name or not all(p.isascii() and p.isdigit() and 0 < int(p) < 2**31 for p in parts):
            raise UsageError(
                f"--input-shape {text!r} is not of the form NAME=1,1,28,28: a name and sizes of at least 1"
            )
        if name in shapes:
            raise UsageError(f"--input-shape gives {name!r} twice; give it once")
        shapes[name] = tuple(int(p) for p in parts)
    return shapes


def parse_emit(text: str) -> tuple[str, ...]:
    """``src,so,lib,memory`` to the kinds of extra output (``bin`` is always written); ``UsageError`` for others."""
    known = ("bin", "so", "lib", "src", "memory")
    kinds = [part.strip() for part in text.split(",") if part.strip()]
    for kind in kinds:
        if kind not in known:
            raise UsageError(f"--emit {kind!r} is not known; choose from {', '.join(known)}")
    return tuple(kind for kind in known if kind in kinds and kind != "bin")


def make_request(options: BuildOptions, home: Home) -> BuildRequest:
    """Read (or convert) and store model and policy, and put together the request.

    Raises ``UsageError`` (file missing, unreadable or too large, policy syntax, bad epoch, unwritable home) or
    ``UnsupportedError`` (no such target).
    """
    target = resolve_target(options.target)
    if options.equivalence_inputs is not None and not 1 <= options.equivalence_inputs <= 4096:
        raise UsageError(f"--equivalence-inputs {options.equivalence_inputs} is not between 1 and 4096")
    converted = None
    if not is_door(str(options.model)):
        model = read_file(options.model, "model", "give an ONNX file", MODEL_LIMIT)
    policy_text = read_file(options.policy, "policy", "give a policy file (docs/policy.md)", POLICY_LIMIT)
    policy = load_policy(policy_text, str(options.policy))
    if is_door(str(options.model)):
        converted = convert(str(options.model), merge_pins(policy, options.input_shapes))
        model = converted.model
    model_version = f"{policy.model.name}-{policy.model.version}"
    if "..." in model_version:
        raise UsageError(f"{options.policy}: model.name and model.version together hold '...'; use fewer dots")
    created_from(os.environ)
    epoch = policy.source_date_epoch
    store = ContentStore(home.store)
    home.ensure(home.store)
    config: dict[str, Json] = {
        "target": target.triple,
        "model_filename": options.model.name,
        "policy_filename": options.policy.name,
        "conversion": None if converted is None else dict(converted.facts),
        "input_shapes": {name: list(shape) for name, shape in sorted(options.input_shapes.items())},
        "equivalence_inputs": options.equivalence_inputs,
        "onnxruntime": peer_version(),
        "runner": runner_words(target),
        # Part of the records only where a latency is measured: other proofs are the same on every machine.
        "budget_machine": machine_of(target) if policy.budget and policy.budget.latency_ms is not None else None,
    }
    return BuildRequest(
        model_version,
        target.triple,
        options.output.name,
        {
            "model.onnx": store.put(model),
            "policy.yaml": store.put(policy_text),
            **({SOURCE_FILE: store.put(converted.source)} if converted is not None else {}),
        },
        config,
        os.environ.get(EPOCH_VARIABLE) if epoch is None else str(epoch),
    )


def read_file(path: Path, what: str, remedy: str, limit: int) -> bytes:
    """Bytes of a file the user named; a directory, an empty file and a device are errors of their own."""
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, not a {what}; {remedy}")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is not a regular file; {remedy}")
    data = read_small(path, what, remedy, limit)
    if not data:
        raise UsageError(f"{path}: the {what} is empty; {remedy}")
    return data


def machine_of(target: Target) -> str:
    """What computes here: the processor, or the GPU of a GPU target."""
    return gpu_for(target) if target.gpu else processor()


def runner_words(target: Target) -> str:
    """How engines of ``target`` run here, without any path: part of what an equivalence result depends on."""
    prefix = runner(target)
    if prefix is None and target.gpu and host_runs(target):
        return "emulated"
    if prefix is None:
        return "not executed"
    return Path(prefix[0]).name if prefix else "natively"
