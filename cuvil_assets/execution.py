"""Runs one stage of one build: inputs from the records of that build, result from the action cache or the work."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from compiler_kernels.errors import RefusedError, UsageError, VerificationFailed
from compiler_kernels.stage import Artifact, Json, StageResult, as_json, sha3_512_hex
from cuvil_assets import chain
from cuvil_assets.home import Home
from cuvil_assets.records import BuildRecords, Recorded
from cuvil_assets.request import BuildRequest
from cuvil_assets.store import Action, ActionCache
from evidence.build_proof import EPOCH_VARIABLE, build_proof
from evidence.keys import key_id, load_keys
from evidence.records import record_of
from evidence.verifier.canonical import MalformedError
from evidence.verifier.dsse import read_envelope
from evidence.verifier.statement import read_statement


@dataclass(frozen=True)
class Build:
    """One build in progress: its request, its home, and whether the action cache may answer."""

    home: Home
    request: BuildRequest
    use_cache: bool = True

    @property
    def store(self) -> ActionCache:
        return ActionCache(self.home.store)

    @property
    def records(self) -> BuildRecords:
        return BuildRecords(self.home, self.store, self.request.build_id)


def run_stage(build: Build, name: str) -> Recorded:
    """Run the stage ``name`` of ``build`` and record its result.

    Raises whatever the stage raises, and ``RefusedError`` when an upstream record is absent or does not fit.
    """
    plans = {
        chain.BUILD_PROOF: _proof,
        chain.SBOM: _sbom,
        chain.DATASET: _dataset,
        chain.DECISIONS: _decisions,
        chain.COVERAGE: _coverage,
        chain.REPRODUCIBILITY: _reproducibility,
    }
    action, work = plans[name](build) if name in plans else _stage(build, name)
    # Rebuilds that were looked up would show nothing.
    found = build.store.recall(action.key) if build.use_cache and name != chain.REPRODUCIBILITY else None
    if found is not None and found.stage == name:
        recorded = Recorded(found, True, 0.0, 0.0)
    else:
        wall, cpu = time.perf_counter(), cpu_seconds()
        result = work()
        recorded = Recorded(result, False, cpu_seconds() - cpu, time.perf_counter() - wall)
        build.store.remember(action.key, result)
    build.records.write(recorded)
    return recorded


def cpu_seconds() -> float:
    """CPU seconds of this process and of the children it has waited for, user and system."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _stage(build: Build, name: str) -> tuple[Action, Callable[[], StageResult]]:
    stage = chain.BY_NAME[name]
    optional = tuple(role for role in stage.optional_sources if role in build.request.sources)
    inputs = _source_files(build, (*stage.sources, *optional))
    upstream = build.records.consistent(chain.upstream(name))
    for path in stage.reads:
        other, _, artifact = path.partition("/")
        inputs[path] = _artifact(upstream[other].result, artifact)
    for path in stage.optional_reads:
        other, _, artifact = path.partition("/")
        with suppress(KeyError):
            inputs[path] = upstream[other].result.artifact(artifact)
    config = stage.selected_config(build.request.config)
    action = Action(name, stage.code_version, {role: item.sha3_512 for role, item in inputs.items()}, config)
    return action, lambda: stage.execute(inputs, build.request.config)


def _source_files(build: Build, roles: tuple[str, ...]) -> dict[str, Artifact]:
    found = {}
    for role in roles:
        data = build.store.find(build.request.sources[role])
        if data is None:
            raise UsageError(f"the {role} of this build is gone from the store; run `cuvil build` again")
        found[role] = Artifact.of_known_digest(role, data, "application/octet-stream", build.request.sources[role])
    return found


def _artifact(result: StageResult, name: str) -> Artifact:
    with suppress(KeyError):
        return result.artifact(name)
    raise RefusedError(f"the record of stage {result.stage} has no {name}; materialise {result.stage} again")


def _proof(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    """The proof of this build. A verdict ``failed`` is refused here, whatever asset checks said or did not say."""
    request = build.request
    upstream = build.records.consistent(chain.BY_NAME)
    results = [upstream[name].result for name in chain.BY_NAME]
    facts = upstream["equivalence"].result.facts
    if facts["verdict"] == "failed":
        raise VerificationFailed("equivalence", difference(facts, request.engine_name))
    if facts["errors_beyond_limit"]:
        raise VerificationFailed("error-beyond-limit", error_sentence(facts, request.engine_name))
    keys = load_keys(build.home.root)
    signers = {signer.algorithm: key_id(signer.spki) for signer in keys.signers}
    arguments: dict[str, Json] = {
        "engine_name": request.engine_name,
        "model_version": request.model_version,
        "target": request.target,
        "source_date_epoch": request.epoch,
        **signers,
    }
    # The whole records, not only the principal artefacts: the proof quotes all of them.
    inputs = {result.stage: sha3_512_hex(record_of(result).canonical) for result in results}
    action = Action(chain.BUILD_PROOF, chain.proof_code_version(), inputs, arguments)

    def work() -> StageResult:
        try:
            return build_proof(
                results,
                keys.signers,
                engine_name=request.engine_name,
                model_version=request.model_version,
                target=request.target,
                environment={} if request.epoch is None else {EPOCH_VARIABLE: request.epoch},
            )
        except MalformedError as error:
            raise RefusedError(f"the records of this build do not make a proof: {error}; build again") from error

    return action, work


def _sbom(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    """The bill of materials of the engine this build's proof is about."""
    from evidence.sbom.environment import environment_parts
    from evidence.sbom.make import MEDIA_TYPE, make_sbom

    proof = build.records.consistent((chain.BUILD_PROOF,))[chain.BUILD_PROOF].result.principal
    statement = read_statement(read_envelope(proof.data).payload)
    # The bill names the Python distributions of the moment, so another environment is another action.
    config: dict[str, Json] = {"environment": sha3_512_hex(repr(environment_parts()).encode())}
    inputs = {f"{chain.BUILD_PROOF}/{proof.name}": proof.sha3_512}
    version = chain.code_version(chain.SBOM)

    def work() -> StageResult:
        bill = make_sbom(statement, build.store.find)
        texts = (Artifact(name, data, "text/plain") for name, data in sorted(bill.licences.items()))
        facts = as_json(bill.summary())
        assert isinstance(facts, dict)
        return StageResult(
            chain.SBOM, version, inputs, config, (Artifact(bill.name, bill.data, MEDIA_TYPE), *texts), facts
        )

    return Action(chain.SBOM, version, inputs, config), work


def _decisions(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    from cuvil_assets.decisions import plan

    return plan(build)


def _dataset(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    from cuvil_assets.datasets import plan

    return plan(build)


def _coverage(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    from cuvil_assets.coverage import plan

    return plan(build)


def _reproducibility(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    from cuvil_assets.reproduce import plan

    return plan(build)


def error_sentence(facts: Mapping[str, Json], engine_name: str) -> str:
    """The sentence for a model whose error passes the policy's multiple of onnxruntime's."""
    beyond = facts["errors_beyond_limit"]
    assert isinstance(beyond, dict)
    worst = max(beyond, key=lambda name: float(str(beyond[name])))
    return (
        f"{engine_name} is not delivered: the rms error of {len(beyond)} tensors against binary64 passes "
        f"{facts['errors_limit']} times onnxruntime's, most at {worst!r} with {float(str(beyond[worst])):.3g} times; "
        "try numerics.winograd: forbid, more --equivalence-inputs, or set numerics.max_error_ratio in the policy"
    )


def difference(facts: Mapping[str, Json], engine_name: str) -> str:
    """The sentence for an engine that differs from the reference."""
    decisions = facts.get("differing_decisions")
    also = f" and {decisions} answers of the clinical logic" if decisions else ""
    return (
        f"{engine_name} is not delivered: it differs from the reference in {facts.get('differing_values')} values"
        f"{also} (see the equivalence report); this is a defect of Cuvil or of the compiler beneath it"
    )
