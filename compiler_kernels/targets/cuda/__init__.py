"""The GPU target: CUDA C++ from the functions of L2, one launch per function (docs/gpu.md)."""
