"""A build from start to delivery: the assets run in this process, on the instance the user interface shows."""

from __future__ import annotations

import errno
import fcntl
import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compiler_kernels.doors import source_path
from compiler_kernels.errors import CuvilError, UsageError, VerificationFailed
from compiler_kernels.policy import PolicyMisfit
from compiler_kernels.stage import Json, StageResult
from cuvil_assets import audit, chain
from cuvil_assets.delivery import Content, check_output, deliver, planned
from cuvil_assets.execution import Build, cpu_seconds
from cuvil_assets.files import write_atomic
from cuvil_assets.home import Home, current_home
from cuvil_assets.inputs import BuildOptions, make_request
from cuvil_assets.memory_picture import draw_memory
from cuvil_assets.progress import Listener, Silent, listening
from cuvil_assets.records import Recorded
from cuvil_assets.request import save_request
from evidence.keys import init_keys
from evidence.verifier.errors import VerifierError

if TYPE_CHECKING:
    import dagster as dg


_NO_ROOM = re.compile("disk is full|disk I/O error|unable to open|readonly database")


@dataclass(frozen=True)
class BuildOutcome:
    """What was delivered: paths by kind, and the facts a summary quotes."""

    files: Mapping[str, Path]
    facts: Mapping[str, Json]

    @property
    def engine(self) -> Path:
        return self.files["bin"]

    @property
    def proof(self) -> Path:
        return self.files["proof"]


def build(options: BuildOptions, listener: Listener | None = None, verbose: bool = False) -> BuildOutcome:
    """Build, verify and deliver the engine of ``options``.

    Raises the ``CuvilError`` of the stage that refused; nothing is written beside the output then. A key set is made
    under the home when there is none (fact ``keys_created``).
    """
    wall = time.perf_counter()
    check_output(options.output, options.emit, {"model": source_path(str(options.model)), "policy": options.policy})
    home = current_home()
    request = make_request(options, home)
    keys = init_keys(home.root)
    save_request(home, request)
    work = Build(home, request, options.use_cache)
    heard = _Notes(listener or Silent())
    paths = planned(options.output, options.emit)
    try:
        with _locked(home), listening(heard):
            before = cpu_seconds()
            _run(work, heard, verbose)
            run_cpu = cpu_seconds() - before
        results = {name: work.records.read(name) for name in chain.NAMES}
        contents = _contents(paths, {name: recorded.result for name, recorded in results.items()}, request.target)
        # Recorded first, delivered second: nothing leaves unrecorded where the policy forbids it.
        remark = audit.build_made(home.root, request, results, keys)
        deliver(contents)
    except (CuvilError, VerifierError) as error:
        audit.build_failed(home.root, request, error)
        if isinstance(error, PolicyMisfit):
            raise error.placed(options.policy.read_bytes(), str(options.policy)) from None
        raise
    stages_cpu = sum(item.cpu_seconds for item in results.values())
    facts: dict[str, Json] = {
        **_facts(results),
        "build": request.build_id,
        "partition": request.partition,
        "keys": str(keys.folder),
        "keys_created": keys.created,
        # empty, or why the audit log did not record this build
        "audit": remark,
        "stages": {
            name: {
                "cache_hit": item.cache_hit,
                "cpu_seconds": round(item.cpu_seconds, 3),
                "wall_seconds": round(item.wall_seconds, 3),
            }
            for name, item in results.items()
        },
        # of this process and its children, from its start: Python, imports, Dagster, stages, delivery
        "cpu_seconds_total": round(cpu_seconds(), 3),
        "cpu_seconds_stages": round(stages_cpu, 3),
        # Dagster with its imports, asset checks, records and store
        "cpu_seconds_dagster": round(run_cpu - stages_cpu, 3),
        "wall_seconds": round(time.perf_counter() - wall, 3),
    }
    return BuildOutcome(paths, facts)


class _Notes:
    """Passes everything on and remembers which checks failed."""

    def __init__(self, other: Listener) -> None:
        self.other = other
        self.failed: list[tuple[str, str, str]] = []

    def started(self, stage: str) -> None:
        self.other.started(stage)

    def finished(self, stage: str, recorded: Recorded) -> None:
        self.other.finished(stage, recorded)

    def check_failed(self, stage: str, check: str, sentence: str) -> None:
        self.failed.append((stage, check, sentence))
        self.other.check_failed(stage, check, sentence)


def _run(work: Build, heard: _Notes, verbose: bool) -> None:
    """Run the job ``build`` for the partition of ``work``; an error inside a step surfaces as what it was."""
    import dagster as dg

    from cuvil_assets.assets import BUILD_TAG, BYPASS, CACHE_TAG, MODEL_VERSIONS
    from cuvil_assets.definitions import JOB, defs

    request = work.request
    tags = {BUILD_TAG: request.build_id, "cuvil/target": request.target}
    if not work.use_cache:
        tags[CACHE_TAG] = BYPASS
    level = "INFO" if verbose else "CRITICAL"
    key = dg.MultiPartitionKey({"model_version": request.model_version, "target": request.target})
    try:
        with open_instance(work.home) as instance:
            instance.add_dynamic_partitions(str(MODEL_VERSIONS.name), [request.model_version])
            defs.resolve_job_def(JOB).execute_in_process(
                instance=instance,
                partition_key=key,
                tags=tags,
                run_config={"loggers": {"console": {"config": {"log_level": level}}}},
            )
    except Exception as error:
        expected = _expected(error, heard) or _storage(error, work.home)
        if expected is None:
            raise
        raise expected from None


def _expected(error: Exception, heard: _Notes) -> CuvilError | None:
    """The ``CuvilError`` behind a failed step, or a failed check as ``VerificationFailed``; ``None`` for a defect."""
    # dg.Failure wraps what the stage raised once; a longer way through contexts could find an error already handled.
    for seen in (error, error.__cause__):
        if isinstance(seen, CuvilError):
            return seen
    if heard.failed:
        stage, check, sentence = heard.failed[0]
        known = {"bits_equal": "equivalence", "error_within_limit": "error-beyond-limit"}
        name = known.get(check, f"{stage}-{check}".replace("_", "-"))
        return VerificationFailed(name, sentence if stage == "equivalence" else f"check {check} of {stage}: {sentence}")
    return None


def _storage(error: BaseException, home: Home) -> CuvilError | None:
    """A disk that is full or cannot be written, as Dagster's storage met it, however deep it lies; else ``None``."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        full = isinstance(found, OSError) and found.errno in (errno.ENOSPC, errno.EDQUOT)
        # SQLite has words, not numbers: SQLITE_FULL, SQLITE_IOERR where a journal finds no room.
        if full or (isinstance(found, sqlite3.OperationalError) and _NO_ROOM.search(str(found))):
            return UsageError(
                f"{home.root}: No space left on the device, or it cannot be written ({found}); free space or set "
                "CUVIL_HOME elsewhere"
            )
        waiting += [found.__cause__, found.__context__]
    return None


@contextmanager
def open_instance(home: Home) -> Iterator[dg.DagsterInstance]:
    """The persistent Dagster instance of ``home``, made on first use."""
    import dagster as dg

    prepare_instance(home)
    with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
        yield instance


def prepare_instance(home: Home) -> Path:
    """DAGSTER_HOME of ``home`` with its dagster.yaml, which is copied once and never overwritten."""
    folder = home.ensure(home.dagster)
    settings = folder / "dagster.yaml"
    if not settings.exists():
        try:
            write_atomic(settings, Path(__file__).with_name("dagster.yaml").read_bytes())
        except OSError as error:
            raise UsageError(f"{settings}: cannot be written ({error.strerror}); set CUVIL_HOME elsewhere") from error
    return folder


@contextmanager
def _locked(home: Home) -> Iterator[None]:
    """One build at a time per home: Dagster's SQLite files allow one writer."""
    path = home.ensure(home.dagster) / ".build.lock"
    try:
        stream = path.open("a")
    except OSError as error:
        raise UsageError(f"{path}: cannot be opened ({error.strerror}); set CUVIL_HOME elsewhere") from error
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _contents(
    paths: Mapping[str, Path], results: Mapping[str, StageResult], target: str
) -> dict[Path, tuple[Content, int]]:
    """Content and mode of every path; the libraries are compiled here and are not part of the proof."""
    found: dict[Path, tuple[Content, int]] = {
        paths["proof"]: (results[chain.BUILD_PROOF].principal.data, 0o644),
        paths["equivalence"]: (results["equivalence"].principal.data, 0o644),
        paths["bin"]: (results["engine"].principal.data, 0o755),
    }
    if "memory" in paths:
        memory = results["generated_source"].artifact("memory.json").data
        found[paths["memory"]] = (memory, 0o644)
        found[paths["picture"]] = (draw_memory(json.loads(memory)), 0o644)
    if {"src", "so", "lib"} & set(paths):
        from compiler_kernels.targets.registry import resolve_target
        from compiler_kernels.toolchain.engines import build_engine
        from compiler_kernels.toolchain.sources import cuda_sources, library_sources, runtime_sources

        artifacts = results["generated_source"].artifacts
        generated = {item.name: item.data for item in artifacts if item.name != "memory.json"}
        chosen = resolve_target(target)
        sources = {**runtime_sources(), **(cuda_sources() if chosen.gpu else {}), **generated}
        if "src" in paths:
            found[paths["src"]] = (sources, 0o644)
        if "so" in paths:
            found[paths["so"]] = (build_engine(generated, chosen, "so").data, 0o755)
        if "lib" in paths:
            found[paths["lib"]] = (build_engine(generated, chosen, "lib").data, 0o644)
        if "header" in paths:
            found[paths["header"]] = (library_sources()["cuvil_engine.h"], 0o644)
    return found


def _facts(results: Mapping[str, Recorded]) -> dict[str, Json]:
    engine, equivalence = results["engine"].result, results["equivalence"].result
    proof, budget = results[chain.BUILD_PROOF].result, results["budget"].result
    errors = equivalence.facts["errors"]
    ratio = errors.get("rms_ratio_geometric_mean") if isinstance(errors, dict) else None
    largest = errors.get("rms_ratio_largest") if isinstance(errors, dict) else None
    return {
        # how the model came from the user's file (docs/doors.md); None for an ONNX file
        "conversion": results["source_model"].result.facts.get("conversion"),
        "target": str(results["generated_source"].result.config["target"]),
        "engine_sha3_512": engine.principal.sha3_512,
        "engine_bytes": len(engine.principal.data),
        "arena_bytes": results["generated_source"].result.facts["arena_bytes"],
        "memory_bytes": budget.facts["memory_bytes"],
        "memory_traffic": results["ir_l2"].result.facts["traffic"],
        "budget": dict(budget.facts),
        "frozen_graph_sha3_512": results["frozen_graph"].result.principal.sha3_512,
        "equivalence": equivalence.facts["verdict"],
        "equivalence_grade": equivalence.facts["grade"],
        "equivalence_inputs": equivalence.facts["inputs"],
        "rms_error_ratio_to_onnxruntime": ratio,
        "largest_rms_error_ratio_to_onnxruntime": largest,
        "proof_payload_sha3_512": proof.facts["payload_sha3_512"],
    }
