"""The single questions of the evidence on a GPU: bits, rows, memory, traffic, layers, bytes of the cubin."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gpu_engines
from benchmarks.gpu_engines import Runner, differing, inputs_for, row_of
from benchmarks.gpu_subjects import Subject
from compiler_kernels.compile import Frozen, generate_frozen
from compiler_kernels.errors import UsageError
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.targets.cuda.gpu import BY_NAME
from compiler_kernels.targets.cuda.ptx_gate import gate
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain import engines, nvcc
from compiler_kernels.toolchain.gcc import GccDriver


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
    wrong = compared = 0
    for row in range(batch):
        alone = one.run(row_of(x, {name: shape for name, (shape, _) in one.shapes.items()}, row))
        wrong += sum(differing(row_of(got, {name: value.shape for name, value in alone.items()}, row), alone).values())
        compared += sum(value.size for value in alone.values())
    return {"rows": batch, "values": compared, "differing": wrong}


def against(row: Mapping[str, Any]) -> dict[str, Any]:
    """Ratios of the engine's time to torch's variants, and of its memory to torch's peak."""
    own, torch = row["cuvil"]["gpu_us"]["median"], row["torch"]
    found: dict[str, Any] = {
        "ratios": {
            label: round(own / torch[label]["gpu_us"]["median"], 4)
            for label in ("eager", "eager_graph", "compile_graph")
            if "gpu_us" in torch.get(label, {})
        }
    }
    if torch["peak_bytes"]:
        found["memory_ratio"] = round(row["memory"]["engine_bytes"] / torch["peak_bytes"], 4)
    return found


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


def cubin(frozen: Frozen, target: str, folder: Path | None = None) -> dict[str, Any]:
    """Digests of what nvcc makes of a frozen model's kernels for ``target``, in temporary folders below ``folder``."""
    chosen = resolve_target(target)
    text = generate_frozen(frozen, chosen)["kernels.cu"]
    before = tempfile.tempdir
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.tempdir = str(folder)
        report = nvcc.compile_cuda(gpu_engines.unit_of(text), BY_NAME[chosen.gpu])[1]
    finally:
        tempfile.tempdir = before
    return {"images": report["images"], **gpu_engines.facts_of_kernels(text)}


def cubins(subject: Subject, targets: Sequence[str]) -> dict[str, Any]:
    """``cubin`` of a subject by target, from one freeze."""
    frozen = subject.freeze()
    return {target: cubin(frozen, target) for target in targets}


def two_folders(subject: Subject, folder: Path) -> dict[str, Any]:
    """The cubin of one model compiled in two folders."""
    frozen = subject.freeze()
    found = [cubin(frozen, "cuda-sm_90", folder / name) for name in ("one", "two/deeper")]
    return {"model": subject.name, "equal": found[0] == found[1], "images": found[0]["images"]}


def other_machine(report: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What nvcc made of the same text on this machine and on another, whose ``--phase cubins`` wrote ``other``.
    ``UsageError`` where no engine of the two has the same text."""
    compared, differ, changed = [], [], []
    for label, theirs in other["cubins"].items():
        ours = report["builds"].get(label)
        if ours is None or "images" not in theirs:
            continue
        if ours["nvcc_reads_sha3_512"] != theirs["nvcc_reads_sha3_512"]:
            changed.append(label)
            continue
        compared.append(label)
        if ours["images"] != theirs["images"]:
            differ.append(label)
    if not compared:
        raise UsageError("no engine of the other machine was made from the same text: make its cubins again")
    return {"machine": other["machine"], "compared": compared, "differ": differ, "of_other_text": changed}


def traffic(name: str, folder: Path) -> dict[str, Any]:
    """Bytes one inference reads and writes: counted before and after fusion, and by ncu in the device's memory."""
    frozen = Subject(name).freeze()
    target = resolve_target("cuda-sm_90")
    program = folder / f"{name}-program.bin"
    output = engines.build_engine(generate_frozen(frozen, target), target, "bin", gpu_engines.c_driver())
    folder.mkdir(parents=True, exist_ok=True)
    program.write_bytes(output.data)
    program.chmod(0o755)
    metrics = "dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,gpu__time_duration.sum"
    words = ["ncu", "--clock-control", "none", "--csv", "--metrics", metrics, "--graph-profiling", "node"]
    done = subprocess.run(
        [*words, str(program), "--bench", "1", "--json"], capture_output=True, text=True, timeout=150, check=False
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
    from compiler_kernels.targets.cuda.gpu import SM_90
    from compiler_kernels.targets.cuda.taps import with_taps

    l1, _ = run_passes(frozen.module, frozen.store, l1_passes(frozen.module))
    lowered = lower_to_l2(frozen.module, frozen.store)
    lowered = with_taps(lowered, frozen.store, frozen.module.main, frozen.store, SM_90)
    return {
        "before_fusion": statements(frozen.module.main),
        "after_fusion": statements(l1.main),
        "weights_bytes": layout(lowered.main.weights)[1],
    }


def gate_allows(instruction: str) -> bool:
    """Whether the gate on PTX lets an instruction of this name pass."""
    return not gate(f"{instruction} %x;").violations


def sign(path: Path, home: Path) -> None:
    """``path`` as a DSSE envelope beside it, signed with the SM2 and P-384 keys of the Cuvil home ``home``."""
    from evidence.keys import load_keys
    from evidence.verifier import dsse

    path.with_suffix(".dsse.json").write_bytes(dsse.sign(path.read_bytes(), load_keys(home).signers).encode())
