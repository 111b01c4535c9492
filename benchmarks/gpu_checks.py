"""The single questions of the evidence on a GPU: bits, rows, memory, traffic, layers, bytes of the cubin."""

from __future__ import annotations

import csv
import importlib.util
import io
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gpu_engines
from benchmarks.gpu_engines import Runner, Subject, differing, inputs_for, row_inputs
from compiler_kernels.compile import generate_frozen
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.targets.cuda.gpu import SM_90
from compiler_kernels.targets.cuda.ptx_gate import gate
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain import engines, nvcc
from compiler_kernels.toolchain.gcc import GccDriver
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources


def without_zig() -> None:
    """On a machine without zig the tools of this process compile with gcc."""
    if importlib.util.find_spec("ziglang") is None:
        engines.ZigDriver = GccDriver  # type: ignore[assignment,misc]


def free_bytes() -> int:
    """Free memory of the GPU."""
    import torch

    torch.cuda.synchronize()
    return int(torch.cuda.mem_get_info()[0])


def bits(runner: Runner, reference: Runner, inputs: int) -> dict[str, Any]:
    """Values whose bits differ between two engines over ``inputs`` sets of inputs, and again on a second run."""
    wrong = unstable = compared = 0
    for number in range(inputs):
        x = inputs_for(runner, number)
        got, wanted = runner.run(x), reference.run(x)
        wrong += sum(differing(got, wanted).values())
        unstable += sum(differing(got, runner.run(x)).values())
        compared += sum(v.size for v in wanted.values())
    return {"inputs": inputs, "values": compared, "differing": wrong, "differing_on_second_run": unstable}


def rows(many: Runner, one: Runner, batch: int) -> dict[str, Any]:
    """Values of a batch that differ from the same rows computed alone."""
    x = inputs_for(many, 100 + batch)
    got = many.run(x)
    wrong = 0
    for row in range(batch):
        alone = one.run(row_inputs(x, row))
        wrong += sum(differing({k: v[row : row + 1] for k, v in got.items()}, alone).values())
    return {"rows": batch, "differing": wrong}


def against(row: Mapping[str, Any], limit: float | None) -> dict[str, Any]:
    """Ratios to torch's variants, and to its peak memory."""
    own = row["cuvil"]["gpu_us"]["median"]
    torch = row["torch"]
    ratios = {
        label: round(own / torch[label]["gpu_us"]["median"], 4)
        for label in ("eager", "eager_graph", "compile_graph")
        if "gpu_us" in torch.get(label, {})
    }
    found: dict[str, Any] = {"ratios": ratios}
    if limit is not None and "compile_graph" in ratios:
        found["limit"] = {"ratio": limit, "met": ratios["compile_graph"] <= limit}
    if "memory" in row and torch["peak_bytes"]:
        found["memory_ratio"] = round(row["memory"]["engine_bytes"] / torch["peak_bytes"], 4)
    return found


def summary(row: Mapping[str, Any]) -> str:
    """One line for the terminal."""
    parts = []
    if "bits" in row:
        parts.append(f"{row['bits']['differing']} of {row['bits']['values']} values differ")
    if row.get("rows"):
        parts.append(f"rows differing {sum(r['differing'] for r in row['rows'].values())}")
    if "sm_80" in row:
        parts.append(f"sm_80 differing {row['sm_80']['differing']}")
    if "cuvil" in row:
        parts.append(f"{row['cuvil']['gpu_us']['median']} us")
    if "ratios" in row:
        parts.append(f"of torch's {row['ratios']}")
    if "memory_ratio" in row:
        parts.append(f"memory {row['memory_ratio']} of torch's")
    return ", ".join(parts)


def bisection(subject: Subject) -> dict[str, Any]:
    """Layer by layer: no tensor differs between the CPU's and the GPU's engine, and a planted difference is found."""
    from evidence.bisect import bisect

    data = subject.onnx()
    planted, node = plant(data)
    pins = subject.pins(data)
    none = bisect(f"cuvil@{gpu_engines.CPU}", "cuvil@cuda-sm_90", data, input_shapes=pins)
    one = bisect(f"cuvil@{gpu_engines.CPU}", "cuvil@cuda-sm_90", data, model_b=planted, input_shapes=pins)
    return {
        "model": subject.name,
        "tensors": none.compared,
        "difference": None if none.difference is None else none.difference.node,
        "planted_in": node,
        "planted_found_at": None if one.difference is None else one.difference.node,
    }


def plant(data: bytes) -> tuple[bytes, str]:
    """The model with the lowest bit of its largest weight in the middle convolution or product flipped; its node."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load_from_string(data)
    constants = {t.name: t for t in model.graph.initializer}
    nodes = [
        n
        for n in model.graph.node
        if n.op_type in ("Conv", "Gemm", "MatMul") and any(i in constants for i in n.input[1:2])
    ]
    node = nodes[len(nodes) // 2]
    tensor = constants[node.input[1]]
    values = numpy_helper.to_array(tensor).copy()
    flat = values.reshape(-1).view(np.uint32)
    flat[int(np.argmax(np.abs(values)))] ^= 1
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return bytes(model.SerializeToString()), node.name


def two_folders(subject: Subject, folder: Path) -> dict[str, Any]:
    """The cubin of one model compiled in two folders."""
    files = generate_frozen(gpu_engines.frozen_of(subject), resolve_target("cuda-sm_90"))
    text = {**runtime_sources(), **cuda_sources(), "kernels.cu": files["kernels.cu"]}
    digests, before = [], tempfile.tempdir
    try:
        for name in ("one", "two/deeper"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            tempfile.tempdir = str(folder / name)
            digests.append(nvcc.compile_cuda(text, SM_90)[1]["images"])
    finally:
        tempfile.tempdir = before
    return {"model": subject.name, "equal": digests[0] == digests[1], "images": digests[0]}


def traffic(name: str, folder: Path) -> dict[str, Any]:
    """Bytes one inference reads and writes: counted before and after fusion, and by ncu in the device's memory."""
    import json

    frozen = gpu_engines.frozen_of(Subject(name))
    target = resolve_target("cuda-sm_90")
    program = folder / f"{name}-program.bin"
    output = engines.build_engine(generate_frozen(frozen, target), target, "bin", gpu_engines.c_driver())
    program.write_bytes(output.data)
    program.chmod(0o755)
    metrics = "dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,gpu__time_duration.sum"
    words = ["ncu", "--clock-control", "none", "--csv", "--metrics", metrics, "--graph-profiling", "node"]
    done = subprocess.run(
        [*words, str(program), "--bench", "1", "--json"], capture_output=True, text=True, timeout=400, check=False
    )
    found = {"counted": counted_traffic(frozen), "ncu_exit": done.returncode}
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    totals: dict[str, float] = {}
    launches = set()
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        scale = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "usecond": 1.0, "nsecond": 1e-3, "us": 1.0, "ns": 1e-3}
        value = float(row["Metric Value"].replace(",", "")) * scale.get(row["Metric Unit"], 1.0)
        totals[row["Metric Name"]] = totals.get(row["Metric Name"], 0.0) + value
        launches.add(row["ID"])
    if not totals:
        return {**found, "error": (done.stderr or done.stdout)[-400:]}
    told = subprocess.run([str(program), "--version", "--json"], capture_output=True, check=True).stdout
    steps = len(json.loads(told)["steps"])
    inferences = max(1, len(launches) // steps)
    return {
        **found,
        "launches": len(launches),
        "inferences": inferences,
        "per_inference": {k: v / inferences for k, v in totals.items()},
    }


def counted_traffic(frozen: Any) -> dict[str, Any]:
    """Bytes statements read and write before and after fusion (docs/kernels.md, memory report), and of constants."""
    from compiler_kernels.ir.weights import layout
    from compiler_kernels.passes.infra import run_passes
    from compiler_kernels.passes.memory_report import traffic as statements
    from compiler_kernels.stages.backend import l1_passes

    l1, _ = run_passes(frozen.module, frozen.store, l1_passes(frozen.module))
    lowered = lower_to_l2(frozen.module, frozen.store)
    return {
        "before_fusion": statements(frozen.module.main),
        "after_fusion": statements(l1.main),
        "weights_bytes": layout(lowered.main.weights)[1],
    }


def verdict(report: Mapping[str, Any]) -> dict[str, Any]:
    """What the run says in short: equal bits everywhere or not, limits met or not, what could not be built."""
    nets = {n: r for n, r in report["nets"].items() if "bits" in r}
    equal = all(
        not r["bits"]["differing"]
        and not r["bits"]["differing_on_second_run"]
        and not r.get("sm_80", {}).get("differing")
        and not any(x["differing"] for x in r["rows"].values())
        for r in nets.values()
    )
    return {
        "equal": bool(nets) and equal and len(nets) == len(report["nets"]),
        "nets": len(report["nets"]),
        "compared": len(nets),
        "ratios_to_torch_compile_graph": {
            n: r["ratios"]["compile_graph"] for n, r in nets.items() if "compile_graph" in r.get("ratios", {})
        },
        "limits_met": {n: r["limit"]["met"] for n, r in nets.items() if "limit" in r},
        "memory_ratios": {n: r["memory_ratio"] for n, r in nets.items() if "memory_ratio" in r},
        "p99_over_p50": {n: r["cuvil"]["gpu_us"]["p99_over_p50"] for n, r in nets.items() if "cuvil" in r},
        "failures": len(report["failures"]),
    }


def gate_allows(instruction: str) -> bool:
    """Whether the gate on PTX lets an instruction of this name pass."""
    return not gate(f"{instruction} %x;").violations


def sign(path: Path, home: Path) -> None:
    """``path`` as a DSSE envelope beside it, signed with the SM2 and P-384 keys of the Cuvil home ``home``."""
    from evidence.keys import load_keys
    from evidence.verifier import dsse

    path.with_suffix(".dsse.json").write_bytes(dsse.sign(path.read_bytes(), load_keys(home).signers).encode())
