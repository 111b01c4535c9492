"""Export of L0 and frozen modules as linalg on tensors (docs/ir.md): MLIR text for readers and tools."""
