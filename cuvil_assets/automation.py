"""Surveillance by calendar and when a condition changes: a Dagster job, a schedule and a sensor."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg

from compiler_kernels.errors import CuvilError
from compiler_kernels.stage import sha3_512_hex
from cuvil_assets import audit
from cuvil_assets.describe import table
from cuvil_assets.home import current_home
from cuvil_assets.recertify import keep as keep_recertification
from cuvil_assets.recertify import recertify
from cuvil_assets.registry_status import reflect
from cuvil_assets.surveil import conditions_of, keep, partitions_of, surveil
from cuvil_assets.watch import load_watch
from evidence.verifier.errors import VerifierError

SURVEIL = "surveil"
RECERTIFY = "recertify"
REASON_TAG = "cuvil/reason"


@dg.op(name="look", out=dg.Out(dg.Nothing), description="Digests, proofs, certificates, keys, clauses and advisories.")
def _look(context: dg.OpExecutionContext) -> Iterator[dg.AssetObservation]:
    home = current_home()
    try:
        report = surveil(home, load_watch(home), datetime.now(UTC))
    except (CuvilError, VerifierError) as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    path = keep(home, report)
    remark = audit.record(home.root, "surveillance", {**report.summary(), "sha3_512": audit.digest_of(path)})
    if remark:
        context.log.warning(remark)
    rows = [(f.level, f.check, f.subject, f.sentence) for f in report.findings]
    found = dg.MetadataValue.md(table(("level", "check", "subject", "sentence"), rows))
    if not report.ok:
        raise dg.Failure(report.sentence, metadata={"findings": found, **report.summary()}, allow_retries=False)
    context.add_output_metadata({"findings": found, **report.summary()})
    yield from ()


@dg.job(name=SURVEIL, executor_def=dg.in_process_executor, description="Look at everything, rebuild nothing.")
def surveil_job() -> None:
    _look()


@dg.op(name="rebuild_everything", out=dg.Out(dg.Nothing), description="Every build made and tested again, no caches.")
def _rebuild(context: dg.OpExecutionContext) -> Iterator[dg.AssetObservation]:
    home = current_home()
    try:
        report = recertify(home, partitions_of(home), step=lambda found: context.log.info(found.sentence))
        keep_recertification(home, report)
        for said in reflect(home, report):
            context.log.info(said)
    except (CuvilError, VerifierError) as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    rows = [(r.verdict, r.partition, r.sentence, r.nonconformity) for r in report.results]
    counts = {"passed": report.count("passed"), "failed": report.count("failed"), "due": report.count("due")}
    found = dg.MetadataValue.md(table(("verdict", "partition", "sentence", "nonconformity"), rows))
    if not report.ok:
        raise dg.Failure(report.sentence, metadata={"results": found, **counts}, allow_retries=False)
    context.add_output_metadata({"results": found, **counts})
    yield from ()


@dg.job(name=RECERTIFY, executor_def=dg.in_process_executor, description="Make and test everything again.")
def recertify_job() -> None:
    _rebuild()


# The night of a month's first day: it takes seconds to minutes for each build.
RECERTIFY_SCHEDULE = dg.ScheduleDefinition(
    name="recertify_monthly",
    job=recertify_job,
    cron_schedule="0 3 1 * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    tags={REASON_TAG: "recertification"},
    description="Recertification once a month, on the first at 03:00 UTC.",
)


# Cheap enough for every morning; at six the day's first person finds the answer.
SCHEDULE = dg.ScheduleDefinition(
    name="surveil_daily",
    job=surveil_job,
    cron_schedule="0 6 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    tags={REASON_TAG: "calendar"},
    description="Surveillance once a day, 06:00 UTC.",
)


@dg.sensor(
    name="surveil_on_change",
    job=surveil_job,
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Surveillance when compiler, code, trust root, clauses, advisories or watched policies change.",
)
def change_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    return _on_change(context)


# Stopped until somebody starts it: a new version of Cuvil would rebuild everything the moment it is installed.
@dg.sensor(
    name="recertify_on_change",
    job=recertify_job,
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Recertification when compiler, code, trust root, clauses, advisories or watched policies change.",
)
def recertify_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    return _on_change(context)


def _on_change(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """One run for each state of the conditions that was not there at the evaluation before."""
    home = current_home()
    try:
        conditions = conditions_of(home, load_watch(home))
    except (CuvilError, VerifierError) as error:
        return dg.SkipReason(str(error))
    digest = sha3_512_hex(repr(sorted(conditions.items())).encode())
    if context.cursor == digest:
        return dg.SkipReason("compiler, code, trust root, clauses, advisories and policies are as before")
    # The run key makes a second evaluation before the cursor is stored harmless.
    request = dg.RunRequest(run_key=digest, tags={REASON_TAG: "change"})
    return dg.SensorResult(run_requests=[request], cursor=digest)
