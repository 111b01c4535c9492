"""Random normalisations: Layer, Instance, Group, Batch, RMS."""

from __future__ import annotations

from typing import Any

import numpy as np
from differential import Array, Draw, Values, split_operands, torch
from draw_windows import chance, integers, normal


def shifted(rng: np.random.Generator, *shape: int) -> Array:
    """Data whose mean is not zero and whose spread varies."""
    return (normal(rng, *shape) * np.float32(rng.uniform(0.1, 3)) + np.float32(rng.uniform(-2, 2))).astype(np.float32)


def epsilon(rng: np.random.Generator) -> dict[str, Any]:
    return {"epsilon": float(np.float32(rng.choice([1e-5, 1e-3, 0.1])))} if chance(rng, 0.7) else {}


def tensors_of(v: Values) -> dict[str, torch.Tensor]:
    return {k: torch.from_numpy(a) for k, a in v.items()}


def draw_layer(rng: np.random.Generator, op: str = "LayerNormalization", opset: int = 17) -> Draw:
    rank = int(rng.integers(2, 5))
    shape = integers(rng, 1, 9, rank)
    shape[-1] = int(rng.integers(2, 40))
    axis = int(rng.integers(-rank, rank))
    attributes = epsilon(rng) | ({"axis": axis} if axis != -1 or chance(rng, 0.5) else {})
    inner = shape[axis:]
    tensors: dict[str, Array | None] = {"x": shifted(rng, *shape), "scale": normal(rng, *inner)}
    if op == "LayerNormalization":
        tensors["bias"] = normal(rng, *inner) if chance(rng, 0.6) else None
    operands, inputs, constants = split_operands(rng, tensors, keep=0.8)

    def by_torch(v: Values) -> list[Array]:
        t, eps = tensors_of(v), attributes.get("epsilon", 1e-5)
        if op == "RMSNormalization":
            return [torch.nn.functional.rms_norm(t["x"], inner, t["scale"], eps).numpy()]
        return [torch.nn.functional.layer_norm(t["x"], inner, t["scale"], t.get("bias"), eps).numpy()]

    return Draw(op, opset, attributes, operands, inputs, constants, torch=by_torch)


def draw_rms(rng: np.random.Generator) -> Draw:
    return draw_layer(rng, "RMSNormalization", 23)


def draw_instance(rng: np.random.Generator) -> Draw:
    axes = int(rng.integers(1, 4))
    shape = [*integers(rng, 1, 3, 1), *integers(rng, 1, 18, 1), *integers(rng, 2, 7, axes)]
    attributes = epsilon(rng)
    tensors: dict[str, Array | None] = {
        "x": shifted(rng, *shape),
        "scale": normal(rng, shape[1]),
        "bias": normal(rng, shape[1]),
    }
    operands, inputs, constants = split_operands(rng, tensors, keep=0.8)

    def by_torch(v: Values) -> list[Array]:
        t = tensors_of(v)
        eps = attributes.get("epsilon", 1e-5)
        return [torch.nn.functional.instance_norm(t["x"], weight=t["scale"], bias=t["bias"], eps=eps).numpy()]

    opset = int(rng.choice([7, 17, 22]))
    return Draw("InstanceNormalization", opset, attributes, operands, inputs, constants, torch=by_torch)


def draw_group(rng: np.random.Generator) -> Draw:
    axes = int(rng.integers(1, 4))
    groups, each = integers(rng, 1, 5, 2)
    shape = [*integers(rng, 1, 3, 1), groups * each, *integers(rng, 1, 6, axes)]
    shape[-1] += 1
    attributes = epsilon(rng) | {"num_groups": groups}
    tensors: dict[str, Array | None] = {
        "x": shifted(rng, *shape),
        "scale": normal(rng, groups * each),
        "bias": normal(rng, groups * each),
    }
    operands, inputs, constants = split_operands(rng, tensors, keep=0.8)

    def by_torch(v: Values) -> list[Array]:
        t = tensors_of(v)
        eps = attributes.get("epsilon", 1e-5)
        return [torch.nn.functional.group_norm(t["x"], groups, t["scale"], t["bias"], eps).numpy()]

    return Draw("GroupNormalization", 21, attributes, operands, inputs, constants, torch=by_torch)


def draw_batch(rng: np.random.Generator) -> Draw:
    axes = int(rng.integers(0, 4))
    shape = [*integers(rng, 1, 3, 1), *integers(rng, 1, 18, 1), *integers(rng, 1, 6, axes)]
    attributes = epsilon(rng)
    channels = shape[1]
    tensors: dict[str, Array | None] = {
        "x": shifted(rng, *shape),
        "scale": normal(rng, channels),
        "bias": normal(rng, channels),
        "mean": normal(rng, channels),
        "var": rng.uniform(0.1, 4, channels).astype(np.float32),
    }
    operands, inputs, constants = split_operands(rng, tensors, keep=1)

    def by_torch(v: Values) -> list[Array]:
        t = tensors_of(v)
        eps = attributes.get("epsilon", 1e-5)
        return [torch.nn.functional.batch_norm(t["x"], t["mean"], t["var"], t["scale"], t["bias"], eps=eps).numpy()]

    opset = int(rng.choice([9, 14, 15]))
    without = {"onnx.reference": "it normalises with the batch's own statistics at opset 9"} if opset == 9 else {}
    return Draw("BatchNormalization", opset, attributes, operands, inputs, constants, torch=by_torch, without=without)
