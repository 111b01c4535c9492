"""One Dagster asset per stage, generated from the table of stages (docs/architecture.md)."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from compiler_kernels.errors import CuvilError
from compiler_kernels.targets.registry import ALL_TARGETS
from cuvil_assets import chain, describe
from cuvil_assets.checks import CHECKS, Outcome
from cuvil_assets.execution import Build, run_stage
from cuvil_assets.home import current_home
from cuvil_assets.progress import listener
from cuvil_assets.records import Recorded
from cuvil_assets.request import load_request
from evidence.verifier.errors import VerifierError

GROUP = "lifecycle"
BUILD_TAG = "cuvil/build"
CACHE_TAG = "cuvil/cache"
BYPASS = "bypass"
MODEL_VERSIONS = dg.DynamicPartitionsDefinition(name="model_version")
GRID = dg.MultiPartitionsDefinition(
    {"model_version": MODEL_VERSIONS, "target": dg.StaticPartitionsDefinition(sorted(ALL_TARGETS))}
)
KINDS = {
    "source_model": {"onnx", "yaml"},
    "ir_l0": {"ir"},
    "frozen_graph": {"ir", "numerics"},
    "ir_l1": {"ir"},
    "ir_l2": {"ir", "memory"},
    "generated_source": {"c"},
    "engine": {"binary"},
    "budget": {"report", "memory"},
    "equivalence": {"report"},
    "build_proof": {"signed"},
    "sbom": {"report", "cyclonedx"},
    "coverage": {"report"},
    "dataset": {"report"},
    "decisions": {"report"},
    "reproducibility": {"report"},
}


def _asset(name: str) -> dg.AssetsDefinition:
    checks = CHECKS[name]

    @dg.asset(
        name=name,
        deps=[dg.AssetKey(other) for other in chain.upstream(name)],
        partitions_def=GRID,
        group_name=GROUP,
        kinds=KINDS[name],
        description=chain.description(name),
        code_version=chain.code_version(name),
        check_specs=[
            dg.AssetCheckSpec(check, asset=name, blocking=True, description=function.__doc__)
            for check, function in checks.items()
        ],
    )
    def run(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        tags = context.run.tags
        heard = listener()
        heard.started(name)
        try:
            home = current_home()
            request = load_request(home, context.partition_key, tags.get(BUILD_TAG))
            build = Build(home, request, use_cache=tags.get(CACHE_TAG) != BYPASS)
            recorded = run_stage(build, name)
            outcomes = {check: function(build, recorded.result) for check, function in checks.items()}
        except (CuvilError, VerifierError) as error:
            # Failure shows the sentence in the user interface; the command line unwraps the cause.
            raise dg.Failure(str(error), metadata=dict(error.details()), allow_retries=False) from error
        heard.finished(name, recorded)
        for check, outcome in outcomes.items():
            if not outcome.passed and not outcome.warning:
                heard.check_failed(name, check, outcome.sentence)
        yield dg.MaterializeResult(
            data_version=dg.DataVersion(f"sha3-512:{recorded.result.principal.sha3_512}"),
            metadata=_metadata(build, recorded),
            check_results=[_check_result(check, outcome) for check, outcome in outcomes.items()],
        )

    return run


def _metadata(build: Build, recorded: Recorded) -> dict[str, Any]:
    result = recorded.result
    facts = {key: value for key, value in result.facts.items() if isinstance(value, str | int | float) and value != ""}
    return {
        "digest": f"sha3-512:{result.principal.sha3_512}",
        "bytes": len(result.principal.data),
        "cache_hit": recorded.cache_hit,
        "cpu_seconds": round(recorded.cpu_seconds, 3),
        "build": build.request.build_id,
        "summary": dg.MetadataValue.md(describe.summary(result)),
        "facts": dg.MetadataValue.json(dict(result.facts)),
        **{f"fact/{key}": value for key, value in facts.items()},
    }


def _check_result(check: str, outcome: Outcome) -> dg.AssetCheckResult:
    severity = dg.AssetCheckSeverity.WARN if outcome.warning else dg.AssetCheckSeverity.ERROR
    return dg.AssetCheckResult(
        check_name=check, passed=outcome.passed, severity=severity, description=outcome.sentence, metadata={}
    )


ASSETS = [_asset(name) for name in chain.NAMES]
LATER = [_asset(name) for name in chain.LATER]
# People release, with their keys and approvals, on the command line: Dagster sees it as an event and cannot start it.
RELEASE_PROOF = dg.AssetSpec(
    chain.RELEASE_PROOF,
    deps=[chain.BUILD_PROOF, *chain.LATER],
    partitions_def=GRID,
    group_name=GROUP,
    kinds={"signed"},
    description="The signed statement over build proof, reports and approvals, made by `cuvil release`.",
)
MODEL_RESOURCE = dg.AssetSpec(
    chain.MODEL_RESOURCE,
    deps=[chain.RELEASE_PROOF],
    partitions_def=GRID,
    group_name=GROUP,
    kinds={"fhir"},
    description="The model version in the FHIR registry, made by `cuvil registry register` from a verified release.",
)
BY_PEOPLE = [RELEASE_PROOF, MODEL_RESOURCE]
