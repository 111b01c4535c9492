"""The second generator of GPU kernels: Triton (docs/gpu.md, "A second compiler")."""
