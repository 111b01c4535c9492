"""The clinical policy: its schema, one module per section, and its reader (docs/policy.md)."""

from compiler_kernels.policy.budget import Budget
from compiler_kernels.policy.load import PolicyMisfit, check_against, load_policy, merge_pins, policy_from_json
from compiler_kernels.policy.numerics import Numerics
from compiler_kernels.policy.schema import Policy, published_schema
from compiler_kernels.policy.shapes import SymbolBound
from compiler_kernels.policy.tensors import TensorGuard

__all__ = [
    "Budget",
    "Numerics",
    "Policy",
    "PolicyMisfit",
    "SymbolBound",
    "TensorGuard",
    "check_against",
    "load_policy",
    "merge_pins",
    "policy_from_json",
    "published_schema",
]
