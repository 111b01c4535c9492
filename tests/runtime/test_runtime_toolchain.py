"""The compiler drivers: equal bytes wherever they run, honest reports, clear refusals."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import runtime_sample as sample

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError
from compiler_kernels.targets import registry
from compiler_kernels.targets.registry import TARGETS, alias_note, grade, resolve_target, runner
from compiler_kernels.toolchain import doctor as doctor_module
from compiler_kernels.toolchain import elf
from compiler_kernels.toolchain.gcc import GccDriver, find_gcc
from compiler_kernels.toolchain.sealed import run_sealed
from compiler_kernels.toolchain.sources import RUNTIME_UNITS, runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver, warm, zig_executable, zig_version

X86 = TARGETS["x86_64-linux-musl"]
ROOT = Path(__file__).resolve().parents[2]

_SCRIPT = """
import os, sys
os.umask(int(sys.argv[1], 8))
sys.path[:0] = [{root!r}, {tests!r}]
import runtime_sample as sample
from compiler_kernels.targets.registry import TARGETS
from compiler_kernels.toolchain.zig import ZigDriver
target = TARGETS[sys.argv[2]]
out = ZigDriver().build(sample.two_inputs(target.triple), target)
import hashlib, json
print(hashlib.sha256(out.data).hexdigest(), hashlib.sha256(json.dumps(out.report, sort_keys=True).encode()).hexdigest())
"""


def _build_elsewhere(directory: Path, umask: str, triple: str, **environment: str) -> str:
    directory.mkdir(parents=True)
    script = _SCRIPT.format(root=str(ROOT), tests=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", script, umask, triple],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("triple", sorted(TARGETS))
def test_bytes_do_not_depend_on_directory_umask_zone_locale_or_clock(triple, tmp_path):
    first = _build_elsewhere(tmp_path / "a", "022", triple, TZ="UTC", LC_ALL="C")
    time.sleep(1.1)  # another second on the clock, for anything that stores one
    second = _build_elsewhere(
        tmp_path / "elsewhere" / "deeper",
        "077",
        triple,
        TZ="Asia/Shanghai",
        LC_ALL="C.UTF-8",
        SOURCE_DATE_EPOCH="1700000000",
    )
    assert first == second and len(first.split()) == 2


def test_report_says_how_and_holds_no_path(tmp_path):
    out = ZigDriver().build(sample.two_inputs(X86.triple), X86)
    text = json.dumps(out.report)
    for place in (tempfile.gettempdir() + "/", str(Path.home()) + "/", str(ROOT), str(zig_executable())):
        assert place not in text
    compiler = out.report["compiler"]
    assert compiler["version"] == zig_version() and len(compiler["sha256"]) == 64
    files = out.report["files"]
    assert files["engine.c"]["cpu"] == "x86-64-v3" and files["cuvil_main.c"]["cpu"] == "x86-64"
    assert files["cuvil_isa.c"]["cpu"] == "x86-64-v3" and "-Werror" in files["cuvil_isa.c"]["flags"]
    assert "-ffp-contract=off" in files["engine.c"]["flags"] and "-Werror" not in files["engine.c"]["flags"]
    assert out.report["warnings"] == [] and out.report["size"] == len(out.data)
    assert out.report["sections"] == elf.section_sizes(out.data) and out.report["sections"][".rodata"] >= len(
        sample.WEIGHTS
    )
    assert str(tmp_path.parent).encode() not in out.data and str(Path.home()).encode() + b"/" not in out.data
    assert elf.read_symbols(out.data) == frozenset()


def test_every_runtime_unit_is_listed_and_warnings_of_generated_code_are_reported():
    assert sorted(n for n in runtime_sources() if n.endswith(".c")) == sorted(RUNTIME_UNITS)
    files = sample.two_inputs(X86.triple)
    files["engine.c"] += b"static int unused_thing(void) { return 1; }\n"
    (line,) = ZigDriver().build(files, X86).report["warnings"]
    assert "unused_thing" in line and line.startswith("engine.c:")


def test_an_allocator_is_refused():
    files = sample.two_inputs(X86.triple)
    files["engine.c"] += (
        b"#include <stdlib.h>\nvoid *volatile kept;\nvoid grow(void);\nvoid grow(void) { kept = malloc(8); }\n"
    )
    files["engine.c"] = files["engine.c"].replace(
        b"    prepared = 1;", b"    extern void grow(void); grow(); prepared = 1;"
    )
    with pytest.raises(CuvilError, match=r"contains the allocator \S+: this is a defect of Cuvil"):
        ZigDriver().build(files, X86)


def test_a_refused_source_names_the_first_error():
    files = sample.two_inputs(X86.triple)
    files["engine.c"] += b"int broken = ;\n"
    with pytest.raises(CuvilError, match=r"engine\.c:\d+:\d+: error: .*defect of Cuvil") as caught:
        ZigDriver().build(files, X86)
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)
    with pytest.raises(CuvilError, match="no plain file name"):
        ZigDriver().build({"../evil.c": b""}, X86)
    with pytest.raises(UsageError, match="no kind of build 'exe'"):
        ZigDriver().build(files, X86, "exe")


def test_a_compiler_that_hangs_is_ended_with_its_children(tmp_path):
    marker = tmp_path / "late"
    command = ["/bin/sh", "-c", f"(sleep 2; touch {marker}) & sleep 30"]
    with pytest.raises(CuvilError, match=r"did not finish in 0.5 s"):
        run_sealed(command, tmp_path, {"PATH": os.defpath}, 0.5)
    time.sleep(2.2)
    assert not marker.exists()


def test_unusable_temporary_directory_and_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUVIL_ZIG_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UsageError, match=r"cannot create the compiler's cache .*CUVIL_HOME"):
        ZigDriver().build(sample.two_inputs(X86.triple), X86)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match=r"cannot build in the temporary directory .*TMPDIR"):
        ZigDriver().build(sample.two_inputs(X86.triple), X86)


def test_changed_weights_are_noticed_between_builds():
    first = ZigDriver().build(sample.with_runtime(sample.generated(X86.triple)), X86)
    other = sample.generated(X86.triple)
    other["engine_weights.bin"] = sample.WEIGHTS[::-1]
    second = ZigDriver().build(sample.with_runtime(other), X86)
    assert sample.WEIGHTS in first.data and sample.WEIGHTS[::-1] in second.data and sample.WEIGHTS not in second.data


@pytest.mark.skipif(find_gcc(X86) is None or runner(X86) != (), reason="needs gcc and an x86-64-v3 processor")
def test_gcc_gives_the_same_bits(tmp_path):
    rng = np.random.default_rng(7)
    for name in ("a", "b"):
        bits = rng.integers(0, 2**32, (2, 3), dtype=np.uint32).view("<f4")
        np.save(tmp_path / f"{name}.npy", np.where(np.abs(bits) < 100, bits, np.float32(0.3)))
    results = []
    for driver in (ZigDriver(), GccDriver()):
        out = driver.build(sample.two_inputs(X86.triple), X86)
        assert out.report["compiler"]["name"] == driver.name
        engine = sample.write_engine(tmp_path, driver.name, out.data)
        assert engine.run("--self-test").returncode == 0
        words = ["--input", f"a={tmp_path / 'a.npy'}", "--input", f"b/in={tmp_path / 'b.npy'}"]
        assert engine.run(*words, "--output-dir", tmp_path / f"o-{driver.name}").returncode == 0
        results.append((tmp_path / f"o-{driver.name}" / "_._y.npy").read_bytes())
    assert results[0] == results[1]


def test_gcc_absent(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UnsupportedError, match="no gcc for aarch64-linux-musl on PATH: install aarch64-linux-gnu-gcc"):
        GccDriver().build({"engine.c": b""}, TARGETS["aarch64-linux-musl"])


_HOST = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
words = (ctypes.c_void_p * 24).in_dll(library, "cuvil_engine_instance")
print(ctypes.string_at(words[5]).decode(), ctypes.string_at(words[6]).decode())
"""


def test_libraries_export_the_instance(tmp_path):
    for triple, target in TARGETS.items():
        shared = ZigDriver().build(sample.two_inputs(triple), target, "so")
        assert elf.read_sections(shared.data) and shared.report["kind"] == "so"
        assert b"cuvil_engine_instance" in shared.data and b"cuvil_require_cpu" not in shared.data
        archive = ZigDriver().build(sample.two_inputs(triple), target, "lib")
        assert archive.data.startswith(b"!<arch>\n") and b"cuvil_engine_instance" in archive.data
    if runner(X86) == ():
        path = tmp_path / "engine.so"
        path.write_bytes(ZigDriver().build(sample.two_inputs(X86.triple), X86, "so").data)
        done = subprocess.run([sys.executable, "-c", _HOST, str(path)], capture_output=True, text=True, check=True)
        digest, triple = done.stdout.split()
        assert digest.startswith("sha3-512:") and triple == X86.triple


def test_strip_keeps_every_loaded_byte(tmp_path):
    class Unstripped(ZigDriver):
        seen = b""

        def _run(self, space, target, program, words):
            super()._run(space, target, program, words)
            if (space.directory / "engine").exists():
                Unstripped.seen = (space.directory / "engine").read_bytes()

    out = Unstripped().build(sample.two_inputs(X86.triple), X86)
    assert {"main", "cuvil_require_cpu"} <= elf.read_symbols(Unstripped.seen)
    whole = {s.name: s for s in elf.read_sections(Unstripped.seen)}
    for section in elf.read_sections(out.data):
        if section.loaded and section.kind != 8:
            twin = whole[section.name]
            assert (section.address, section.offset, section.size) == (twin.address, twin.offset, twin.size)
            end = section.offset + section.size
            assert out.data[section.offset : end] == Unstripped.seen[section.offset : end]
    assert len(out.data) < len(Unstripped.seen) / 4 and elf.strip(out.data) == out.data
    with pytest.raises(CuvilError, match="unreadable ELF"):
        elf.read_sections(b"MZ" + bytes(100))


def test_targets():
    assert resolve_target("x86_64-linux-musl") is X86
    assert resolve_target("aarch64-linux-gnueabihf").triple == "aarch64-linux-musl"
    assert "32-bit ARM" in alias_note("aarch64-linux-gnueabihf") and alias_note("x86_64-linux-musl") == ""
    with pytest.raises(
        UnsupportedError,
        match=r"no target 'riscv64': choose one of aarch64-linux-musl, cuda-sm_80, .*x86_64-linux-musl",
    ):
        resolve_target("riscv64")


def test_a_target_that_cannot_run_here_is_not_executed(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(registry, "runs_natively", lambda target: False)
    assert all(runner(t) is None and grade(t) == "not executed" for t in TARGETS.values())
    rows = {r.name: r for r in doctor_module.doctor()}
    assert rows["target aarch64-linux-musl"].status == "optional"
    assert "install qemu-aarch64-static" in rows["target aarch64-linux-musl"].detail


def test_doctor_rows():
    rows = {r.name: r for r in doctor_module.doctor()}
    assert rows["compiler"].status == "ok" and zig_version() in rows["compiler"].detail
    assert {f"target {t}" for t in TARGETS} <= set(rows) and "alias aarch64-linux-gnueabihf" in rows


def test_warm_reports_each_target():
    lines: list[str] = []
    warm(TARGETS.values(), lines.append)
    assert [next(t for t in TARGETS if t in line) for line in sorted(lines)] == sorted(TARGETS)
