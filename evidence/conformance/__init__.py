"""ONNX's own node tests through compiled engines (docs/validation.md)."""

from evidence.conformance.cases import MODES, Case, onnx_node_cases
from evidence.conformance.outcome import Kind, Outcome
from evidence.conformance.suite import run_cases, run_jobs

__all__ = ["MODES", "Case", "Kind", "Outcome", "onnx_node_cases", "run_cases", "run_jobs"]
