"""What Dagster loads: the assets, the job ``build``, the in-process executor."""

from __future__ import annotations

import dagster as dg

from cuvil_assets.assets import ASSETS, BY_PEOPLE, LATER
from cuvil_assets.automation import (
    RECERTIFY_SCHEDULE,
    SCHEDULE,
    change_sensor,
    recertify_job,
    recertify_sensor,
    surveil_job,
)

JOB = "build"
LATER_JOB = "release_evidence"

# In process: a process per step would import everything nine times, for stages that take seconds together.
defs = dg.Definitions(
    assets=[*ASSETS, *LATER, *BY_PEOPLE],
    executor=dg.in_process_executor,
    jobs=[
        dg.define_asset_job(JOB, selection=list(ASSETS), description="All stages of a build, in order."),
        dg.define_asset_job(LATER_JOB, selection=list(LATER), description="What a release may demand of a build."),
        surveil_job,
        recertify_job,
    ],
    schedules=[SCHEDULE, RECERTIFY_SCHEDULE],
    sensors=[change_sensor, recertify_sensor],
)
