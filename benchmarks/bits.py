"""One sha256 of the outputs over instruction sets, processors and numbers of threads (docs/benchmarks.md).

    python -m benchmarks.bits [MODEL...] [--inputs N] [--no-emulator] [--json FILE]

MODEL is the name of a network of the zoo or an ONNX file. Exit code 1 when two ways differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.bench import find_networks
from compiler_kernels.compile import Frozen, build_frozen, freeze_model
from compiler_kernels.errors import CuvilError, VerificationFailed
from compiler_kernels.targets.isa import SCALAR, VARIANTS
from compiler_kernels.targets.registry import TARGETS, Target, runner, runs_natively
from evidence.timing.network import Inputs

THREADS: Final = (1, 2)
NOT_EXECUTED: Final = "not executed"


@dataclass(frozen=True)
class Way:
    """One target, instruction set and number of threads; ``prefix`` are the words that run it here."""

    target: Target
    isa: str
    threads: int
    prefix: tuple[str, ...]

    @property
    def name(self) -> str:
        emulated = f" under {Path(self.prefix[0]).name}" if self.prefix else ""
        return f"{self.target.machine} {self.isa}, {self.threads} thread(s){emulated}"


def ways(emulator: bool = True) -> Iterator[Way]:
    """Every instruction set of every target, plain C on the native one, that this machine may be able to run."""
    for target in TARGETS.values():
        prefix = runner(target)
        if prefix is None or (prefix and not emulator):
            continue
        for isa in VARIANTS[target.machine] + ((SCALAR,) if runs_natively(target) else ()):
            for threads in THREADS:
                yield Way(target, isa.name, threads, prefix)


def digest(engine: Path, way: Way, inputs: Sequence[Sequence[str]], folder: Path) -> str:
    """sha256 over the output files' data for all inputs in order, or ``NOT_EXECUTED`` where the processor lacks the
    instruction set. ``VerificationFailed`` when the engine stops for another reason."""
    total = hashlib.sha256()
    for given in inputs:
        out = Path(tempfile.mkdtemp(dir=folder))
        words = [*way.prefix, str(engine), *given, "--output-dir", str(out)]
        words += ["--isa", way.isa, "--threads", str(way.threads)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 4 and "does not support" in done.stderr:
            return NOT_EXECUTED
        if done.returncode:
            raise VerificationFailed("engine-runs", f"{way.name}: {done.stderr.strip() or f'exit {done.returncode}'}")
        for file in sorted(out.iterdir()):
            total.update(np.load(file).tobytes())
    return total.hexdigest()


def compare(frozen: Frozen, inputs: Sequence[Inputs], chosen: Sequence[Way]) -> dict[str, str]:
    """The digest of every way for one frozen model."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="cuvil-bits-") as name:
        folder = Path(name)
        files: list[list[str]] = []
        for number, one in enumerate(inputs):
            files.append([])
            for place, (key, value) in enumerate(one.items()):
                path = folder / f"x{number}-{place}.npy"
                np.save(path, value)
                files[-1] += ["--input", f"{key}={path}"]
        engines: dict[str, Path] = {}
        for way in chosen:
            triple = way.target.triple
            if triple not in engines:
                extra = (SCALAR,) if runs_natively(way.target) else ()
                isas = VARIANTS[way.target.machine] + extra
                engines[triple] = folder / f"{triple}.bin"
                engines[triple].write_bytes(build_frozen(frozen, way.target, "bin", isas))
                engines[triple].chmod(0o755)
            found[way.name] = digest(engines[triple], way, files, folder)
    return found


def compare_models(
    models: Sequence[str], inputs: int = 2, emulator: bool = True, show: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """``{"models": [{"model", "digests": {way: sha256}, "equal", "refused"}]}``; ``models`` empty: the whole zoo."""
    entries = []
    for network in find_networks(models):
        name = network.name
        entry: dict[str, Any] = {"model": name, "digests": {}, "equal": True, "refused": ""}
        entries.append(entry)
        try:
            frozen = freeze_model(network.path, network.pins)
        except CuvilError as error:
            entry["refused"] = str(error)
            show(f"{name}: refused: {error}")
            continue
        entry["digests"] = compare(frozen, network.inputs(frozen, inputs), list(ways(emulator)))
        different = set(entry["digests"].values()) - {NOT_EXECUTED}
        entry["equal"] = len(different) == 1
        show(f"{name}: {'equal' if entry['equal'] else f'{len(different)} DIFFERENT RESULTS'}")
        for way, value in entry["digests"].items():
            show(f"    {value if value == NOT_EXECUTED else value[:32]:32}  {way}")
    return {"format": "cuvil-bits/1", "inputs": inputs, "models": entries}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bits", description="Compare bits between processors.")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--inputs", type=int, default=2, help="inputs per model")
    parser.add_argument("--no-emulator", action="store_true", help="leave out what needs qemu (minutes per network)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        document = compare_models(
            options.models, max(1, options.inputs), not options.no_emulator, lambda line: print(line, flush=True)
        )
    except CuvilError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if all(entry["equal"] for entry in document["models"]) else 1


if __name__ == "__main__":
    sys.exit(main())
