"""Random LSTM, GRU and RNN layers: directions, outputs, optional inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from differential import Array, Draw, Values, split_operands, torch
from draw_windows import chance, integers, normal
from onnx import TensorProto

OUTPUTS = {"LSTM": ("y", "y_h", "y_c"), "GRU": ("y", "y_h"), "RNN": ("y", "y_h")}
GATES = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}
"""Where torch's gates are among ONNX's: torch has i f g o and r z n, ONNX i o f c and z r h."""


def draw_recurrent(rng: np.random.Generator) -> Draw:
    op = str(rng.choice(["LSTM", "LSTM", "GRU", "RNN"]))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    steps, batch, inner, hidden = (integers(rng, 1, top, 1)[0] for top in (6, 3, 9, 11))
    rows = len(GATES[op]) * hidden
    attributes: dict[str, Any] = {"hidden_size": hidden}
    if direction != "forward" or chance(rng, 0.5):
        attributes["direction"] = direction
    tensors: dict[str, Array | None] = {
        "x": normal(rng, steps, batch, inner),
        "w": normal(rng, directions, rows, inner),
        "r": normal(rng, directions, rows, hidden),
        "b": normal(rng, directions, 2 * rows) if chance(rng, 0.6) else None,
        "lens": None,
        "h0": normal(rng, directions, batch, hidden) if chance(rng, 0.5) else None,
    }
    plain = True  # so that torch has a layer like it
    if op == "LSTM":
        tensors["c0"] = normal(rng, directions, batch, hidden) if chance(rng, 0.5) else None
        if chance(rng, 0.3):
            tensors["p"] = normal(rng, directions, 3 * hidden)
            plain = False
        if chance(rng, 0.2):
            attributes["input_forget"] = 1
            plain = False
    if op == "GRU" and chance(rng, 0.5):
        attributes["linear_before_reset"] = 1
    elif op == "GRU":
        plain = False
    if chance(rng, 0.2):
        attributes["clip"] = float(np.float32(rng.uniform(0.3, 2.0)))
        plain = False
    if chance(rng, 0.3):
        attributes |= activations(rng, op, directions)
        plain = False
    lengths = chance(rng, 0.3)
    if lengths:
        tensors["lens"] = rng.integers(0, steps + 1, batch).astype(np.int32)
        plain = False
    names = list(OUTPUTS[op])
    kept = [n if chance(rng, 0.7) else "" for n in names]
    outputs = kept if any(kept) else names
    while not outputs[-1]:
        outputs.pop()
    # Weights are constants as exported models have them; states and the input are data, lengths either.
    weights = {n for n in ("w", "r", "b", "p") if tensors.get(n) is not None}
    if lengths and chance(rng, 0.5):
        weights.add("lens")
    operands, everything, _ = split_operands(rng, tensors, keep=0)
    without = {}
    if attributes.get("input_forget"):
        without["onnx.reference"] = "it does not read input_forget"
    if "clip" in attributes:
        without["onnx.reference"] = "it does not read clip"
    if lengths or "activations" in attributes:
        without["onnx.reference"] = "it reads neither sequence lengths nor activations"

    double = op != "GRU" and direction == "forward" and not without and chance(rng, 0.4)
    if double:
        everything = {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in everything.items()}
        plain = False

    def by_torch(v: Values) -> list[Array]:
        found = torch_layer(op, v, attributes, direction, hidden)
        return [found[n] for n in outputs if n]

    return Draw(
        op,
        int(rng.choice([7, 14, 22])),
        attributes,
        operands,
        {n: v for n, v in everything.items() if n not in weights},
        {n: v for n, v in everything.items() if n in weights},
        tuple(outputs),
        by_torch if plain else None,
        without,
        element=TensorProto.DOUBLE if double else TensorProto.FLOAT,
    )


FUNCTIONS = {
    "Relu": (False, False), "Tanh": (False, False), "Sigmoid": (False, False), "Softsign": (False, False),
    "Softplus": (False, False), "Affine": (True, True), "LeakyRelu": (True, False), "ThresholdedRelu": (True, False),
    "ScaledTanh": (True, True), "HardSigmoid": (True, True), "Elu": (True, False),
}  # fmt: skip
"""Activations of ONNX and whether they have an alpha and a beta."""
BOUNDED = ["HardSigmoid", "ScaledTanh", "Sigmoid", "Softsign", "Tanh"]


def activations(rng: np.random.Generator, op: str, directions: int) -> dict[str, Any]:
    """Functions of every direction. Gates are bounded and parameters near zero, so that no recurrence blows up."""
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
    names = [
        str(rng.choice(BOUNDED if op != "RNN" and not f else sorted(FUNCTIONS)))
        for _ in range(directions)
        for f in range(count)
    ]
    found: dict[str, Any] = {"activations": names}
    for index, key in enumerate(("activation_alpha", "activation_beta")):
        values = [float(np.float32(rng.uniform(0.05, 0.5))) for n in names if FUNCTIONS[n][index]]
        if values:
            found[key] = values
    return found


def torch_layer(op: str, v: Values, attributes: dict[str, Any], direction: str, hidden: int) -> Values:
    """The layer as torch.nn has it; a reverse one is the forward one on the reversed sequence."""
    bidirectional = direction == "bidirectional"
    layer = getattr(torch.nn, op)(v["x"].shape[2], hidden, bidirectional=bidirectional)
    order = np.concatenate([np.arange(hidden) + gate * hidden for gate in GATES[op]])
    rows = len(order)
    bias = v.get("b", np.zeros((2, 2 * rows), np.float32))
    with torch.no_grad():
        for d in range(1 + bidirectional):
            suffix = "_reverse" if d else ""
            for name, value in (
                ("weight_ih", v["w"][d]),
                ("weight_hh", v["r"][d]),
                ("bias_ih", bias[d][:rows]),
                ("bias_hh", bias[d][rows:]),
            ):
                getattr(layer, f"{name}_l0{suffix}").copy_(torch.from_numpy(value[order]))
        x = torch.from_numpy(v["x"][::-1].copy() if direction == "reverse" else v["x"])
        zero = np.zeros((1 + bidirectional, x.shape[1], hidden), np.float32)
        state = torch.from_numpy(v.get("h0", zero))
        found, last = layer(x, (state, torch.from_numpy(v.get("c0", zero))) if op == "LSTM" else state)
    y = found.numpy().reshape(*x.shape[:2], 1 + bidirectional, hidden).transpose(0, 2, 1, 3)
    y = y[::-1] if direction == "reverse" else y
    if op == "LSTM":
        return {"y": y, "y_h": last[0].numpy(), "y_c": last[1].numpy()}
    return {"y": y, "y_h": last.numpy()}
