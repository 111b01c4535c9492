"""What lockstep costs: processor time of an inference with it over one without, per network, as a ratio of medians.

``python -m benchmarks.lockstep [NETWORK ...] [--runs N] [--threads N]``. Both engines are the same build but for the
policy's ``safety.lockstep``; runs of the two take turns, so that a busy machine slows both. The column "comparing" is
the part of lockstep's time that is neither of the two computations: copying the input, comparing values and weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks.zoo import ZOO, onnx_bytes
from compiler_kernels.compile import build_frozen, freeze_model, native_target
from compiler_kernels.policy import Policy
from compiler_kernels.policy.clinical import Safety
from compiler_kernels.policy.model import ModelIdentity
from compiler_kernels.targets.isa import SCALAR

NETWORKS = ("resnet18", "unet2m", "mobilenetv2", "vit_tiny", "bilstm")
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description="time of an inference with lockstep over one without")
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--runs", type=int, default=5, help="runs of each engine in each of the rounds")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print(f"{'network':16} {'plain':>10} {'lockstep':>10} {'ratio':>7} {'comparing':>10}")
    for name in options.networks:
        plain, both, scalar = measure(onnx_bytes(ZOO[name]), options.runs, options.threads)
        rest = (both - plain - scalar) / both
        print(f"{name:16} {plain:8.2f}ms {both:8.2f}ms {both / plain:7.1f} {100 * rest:9.1f}%", flush=True)


def measure(model: bytes, runs: int, threads: int) -> tuple[float, float, float]:
    """Milliseconds of processor time, medians over all rounds: without lockstep, with it, with scalar kernels alone."""
    with tempfile.TemporaryDirectory(prefix="cuvil-lockstep-") as folder:
        engines = []
        for number, (lockstep, isas) in enumerate(((False, None), (True, None), (False, (SCALAR,)))):
            policy = Policy(version=1, model=ModelIdentity(name="net", version="1"), safety=Safety(lockstep=lockstep))
            path = Path(folder) / f"engine{number}"
            path.write_bytes(build_frozen(freeze_model(model, policy=policy), native_target(), "bin", isas))
            path.chmod(0o755)
            engines.append(path)
        samples: list[list[float]] = [[], [], []]
        for _ in range(ROUNDS):
            for found, path in zip(samples, engines, strict=True):
                words = [str(path), "--bench", str(runs), "--threads", str(threads), "--json"]
                done = subprocess.run(words, capture_output=True, text=True, check=True)
                found.append(json.loads(done.stdout)["cpu_us"]["median"] / 1000)
        plain, both, scalar = (statistics.median(found) for found in samples)
        return plain, both, scalar


if __name__ == "__main__":
    main()
