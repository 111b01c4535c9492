"""Vectors of transforms, determinants, n-grams, and of what recurrent operators have gained (since CA-1.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evidence.reference.vector_cases import ABSENT, Case, binary32, given, random
from evidence.reference.vector_model import VectorInput

VERSION = "CA-1.4"
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def signal() -> Iterator[Case]:
    """All cases of this family, in file order."""
    yield from _transforms()
    yield from _frames()
    yield from _determinants()
    yield from _grams()
    yield from _activations()
    yield from _lengths()
    yield from _other_types()


def _scalar(name: str, value: int) -> VectorInput:
    return given(name, value, constant=True, dtype="int64")


def _transforms() -> Iterator[Case]:
    def dft(name: str, shape: Sequence[int], opset: int = 20, extra: Sequence[VectorInput] = (), dtype: str = "float32",
            **attributes: Any) -> Case:  # fmt: skip
        x = random("x", *shape, dtype=dtype)
        return Case(f"dft_{name}", "DFT", attributes, (x, *extra), opset=opset, version=VERSION)

    yield dft("real_8", (2, 8, 1))
    yield dft("complex_12", (1, 12, 2))
    yield dft("complex_97", (1, 97, 2))
    yield dft("onesided_20", (2, 20, 1), onesided=1)
    yield dft("onesided_9", (2, 9, 1), onesided=1)
    yield dft("inverse_10", (1, 10, 2), inverse=1)
    yield dft("inverse_real_9", (1, 9, 1), inverse=1)
    yield dft("inverse_onesided_even", (2, 6, 2), inverse=1, onesided=1)
    yield dft("inverse_onesided_odd", (1, 5, 2), extra=(_scalar("n", 9),), inverse=1, onesided=1)
    yield dft("padded", (1, 5, 1), extra=(_scalar("n", 8),))
    yield dft("cut", (1, 11, 2), extra=(_scalar("n", 7),))
    yield dft("axis", (3, 4, 6, 2), extra=(ABSENT, _scalar("axis", 1)))
    yield dft("one_point", (2, 1, 2))
    yield dft("opset17", (2, 6, 3, 1), opset=17, onesided=1)
    yield dft("opset17_axis", (2, 3, 7, 2), opset=17, axis=2, inverse=1)
    yield dft("float64", (1, 30, 2), dtype="float64")
    yield dft("float16", (1, 16, 1), dtype="float16", onesided=1)


def _frames() -> Iterator[Case]:
    x, step = random("x", 2, 40, 1), _scalar("step", 6)
    window = random("w", 16, kind="positive")
    yield Case("stft_window", "STFT", {}, (x, step, window), opset=17, version=VERSION)
    length = _scalar("n", 12)
    yield Case("stft_length", "STFT", {"onesided": 0}, (x, step, ABSENT, length), opset=17, version=VERSION)
    both = (random("x", 1, 33, 2), _scalar("step", 5), random("w", 10, kind="positive", constant=True))
    yield Case("stft_complex", "STFT", {"onesided": 0}, both, opset=17, version=VERSION)


def _determinants() -> Iterator[Case]:
    def det(name: str, x: VectorInput) -> Case:
        return Case(f"det_{name}", "Det", {}, (x,), opset=22, version=VERSION)

    for n in (1, 2, 3, 5, 16):
        yield det(f"{n}", random("x", 2, n, n))
    yield det("batches", random("x", 2, 3, 4, 4, shift=2))
    yield det("singular", given("x", [[1, 2, 3], [2, 4, 6], [1, 0, 1]]))
    yield det("zero", given("x", np.zeros((3, 3))))
    yield det("ties", given("x", [[1, 2, 3], [-1, 5, 1], [1, -5, 2]]))
    odd = np.array([np.nan, 1, 1, 2, np.inf, 1, 1, 1, 0, -0.0, -0.0, 0], np.float32)
    yield det("special", given("x", odd, 3, 2, 2))
    yield det("float64", random("x", 6, 6, dtype="float64"))
    yield det("float16", random("x", 2, 3, 3, dtype="float16"))


def _grams() -> Iterator[Case]:
    pool = {
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 6, 5, 4],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        "min_gram_length": 1,
        "max_gram_length": 2,
    }
    rows = [[1, 1, 3, 3, 3, 7, 8, 6, 7], [8, 6, 7, 5, 6, 8, 6, 7, 7]]
    weights = [binary32(v) for v in (0.5, 2.0, 1.5, 0.1, 3.0, 0.7, 1.1)]
    for mode in ("TF", "IDF", "TFIDF"):
        for skips in (0, 3):
            attributes: dict[str, Any] = {**pool, "mode": mode, "max_skip_count": skips}
            if mode != "TF":
                attributes["weights"] = weights
            operands = (given("x", rows, dtype="int32" if skips else "int64"),)
            name = f"tf_idf_{mode.lower()}_{skips}"
            yield Case(name, "TfIdfVectorizer", attributes, operands, opset=9, version=VERSION)
    only = {**pool, "min_gram_length": 2, "mode": "TF", "max_skip_count": 1}
    yield Case("tf_idf_pairs", "TfIdfVectorizer", only, (given("x", rows, dtype="int32"),), opset=9, version=VERSION)


def _recurrent(
    name: str, op: str, direction: str, lengths: Sequence[int] = (), dtype: str = "float32", **attributes: Any
) -> Case:
    time, batch, inputs, hidden = 5, 3, 6, 18
    d, g = 2 if direction == "bidirectional" else 1, GATES[op]

    def constant(label: str, *shape: int) -> VectorInput:
        return random(label, *shape, constant=True, dtype=dtype)

    operands = [random("x", time, batch, inputs, dtype=dtype), constant("w", d, g * hidden, inputs)]
    operands += [constant("r", d, g * hidden, hidden), constant("b", d, 2 * g * hidden)]
    if lengths:
        operands.append(given("lengths", list(lengths), constant=True, dtype="int32"))
    given_attributes = {"hidden_size": hidden, "direction": direction, **attributes}
    return Case(f"{op.lower()}_{name}", op, given_attributes, tuple(operands), opset=22, version=VERSION)


def _activations() -> Iterator[Case]:
    functions = "Relu Softsign Softplus Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu".split()
    for function in functions:
        yield _recurrent(f"with_{function.lower()}", "RNN", "forward", activations=[function])
    parameters: dict[str, Any] = {
        "activation_alpha": [binary32(v) for v in (0.3, 0.6)],
        "activation_beta": [binary32(0.4)],
    }
    yield _recurrent("functions", "LSTM", "forward", activations=["HardSigmoid", "Softsign", "Elu"], **parameters)
    two = ["HardSigmoid", "Tanh", "ScaledTanh", "Sigmoid"]
    yield _recurrent("functions", "GRU", "bidirectional", activations=two, **parameters)
    clipped: dict[str, Any] = {
        "clip": binary32(0.4),
        "activations": ["Sigmoid", "Affine", "Relu"],
        "activation_alpha": [binary32(0.7)],
    }
    yield _recurrent("functions_clip", "LSTM", "reverse", **clipped)


def _lengths() -> Iterator[Case]:
    for op in GATES:
        yield _recurrent("lengths", op, "bidirectional", (5, 2, 0))
    yield _recurrent("lengths_reverse", "LSTM", "reverse", (1, 4, 3))


def _other_types() -> Iterator[Case]:
    for op in GATES:
        yield _recurrent("float64", op, "bidirectional", dtype="float64")
        yield _recurrent("float16", op, "forward", dtype="float16")
    chosen = ["Sigmoid", "Elu", "Softsign"]
    yield _recurrent("float64_functions", "LSTM", "forward", dtype="float64", activations=chosen)
    # Eight significant bits leave no trace of the order of a sum, so x is stated and no order is sought.
    case = _recurrent("bfloat16", "LSTM", "reverse", dtype="bfloat16")
    stated = given("x", np.linspace(-1, 1, 90), 5, 3, 6, dtype="bfloat16")
    yield replace(case, inputs=(stated, *case.inputs[1:]))
