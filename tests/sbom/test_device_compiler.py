"""The compiler of GPU kernels is a tool of the bill of materials."""

from __future__ import annotations

from evidence.sbom.linked import device_compiler
from evidence.sbom.parts import TOOL


def test_nvcc_is_named_with_version_and_digest_and_only_for_gpu_engines():
    compiler = {"name": "nvcc", "version": "13.0.88", "programs_sha256": {"ptxas": "ab" * 32}}
    (part,) = device_compiler({"cuda": {"compiler": compiler}})
    assert (part.name, part.version, part.group, part.own) == ("nvcc", "13.0.88", TOOL, False)
    assert part.properties["cuvil:program-sha256:ptxas"] == "ab" * 32 and part.supplier == "NVIDIA Corporation"
    assert device_compiler({}) == []
