"""Node tests through compiled engines: passing, refused, wrong on purpose, crashing, hanging, not compiling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler_kernels.errors import UsageError
from compiler_kernels.targets.isa import VARIANTS
from compiler_kernels.targets.registry import runner
from evidence.conformance import Kind, onnx_node_cases, run_cases, run_jobs
from evidence.conformance.build import build, first_error
from evidence.conformance.compare import judge
from evidence.conformance.execute import execute, read_frames
from evidence.conformance.prepare import Prepared, Stopped, prepare
from evidence.conformance.suite import this_target
from evidence.engine_program import EngineText, file_scope_names

TARGET = this_target()
ISA = VARIANTS[TARGET.machine][-1]

PASSING = """
test_add test_add_bcast test_sub test_mul test_div test_relu test_leakyrelu test_elu test_sigmoid test_tanh test_erf
test_exp test_softmax_axis_1 test_logsoftmax_axis_1 test_clip_default_inbounds test_gelu_default_1 test_hardsigmoid
test_prelu_broadcast test_basic_conv_with_padding test_conv_with_strides_and_asymmetric_padding
test_convtranspose_pads test_convtranspose_1d test_maxpool_2d_ceil test_averagepool_2d_pads_count_include_pad
test_globalaveragepool test_hardswish test_instancenorm_epsilon test_gemm_all_attributes test_matmul_3d
test_lstm_with_initial_bias test_gru_reverse test_concat_3d_axis_1 test_slice test_reshape_reordered_all_dims
test_transpose_all_permutations_3 test_edge_pad test_reflect_pad test_resize_upsample_scales_linear
test_reduce_mean_keepdims_random test_expand_dim_changed test_squeeze test_unsqueeze_axis_1
""".split()


def test_cases_that_pass_when_frozen() -> None:
    outcomes = run_cases(PASSING, "frozen", TARGET)
    assert [o.name for o in outcomes] == PASSING
    assert [(o.name, o.kind, o.detail) for o in outcomes if o.kind is not Kind.PASSED] == []


def test_a_refused_test_has_the_compilers_sentence() -> None:
    (outcome,) = run_cases(["test_strnormalizer_export_monday_casesensintive_lower"], "as-is", TARGET)
    assert outcome.kind is Kind.REFUSED
    assert outcome.op == "StringNormalizer"
    assert "string" in outcome.detail


def test_a_wrong_expected_value_is_found_with_its_place() -> None:
    case = onnx_node_cases()["test_add"]
    spoilt = np.array(case.expected["sum"], copy=True)
    spoilt[1, 2, 3] += 1
    wrong = replace(case, expected={"sum": spoilt})
    spoilt_type = replace(case, expected={"sum": spoilt.astype(np.float64)})
    outcomes = run_jobs([(wrong, "as-is"), (case, "as-is"), (spoilt_type, "frozen")], TARGET)
    assert [o.kind for o in outcomes] == [Kind.WRONG, Kind.PASSED, Kind.WRONG]
    assert "at [1, 2, 3]" in outcomes[0].detail
    assert "(1 of 60 elements differ); the reference has the engine's bits" in outcomes[0].detail
    assert "expected float64[3, 4, 5]" in outcomes[2].detail


def test_unknown_name_and_mode() -> None:
    with pytest.raises(UsageError, match="no node test 'test_nothing'"):
        run_cases(["test_nothing"], "as-is", TARGET)
    with pytest.raises(UsageError, match="no mode 'frosted'"):
        run_cases(["test_add"], "frosted", TARGET)


def ready(name: str) -> Prepared:
    case = onnx_node_cases()[name]
    found = prepare(case, *case.variant("frozen"), ISA)
    assert isinstance(found, Prepared), found
    return found


def spoilt(test: Prepared, statement: str) -> Prepared:
    """The engine with ``statement`` at the beginning of its inference."""
    start = f"static void {test.engine.prefix}_infer(void) {{"
    assert start in test.engine.text
    return replace(test, engine=EngineText(test.engine.prefix, test.engine.text.replace(start, start + statement)))


@pytest.fixture(scope="module")
def five() -> list[Prepared]:
    """Five engines, of which the second does not compile, the third traps, and the fourth never ends."""
    tests = [ready(name) for name in ("test_add", "test_sub", "test_mul", "test_div", "test_relu")]
    tests[1] = spoilt(tests[1], "undeclared_name(;")
    tests[2] = spoilt(tests[2], "__builtin_trap();")
    tests[3] = spoilt(tests[3], "for (volatile int forever = 1; forever;) {}")
    return tests


def test_bad_engines_do_not_take_the_others_down(five: list[Prepared], tmp_path: Path) -> None:
    built = list(build(five, TARGET, ISA, tmp_path))
    assert [t.case.name for b in built for t in b.tests] == [t.case.name for t in five]
    (culprit,) = [b for b in built if b.program is None]
    assert [t.case.name for t in culprit.tests] == ["test_sub"]
    assert "undeclared_name" in culprit.message
    found = {}
    for program in built:
        if program.program is not None:
            results = execute(program.program, program.tests, runner(TARGET) or (), timeout=3)
            found.update({t.case.name: r for t, r in zip(program.tests, results, strict=True)})
    assert {n: r.kind for n, r in found.items() if isinstance(r, Stopped)} == {
        "test_mul": Kind.CRASH,
        "test_div": Kind.TIMEOUT,
    }
    for name in ("test_add", "test_relu"):
        result = found[name]
        assert not isinstance(result, Stopped)
        test = next(t for t in five if t.case.name == name)
        assert judge(test, result) == (Kind.PASSED, "")


def test_an_input_of_another_size_is_told_and_the_next_engine_runs(tmp_path: Path) -> None:
    tests = [ready("test_add"), ready("test_relu")]
    tests[0] = replace(tests[0], inputs=(tests[0].inputs[0][:1], tests[0].inputs[1]))
    (built,) = build(tests, TARGET, ISA, tmp_path)
    assert built.program is not None
    first, second = execute(built.program, tests, runner(TARGET) or ())
    assert first == Stopped(Kind.CRASH, "an input has another size")
    assert not isinstance(second, Stopped)


def test_an_engine_that_another_one_overwrites_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first engine leaves something behind that stops the second: alone, each passes."""
    culprit = spoilt(ready("test_add"), "spoilt_by_another = 1;")
    victim = spoilt(ready("test_relu"), "if (spoilt_by_another) __builtin_trap();")
    define = "static int spoilt_by_another;\n"
    ready_tests = {
        t.case.name: replace(t, engine=EngineText(t.engine.prefix, define + t.engine.text)) for t in (culprit, victim)
    }
    monkeypatch.setattr("evidence.conformance.suite.prepare", lambda case, *rest: ready_tests[case.name])
    added, related = run_cases(["test_add", "test_relu"], "frozen", TARGET)
    assert added.kind is Kind.PASSED
    assert related.kind is Kind.CRASH
    assert related.detail.startswith("passes alone, but not among others, one of which overwrites it: ")


def test_judgement_of_bits_and_values() -> None:
    values = np.array([1.0, np.nan, -0.0], np.float32)
    relu = ready("test_relu")

    def judge_(outputs: dict[str, np.ndarray], reference: dict[str, np.ndarray] | str) -> tuple[Kind, str]:
        case = replace(relu.case, expected={"y": values})
        return judge(replace(relu, case=case, reference=reference), outputs)

    payload = np.array([0x3F800000, 0xFFC12345, 0x80000000], np.uint32).view(np.float32)
    assert judge_({"y": payload}, {"y": values}) == (Kind.PASSED, "")  # NaN is one value
    zero = np.array([1.0, np.nan, 0.0], np.float32)
    kind, detail = judge_({"y": zero}, {"y": values})
    assert kind is Kind.DIFFERS
    assert "at [2]" in detail
    near = np.array([np.nextafter(np.float32(1), np.float32(2)), np.nan, -0.0], np.float32)
    assert judge_({"y": near}, {"y": values})[0] is Kind.DIFFERS
    assert judge_({"y": near}, "no such operator")[0] is Kind.DIFFERS
    far = np.array([1.01, np.nan, -0.0], np.float32)
    kind, detail = judge_({"y": far}, {"y": values})
    assert kind is Kind.WRONG
    assert "the reference has other bits" in detail
    assert judge_({}, {"y": values})[0] is Kind.WRONG
    assert judge_({"y": values[:2]}, {"y": values})[0] is Kind.WRONG


def test_frames_that_end_early_are_left_out() -> None:
    def number(n: int) -> bytes:
        return n.to_bytes(8, "little", signed=True)

    frame = b"CVF1" + number(0) + number(1) + number(1) + b"y" + number(7) + number(1) + number(2) + number(16)
    frame += np.array([5, -6], "<i8").tobytes()
    assert [list(f["y"]) for f in read_frames(frame + frame[:-1]) if f] == [[5, -6]]
    assert read_frames(b"CVF1" + number(0) + number(-1) + frame)[0] is None
    assert read_frames(b"Segmentation fault") == []


def test_file_scope_names() -> None:
    text = (
        "static void step0(int begin) {\n    static int inside;\n}\n"
        "static const _Alignas(64) float table[2] = {1, 2};\n"
        '__attribute__((visibility("hidden"))) int shared;\nstatic void e1_kernel(void) {}\n'
    )
    assert file_scope_names(text, "e1") == ["step0", "table"]


def test_first_error() -> None:
    assert (
        first_error("a.c:1: warning: x\na.c:2:3: error: expected ';'\n  int x\n")
        == "a.c:2:3: error: expected ';' | int x"
    )


def test_a_defect_of_the_compiler_is_a_crash_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise KeyError("missing row")

    monkeypatch.setattr("evidence.conformance.prepare.lower_to_l2", broken)
    (outcome,) = run_cases(["test_relu"], "as-is", TARGET)
    assert outcome.kind is Kind.CRASH
    assert "KeyError: 'missing row'" in outcome.detail
    assert "in broken" in outcome.detail
