"""What Dagster loads: the assets, the job ``build``, the in-process executor."""

from __future__ import annotations

import dagster as dg

from cuvil_assets.assets import ASSETS

JOB = "build"

# In process: a process per step would import everything nine times, for stages that take seconds together.
defs = dg.Definitions(
    assets=ASSETS,
    executor=dg.in_process_executor,
    jobs=[dg.define_asset_job(JOB, selection=list(ASSETS), description="All stages of a build, in order.")],
)
