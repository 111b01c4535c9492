"""``cuvil certificate``: what rounding may have done to one inference."""

from __future__ import annotations

import io
import json as json_module
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_kernels.errors import CuvilError, RefusedError, UnsupportedError, UsageError, VerificationFailed
from compiler_kernels.policy.load import policy_from_json
from compiler_kernels.policy.logic import resolve, tensors_of
from compiler_kernels.policy.logic_tree import Logic
from compiler_kernels.stage import Json, as_json, sha3_512_hex
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.engine_words import engine_words, grade_here
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from cuvil_assets.trace import Lineage
from evidence.certificate.decisions import parse_threshold
from evidence.certificate.picture import draw
from evidence.certificate.report import Certificate, certify
from evidence.equivalence import output_file_stem
from evidence.reference import RefGraph, graph_bounds, load_graph
from evidence.reference.errors import ReferenceError
from evidence.reference.graph import storage
from evidence.timing.picture import need_matplotlib
from evidence.verifier.digests import digest_file

Array = npt.NDArray[Any]
_EXITS: dict[int, type[CuvilError]] = {2: UsageError, 3: RefusedError, 4: UnsupportedError}


class Bar:
    """A bar on a terminal, a line per phase elsewhere; on standard error."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.shown = 0.0
        self.phase = ""

    def step(self, phase: str, done: int, total: int) -> None:
        if not self.terminal:
            if phase != self.phase:
                print(f"  {phase}", file=sys.stderr, flush=True)
        elif done == total or time.monotonic() - self.shown > 0.1:
            filled = 40 * done // max(1, total)
            bar = "#" * filled + "." * (40 - filled)
            print(f"\r\x1b[K  {bar} {phase} {done}/{total}", end="", file=sys.stderr, flush=True)
            self.shown = time.monotonic()
        self.phase = phase

    def close(self) -> None:
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def run(
    engine: Path,
    inputs: list[str],
    thresholds: list[str],
    largest: list[str],
    layers: bool,
    output: Path | None,
    bounds_dir: Path | None,
    picture: Path | None,
    json: bool,
) -> int:
    """Certify, print, write; 1 when a decision asked about is not certified. Raises ``CuvilError``."""
    parsed = [parse_threshold(text) for text in thresholds]
    if picture is not None:
        need_matplotlib()
    lineage = Lineage(engine, ContentStore(current_home().store))
    document = lineage.data("frozen_graph", "frozen_graph.json")
    weights = lineage.data("frozen_graph", "weights.bin")
    given = read_inputs(inputs, document)
    sizes = sizes_of(document, given)
    try:
        graph = load_graph(document, weights, sizes)
    except ReferenceError as error:
        raise UsageError(f"--input: the sizes given do not fit the engine: {error}") from None
    _check(graph, given)
    policy = policy_from_json(lineage.data("source_model", "policy.json"))
    logic = resolve(policy, *tensors_of(lineage.module("frozen")))
    with engine_words(engine, lineage.target) as words:
        # The clinical logic may refuse or answer without outputs; what is certified are the numbers of the network.
        found, _ = run_engine(engine, words, given, ["--network-only"] if logic.any() else [])
        answer = _own_answer(engine, words, given, logic)
        grade = grade_here(lineage, words)
    produced = {name: output_file_stem(found, name) for _, name in graph.outputs if not name.endswith("#extents")}
    if len(produced) != len(graph.outputs):
        raise UnsupportedError(f"{engine}: the size of an output depends on the data; no certificate is made of it")
    bar = None if json else Bar()
    try:
        every, step = layers or picture is not None, bar.step if bar else None
        made = certify(graph, given, produced, parsed, largest, every, step, logic)
    finally:
        if bar:
            bar.close()
    _same_decisions(answer, made)
    report = made.document(_identity(engine, lineage, grade, document, weights, given))
    if picture is not None:
        _write(picture, draw(report))
    if bounds_dir is not None:
        _write_bounds(bounds_dir, made.bounds)
    if output is not None:
        _write(output, (json_module.dumps(report, indent=1) + "\n").encode())
    if json:
        print_json(report)
    else:
        print("\n".join([*lines(made), f"engine: {grade}"]))
    return 0 if made.certified else 1


def read_inputs(texts: list[str], document: bytes) -> dict[str, Array]:
    """``[NAME=]FILE.npy`` to arrays by input name; ``UsageError`` for a name or file that cannot be used."""
    names = [str(t["name"]) for t in json_module.loads(document)["inputs"]]
    found: dict[str, Array] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or name not in names:
            if len(names) != 1:
                raise UsageError(f"--input {text}: does not say which input it is; write NAME=FILE with one of {names}")
            name, file = names[0], text
        if name in found:
            raise UsageError(f"--input gives {name!r} twice; give it once")
        try:
            value = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(f"--input {file}: cannot be read ({reason}); write it with numpy.save") from None
        if not isinstance(value, np.ndarray):
            raise UsageError(f"--input {file}: holds several arrays; write one with numpy.save")
        found[name] = value
    missing = [name for name in names if name not in found]
    if missing:
        raise UsageError(f"--input: {missing[0]!r} is missing; give every input of the engine")
    return found


def sizes_of(document: bytes, given: Mapping[str, Array]) -> dict[str, int]:
    """Sizes of the symbols that stand alone in an input's shape."""
    bounds = graph_bounds(document)
    sizes: dict[str, int] = {}
    for tensor in json_module.loads(document)["inputs"]:
        shape = given[tensor["name"]].shape
        if len(shape) == len(tensor["shape"]):
            sizes |= {d: n for d, n in zip(tensor["shape"], shape, strict=True) if isinstance(d, str) and d in bounds}
    for name, n in sizes.items():
        if n not in bounds[name]:
            raise UsageError(f"--input: the size {n} of {name} is not among those the engine takes ({bounds[name]})")
    return sizes


def _check(graph: RefGraph, given: Mapping[str, Array]) -> None:
    for t in graph.inputs:
        value = given[t.name]
        wanted = storage(t.dtype)
        if value.shape != t.shape or value.dtype != wanted:
            raise UsageError(
                f"--input {t.name}: holds {value.dtype}{list(value.shape)}, and the engine takes {t.dtype}"
                f"{list(t.shape)}; convert it"
            )
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise UsageError(
                f"--input {t.name}: holds a value that is not finite; there is no exact result to compare with"
            )


def _own_answer(engine: Path, words: Sequence[str], given: Mapping[str, Array], logic: Logic) -> dict[str, Any]:
    """What the engine itself decides; empty where it has no decisions, or refuses."""
    try:
        return run_engine(engine, words, given, [])[1] if logic.decisions else {}
    except RefusedError:
        return {}


def _same_decisions(answer: Mapping[str, Any], made: Certificate) -> None:
    """The engine's own decisions, where it decides, must be those that were certified."""
    if answer.get("status") != "decided":
        return
    for d in made.decisions:
        if d["kind"] == "decision" and d["decision"] != answer["decisions"][d["name"]]:
            raise VerificationFailed(
                "certificate-decisions",
                f"the engine decides {d['name']} as {answer['decisions'][d['name']]}, and its own numbers give "
                f"{d['decision']}; report it with the input",
            )


def run_engine(
    engine: Path, prefix: Sequence[str], given: Mapping[str, Array], options: list[str]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Outputs by file stem and decisions.json, from the engine as a program that the words ``prefix`` start; its
    sentence and exit code as an error."""
    with tempfile.TemporaryDirectory(prefix="cuvil-certificate-") as name:
        folder = Path(name)
        words = [*prefix, str(engine.absolute()), "--output-dir", str(folder / "out"), *options]
        for number, (key, value) in enumerate(given.items()):
            np.save(folder / f"input{number}.npy", value)
            words += ["--input", f"{key}={folder / f'input{number}.npy'}"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        except OSError as error:
            raise UsageError(f"{engine}: cannot be started ({error.strerror}); make it executable: chmod +x") from None
        if done.returncode:
            sentence = done.stderr.strip().removeprefix("error: ") or f"exit code {done.returncode}"
            kind = _EXITS.get(done.returncode)
            if kind is not None:
                raise kind(f"the engine refuses the input: {sentence}")
            raise VerificationFailed("engine-runs", f"the engine ends without outputs: {sentence}")
        answer = folder / "out" / "decisions.json"
        decided = json_module.loads(answer.read_text()) if answer.exists() else {}
        return {path.stem: np.load(path) for path in sorted((folder / "out").glob("*.npy"))}, decided


def _identity(
    engine: Path, lineage: Lineage, grade: str, document: bytes, weights: bytes, given: Mapping[str, Array]
) -> dict[str, Json]:
    return {
        "engine": {"file": engine.name, "sha3_512": digest_file(engine).sha3_512},
        "target": lineage.target,
        "grade": grade,
        "frozen_graph": {"sha3_512": sha3_512_hex(document), "weights_sha3_512": sha3_512_hex(weights)},
        "inputs": as_json(
            [
                {
                    "name": name,
                    "shape": list(v.shape),
                    "dtype": v.dtype.name,
                    "sha3_512": sha3_512_hex(np.ascontiguousarray(v).tobytes()),
                }
                for name, v in given.items()
            ]
        ),
    }


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomic(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); name a file you may write") from None


def _write_bounds(folder: Path, bounds: Mapping[str, Array]) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror}); name a folder you may write") from None
    for name, bound in bounds.items():
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
        buffer = io.BytesIO()
        np.save(buffer, bound)
        _write(folder / f"{safe}.bound.npy", buffer.getvalue())


def lines(made: Certificate) -> list[str]:
    """The certificate for people."""
    found = []
    for out in made.outputs:
        unknown = f", {out['unknown']} values without a bound" if out["unknown"] else ""
        found.append(
            f"output {out['name']}: rounding moved no value by more than {out['bound']:.3g} (largest value "
            f"{out['largest']:.6g}){unknown}"
        )
    for d in made.decisions:
        title = f"largest class of {d['name']}" if d["kind"] == "argmax" else f"{d['name']}"
        title = f"{title} ({d['text']})" if "text" in d else title
        if d["elements"] == 0:
            found.append(f"decision {title}: no elements")
            continue
        words = {
            "certified": "rounding could not have flipped this",
            "not certified": "NOT CERTIFIED, rounding may have flipped this",
            "changed by rounding": "CHANGED: the exact result stands on the other side",
        }[str(d["status"])]
        many = f" for {d['certified']} of {d['elements']} elements" if d["elements"] != 1 else ""
        where = f"; closest at {d['index']}" if d["elements"] != 1 else ""
        word = "guard" if d["kind"] == "guard" else "decision"
        if "margin" not in d:
            found.append(f"{word} {title}: {words}")
            continue
        found.append(f"{word} {title}: {words}{many}: margin {d['margin']:.2g}, bound {d['bound']:.2g}{where}")
    if made.layers:
        found.append("layer: largest error, certified bound, plain forward bound (each over the tensor's rms value)")
        for row in made.layers:
            scale = float(row["scale"]) or 1.0  # type: ignore[arg-type]
            forward = row.get("forward_bound")
            ahead = "unknown" if forward is None else f"{float(forward) / scale:.2g}"  # type: ignore[arg-type]
            numbers = [float(row[k]) / scale for k in ("error", "bound")]  # type: ignore[arg-type]
            found.append(f"  {row['node']} ({row['op']}): {numbers[0]:.2g}, {numbers[1]:.2g}, {ahead}")
    for node, reason in made.doubts[:10]:
        found.append(f"doubt at {node}: {reason}")
    if len(made.doubts) > 10:
        found.append(f"and {len(made.doubts) - 10} doubts more; --json lists them")
    return found
