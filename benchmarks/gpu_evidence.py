"""Evidence on a GPU: `make gpu-evidence`, for anyone with an NVIDIA GPU and nvcc.

    python -m benchmarks.gpu_evidence [--out FILE] [--nets A,B] [--files X.onnx ...] [--batches 2,7,32] [--ncu NET]
                                      [--phase build,compare,...] [--limit SECONDS] [--resume] [--sign HOME] [--emulate]
    python -m benchmarks.gpu_evidence --phase cubins --out FILE      # without a GPU: for --cubins-of elsewhere

Builds networks for CPU and GPU; compares every output bit for bit, and every row of a batch with a batch of one; runs
the PTX of the sm_80 engines where the chip is a later one, and the vectors of CA-1; times the engine and torch in the
same process; compares memory; looks for a difference layer by layer and for a planted one; measures the traffic of a
net with ncu; compares the code that nvcc makes in two folders and on two machines. Writes one JSON object, which
further commands complete (``--resume``). ``--emulate`` runs all but the times without a GPU, and the result says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import gpu_checks, zoo
from benchmarks.gpu_asked import check, write_report
from benchmarks.gpu_session import PHASES, Session, cubins
from benchmarks.gpu_vectors import VECTORS
from benchmarks.gpu_verdict import RATIOS
from compiler_kernels.errors import CuvilError, UnsupportedError
from compiler_kernels.targets.registry import gpus_here


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.gpu_evidence", description=__doc__.partition("\n")[0])
    add = found.add_argument
    add("--out", default="benchmarks/results/gpu_evidence.json", help="the JSON file to write")
    add(
        "--nets",
        default=",".join([*RATIOS, "resnet18:size", "unet2m:size"]),
        help=f"of {', '.join(zoo.ZOO)}; NAME:size for numerics.prefer: size",
    )
    add("--files", nargs="*", default=[], help="ONNX files to compare besides")
    add("--refused", default="", help="names of files that the GPU target is known to refuse: reported, no failure")
    add("--batches", default="2,7,32", help="batches whose rows are compared with the batch of one")
    add("--all-batches", default="ecg,bilstm", help="names whose rows are compared for all of 2 to 32")
    add("--inputs", type=int, default=5, help="inputs of the comparison of bits")
    add("--runs", type=int, default=1000, help="timed inferences (of torch at most 200)")
    add("--vectors", type=Path, default=VECTORS, help="the vectors of CA-1")
    add("--every", type=int, default=1, help="take every N-th vector; 0: none")
    add("--small", default="brainchop_meshnet5_gwm", help="what is bisected and compiled in two folders")
    add("--ncu", default="", help="the net whose memory traffic ncu measures")
    add("--cubins-of", default="", help="the report of --phase cubins on another machine")
    add("--phase", default=",".join(PHASES), help=f"of {', '.join(PHASES)}; or cubins alone")
    add(
        "--limit",
        type=float,
        default=0,
        help="seconds after which nothing new begins; what is left serves more batches",
    )
    add("--resume", action="store_true", help="complete the report of an earlier command")
    add("--workers", type=int, default=0)
    add("--folder", default="/tmp/cuvil-gpu-evidence", help="where engines are built")
    add("--skip-torch", dest="torch", action="store_false")
    add("--skip-compile", dest="compile", action="store_false", help="leave torch.compile out")
    add("--skip-sm80", dest="sm80", action="store_false")
    add("--no-bisect", dest="bisect", action="store_false")
    add("--sign", default="", help="folder of keys (cuvil keys init) that sign the result")
    add("--emulate", action="store_true")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    phases = [p for p in options.phase.split(",") if p]
    options.refused = options.refused.split(",")
    unknown = [p for p in phases if p not in (*PHASES, "cubins")]
    if unknown:
        print(f"error: there is no phase {unknown[0]!r}: choose from {', '.join(PHASES)}, cubins", file=sys.stderr)
        return 2
    gpu_checks.without_zig()
    try:
        check(options)
        if phases == ["cubins"]:
            write_report(Path(options.out), cubins(options))
            return 0
        if not options.emulate and not gpus_here():
            raise UnsupportedError("nvidia-smi lists no GPU here: run this where it does, or give --emulate")
        report = Session(options, words).run(phases)
    except CuvilError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if options.sign:
        gpu_checks.sign(Path(options.out), Path(options.sign))
    told = {k: v for k, v in report["verdict"].items() if k != "must_reach"}
    told["not_reached"] = [d for d in report["verdict"]["must_reach"] if not d["reached"]]
    print(json.dumps(told, indent=1))
    return 0 if report["verdict"]["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
