"""The flow of ``cuvil demo``: build the shipped model, run its engine on a real photograph, show what came out.

Build and verification are given as callables, so that this module knows nothing of Dagster and the command line uses
the same build as ``cuvil build``.
"""

from __future__ import annotations

import hashlib
import json as json_text
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from compiler_kernels.errors import UsageError, VerificationFailed
from compiler_kernels.stage import Json, as_json
from cuvil_assets import demo_data, demo_engine, demo_picture

if TYPE_CHECKING:
    from evidence.verifier.report import VerifyReport

DATA = Path(__file__).parent / "data"
MODEL = DATA / "fundus_vessel_unet.onnx"
POLICY = DATA / "fundus-demo-policy.yaml"
MODEL_SHA256 = "c2269f6b065692cba48ceebda77873a02e14739d2fc7ad3c75afe74ad8b3392b"
INPUT, OUTPUT = "rgb", "vessel"
INPUT_SHAPE = (1, 3, demo_data.SIZE, demo_data.SIZE // 2)
THRESHOLD = 0.5
NOTICE = "A demonstration, not a clinical model; labels are pseudo-labels from a ridge filter."


class BuildOutcome(Protocol):
    """What a build hands back; single facts (text, numbers) are quoted in the summary."""

    @property
    def engine(self) -> Path: ...

    @property
    def proof(self) -> Path: ...

    @property
    def facts(self) -> Mapping[str, Json]: ...


class Build(Protocol):
    """Builds ``model`` under ``policy`` into the file ``output``; raises ``CuvilError`` when it cannot."""

    def __call__(
        self, *, model: Path, policy: Path, target: str, output: Path, input_shape: Mapping[str, tuple[int, ...]]
    ) -> BuildOutcome: ...


Verify = Callable[[Path, Path], "VerifyReport"]
"""(engine, proof) to the report; ``evidence.verifier.verify.verify_engine`` is one."""


@dataclass(frozen=True)
class _Output:
    """Prints progress and summary, or, for ``--json``, keeps quiet until the one object at the end."""

    json: bool

    def step(self, text: str) -> None:
        if not self.json:
            print(text, flush=True)

    def end(self, summary: Mapping[str, Json]) -> None:
        print(json_text.dumps(summary, indent=2, ensure_ascii=False) if self.json else "\n" + summary_text(summary))


def run_demo(
    output_dir: Path, *, json: bool = False, build: Build, verify: Verify, target: str | None = None
) -> dict[str, Json]:
    """Build, run twice, compare, draw and verify in ``output_dir``; prints and returns the summary.

    ``target`` defaults to the one that runs on this machine. Raises ``UsageError`` (package of the ``demo`` extra
    missing, directory not writable), ``UnsupportedError`` (no engine runs here), ``VerificationFailed`` with check
    ``engine-run``, ``repeatability`` or that of the proof, and whatever ``build`` raises.
    """
    out = _Output(json)
    target = target or demo_engine.native_target()
    # everything that can be missing is asked for before the first file is written
    demo_data.optional_module("PIL.ImageFont", "pillow")
    halves = demo_data.load_halves()
    limits = demo_data.thresholds(halves.training)
    label = demo_data.pseudo_labels(halves.held_out, limits)
    overlay, summary_file = output_dir / "overlay.png", output_dir / "summary.json"
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        for stale in (overlay, summary_file):
            # of an earlier run, which must not pass for the result of this one if it fails half way
            stale.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{output_dir}: cannot be written to ({error.strerror}); give another directory") from None

    out.step(f"Building {MODEL.name} for {target} ...")
    built = build(
        model=MODEL,
        policy=POLICY,
        target=target,
        output=output_dir / "inference-engine.bin",
        input_shape={INPUT: INPUT_SHAPE},
    )
    out.step("Running the engine twice on the held-out half of the photograph ...")
    rgb = demo_data.as_nchw(halves.held_out)
    input_file = output_dir / f"{INPUT}.npy"
    demo_engine.write_file(input_file, demo_engine.npy_bytes(rgb))
    vessel = demo_engine.run_twice(built.engine, INPUT, input_file, OUTPUT, output_dir)
    expected = (1, 1, *INPUT_SHAPE[2:])
    if vessel.shape != expected or vessel.dtype != np.float32:
        raise VerificationFailed(
            "engine-run", f"the engine wrote {vessel.dtype} {vessel.shape}, not float32 {expected}"
        )
    comparison = demo_engine.compare_with_onnxruntime(MODEL, INPUT, rgb, vessel, THRESHOLD)

    out.step("Drawing the overlay and verifying the proof ...")
    overlap = demo_data.dice(vessel[0, 0] > THRESHOLD, label)
    demo_engine.write_file(overlay, demo_picture.render(halves.held_out, vessel[0, 0], label, THRESHOLD, overlap))
    report = verify(built.engine, built.proof)
    report.raise_if_failed()

    results = [output_dir / name / f"{OUTPUT}.npy" for name in ("run-1", "run-2")]
    summary: dict[str, Json] = {
        "notice": NOTICE,
        "target": target,
        "model": _file(MODEL),
        "engine": _file(built.engine),
        "proof": {
            **_file(built.proof),
            "verified": report.ok,
            "checks": len(report.checks),
            "trust": report.trust,
        },
        "build": as_json(built.facts),
        "input": {"shape": list(INPUT_SHAPE), "what": "right half of retina.jpg (CC0 1.0), held out from training"},
        "output": {**_file(results[0]), "shape": list(vessel.shape), "runs": 2, "runs_equal": True},
        "dice_against_pseudo_labels": overlap,
        "threshold": THRESHOLD,
        "onnxruntime": as_json(comparison),
        "directory": str(output_dir),
        "files": [
            path.relative_to(output_dir).as_posix() if path.is_relative_to(output_dir) else str(path)
            for path in (overlay, built.engine, built.proof, input_file, *results, summary_file)
        ],
    }
    text = json_text.dumps(summary, indent=2, ensure_ascii=False)
    demo_engine.write_file(summary_file, (text + "\n").encode())
    out.end(summary)
    return summary


def _file(path: Path) -> dict[str, Json]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); run the demonstration again") from None
    return {"name": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def summary_text(summary: Mapping[str, Json]) -> str:
    """The summary of ``run_demo`` for people, about twenty lines."""
    proof, output, build, peer = (_mapping(summary[key]) for key in ("proof", "output", "build", "onnxruntime"))
    compared = "onnxruntime is not installed, so no comparison was made"
    if peer:
        differing = f"{peer['mask_pixels_that_differ']} of {peer['mask_pixels']} mask pixels differ"
        compared = f"onnxruntime {peer['version']}: largest difference {peer['max_abs_difference']:.1e}, {differing}"
    rows = [
        ("model", _described(summary["model"])),
        ("target", str(summary["target"])),
        ("engine", _described(summary["engine"])),
        ("proof", _described(summary["proof"])),
        ("", f"verified: {proof['checks']} checks passed, trust: {proof['trust']}"),
        ("output", _described(summary["output"])),
        ("", f"{output['runs']} runs, bytes equal"),
        ("Dice", f"{summary['dice_against_pseudo_labels']:.3f} against the pseudo-labels (1 would be the same mask)"),
        ("compared", compared),
    ]
    facts = [(key.replace("_", " "), str(value)) for key, value in build.items() if not isinstance(value, dict | list)]
    lines = ["Vessels on a fundus photograph, by an engine Cuvil just built", str(summary["notice"]), ""]
    lines += _table(rows)
    if facts:
        lines += ["", "build", *_table(facts)]
    files = summary["files"]
    if isinstance(files, list):
        lines += ["", f"files in {summary['directory']} (look at {files[0]} first)", *(f"  {name}" for name in files)]
    return "\n".join(lines)


def _mapping(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _described(value: Json) -> str:
    facts = _mapping(value)
    return f"{facts['name']}, {facts['bytes']:,} bytes, sha256 {facts['sha256']}"


def _table(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(key) for key, _ in rows)
    return [f"  {key:{width}}  {text}" for key, text in rows]
