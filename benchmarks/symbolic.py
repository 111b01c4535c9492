"""One engine for every size against an engine per size and onnxruntime: the U-Net of the zoo, one thread, CPU time.

    python -m benchmarks.symbolic [--rounds N] [--json]

The symbolic engine has the axes batch (1 to 4) and height (32 to 512, a multiple of 32). At each of four sizes the
runtimes take turns; a round times one inference of each by the CPU time of the process. Printed are medians in
milliseconds and the ratios of the symbolic engine's to the others'. First its outputs are compared bit by bit with
those of a static engine without Winograd transforms, which symbolic engines do not have ("static_direct"); "static" may
use them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.zoo import ZOO, onnx_bytes
from compiler_kernels.compile import compile_model
from compiler_kernels.engine import load_engine
from compiler_kernels.policy import Policy, load_policy

SIZES: Final = ((1, 32), (1, 256), (2, 128), (4, 512))
WIDTH: Final = 256
POLICY: Final = b"""version: 1
model: {name: unet, version: "1"}
shapes: {batch: [1, 4], height: {min: 32, max: 512, multiple: 32}}
"""


def dynamic_model() -> bytes:
    """The zoo's U-Net with named batch and height axes."""
    import onnx

    model = onnx.load_model_from_string(onnx_bytes(ZOO["unet2m"]))
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in ((0, "batch"), (2, "height")):
            value.type.tensor_type.shape.dim[axis].dim_param = name
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())


def _policy(text: bytes) -> Policy:
    return load_policy(text, "benchmark policy")


def cpu_ms(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def measure(rounds: int) -> list[dict[str, Any]]:
    """One row per size: medians in milliseconds of CPU time, and ratios."""
    import onnxruntime

    data = dynamic_model()
    engine = load_engine(compile_model(data, policy=_policy(POLICY)))
    name = engine.inputs[0].name
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    plain = _policy(POLICY.split(b"shapes")[0] + b"numerics: {winograd: forbid}\n")
    rows = []
    for batch, height in SIZES:
        shape = (batch, 1, height, WIDTH)
        x = np.random.default_rng(batch * height).standard_normal(shape).astype(np.float32)
        shapes = {name: shape}
        static = load_engine(compile_model(data, input_shapes=shapes))
        direct = load_engine(compile_model(data, input_shapes=shapes, policy=plain))
        expected, got = direct.run({name: x}), engine.run({name: x})
        if any(expected[k].tobytes() != got[k].tobytes() for k in expected):
            raise SystemExit(f"{shape}: the symbolic engine's bits differ from the static engine's")
        calls: dict[str, Callable[[], object]] = {
            "symbolic": lambda x=x: engine.run({name: x}),  # type: ignore[misc]
            "static": lambda x=x, s=static: s.run({name: x}),  # type: ignore[misc]
            "static_direct": lambda x=x, s=direct: s.run({name: x}),  # type: ignore[misc]
            "onnxruntime": lambda x=x: session.run(None, {name: x}),  # type: ignore[misc]
        }
        times: dict[str, list[float]] = {k: [] for k in calls}
        for number in range(rounds + 1):
            for key, call in calls.items():
                spent = cpu_ms(call)
                if number:  # the first round warms caches
                    times[key].append(spent)
        medians = {k: median(v) for k, v in times.items()}
        ratios = {f"to_{k}": medians["symbolic"] / v for k, v in medians.items() if k != "symbolic"}
        rows.append({"batch": batch, "height": height, "ms": medians, **ratios})
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    rows = measure(chosen.rounds)
    if chosen.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        times = ", ".join(f"{k} {v:.1f} ms" for k, v in row["ms"].items())
        ratios = ", ".join(f"{k.removeprefix('to_')} {row[k]:.2f}" for k in row if k.startswith("to_"))
        print(f"batch {row['batch']}, height {row['height']}: {times}; symbolic is x times {ratios}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
