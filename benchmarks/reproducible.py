"""Varied rebuilds of the shipped demonstration model and of ResNet-18: one digest each, or it fails.

    python -m benchmarks.reproducible [--rebuilds 20] [--folder DIR] [NAME...]

NAME is ``demo`` or a network of the zoo. Prints one line per model with the digest of its engine over all rebuilds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.zoo import ZOO, model_file
from cuvil_assets import demo

TARGET = "x86_64-linux-musl"
ZOO_POLICY = 'version: 1\nmodel: {{name: "{name}", version: "1"}}\nreproducibility: {{rebuilds: {rebuilds}}}\n'


def cuvil(*words: str) -> str:
    """Standard output of a ``cuvil`` command; its messages pass through. Raises ``CalledProcessError``."""
    command = [sys.executable, "-m", "cuvil_assets.cli", *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def reproduce(name: str, rebuilds: int, folder: Path) -> tuple[str, int]:
    """Build ``name`` below ``folder`` and rebuild it; the engine's digest and the number of rebuilds that gave it."""
    engine = folder / name / "inference-engine.bin"
    engine.parent.mkdir(parents=True, exist_ok=True)
    if name == "demo":
        model, policy, shape = demo.MODEL, demo.POLICY, demo.INPUT_SHAPE
        words = ["--input-shape", f"{demo.INPUT}={','.join(map(str, shape))}"]
    else:
        model, policy, words = model_file(name), engine.with_name("policy.yaml"), ["--equivalence-inputs", "1"]
        policy.write_text(ZOO_POLICY.format(name=name, rebuilds=rebuilds))
    cuvil("build", "--model", str(model), "--policy", str(policy), "--target", TARGET, "--output", str(engine), *words)
    cuvil("reproduce", str(engine), "--rebuilds", str(rebuilds))
    report = json.loads(engine.with_name("inference-engine.reproducibility.json").read_bytes())
    ((digest, count),) = report["engine_digests"].items()
    return digest, count


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0 when every model has one digest over all its rebuilds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproducible", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="demo, or a network of the zoo (demo resnet18)")
    parser.add_argument("--rebuilds", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="keep engines and reports here")
    options = parser.parse_args(words)
    names = options.names or ["demo", "resnet18"]
    unknown = [name for name in names if name != "demo" and name not in ZOO]
    if unknown:
        parser.error(f"{unknown[0]!r} is neither demo nor one of {', '.join(ZOO)}")
    with tempfile.TemporaryDirectory(prefix="cuvil-reproducible-") as temporary:
        lines = []
        for name in names:
            try:
                digest, count = reproduce(name, options.rebuilds, options.folder or Path(temporary))
            except subprocess.CalledProcessError as error:
                print(f"{name}: {' '.join(error.cmd[3:5])} ended with {error.returncode}", file=sys.stderr)
                return 1
            lines.append(f"{name:10} {count} rebuilds, one engine sha3-512:{digest}")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
