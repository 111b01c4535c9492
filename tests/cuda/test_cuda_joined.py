"""Calls in another order, joined launches and a new arena: the outputs are those of one scalar launch after another."""

from __future__ import annotations

import emulation
import numpy as np
import onnx_builder
import pytest

from compiler_kernels.ir.verify import verify
from compiler_kernels.targets.cuda.fallback import emit_fallback
from compiler_kernels.targets.cuda.gpu import SM_90
from compiler_kernels.targets.cuda.plan import plan
from compiler_kernels.targets.cuda.schedule import arranged
from compiler_kernels.toolchain.emulator import Emulator


def _compared(model):
    """The launches after joining, and before."""
    module, store = emulation.lowered(model)
    scalar = plan(module, SM_90, "s", emit_fallback)
    arrangement = arranged(module, SM_90, "g")
    joined = arrangement.launches
    verify(arrangement.module)
    emulator = Emulator([launch.kernel for launch in (*scalar, *joined)])
    inputs = [emulation.random_input(v.type, n) for n, v in enumerate(module.main.inputs)]
    expected = emulation.run_launches(module, store, scalar, emulator, inputs)
    for seed in (1, 2):
        found = emulation.run_launches(arrangement.module, store, joined, emulator, inputs, seed)
        for name, want in expected.items():
            assert np.array_equal(want.view(np.uint8), found[name].view(np.uint8)), name
    return joined, scalar


def test_both_directions_of_a_recurrence_share_their_launches():
    b = onnx_builder.Builder()
    x, hidden = b.input(6, 1, 5), 8
    for _ in range(2):
        weights = [b.constant(2, 4 * hidden, n) for n in (5 if not b.nodes else 2 * hidden, hidden)]
        y = b.op("LSTM", x, *weights, b.constant(2, 8 * hidden), hidden_size=hidden, direction="bidirectional")
        x = b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), b.constant(values=[6, 1, 16], dtype=np.int64))
    b.output(x)
    joined, scalar = _compared(b.model())
    recurrences = [launch for launch in joined if "op.lstm_steps" in launch.kernel.text]
    assert [len(launch.arguments) for launch in recurrences] == [8, 8]  # two directions of four pointers each
    assert len(joined) < len(scalar) - 2


def test_projections_of_one_value_share_a_launch():
    b = onnx_builder.Builder()
    x = b.input(1, 9, 20)
    query, key, value = (b.op("Add", b.op("MatMul", x, b.constant(20, 24)), b.constant(24)) for _ in range(3))
    scores = b.op("Softmax", b.op("MatMul", query, b.op("Transpose", key, perm=[0, 2, 1])), axis=-1)
    b.output(b.op("MatMul", scores, value))
    joined, scalar = _compared(b.model())
    assert len(joined) == len(scalar) - 3  # the three projections are one launch, two packings of operands another


def test_a_launch_that_overwrites_what_another_reads_is_not_joined():
    b = onnx_builder.Builder()
    x = b.input(4, 30)
    for _ in range(5):  # each writes where the one before read
        x = b.op("Softmax", b.op("Transpose", x, perm=[1, 0]), axis=-1)
    b.output(x)
    joined, scalar = _compared(b.model())
    assert len(joined) == len(scalar)


@pytest.mark.slow
@pytest.mark.parametrize("net", ["bilstm", "vit_tiny", "ecg", "resnet18"])
def test_networks_of_the_benchmark(net):
    pytest.importorskip("torch")
    from benchmarks.zoo import ZOO, onnx_bytes

    joined, scalar = _compared(onnx_bytes(ZOO[net]))
    assert len(joined) < len(scalar)
    assert not any("_item(" in launch.kernel.text for launch in joined)  # nothing is left to the scalar kernels
