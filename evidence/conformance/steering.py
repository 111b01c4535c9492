"""Which inputs the mode "frozen" turns into constants: those that say what shape a result has or where data goes.

The mode "as-is" leaves every input a run-time input, as the tests have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import onnx

_REDUCE = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
_WINDOWS = ("BlackmanWindow", "HammingWindow", "HannWindow")

STEERING: Final[Mapping[str, tuple[int, ...]]] = {
    "AffineGrid": (1,),  # size
    "CenterCropPad": (1,),  # shape
    "Col2Im": (1, 2),  # image_shape, block_shape
    "ConstantOfShape": (0,),  # shape
    "CumProd": (1,),  # axis
    "CumSum": (1,),  # axis
    "DFT": (1, 2),  # dft_length, axis
    "Expand": (1,),  # shape
    "Loop": (0,),  # trip count: the size of what it scans out
    "MaxUnpool": (2,),  # output_shape
    "MelWeightMatrix": (0, 1, 2),  # num_mel_bins, dft_length, sample_rate
    "NonMaxSuppression": (2,),  # max_output_boxes_per_class
    "OneHot": (1,),  # depth
    "Pad": (1, 3),  # pads, axes; the value stays data
    "Range": (0, 1, 2),  # start, limit, delta
    "Reshape": (1,),  # shape
    "Resize": (1, 2, 3),  # roi, scales, sizes
    "STFT": (1, 3),  # frame_step, frame_length
    "Slice": (1, 2, 3, 4),  # starts, ends, axes, steps
    "Split": (1,),  # split
    "SplitToSequence": (1,),  # split
    "Squeeze": (1,),  # axes
    "Tile": (1,),  # repeats
    "TopK": (1,),  # k
    "Trilu": (1,),  # k
    "Unsqueeze": (1,),  # axes
    "Upsample": (1,),  # scales
    **{f"Reduce{kind}": (1,) for kind in _REDUCE},  # axes
    **dict.fromkeys(_WINDOWS, (0,)),  # size
}
"""Per operator, the positions of the inputs that are frozen; of any element type."""


def steering_inputs(nodes: Iterable[onnx.NodeProto]) -> frozenset[str]:
    """Names of tensors that some node of the graph reads at a position of ``STEERING``."""
    found = set()
    for node in nodes:
        for position in STEERING.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ():
            if position < len(node.input) and node.input[position]:
                found.add(node.input[position])
    return frozenset(found)


def freeze_inputs(model: onnx.ModelProto, values: Mapping[str, onnx.TensorProto]) -> onnx.ModelProto:
    """A copy of ``model`` in which the graph inputs named in ``values`` are initialisers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [info for info in copy.graph.input if info.name not in values]
    copy.graph.initializer.extend(values.values())
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    return copy
