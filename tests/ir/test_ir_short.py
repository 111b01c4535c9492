"""The short form of the text: what it fills in, what it refuses and where, and that it never gives anything else."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lowering import SHAPES, random_graph
from compiler_kernels.compile import native_target
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import IRError
from compiler_kernels.ir.__main__ import main
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.ops import L0_OPS
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import complaints, verify
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.infra import run_passes
from compiler_kernels.stages.backend import L2_PASSES, lower_to_l2
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.c.program import Identity, generate
from compiler_kernels.targets.isa import VARIANTS
from compiler_kernels.toolchain.sources import runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
DENSE = (EXAMPLES / "dense.ir").read_text()
BUFFERS = (EXAMPLES / "buffers.ir").read_text()


def run(lowered: Module, store: WeightStore, folder: Path, **inputs: np.ndarray) -> np.ndarray:
    """The single output of an engine made of an L2 module."""
    target = native_target()
    isas = VARIANTS[target.machine]
    program = generate(lowered, store, Identity("short", "1", "0", "0", target.triple), {}, isas=isas)
    path = folder / "engine.so"
    path.write_bytes(ZigDriver().build({**runtime_sources(), **program.files}, target, "so", isas).data)
    (result,) = load_engine(path).run(inputs).values()
    return result


def operands(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_dense_example_is_l0_and_runs(tmp_path: Path) -> None:
    module = parse_module(DENSE)
    verify(module)
    assert (module.level, [op.out.shape for op in module.main.ops]) == ("l0", [(8, 32), (8, 32)])
    frozen, _ = freeze(module, store := WeightStore())
    x, w, b = operands(1, (8, 64), (64, 32), (32,))
    found = run(lower_to_l2(frozen, store), store, tmp_path, input=x, weight=w, bias=b)
    assert np.abs(found - (x.astype(np.float64) @ w + b)).max() < 1e-5


def test_buffers_example_is_l1_and_runs(tmp_path: Path) -> None:
    module = parse_module(BUFFERS)
    verify(module)
    assert module.level == "l1"
    assert print_module(module).splitlines()[1:] == [
        "graph @main(%input: float32[8, 64], %weight: float32[64, 32]) {",
        "  %0 = tensor.alloc shape=[8, 32] dtype=float32",
        "  %1 = op.matmul(%input, %weight) into %0 : float32[8, 32]",
        '  %b1 = tensor.alloc output="2" position=0 shape=[8, 32] dtype=float32',
        "  %2 = op.relu(%1) into %b1 : float32[8, 32]",
        "  tensor.free(%0)",
        "  return %2",
        "}",
    ]
    store = WeightStore()
    lowered, _ = run_passes(module, store, L2_PASSES)
    x, w = operands(2, (8, 64), (64, 32))
    found = run(lowered, store, tmp_path, input=x, weight=w)
    assert np.abs(found - np.maximum(x.astype(np.float64) @ w, 0)).max() < 1e-5


def shortened(module: Module) -> str:
    """The canonical text without header, and without result types where the operands determine them."""
    lines = []
    for line in print_module(module).splitlines()[1:]:
        kind = re.match(r"  %\w+ = op\.(\w+)\(", line)
        keep = kind is None or L0_OPS[kind[1]].declared
        lines.append(line if keep else re.sub(r" : \w+\[[^\]]*\]", "", line))
    return "\n".join(lines)


@pytest.mark.parametrize("shape", SHAPES)
def test_types_left_out_come_back(shape: str) -> None:
    module, _ = random_graph(shape, 120, seed=5)
    text = shortened(module)
    assert text.count(" : ") < print_module(module).count(" : ")
    assert parse_module(text) == module


@pytest.mark.parametrize("shape", SHAPES)
def test_buffers_left_out_are_filled_in(shape: str) -> None:
    module, _ = random_graph(shape, 120, seed=6)
    text = shortened(module)
    at = text.index("\n", text.index(") {")) + 1
    found = parse_module(text[:at] + "%first = tensor.alloc shape=[1] dtype=float32\n" + text[at:])
    assert found.level == "l1"
    verify(found)
    written = [op.into for op in found.main.ops if op.name.startswith("op.")]
    assert len(written) == len(module.main.ops)


def test_fused_statements_and_functions() -> None:
    text = """
    graph (%x: float32[2, 3]) {
      %y = fused.relu_exp(%x) {
        %a = op.relu(%x)
        %y = op.exp(%a)
      }
      %z = view.reshape(%y) : float32[6]
      return %z "out"
    }
    """
    module = parse_module(text)
    verify(module)
    assert [op.out.shape for op in module.main.ops[1].body] == [(2, 3), (2, 3)]
    functions = text.replace("fused.relu_exp(%x) {", "call.k(%x) : float32[2, 3]")
    functions = (
        re.sub(r"\n +%a.*\n.*\n +}", "", functions) + "graph @k(%p: float32[2, 3]) {\n%t = op.exp(%p)\nreturn %t\n}"
    )
    module = parse_module(functions)
    assert (module.level, module.graphs[1].ops[0].out.shape) == ("l2", (2, 3))


SYMBOLIC = """
    meta symbol.N = "1..8"
    graph (%x: float32[N, 16], %w: float32[16, 4]) {
      %y = op.matmul(%x, %w)
      %z = op.concat(%y, %y) axis=0
      return %z
    }
"""


def test_sizes_may_be_symbols_with_bounds() -> None:
    module = parse_module(SYMBOLIC)
    verify(module)
    assert [str(op.out.shape) for op in module.main.ops] == ["('N', 4)", "('2 * N', 4)"]
    assert parse_module(print_module(module)) == module
    with pytest.raises(IRError, match=r"IR text line 2, column 21: .*is not a bound"):
        parse_module(SYMBOLIC.replace("1..8", "8..1 "))


def test_header_without_version_states_the_level() -> None:
    module = parse_module("cuvil.ir level=frozen\n" + DENSE)
    assert module.level == "frozen"
    verify(module)


HEAD = "graph (%x: float32[2, 3], %n: float32[N, 3], %u: float32[?, 3]) {\n"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("%1 = op.matmul(%input, %weight)\nreturn %1", (1, 16), "declare it as an input of the graph: graph (%input:"),
        (HEAD + "%y = op.relu(%q)\nreturn %y }", (2, 14), "%q is not defined"),
        (HEAD + "%y = op.relu(%x)\nreturn %q\n}", (3, 8), "%q is not defined"),
        (HEAD + "%x = op.relu(%x)\nreturn %x\n}", (2, 14), "%x is defined twice"),
        (HEAD + "%y = op.add(%x)\nreturn %y\n}", (2, 6), "add: 1 operands"),
        (HEAD + "%y = op.frobnicate(%x)\nreturn %y\n}", (2, 6), "no such operation exists"),
        (HEAD + "%y = op.reshape(%x)\nreturn %y\n}", (2, 6), "state it, as in : float32"),
        (HEAD + "%y = op.matmul(%n, %x)\nreturn %y\n}", (2, 6), "matmul: "),
        (HEAD + "%y = op.relu(%u)\nreturn %y\n}", (2, 6), "or state the type of the result"),
        (HEAD + "op.relu(%x)\nreturn %x\n}", (2, 1), "write %name = op.relu(...)"),
        (HEAD + "%b = tensor.alloc shape=[?, 4] dtype=float32\nreturn %x\n}", (2, 1), "what ? is; state the size"),
        (HEAD + "%y = fused.f(%x) {\n%y = op.relu(%q)\n}\nreturn %y\n}", (3, 14), "%q is not defined in the body"),
        (HEAD + "%y = call.k(%x)\nreturn %y\n}", (2, 6), "state it, as in : float32"),
        (HEAD + "%y = op.relu(%x)\n", (3, 1), "expected name, found end"),
    ],
)
def test_refusals_name_the_place(text: str, place: tuple[int, int], words: str) -> None:
    with pytest.raises(IRError) as caught:
        parse_module(text)
    assert f"IR text line {place[0]}, column {place[1]}: " in str(caught.value)
    assert words in str(caught.value)


PIECES = [*'%1 %input ? op.relu ( ) { } return into [ ] , = : float32[2] # é \0 "'.split(), "\n", "into %0 ", ""]
texts = st.sampled_from([DENSE, BUFFERS, SYMBOLIC, *(shortened(random_graph(s, 20, seed=1)[0]) for s in SHAPES)])
edits = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(PIECES)), max_size=3)


@settings(max_examples=300, deadline=None)
@given(texts, edits)
def test_mutated_texts_are_modules_or_one_sentence(text: str, changes: list[tuple[int, int, str]]) -> None:
    for where, length, extra in changes:
        at = where % len(text)
        text = text[:at] + extra + text[at + length :]
        if not text:
            return
    try:
        module = parse_module(text)
    except IRError as error:
        assert "line" in str(error) and "\n" not in str(error)
    else:
        assert parse_module(print_module(module)) == module
        list(complaints(module))


def test_command_prints_the_full_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(EXAMPLES / "buffers.ir")]) == 0
    assert capsys.readouterr().out == print_module(parse_module(BUFFERS))
    broken = tmp_path / "broken.ir"
    broken.write_text(DENSE.replace("%bias)\n", "%missing)\n"))
    assert main([str(broken)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"{broken}: IR text line 4, column 19: %missing is not defined")
    broken.write_text("cuvil.ir level=l0 version=1\ngraph @g() {\n  return\n}\n")
    assert main([str(broken)]) == 2
    assert "the graph returns nothing" in capsys.readouterr().err
    assert main([str(tmp_path)]) == main([]) == 2


def test_documentation_shows_the_example_file() -> None:
    assert f"```\n{BUFFERS}```" in (EXAMPLES.parent / "ir.md").read_text()
