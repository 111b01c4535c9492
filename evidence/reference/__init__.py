"""The independent reference of Canonical Arithmetic 1.

An interpreter of ``frozen_graph.json`` and ``weights.bin`` in two arithmetics: ``ca1``, bit for bit as
docs/arithmetic.md defines it, and ``float64``, the yardstick of error measurements. It uses NumPy and the standard
library and shares no code with the compiler it checks.
"""

from evidence.reference.errors import ReferenceError
from evidence.reference.graph import RefGraph, RefNode, RefTensor, graph_bounds, load_graph
from evidence.reference.interpreter import OPERATORS, run

__all__ = ["OPERATORS", "RefGraph", "RefNode", "RefTensor", "ReferenceError", "graph_bounds", "load_graph", "run"]
