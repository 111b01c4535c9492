"""Stages before the freeze and the freeze itself: source_model, ir_l0, frozen_graph."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np

from compiler_kernels.errors import RefusedError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.dtypes import COMPUTED
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.ops import FINITE
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.symbols import symbols_of
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import WeightStore, pack, unpack
from compiler_kernels.passes.choose_convolution import ChooseConvolution
from compiler_kernels.passes.fold_batch_norm import FoldBatchNorm
from compiler_kernels.passes.fold_constants import FoldConstants
from compiler_kernels.passes.infra import ModulePass, run_passes
from compiler_kernels.passes.integer_arithmetic import IntegerArithmetic
from compiler_kernels.policy import Numerics, Policy, check_against, load_policy, merge_pins, policy_from_json
from compiler_kernels.proofs.access import prove_accesses
from compiler_kernels.stage import Artifact, Json, as_json
from compiler_kernels.stages.base import Config, Inputs, Outcome, Stage

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
SOURCE_FILE = "model.source"
"""Role of the user's own file where the ONNX model was converted from it (docs/doors.md)."""


def numerics_passes(numerics: Numerics) -> tuple[ModulePass, ...]:
    """The passes before the freeze, in order; the last one is steered by the policy's section ``numerics``."""
    return (
        IntegerArithmetic(),
        FoldBatchNorm(),
        FoldConstants(),
        ChooseConvolution(numerics.prefer, numerics.winograd),
    )


def read_module(text: Artifact, weights: Artifact) -> tuple[Module, WeightStore]:
    """Parse and verify an IR artefact with its weights."""
    module = parse_module(text.text)
    verify(module)
    return module, unpack(module.main, weights.data)


def module_artifacts(name: str, module: Module, store: WeightStore) -> tuple[Artifact, Artifact]:
    return Artifact(name, print_module(module).encode(), TEXT), Artifact("weights.bin", pack(module.main, store))


def _source_model(inputs: Inputs, config: Config) -> Outcome:
    model, policy_text = inputs["model.onnx"], inputs["policy.yaml"]
    policy = load_policy(policy_text.text, str(config["policy_filename"]))
    pins = _pins(policy, config)
    facts = as_json(
        {
            "model_filename": config["model_filename"],
            "model_bytes": len(model.data),
            "model_sha256": hashlib.sha256(model.data).hexdigest(),
            "model_name": policy.model.name,
            "model_version": policy.model.version,
            "pins": pins,
        }
    )
    assert isinstance(facts, dict)
    artifacts = [
        Artifact("model.onnx", model.data),
        Artifact("policy.json", policy.canonical_json(), JSON),
        Artifact("pins.json", (json.dumps(pins, sort_keys=True) + "\n").encode(), JSON),
    ]
    conversion = config["conversion"]
    if isinstance(conversion, dict):
        # The chain starts from the user's own file; the model was made from it by the programs named here.
        facts["conversion"] = conversion
        artifacts.append(Artifact(f"source/{conversion['source']}", inputs[SOURCE_FILE].data))
    return tuple(artifacts), facts


def _pins(policy: Policy, config: Config) -> dict[str, list[int]]:
    """Input shapes from the policy and from ``--input-shape``; a contradiction is an error, not a precedence rule."""
    given = config["input_shapes"] or {}
    assert isinstance(given, dict)
    flags = {n: tuple(int(d) for d in s if isinstance(d, int)) for n, s in given.items() if isinstance(s, list)}
    return {name: list(shape) for name, shape in merge_pins(policy, flags).items()}


def _ir_l0(inputs: Inputs, config: Config) -> Outcome:
    pins = {name: tuple(shape) for name, shape in json.loads(inputs["source_model/pins.json"].text).items()}
    model = inputs["source_model/model.onnx"]
    policy = policy_from_json(inputs["source_model/policy.json"].data)
    module, store = import_onnx(
        model.data,
        filename=str(config["model_filename"]),
        pins=pins,
        ranges=policy.input_ranges(),
        bounds=policy.bounds(),
        random_seed=policy.random_seed,
    )
    check_against(policy, module)
    facts = as_json(
        {
            "operations": len(module.main.ops),
            "kinds": sorted({op.kind for op in module.main.ops}),
            "weights": len(module.main.weights),
            "parameters": sum(w.type.count for w in module.main.weights),
            **dict(module.meta),
        }
    )
    assert isinstance(facts, dict)
    neutral = Artifact("ir_l0.json", neutral_json(module.main, symbols_of(module.meta)), JSON)
    return (*module_artifacts("ir_l0.txt", module, store), neutral), facts


def freeze(
    module: Module, store: WeightStore, numerics: Numerics | None = None
) -> tuple[Module, list[dict[str, Json]]]:
    """The numerics passes and the freeze: the frozen module and the notes of what changed.

    ``numerics`` is the policy's section; its defaults where none is given.
    ``UnsupportedError`` when symbolic sizes let an access leave its tensor, or a proof that none does is not found;
    ``RefusedError`` when a weight of a sum of products is not finite: Canonical Arithmetic 1 refuses it.
    """
    module, notes = run_passes(module, store, numerics_passes(numerics or Numerics()))
    module = replace(module, level="frozen")
    verify(module)
    if symbols_of(module.meta):
        prove_accesses(module)
    summed = {operand for op in module.main.ops if op.kind in FINITE for operand in op.operands}
    for weight in module.main.weights:
        if weight.id in summed and weight.type.dtype in COMPUTED and not np.all(np.isfinite(store.get(weight))):
            raise RefusedError(
                f"constant %{weight.id} holds a value that is not finite; Canonical Arithmetic 1 refuses it"
            )
    return module, notes


def _frozen_graph(inputs: Inputs, config: Config) -> Outcome:
    module, store = read_module(inputs["ir_l0/ir_l0.txt"], inputs["ir_l0/weights.bin"])
    chosen = policy_from_json(inputs["source_model/policy.json"].data).numerics
    module, notes = freeze(module, store, chosen)
    proved = prove_accesses(module)
    text, weights = module_artifacts("frozen_graph.txt", module, store)
    numerics = {
        "arithmetic": "CA-1",
        "policy": chosen.model_dump(mode="json"),
        "passes": [p.name for p in numerics_passes(chosen)],
        "changes": notes,
    }
    return (
        text,
        Artifact("frozen_graph.json", neutral_json(module.main, symbols_of(module.meta)), JSON),
        weights,
        Artifact("numerics.json", (json.dumps(numerics, indent=1) + "\n").encode(), JSON),
    ), {
        "operations": len(module.main.ops),
        "numerics_changes": len(notes),
        "arithmetic": "CA-1",
        "index_bounds_proved": proved.bounds,
        "accesses_not_described": list(proved.undescribed),
    }


SOURCE_MODEL = Stage(
    "source_model",
    _source_model,
    sources=("model.onnx", "policy.yaml"),
    optional_sources=(SOURCE_FILE,),
    config=("model_filename", "policy_filename", "input_shapes", "conversion"),
    description="The model file and the clinical policy as given, with the input shapes that were pinned.",
)
IR_L0 = Stage(
    "ir_l0",
    _ir_l0,
    reads=("source_model/model.onnx", "source_model/pins.json", "source_model/policy.json"),
    config=("model_filename",),
    description="Atomic operations, attributes complete, shapes static.",
)
FROZEN_GRAPH = Stage(
    "frozen_graph",
    _frozen_graph,
    reads=("ir_l0/ir_l0.txt", "ir_l0/weights.bin", "source_model/policy.json"),
    description="L0 after the numerics passes: from here every bit is defined by Canonical Arithmetic 1.",
)
