"""Rounding certificates of networks: how bounds and true errors grow with depth, and the share of decisions certified.

    python -m benchmarks.certificate [MODEL.onnx|ZOO-NAME...] [--input-shape NAME=1,3,48,192] [--seed N] [--json FILE]
    python -m benchmarks.certificate --images ../shared/data/pneumoniamnist.npz --model cxr.onnx [--count N]

The first prints a row per network on one seeded input; the second certifies the decision ``p >= 0.5`` on real images.
The engine's numbers come from a compiled engine; with ``--layers`` those of every tensor, from the reference.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_kernels.compile import build_frozen, native_target
from compiler_kernels.engine import load_engine
from cuvil_assets.inputs import parse_input_shapes
from evidence.bisect_systems import Subject, subject
from evidence.certificate.decisions import parse_threshold
from evidence.certificate.report import Certificate, certify

Array = npt.NDArray[Any]


def seeded(model: Subject, seed: int) -> dict[str, Array]:
    """Uniform numbers in [0, 1), and bytes for integer inputs."""
    rng = np.random.default_rng(seed)
    return {
        t.name: rng.random(t.shape).astype(t.dtype)
        if "float" in t.dtype
        else rng.integers(0, 255, t.shape).astype(t.dtype)
        for t in model.graph.inputs
    }


def compiled(model: Subject) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The model's engine for this machine, loaded."""
    with tempfile.TemporaryDirectory(prefix="cuvil-certificate-") as folder:
        path = Path(folder) / "engine.so"
        path.write_bytes(build_frozen(model.frozen, native_target(), "so"))
        engine = load_engine(path)
    return lambda x: dict(engine.run(x))


def _say(phase: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {phase} {done}/{total}", end="" if done < total else "\r\x1b[K", file=sys.stderr, flush=True)


def certified(model: Subject, x: Mapping[str, Array], layers: bool, classes: bool) -> tuple[Certificate, float]:
    """The certificate of one inference and the seconds it took, the engine's not counted."""
    outputs = compiled(model)(x)
    rows = [n for n, v in outputs.items() if classes and v.dtype.kind == "f" and v.ndim and v.shape[-1] > 1]
    began = time.perf_counter()
    made = certify(model.graph, x, outputs, largest=rows, layers=layers, step=_say)
    return made, time.perf_counter() - began


def row(name: str, made: Certificate, seconds: float) -> dict[str, Any]:
    """What the table shows of one network."""
    out = max(made.outputs, key=lambda o: float(o["bound"]))  # type: ignore[arg-type]
    found: dict[str, Any] = {
        "network": name,
        "bits": 20 * (made.words - 1),
        "bound": out["bound"],
        "largest": out["largest"],
        "radius": out["radius"],
        "unknown": sum(int(o["unknown"]) for o in made.outputs),  # type: ignore[arg-type]
        "decisions": sum(int(d["elements"]) for d in made.decisions),  # type: ignore[arg-type]
        "certified": sum(int(d["certified"]) for d in made.decisions),  # type: ignore[arg-type]
        "seconds": round(seconds, 1),
    }
    if made.layers:
        ours = [float(r["bound"]) / float(r["error"]) for r in made.layers if r["error"]]  # type: ignore[arg-type]
        plain = [
            float(r["forward_bound"]) / float(r["error"])  # type: ignore[arg-type]
            for r in made.layers
            if r["error"] and r.get("forward_bound") is not None
        ]
        found["layers"] = len(made.layers)
        found["ratio"] = max(ours, default=1.0)
        found["forward_ratios"] = [float(f"{v:.3g}") for v in plain]
        found["forward_unknown"] = sum(1 for r in made.layers if r.get("forward_bound") is None)
    return found


def images(model: Subject, path: Path, count: int) -> dict[str, Any]:
    """Every test image with a distinct decision: certified or not, and the least margin over its bound."""
    data = np.load(path)["test_images"][:count]
    name = model.graph.inputs[0].name
    output = model.graph.outputs[0][1]
    engine = compiled(model)
    shares = {"images": 0, "certified": 0}
    room: list[float] = []
    for k, image in enumerate(data):
        x = {name: (image.astype(np.float32) / np.float32(255)).reshape(model.graph.inputs[0].shape)}
        made = certify(model.graph, x, engine(x), [parse_threshold(f"{output}[0,1]>=0.5")])
        shares["images"] += 1
        shares["certified"] += made.certified
        decision = made.decisions[0]
        room.append(float(decision["margin"]) / max(float(decision["bound"]), 1e-300))  # type: ignore[arg-type]
        _say("images", k + 1, len(data))
    return {**shares, "least_margin_over_bound": min(room), "median_margin_over_bound": float(np.median(room))}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.certificate", description=__doc__.split("\n")[0] if __doc__ else ""
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="ONNX files or networks of the zoo")
    parser.add_argument("--input-shape", action="append", default=[], metavar="NAME=1,3,48,192")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--argmax", action="store_true", help="certify the largest class of every row of the outputs")
    parser.add_argument("--images", type=Path, metavar="NPZ")
    parser.add_argument("--count", type=int, default=624)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    shapes = parse_input_shapes(options.input_shape)
    rows: list[dict[str, Any]] = []
    for text in options.models:
        path = Path(text)
        if path.suffix != ".onnx":
            from benchmarks.zoo import model_file

            path = model_file(text)
        model = subject(path.read_bytes(), {n: s for n, s in shapes.items() if n in _inputs(path)})
        if options.images:
            found = {"network": path.stem, **images(model, options.images, options.count)}
        else:
            found = row(path.stem, *certified(model, seeded(model, options.seed), options.layers, options.argmax))
        rows.append(found)
        print(json.dumps(found), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def _inputs(path: Path) -> set[str]:
    import onnx

    return {i.name for i in onnx.load(path, load_external_data=False).graph.input}


if __name__ == "__main__":
    sys.exit(main())
