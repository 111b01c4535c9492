"""Figures, reasons, baseline and exit codes of ``cuvil conformance``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compiler_kernels.errors import UsageError
from cuvil_assets.cli import main
from evidence.conformance import Kind, Outcome
from evidence.conformance.report import (
    baseline_text,
    by_operator,
    defects,
    figures,
    read_baseline,
    reasons,
    regressions,
    table,
)

DEVIATION = "test_resize_downsample_scales_linear_align_corners"
OUTCOMES = [
    Outcome("test_add", "Add", "as-is", Kind.PASSED),
    Outcome("test_add", "Add", "frozen", Kind.PASSED),
    Outcome(
        "test_acos", "Acos", "as-is", Kind.REFUSED, "node 'Acos_0' (Acos, domain ai.onnx, opset 22) is no 'x' of 3"
    ),
    Outcome(
        "test_acos_example", "Acos", "as-is", Kind.REFUSED, "node 'A' (Acos, domain ai.onnx, opset 7) is no 'y' of 41"
    ),
    Outcome("test_abs", "Abs", "as-is", Kind.DIFFERS, "output 'y' at [0]: got 1, expected 2 (1 of 60 elements differ)"),
    Outcome(DEVIATION, "Resize", "frozen", Kind.WRONG, "output 'Y'"),
]


def test_figures_keep_their_denominators() -> None:
    found = figures(OUTCOMES)
    assert found["as-is"] == {
        "target": {"count": 769, "run": 2, "passed": 1},
        "onnxruntime": {"count": 1593, "run": 4, "passed": 1},
        "all": {"count": 1884, "run": 4, "passed": 1},
    }
    assert found["frozen"]["all"] == {"count": 1884, "run": 2, "passed": 1}


def test_equal_reasons_are_counted_together() -> None:
    ((count, text, ops),) = reasons(OUTCOMES, Kind.REFUSED, "as-is")
    assert (count, ops) == (2, ["Acos"])
    assert text == "node (Acos, domain ai.onnx, opset N) is no '…' of N"


def test_table_names_operators_defects_and_known_deviations() -> None:
    assert by_operator(OUTCOMES, "as-is")["Acos"] == {Kind.REFUSED: 2}
    text = "\n".join(table(OUTCOMES))
    assert "mode as-is: 1 passed, 2 refused, 1 differs from reference" in text
    assert "differs from reference: test_abs (as-is): output 'y' at [0]" in text
    assert f"wrong value: {DEVIATION} (frozen): output 'Y' (known: align_corners" in text
    assert [o.name for o in defects(OUTCOMES)] == ["test_abs"]


def test_baseline_round_trip_and_regressions(tmp_path: Path) -> None:
    file = tmp_path / "passing.txt"
    file.write_text(baseline_text(OUTCOMES) + "test_abs as-is\ntest_acos frozen\n")
    assert read_baseline(file) == {
        ("test_add", "as-is"),
        ("test_add", "frozen"),
        ("test_abs", "as-is"),
        ("test_acos", "frozen"),
    }
    (line,) = regressions(OUTCOMES, read_baseline(file))
    assert line.startswith("test_abs (as-is): differs from reference: ")


@pytest.mark.parametrize("line", ["test_add", "test_add sometimes", "test_nothing as-is", "test_add as-is frozen"])
def test_a_bad_line_of_the_baseline_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "passing.txt"
    file.write_text(f"# names\n{line}\n")
    with pytest.raises(UsageError, match="line 2 is not NAME MODE"):
        read_baseline(file)


def test_command_with_json_and_a_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tmp_path / "passing.txt"
    before.write_text("test_relu as-is,frozen\ntest_acosh as-is\n")
    assert main(["conformance", "--only", "test_relu", "--baseline", str(before), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["regressed"] == []
    assert found["modes"]["frozen"]["passed"]["target"] == {"count": 769, "run": 1, "passed": 1}
    assert {c["name"] for c in found["cases"]} == {"test_relu", "test_relu_expanded_ver18"}


def test_command_ends_with_1_for_a_test_that_passes_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tmp_path / "passing.txt"
    before.write_text("test_strnormalizer_export_monday_casesensintive_lower as-is\n")
    assert main(["conformance", "--op", "StringNormalizer", "--mode", "as-is", "--baseline", str(before)]) == 1
    shown = capsys.readouterr()
    assert "passes no more: test_strnormalizer_export_monday_casesensintive_lower (as-is): refused: " in shown.out
    assert "tests, " in shown.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--suite", "models"], "--suite 'models' is not known; choose one of onnx-node"),
        (["--mode", "warm"], "--mode 'warm' is not known; choose one of as-is, frozen, both"),
        (["--only", "xyzzy"], "--only xyzzy: no node test matches"),
        (["--op", "Xyzzy"], "--op Xyzzy: no node test matches"),
        (["--baseline", "/nowhere/names"], "--baseline /nowhere/names: cannot be read"),
        (["--only", "relu", "--write-baseline", "x"], "--write-baseline needs the whole suite in both modes"),
        (["--write-baseline", "/nowhere/names"], "--write-baseline /nowhere/names: there is no such folder"),
    ],
)
def test_bad_options(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", *words]) == 2
    assert sentence in capsys.readouterr().err
