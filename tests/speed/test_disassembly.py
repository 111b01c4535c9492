"""The kernels an engine names with ``--version --json`` really are made of the vector instructions of their section."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
import small_models
from disassembly import Listing

from compiler_kernels.compile import compile_model

pytestmark = [
    pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed (package binutils)"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="objdump here reads this machine's instructions only"),
]

TARGET = "x86_64-linux-musl"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    return compile_model(
        small_models.classifier(), target="x86_64-linux-musl", kind="bin", output=folder / "engine.bin"
    )


@pytest.fixture(scope="module")
def listing(engine: Path) -> Listing:
    return Listing(engine)


def kernels(engine: Path, isa: str) -> list[str]:
    """Kernels of the steps that compute; a relayout moves single values and needs no wide register."""
    done = subprocess.run(
        [str(engine), "--version", "--json", "--isa", isa], capture_output=True, text=True, check=False
    )
    if done.returncode == 4:
        pytest.skip(f"this processor has no {isa}, so --version does not list its kernels")
    names = [step["kernel"] for step in json.loads(done.stdout)["steps"]]
    assert sum("relayout" in name for name in names) == 1
    return [name for name in names if "relayout" not in name]


def test_every_kernel_of_the_avx512_section_uses_zmm(engine: Path, listing: Listing) -> None:
    found = {name: listing.kernel(name) for name in kernels(engine, "avx512")}
    assert len(found) == 6 and all(name.endswith("_avx512") for name in found)
    assert [name for name, code in found.items() if not any("%zmm" in line for line in code)] == []
    assert len(products(found)) == 3 and all(fused(code, "zmm") for code in products(found).values())


def test_every_kernel_of_the_avx2_section_uses_ymm_and_never_zmm(engine: Path, listing: Listing) -> None:
    found = {name: listing.kernel(name) for name in kernels(engine, "avx2")}
    assert len(found) == 6 and all(name.endswith("_avx2") for name in found)
    assert [name for name, code in found.items() if not any("%ymm" in line for line in code)] == []
    assert [name for name, code in found.items() if any("%zmm" in line or "%k1" in line for line in code)] == []
    assert len(products(found)) == 3 and all(fused(code, "ymm") for code in products(found).values())


def products(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: code for name, code in found.items() if "conv" in name or "gemm" in name}


def fused(code: list[str], register: str) -> int:
    """Number of fused multiply-adds on whole registers."""
    return sum(line.startswith("vfmadd") and f"%{register}" in line for line in code)


def test_plain_c_is_told_from_vector_code(tmp_path: Path) -> None:
    """The check can fail: in a section of plain C, compiled for the oldest processor, it finds no wide register."""
    plain = compile_model(
        small_models.classifier(),
        target="x86_64-linux-musl",
        kind="bin",
        output=tmp_path / "plain.bin",
        isas=["scalar"],
    )
    listed = Listing(plain)
    found = {name: listed.kernel(name) for name in kernels(plain, "scalar")}
    assert not any("%zmm" in line for code in found.values() for line in code)
    assert products(found) and not any(fused(code, "zmm") for code in products(found).values())
