"""Options shaped like onnxruntime's. Most of them have nothing to choose here, and that is said of each."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Sequence
from typing import Any

from compiler_kernels.errors import UnsupportedError
from cuvil.errors import InvalidArgument

CPU = "CPUExecutionProvider"
POLICY_ENTRY = "cuvil.policy"
"""Session configuration entry: path of a policy whose guards the engine enforces."""
SHAPES_ENTRY = "cuvil.shapes"
"""Session configuration entry: bounds of symbolic dimensions as a policy writes them (``batch: [1, 8]``), for one
engine that takes every size; without a policy only, which has a section of its own for them."""
ENGINES_ENTRY = "cuvil.loaded_engines"
"""Session configuration entry: how many engines (one per combination of input shapes) stay loaded."""


class GraphOptimizationLevel(enum.IntEnum):
    """Accepted and without effect: an engine is always compiled the same way, so that its bits are defined."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted and without effect: the calls of an engine have one order."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class SessionOptions:
    """Options of a session.

    In use: ``add_free_dimension_override_by_name`` (fixes a symbolic dimension), and the configuration entries
    ``cuvil.policy``, ``cuvil.shapes`` and ``cuvil.loaded_engines``. Threads, memory and optimisation options are
    accepted and change nothing: an engine computes on the calling thread, in static memory. ``enable_profiling``,
    ``optimized_model_filepath`` and custom operators are refused with ``UnsupportedError`` by the session.
    """

    def __init__(self) -> None:
        self.graph_optimization_level: int = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode: int = ExecutionMode.ORT_SEQUENTIAL
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.use_deterministic_compute = True
        self.enable_profiling = False
        self.profile_file_prefix = "onnxruntime_profile_"
        self.optimized_model_filepath = ""
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.free_dimensions: dict[str, int] = {}
        self._entries: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The entry ``key``; ``InvalidArgument`` when it was never added."""
        if key not in self._entries:
            raise InvalidArgument(f"the session options have no entry {key!r}: add it with add_session_config_entry")
        return self._entries[key]

    def has_session_config_entry(self, key: str) -> bool:
        return key in self._entries

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the symbolic dimension ``name`` of the model's inputs to ``size``."""
        if size < 1:
            raise InvalidArgument(f"the dimension {name!r} is overridden with {size}: give a size of at least 1")
        self.free_dimensions[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        raise UnsupportedError(
            f"dimensions are not found by denotation ({denotation!r}): use add_free_dimension_override_by_name"
        )

    def register_custom_ops_library(self, path: str) -> None:
        raise UnsupportedError(f"{path}: custom operators are not compiled; export the model with standard operators")

    def check(self) -> None:
        """``UnsupportedError`` for an option that asks for something an engine does not do."""
        if self.enable_profiling:
            raise UnsupportedError("enable_profiling is not supported by a session: measure with `cuvil bench`")
        if self.optimized_model_filepath:
            raise UnsupportedError(
                "optimized_model_filepath is not supported, there is no optimised ONNX model: read the stages of a "
                "build with `cuvil explain`"
            )


class RunOptions:
    """Accepted by ``run``; an inference of an engine has nothing to configure."""

    def __init__(self) -> None:
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.terminate = False
        self.training_mode = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Accepted and without effect."""


def check_providers(providers: Sequence[Any] | None) -> None:
    """Warn about execution providers that are asked for and do not exist here, as onnxruntime does."""
    names = [str(item[0]) if isinstance(item, tuple | list) else str(item) for item in providers or ()]
    missing = [name for name in names if name != CPU]
    if missing:
        warnings.warn(
            f"{', '.join(missing)} is not available: the session computes with {CPU}, the only one Cuvil has",
            UserWarning,
            stacklevel=3,
        )


def get_available_providers() -> list[str]:
    """Always the processor: ``["CPUExecutionProvider"]``."""
    return [CPU]


def get_all_providers() -> list[str]:
    return [CPU]


def get_device() -> str:
    """Always ``"CPU"``."""
    return "CPU"


def set_default_logger_severity(level: int) -> None:
    """Accepted and without effect: a session writes no log."""


def set_default_logger_verbosity(level: int) -> None:
    """Accepted and without effect: a session writes no log."""
