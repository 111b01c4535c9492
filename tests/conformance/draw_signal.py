"""Random DFT, STFT, Det and TfIdfVectorizer nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from differential import Array, Draw, Values, torch
from draw_windows import chance, integers, normal


def draw_signal(rng: np.random.Generator) -> Draw:
    draw = [_dft, _dft, _stft, _det, _grams][int(rng.integers(5))]
    return draw(rng)


def _dft(rng: np.random.Generator) -> Draw:
    """Axis as an attribute (opset 17) or an input (20); a length of its own, one side, inverse."""
    opset = int(rng.choice([17, 20]))
    lead = integers(rng, 1, 4, int(rng.integers(1, 3)))
    size = int(rng.integers(1, 40))
    axis = int(rng.integers(1 if opset == 17 else 0, len(lead) + 1))
    inverse = chance(rng, 0.4)
    complex_input = inverse or chance(rng, 0.5)
    onesided = chance(rng, 0.5) and not complex_input
    shape = [*lead[:axis], size, *lead[axis:], 2 if complex_input else 1]
    attributes: dict[str, Any] = {"inverse": int(inverse), "onesided": int(onesided)}
    constants: Values = {}
    operands = ["x"]
    length = size
    if chance(rng, 0.4):
        length = int(rng.integers(1, 45))
        operands.append("n")
        constants["n"] = np.array(length, np.int64)
    if opset == 17:
        attributes["axis"] = axis
    else:
        operands += [""] * (2 - len(operands)) + ["axis"]
        constants["axis"] = np.array(axis - len(shape) if chance(rng, 0.5) else axis, np.int64)

    def by_torch(v: Values) -> list[Array]:
        x = torch.from_numpy(v["x"])
        z = torch.view_as_complex(x.contiguous()) if complex_input else x[..., 0]
        function = torch.fft.ifft if inverse else torch.fft.rfft if onesided else torch.fft.fft
        return [torch.view_as_real(function(z, n=length, dim=axis)).numpy()]

    without = {}
    if opset == 17 or length != size or inverse:
        without["onnxruntime"] = "it takes few lengths and axes before opset 20, and scales inverses by another length"
    data = {"x": normal(rng, *shape)}
    return Draw("DFT", opset, attributes, tuple(operands), data, constants, ("y",), by_torch, without)


def _stft(rng: np.random.Generator) -> Draw:
    batch, length = integers(rng, 1, 3, 1)[0], int(rng.integers(4, 60))
    frame, step = int(rng.integers(2, min(length, 24) + 1)), int(rng.integers(1, 9))
    onesided = chance(rng, 0.6)
    constants: Values = {"step": np.array(step, np.int64)}
    operands = ["x", "step", "", ""]
    data = {"x": normal(rng, batch, length, 1)}
    weights = np.ones(frame, np.float32)
    if chance(rng, 0.6):
        operands[2] = "w"
        weights = data["w"] = normal(rng, frame)
    if not operands[2] or chance(rng, 0.5):
        operands[3] = "n"
        constants["n"] = np.array(frame, np.int64)

    def by_torch(v: Values) -> list[Array]:
        frames = torch.from_numpy(v["x"][..., 0]).unfold(1, frame, step) * torch.from_numpy(v.get("w", weights))
        found = torch.fft.rfft(frames) if onesided else torch.fft.fft(frames)
        return [torch.view_as_real(found.contiguous()).numpy()]

    while not operands[-1]:
        operands.pop()
    return Draw("STFT", 17, {"onesided": int(onesided)}, tuple(operands), data, constants, ("y",), by_torch)


def _det(rng: np.random.Generator) -> Draw:
    size = int(rng.integers(1, 13))
    shape = [*integers(rng, 1, 3, int(rng.integers(0, 3))), size, size]

    def by_torch(v: Values) -> list[Array]:
        return [torch.linalg.det(torch.from_numpy(v["x"])).numpy()]

    data = {"x": (normal(rng, *shape) / np.sqrt(size)).astype(np.float32)}
    return Draw("Det", int(rng.choice([11, 22])), {}, ("x",), data, {}, ("y",), by_torch)


def _grams(rng: np.random.Generator) -> Draw:
    """Pools of one to three lengths, some columns out of order."""
    longest = int(rng.integers(1, 4))
    pool: list[int] = []
    begins: list[int] = []
    total = 0
    for n in range(1, longest + 1):
        begins.append(len(pool))
        grams = {tuple(int(v) for v in rng.integers(0, 4, n)) for _ in range(int(rng.integers(1, 6)))}
        for gram in sorted(grams):
            pool += gram
            total += 1
    shortest = int(rng.integers(1, longest + 1))
    mode = str(rng.choice(["TF", "IDF", "TFIDF"]))
    attributes: dict[str, Any] = {
        "mode": mode,
        "pool_int64s": pool,
        "ngram_counts": begins,
        "ngram_indexes": [int(v) for v in rng.permutation(total)],
        "min_gram_length": shortest,
        "max_gram_length": longest,
        "max_skip_count": int(rng.integers(0, 4)),
    }
    if mode != "TF":
        attributes["weights"] = [float(np.float32(v)) for v in rng.uniform(0.5, 2, total)]
    shape = [*integers(rng, 1, 4, int(rng.integers(0, 2))), int(rng.integers(1, 20))]
    x = rng.integers(0, 4, shape).astype(str(rng.choice(["int32", "int64"])))
    without = {"onnx.reference": "it weights columns, not grams"} if mode != "TF" else {}
    return Draw("TfIdfVectorizer", 9, attributes, ("x",), {"x": x}, {}, ("y",), None, without)
