"""Time of ``cuvil surveil`` over many partitions: ``python -m benchmarks.surveil [--partitions 100]``.

Builds a small model under so many versions in a home of its own, real engines with real proofs, and then looks at them
all in a fresh process, with advisories for those ``--bills`` of them that have a bill of materials.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

POLICY = 'version: 1\nmodel: {{name: surveyed, version: "{version}"}}\n'


def main() -> None:
    """Build, look, print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--bills", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cuvil-surveil-") as folder:
        os.environ["CUVIL_HOME"] = str(Path(folder) / "home")
        build_all(Path(folder), small_model(Path(folder)), options.partitions, options.bills)
        print(json.dumps({"partitions": options.partitions, **look(Path(folder))}, indent=1))


def small_model(folder: Path) -> Path:
    """A multilayer perceptron of 256 KB."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((256, 256)).astype(np.float32) / 16, "w")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 256]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], weights)
    path = folder / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def build_all(folder: Path, model: Path, count: int, bills: int) -> None:
    """One build for each version, in this process."""
    from cuvil_assets import chain
    from cuvil_assets.builder import build
    from cuvil_assets.execution import Build, run_stage
    from cuvil_assets.home import current_home
    from cuvil_assets.inputs import BuildOptions
    from cuvil_assets.request import load_request

    policy = folder / "policy.yaml"
    for number in range(count):
        policy.write_text(POLICY.format(version=f"1.0.{number}"))
        target, output = "x86_64-linux-musl", folder / "out" / "inference-engine.bin"
        outcome = build(BuildOptions(model, policy, target, output, equivalence_inputs=1))
        if number < bills:
            run_stage(
                Build(current_home(), load_request(current_home(), str(outcome.facts["partition"]), None)), chain.SBOM
            )
        print(f"\rbuilt {number + 1}/{count}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def look(folder: Path) -> dict[str, object]:
    """Wall and CPU seconds of the command, and what it said."""
    advisories = folder / "osv.json"
    event = [{"introduced": "0"}]
    affected = [{"package": {"name": "no-such-component"}, "ranges": [{"type": "ECOSYSTEM", "events": event}]}]
    advisories.write_text(json.dumps([{"id": f"TEST-{n}", "affected": affected} for n in range(1000)]))
    words = [sys.executable, "-m", "cuvil_assets.cli", "surveil", "--advisories", str(advisories), "--json"]
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = json.loads(done.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts: dict[str, int] = {}
    for item in report["findings"]:
        counts[item["level"]] = counts.get(item["level"], 0) + 1
    return {"wall_seconds": round(time.perf_counter() - wall, 2), "cpu_seconds": round(cpu, 2), "findings": counts}


if __name__ == "__main__":
    main()
