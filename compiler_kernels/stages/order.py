"""The stages of a compile in build order, from the user's files to the engine."""

from __future__ import annotations

from compiler_kernels.stages.backend import ENGINE, GENERATED_SOURCE, IR_L1, IR_L2
from compiler_kernels.stages.base import Stage
from compiler_kernels.stages.frontend import FROZEN_GRAPH, IR_L0, SOURCE_MODEL

COMPILE_STAGES: tuple[Stage, ...] = (SOURCE_MODEL, IR_L0, FROZEN_GRAPH, IR_L1, IR_L2, GENERATED_SOURCE, ENGINE)
