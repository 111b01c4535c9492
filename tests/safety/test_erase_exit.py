"""A program that ends leaves nothing of its input or result in memory, stacks and registers, whichever way it ends."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safety_case as case
from exit_scan import found_in
from onnx import TensorProto, helper

from compiler_kernels.targets.c.program import Guard
from compiler_kernels.targets.registry import runner

pytestmark = pytest.mark.skipif(runner(case.X86) != (), reason="no x86-64 engine runs natively here")

SHAPE = (64, 640)
VALUE = np.float32(123.456789)
"""Refused by the guard, which says so in a sentence that holds its text."""


def exponential() -> bytes:
    """x (64, 640) -> y = exp(x + x) * w: the last kernel leaves values in vector registers."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["t"]),
        helper.make_node("Exp", ["t"], ["e"]),
        helper.make_node("Mul", ["e", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "exponential",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        [onnx.numpy_helper.from_array(np.random.default_rng(3).random(SHAPE[1]).astype("f4"), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def without_wipes(sources: dict[str, bytes]) -> None:
    """An engine that ends as if there were no erasure."""
    text = sources["cuvil_exit.c"]
    begin = text.index(b"    cuvil_erase_threads();")
    sources["cuvil_exit.c"] = text[:begin] + b"    (void)wipe_below;\n    (void)wipe_above;\n    _exit(code);\n}\n"


def memory_only(sources: dict[str, bytes]) -> None:
    """An engine that wipes its buffers, but neither stacks nor registers."""
    text = sources["cuvil_exit.c"]
    begin = text.index(b"    cuvil_erase_threads();")
    body = b"    cuvil_erase();\n    (void)wipe_below;\n    (void)wipe_above;\n    _exit(code);\n}\n"
    sources["cuvil_exit.c"] = text[:begin] + body
    wipes = b"    wipe_stack();\n    cuvil_wipe_registers();\n}"
    assert sources["cuvil_erase.c"].count(wipes) == 1
    sources["cuvil_erase.c"] = sources["cuvil_erase.c"].replace(wipes, b"    (void)wipe_stack;\n}")


class Exits:
    """Engines of one model and what is found when they end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: dict[str, case.Built] = {}
        x = case.save(folder, SHAPE)
        np.save(folder / "refused.npy", np.where(np.arange(x.size).reshape(SHAPE) == 777, VALUE, x))
        (folder / "short.npy").write_bytes((folder / "x.npy").read_bytes()[:-4])
        assert self.engine("plain").infer(folder).returncode == 0
        y = np.load(folder / "out" / "y.npy")
        assert np.isfinite(y).all() and len(np.unique(y)) > 10000
        pairs = {a.tobytes()[i : i + 8] for a in (x, y, x + x) for i in range(0, a.nbytes - 7, 4)}
        self.patterns = [*pairs, x[3].tobytes(), y[5].tobytes(), f"{VALUE:.9g}".encode()]
        (folder / "patterns.json").write_text(json.dumps([p.hex() for p in self.patterns]))

    def engine(self, name: str, lockstep: bool = False, patch: case.Patch | None = None) -> case.Built:
        if name not in self.engines:
            guards = {("inputs", "x"): Guard(low=-100.0, high=100.0)}
            path = self.folder / name
            self.engines[name] = case.build(exponential(), path, lockstep=lockstep, guards=guards, patch=patch)
        return self.engines[name]

    def words(self, engine: case.Built, input: str = "x.npy", output: str = "out", threads: int = 1) -> list[str]:
        return [
            *(str(engine.path), "--input", str(self.folder / input)),
            *("--output-dir", str(self.folder / output), "--threads", str(threads)),
        ]

    def scan(self, words: list[str]) -> dict[str, Any]:
        script = Path(__file__).parent / "exit_scan.py"
        command = [sys.executable, str(script), str(self.folder / "patterns.json"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if "ptrace" in done.stderr:
            pytest.skip("this system forbids tracing a child")
        assert done.stdout, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["bytes"] > 1_000_000
        return answer


@pytest.fixture(scope="module")
def exits(tmp_path_factory: pytest.TempPathFactory) -> Exits:
    return Exits(tmp_path_factory.mktemp("exits"))


WAYS: dict[str, tuple[int, dict[str, str]]] = {
    "done": (0, {}),
    "output that can not be written": (2, {"output": "x.npy/out"}),
    "input refused by a guard": (3, {"input": "refused.npy"}),
    "truncated input": (2, {"input": "short.npy"}),
}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left(exits: Exits, way: str, threads: int) -> None:
    code, changes = WAYS[way]
    answer = exits.scan(exits.words(exits.engine("plain"), threads=threads, **changes))
    assert (answer["exit"], answer["threads"], answer["found"]) == (code, threads, {})


@pytest.mark.parametrize("threads", [1, 3])
def test_nothing_is_left_after_lockstep(exits: Exits, threads: int) -> None:
    engine = exits.engine("lockstep", lockstep=True)
    answer = exits.scan(exits.words(engine, threads=threads))
    assert (answer["exit"], answer["threads"], answer["found"]) == (0, threads, {})
    bad = case.flipped(engine, exits.folder / "bad", [case.copies(engine)[1] + 3], 4)
    answer = exits.scan(exits.words(bad, threads=threads))
    assert (answer["exit"], answer["threads"], answer["found"]) == (3, threads, {})


def with_sessions(sources: dict[str, bytes]) -> None:
    """An engine whose policy has audit.sessions."""
    lines = [b'#include "cuvil_session.h"', b'const cuvil_session_hooks cuvil_sessions = {"digest", 1, 0,']
    lines += [b"    cuvil_session_open, cuvil_session_begin, cuvil_session_append};", b""]
    sources["engine.c"] += b"\n".join(lines)


def careless_sessions(sources: dict[str, bytes]) -> None:
    with_sessions(sources)
    without_wipes(sources)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_of_a_session(exits: Exits, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a record and its thread; the subject's salt is gone from memory and environment, too."""
    salt = "c0ffee00" + "5a17" * 14
    monkeypatch.setenv("CUVIL_SESSION_SALT", salt)
    code, changes = WAYS[way]
    more = ["--session", str(tmp_path / "s"), "--subject", "0" * 32]
    exits.patterns += [p for p in (salt.encode(), bytes.fromhex(salt)) if p not in exits.patterns]
    (exits.folder / "patterns.json").write_text(json.dumps([p.hex() for p in exits.patterns]))
    answer = exits.scan([*exits.words(exits.engine("session", patch=with_sessions), **changes), *more])
    assert (answer["exit"], answer["found"]) == (code, {})
    lines = (tmp_path / "s" / "session.jsonl").read_bytes().splitlines()
    assert len(lines) == ("truncated" not in way) and all(b'"salted":true' in line for line in lines)
    careless = exits.scan([*exits.words(exits.engine("careless-session", patch=careless_sessions), **changes), *more])
    assert sum(careless["found"].values()) > 0.3 * len(exits.patterns)


@pytest.mark.parametrize("way", WAYS)
def test_the_scan_finds_what_is_not_wiped(exits: Exits, way: str) -> None:
    """Control: without erasure the same scan finds the input, and the result where there is one."""
    code, changes = WAYS[way]
    answer = exits.scan(exits.words(exits.engine("careless", patch=without_wipes), **changes))
    whole = sum(answer["found"].values())
    assert answer["exit"] == code and whole > 0.3 * len(exits.patterns)


@pytest.mark.parametrize("threads", [1, 4])
def test_registers_would_keep_values(exits: Exits, threads: int) -> None:
    """Control: wiping the buffers alone leaves values in vector registers of the threads."""
    answer = exits.scan(exits.words(exits.engine("buffers", patch=memory_only), threads=threads))
    assert set(answer["found"]) == {"registers"}


def core(words: list[str], path: Path) -> bytes:
    """A core file of the program at its call of exit_group, written by gdb."""
    commands = ["set confirm off", "catch syscall exit_group", "run", f"generate-core-file {path}", "kill"]
    options = [word for command in commands for word in ("-ex", command)]
    gdb = ["gdb", "-nx", "-batch", *options, "--args", *words]
    done = subprocess.run(gdb, capture_output=True, text=True, timeout=120, check=False)
    if not path.exists():
        pytest.skip(f"gdb writes no core file here: {done.stderr[-200:]}")
    return path.read_bytes()


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_a_core_file_holds_nothing(exits: Exits, tmp_path: Path) -> None:
    careless = core(exits.words(exits.engine("careless", patch=without_wipes), threads=2), tmp_path / "first.core")
    assert found_in(careless, exits.patterns) > 0.6 * len(exits.patterns)  # input and result; the sum x + x is fused
    assert found_in(core(exits.words(exits.engine("plain"), threads=2), tmp_path / "core"), exits.patterns) == 0


HOST = """
#include <string.h>
#include <unistd.h>
#include "cuvil_engine.h"
#define WIPE @WIPE@
static unsigned char session[64];
int main(int count, char **words) {
    const cuvil_engine *engine = &cuvil_engine_instance;
    (void)words;
    cuvil_erase_register(session, sizeof session);
    if (read(0, engine->input_buffers[0], (size_t)engine->inputs[0].count * 4) < 0) return 1;
    memcpy(session, engine->input_buffers[0], sizeof session);
    engine->infer();
    if (WIPE) cuvil_erase();
    _exit(count > 9);
}
"""


@pytest.mark.parametrize("wipe", [True, False])
@pytest.mark.parametrize("lockstep", [True, False])
def test_a_host_program_with_the_library(exits: Exits, tmp_path: Path, wipe: bool, lockstep: bool) -> None:
    """cuvil_erase in a program of one's own: engine, registered area, stack and registers."""
    built = exits.engine("lockstep" if lockstep else "plain", lockstep)
    text = HOST.replace("@WIPE@", str(int(wipe))).encode()
    host = case.link(built.program, {"host.c": text}, tmp_path / "host")
    x = np.load(exits.folder / "x.npy")
    (tmp_path / "bytes").write_bytes(x.tobytes())
    with (tmp_path / "bytes").open("rb") as stream:
        script = Path(__file__).parent / "exit_scan.py"
        command = [sys.executable, str(script), str(exits.folder / "patterns.json"), str(host)]
        done = subprocess.run(command, stdin=stream, capture_output=True, text=True, timeout=60, check=False)
    if "ptrace" in done.stderr:
        pytest.skip("this system forbids tracing a child")
    found = sum(json.loads(done.stdout)["found"].values())
    assert found == 0 if wipe else found > 0.6 * len(exits.patterns)
