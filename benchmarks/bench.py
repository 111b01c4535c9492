"""``cuvil bench`` on the networks of the zoo (docs/benchmarks.md).

    python -m benchmarks.bench [MODEL...] [--peers onnxruntime,openvino,torch,inductor] [--threads N] [--runs N]
                               [--no-scalar] [--json FILE] [--picture FILE]

MODEL is the name of a network of the zoo or an ONNX file; all of the zoo if none is given. Exit code 1 when the vector
kernels are not faster than plain C, or when a result is far from a peer's: such a run is no measurement.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.zoo import ZOO, build, example_input, model_file
from compiler_kernels.errors import CuvilError, UsageError
from evidence.timing.bench import Show, bench, failed
from evidence.timing.network import Network, networks
from evidence.timing.picture import draw
from evidence.timing.runners import parse_peers
from evidence.timing.table import table


def find_networks(models: Sequence[str]) -> list[Network]:
    """Networks of the zoo and ONNX files, all of the zoo if none is given; ``UsageError`` for an unknown one."""
    for model in models:
        if model not in ZOO and not Path(model).is_file():
            raise UsageError(f"{model}: no such file and no network of the zoo; the zoo holds {', '.join(ZOO)}")
    found = []
    for model in models or ZOO:
        net = ZOO.get(model)
        if net is None:
            found += networks([Path(model)])
        else:
            found.append(Network(model, model_file(model), partial(example_input, net), partial(build, net)))
    return found


def bench_models(
    models: Sequence[str],
    peers: Sequence[str] | None = None,
    threads: int = 1,
    runs: int = 15,
    check_scalar: bool = True,
    show: Show = lambda line: None,
) -> dict[str, Any]:
    """``evidence.timing.bench.bench`` of networks of the zoo and of files by name."""
    return bench(find_networks(models), peers, threads, runs, check_scalar, show)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description="Time Cuvil and its peers.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"ONNX file, or one of {', '.join(ZOO)}")
    parser.add_argument("--peers", help="comma-separated; the installed ones if not given, 'none' for none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=15, help="rounds per model")
    parser.add_argument("--no-scalar", action="store_true", help="leave out the comparison with plain C")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, raw samples included")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write a PNG (pip install 'cuvil[bench]')")
    options = parser.parse_args(arguments)
    try:
        document = bench_models(
            options.models, parse_peers(options.peers), options.threads, options.runs, not options.no_scalar,
            lambda line: print(line, file=sys.stderr, flush=True),
        )  # fmt: skip
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        if options.picture:
            draw(document, options.picture)
    except CuvilError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join(table(document)))
    return 1 if failed(document) else 0


if __name__ == "__main__":
    sys.exit(main())
