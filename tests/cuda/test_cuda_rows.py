"""GPU kernels beside convolution, emulated: every bit of every launch against the scalar section's kernel."""

from __future__ import annotations

import emulation
import numpy as np
import onnx_builder
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler_kernels.targets.cuda.gpu import SM_80, SM_90, Gpu

SOME = settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


class Builder(onnx_builder.Builder):
    """A model whose every launch is checked."""

    def check(self, expected: set[str], gpu: Gpu = SM_90) -> None:
        """``expected``: kinds that must not be left to the scalar kernels."""
        own = emulation.check_model(self.model(), gpu)
        for kind in expected:
            assert any(kind in name for name in own), (kind, own)


@SOME
@given(rows=st.integers(1, 37), depth=st.sampled_from([1, 7, 16, 64, 65, 130, 197]), columns=st.integers(1, 50))
def test_products(rows, depth, columns):
    b = Builder(rows * 1000 + depth)
    x = b.input(2, rows, depth)
    product = b.op("MatMul", x, b.constant(depth, columns))
    biased = b.op("Add", product, b.constant(columns))
    b.output(b.op("Mul", b.op("Erf", biased), biased))
    right = b.input(2, depth, columns)
    b.output(b.op("Relu", b.op("MatMul", x, right)))
    turned = b.op("Transpose", b.input(2, depth, rows), perm=[0, 2, 1])
    b.output(b.op("Transpose", b.op("MatMul", turned, right), perm=[1, 0, 2]))
    flat = b.input(rows, depth)
    b.output(b.op("Gemm", flat, b.constant(columns, depth), b.constant(columns), transB=1))
    b.output(
        b.op(
            "Gemm", b.input(depth, rows), b.constant(depth, columns), b.constant(rows, 1), transA=1, alpha=0.3, beta=1.7
        )
    )
    b.output(b.op("MatMul", b.input(depth), b.constant(depth, columns)))
    b.check({"matmul", "gemm"})


@pytest.mark.parametrize(("rows", "depth"), [(1, 3000), (9, 1200), (3, 700)])
def test_products_of_many_leaves(rows, depth):
    b = Builder(depth)
    b.output(b.op("Gemm", b.input(rows, depth), b.constant(20, depth), b.constant(20), transB=1))
    b.check({"gemm"})


def test_a_chip_without_clusters_and_with_less_shared_memory():
    b = Builder()
    b.output(b.op("MatMul", b.input(40, 1024), b.constant(1024, 40)))
    b.output(b.op("Conv", b.input(1, 4, 40, 40), b.constant(32, 4, 16, 16), strides=[8, 8]))
    weights = [b.constant(1, 4 * 136, n) for n in (6, 136)]
    b.output(b.op("LSTM", b.input(3, 1, 6), *weights, hidden_size=136))
    b.check({"matmul", "conv", "lstm_steps"}, SM_80)


@SOME
@given(rows=st.integers(1, 20), size=st.sampled_from([1, 5, 16, 33, 197, 1024]))
def test_rows(rows, size):
    b = Builder(size)
    b.output(b.op("Softmax", b.input(rows, size), axis=-1))
    b.output(b.op("LogSoftmax", b.input(2, rows, size), axis=-1))
    b.output(b.op("LayerNormalization", b.input(rows, size), b.constant(size), b.constant(size), axis=-1))
    b.output(b.op("LayerNormalization", b.input(rows, size), b.constant(size), axis=-1))
    for kind in ("ReduceMean", "ReduceMax", "ReduceMin"):
        b.output(b.op(kind, b.input(rows, size), axes=[1], keepdims=0))
    b.check({"softmax", "layer_normalization", "reduce_mean"})


def test_long_rows():
    b = Builder()
    b.output(b.op("Softmax", b.input(2, 1500), axis=-1))
    b.output(b.op("LogSoftmax", b.input(1, 2100), axis=-1))
    b.output(b.op("LayerNormalization", b.input(3, 1025), b.constant(1025), b.constant(1025), axis=-1))
    b.output(b.op("ReduceSum", b.input(2, 40000), b.constant(values=[1], dtype=np.int64)))
    b.output(b.op("ReduceMin", b.input(2, 9, 700), axes=[1, 2]))
    b.check({"softmax", "layer_normalization", "reduce_sum", "reduce_min"})


@SOME
@given(channels=st.integers(8, 36), height=st.integers(5, 12), width=st.integers(5, 12))
def test_blocked_values(channels, height, width):
    b = Builder(channels)
    x = b.input(2, 8, height, width)

    def blocked() -> str:
        return b.op("Conv", x, b.constant(channels, 8, 1, 1))

    def ends(name: str) -> None:
        b.output(b.op("Conv", name, b.constant(8, channels, 3, 3), pads=[1, 1, 1, 1]))

    first, second = blocked(), blocked()
    ends(b.op("MaxPool", first, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    ends(b.op("AveragePool", first, kernel_shape=[2, 3], strides=[2, 1], count_include_pad=1, pads=[0, 1, 1, 0]))
    ends(b.op("AveragePool", second, kernel_shape=[3, 2], strides=[1, 2], pads=[1, 1, 1, 0]))
    ends(b.op("Sigmoid", b.op("Mul", b.op("MaxPool", second, kernel_shape=[2, 2]), b.constant(1, channels, 1, 1))))
    ends(b.op("Relu", b.op("Add", b.op("Sigmoid", first), b.op("Tanh", second))))
    ends(b.op("Concat", first, second, axis=3))
    ends(b.op("Pad", first, b.constant(values=[0, 0, 1, 2, 0, 0, 0, 1], dtype=np.int64), mode="reflect"))
    cut = [b.constant(values=v, dtype=np.int64) for v in ([1, 0], [height, width], [2, 3], [2, 1])]
    ends(b.op("Slice", second, *cut))
    for mode, scales, more in (("linear", [1, 1, 2, 1.5], {}), ("nearest", [1, 1, 0.5, 2], {"nearest_mode": "floor"})):
        sizes = ["", b.constant(values=scales)]
        ends(b.op("Resize", first, *sizes, mode=mode, coordinate_transformation_mode="asymmetric", **more))
    b.output(b.op("GlobalAveragePool", first))
    b.output(b.op("GlobalMaxPool", second))
    b.output(b.op("ReduceMean", second, axes=[2, 3], keepdims=0))
    b.check({"max_pool", "average_pool", "global_average_pool", "pad", "slice", "resize"})


@SOME
@given(a=st.integers(1, 5), b_=st.integers(1, 9), c=st.integers(1, 40))
def test_plain_movement(a, b_, c):
    b = Builder(c)
    x = b.input(a, b_, c)
    b.output(b.op("Transpose", x, perm=[2, 0, 1]))
    b.output(b.op("Concat", x, b.input(a, 3, c), b.input(a, 1, c), axis=1))
    b.output(b.op("Mul", b.op("Transpose", x, perm=[1, 0, 2]), b.op("Sqrt", b.op("Abs", b.input(a, c)))))
    b.output(b.op("Add", x, b.constant(b_, 1)))
    b.check({"transpose", "concat"})


@SOME
@given(channels=st.sampled_from([1, 2, 5, 8, 33, 40]), outputs=st.integers(1, 35), size=st.integers(3, 9))
def test_integers(channels, outputs, size):
    b = Builder(channels)
    scale, zero = b.constant(values=0.03), b.constant(values=3, dtype=np.int8)
    x = b.op("QuantizeLinear", b.input(2, channels, size, size + 1), scale, zero)

    def weights(*shape: int) -> str:
        values = np.random.default_rng(outputs).integers(-128, 128, shape)
        return b.constant(values=values, dtype=np.int8)

    for more in ({"pads": [1, 0, 2, 1]}, {"strides": [2, 1], "dilations": [1, 2]}):
        conv = b.op("ConvInteger", x, weights(outputs, channels, 3, 2), zero, **more)
        b.output(b.op("Mul", b.op("Cast", conv, to=1), b.constant(outputs, 1, 1)))
    left = b.op("QuantizeLinear", b.input(3, size, channels), scale, zero)
    b.output(b.op("Cast", b.op("MatMulInteger", left, weights(channels, outputs), zero), to=1))
    b.check({"conv_integer", "matmul_integer"})


@pytest.mark.parametrize("plane", [(10, 30), (70, 75)])
def test_global_pools_of_blocked_values(plane):
    b = Builder(plane[0])
    first = b.op("Conv", b.input(1, 8, *plane), b.constant(20, 8, 1, 1))
    second = b.op("Conv", first, b.constant(20, 20, 1, 1))
    b.output(b.op("GlobalAveragePool", first))
    b.output(b.op("GlobalMaxPool", second))
    b.check({"global_average_pool", "global_max_pool"})


@pytest.mark.parametrize("plane", [(5, 7), (16, 16), (41, 50), (264, 257)])
def test_planes(plane):
    b = Builder(plane[0])
    x = b.input(2, 6 if plane[0] < 200 else 2, *plane)
    channels = 6 if plane[0] < 200 else 2
    b.output(b.op("InstanceNormalization", x, b.constant(channels), b.constant(channels), epsilon=1e-3))
    expected = {"instance_normalization"}
    if plane[0] > 7:
        b.output(b.op("GlobalAveragePool", x))
        b.output(b.op("GlobalMaxPool", x))
        b.output(b.op("ReduceMean", x, axes=[2, 3], keepdims=0))
        expected |= {"global_average_pool", "global_max_pool", "reduce_mean"}
    b.check(expected)


@pytest.mark.parametrize(("channels", "outputs", "kernel", "more"), [
    (3, 40, (16, 16), {"strides": [16, 16]}),
    (2, 20, (9, 10), {"strides": [4, 3], "pads": [2, 1, 0, 4]}),
    (1, 16, (5, 40), {"dilations": [2, 1]}),
    (14, 33, (80,), {"strides": [8]}),
])  # fmt: skip
def test_patches(channels, outputs, kernel, more):
    b = Builder(outputs)
    x = b.input(2, channels, *([48] * len(kernel) if len(kernel) > 1 else [200]))
    b.output(b.op("Conv", x, b.constant(outputs, channels, *kernel), b.constant(outputs), **more))
    b.check({"conv"})


@pytest.mark.parametrize("hidden", [5, 64, 72, 136])
def test_recurrence(hidden):
    b = Builder(hidden)
    time, batch, width = 4, 2, 6
    x = b.input(time, batch, width)
    state = [b.input(1, batch, hidden) for _ in range(2)]
    for kind, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for direction in ("forward", "reverse"):
            weights = [b.constant(1, gates * hidden, n) for n in (width, hidden)]
            extra = [b.constant(1, 2 * gates * hidden), "", state[0]] if direction == "forward" else []
            extra += [state[1], b.constant(1, 3 * hidden)] if extra and kind == "LSTM" else []
            more = {"linear_before_reset": 1} if kind == "GRU" and extra else {"clip": 0.7}
            b.output(b.op(kind, x, *weights, *extra, hidden_size=hidden, direction=direction, **more))
    b.check({"lstm_steps", "gru_steps", "rnn_steps"})
