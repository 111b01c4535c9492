"""Evidence on a device: the committed one is signed and whole; the verdict misses nothing; reports are never joined."""

from __future__ import annotations

import copy
import json
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu_asked, gpu_checks, gpu_engines, gpu_evidence, gpu_session, gpu_table
from benchmarks.gpu_engines import CPU, row_of
from benchmarks.gpu_subjects import Subject
from benchmarks.gpu_verdict import EVERY_BATCH, RATIOS, verdict
from benchmarks.gpu_work import Jobs, apart, attempt
from compiler_kernels.errors import UsageError
from evidence.verifier.audit import check_signatures
from evidence.verifier.canonical import MalformedError
from evidence.verifier.dsse import read_envelope
from evidence.verifier.trust import load_trust_root

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "models"


@pytest.fixture(scope="module")
def committed():
    return json.loads((RESULTS / "gpu_evidence.json").read_bytes())


def test_the_evidence_is_signed_by_the_keys_beside_it():
    envelope = read_envelope((RESULTS / "gpu_evidence.dsse.json").read_bytes())
    assert envelope.payload == (RESULTS / "gpu_evidence.json").read_bytes()
    root = load_trust_root(RESULTS / "gpu_evidence.trust-root.json")
    check_signatures(envelope, root)
    with pytest.raises(MalformedError):
        check_signatures(type(envelope)(envelope.payload_type, envelope.payload + b" ", envelope.signatures), root)


def test_the_evidence_names_its_device_and_was_no_emulation(committed):
    assert committed["format"].startswith("cuvil-gpu-evidence/") and committed["emulated"] is False
    assert "H200" in committed["machine"]["gpus"][0] and committed["machine"]["date"].startswith("20")
    rows = [{**row, **row.get("bits", {})} for row in committed["nets"].values()]
    devices = [row["device"] for row in rows if "device" in row]
    assert devices and all(device.startswith("NVIDIA") for device in devices)


def test_the_verdict_follows_from_the_rows(committed):
    assert committed["format"] == gpu_asked.FORMAT
    assert verdict(committed) == committed["verdict"]


def test_ptx_of_every_engine_held_only_what_the_gate_allows(committed):
    for name, made in committed["builds"].items():
        for instruction in made.get("ptx_instructions", {}):
            assert gpu_checks.gate_allows(instruction), f"{name}: {instruction}"


def _report():
    """A whole report about one network of the zoo, all of whose batches were compared."""
    spread = {"median": 1.0, "p99_over_p50": 1.05}
    rows = {str(n): {"rows": n, "values": n, "differing": 0} for n in EVERY_BATCH}
    bits = {"values": 5, "differing": 0, "differing_on_second_run": 0}
    engines = [f"ecg batch 1 {t}" for t in (CPU, "cuda-sm_90", "cuda-sm_80")]
    engines += [f"ecg batch {n} cuda-sm_90" for n in EVERY_BATCH]
    return {
        "asked": {
            "engines": engines, "batches": {"ecg": [*EVERY_BATCH]}, "open": ["ecg"], "also": {"ecg": ["sm_80"]},
            "times": True, "large": [], "parts": ["vectors", "bisect", "cubins_of_two_machines"],
        },
        "builds": {label: {"images": {}} for label in engines},
        "failures": {},
        "nets": {
            "ecg": {
                "bits": {**bits}, "sm_80": {**bits}, "rows": rows,
                "cuvil": {"gpu_us": spread, "wall_us": {**spread}},
                "ratios": {"compile_graph": 0.3}, "memory_ratio": 0.2,
            }
        },
        "vectors": {"run": 3, "wrong": {}},
        "bisect": {"difference": None, "planted_in": "/a", "planted_found_at": "/a"},
        "cubins_of_two_machines": {"compared": ["ecg batch 1 cuda-sm_90"], "differ": []},
    }  # fmt: skip


def test_a_whole_report_is_equal_and_lists_what_was_not_measured():
    found = verdict(_report())
    assert found["equal"] and not found["missing"] and not found["differing"]
    demands = {d["what"]: d for d in found["must_reach"]}
    assert demands["ecg: time of torch.compile's in a graph"] == {
        "what": "ecg: time of torch.compile's in a graph", "limit": 0.7, "value": 0.3, "reached": True,
    }  # fmt: skip
    assert demands["ecg: values that differ in rows of batches 2 to 32"]["batches_compared"] == 31
    for net in RATIOS:
        assert demands[f"{net}: device memory of torch eager's peak"]["reached"] is (net == "ecg")
        assert demands[f"{net}: p99 / p50 of whole inferences by the wall clock"]["reached"] is (net == "ecg")
    assert found["reached"] == sum(d["reached"] for d in found["must_reach"]) < found["demands"]


def _without(*path):
    def change(report):
        for key in path[:-1]:
            report = report[key]
        del report[path[-1]]

    return change


def _set(value, *path):
    def change(report):
        for key in path[:-1]:
            report = report[key]
        report[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (_without("builds", "ecg batch 7 cuda-sm_90"), "missing"),
        (_without("nets", "ecg", "bits"), "missing"),
        (_without("nets", "ecg", "sm_80"), "missing"),
        (_without("nets", "ecg", "rows", "9"), "missing"),
        (_without("nets", "ecg", "cuvil"), "missing"),
        (_without("vectors"), "missing"),
        (_set({"error": "the process ended with -11"}, "bisect"), "missing"),
        (_set(1, "nets", "ecg", "rows", "32", "differing"), "differing"),
        (_set(1, "nets", "ecg", "sm_80", "differing"), "differing"),
        (_set(2, "nets", "ecg", "bits", "differing_on_second_run"), "differing"),
        (_set("/b", "bisect", "difference"), "differing"),
        (_set(None, "bisect", "planted_found_at"), "differing"),
        (_set({"conv_3": "got"}, "vectors", "wrong"), "differing"),
        (_set(["ecg batch 1 cuda-sm_90"], "cubins_of_two_machines", "differ"), "differing"),
    ],
)
def test_what_is_missing_or_differs_is_never_equal(change, part):
    report = copy.deepcopy(_report())
    change(report)
    found = verdict(report)
    assert not found["equal"] and len(found[part]) == 1


def test_a_demand_beyond_its_limit_is_not_reached():
    report = _report()
    report["nets"]["ecg"] |= {"ratios": {"compile_graph": 0.71}, "memory_ratio": 0.76}
    report["nets"]["ecg"]["cuvil"]["wall_us"]["p99_over_p50"] = 1.2
    demands = {d["what"]: d["reached"] for d in verdict(report)["must_reach"]}
    assert not demands["ecg: time of torch.compile's in a graph"]
    assert not demands["ecg: device memory of torch eager's peak"]
    assert not demands["ecg: p99 / p50 of whole inferences by the wall clock"]
    assert demands["ecg: p99 / p50 of the kernels"]


def _session(place, *words):
    options = gpu_evidence.parser().parse_args(["--out", str(place), "--nets", "ecg", "--emulate", *words])
    options.refused = []
    return gpu_session.Session(options, words)


def test_a_report_is_resumed_only_by_the_same_text_machine_and_question(tmp_path):
    place = tmp_path / "e.json"
    with pytest.raises(UsageError, match="cannot be resumed"):
        _session(place, "--resume")
    _session(place, "--folder", "/some/where").save()
    whole = json.loads(place.read_bytes())
    assert len(_session(place, "--resume").report["commands"]) == 2 and "/" not in str(whole["commands"])
    with pytest.raises(UsageError, match=r"(batches|engines) differs"):
        _session(place, "--resume", "--all-batches", "")
    for change in (
        _set("0", "sources", "compiler_kernels"),
        _set(["NVIDIA A100"], "machine", "gpus"),
        _set(False, "emulated"),
        _set("cuvil-gpu-evidence/1", "format"),
    ):
        other = copy.deepcopy(whole)
        change(other)
        place.write_text(json.dumps(other))
        with pytest.raises(UsageError, match="never joins two"):
            _session(place, "--resume")


def _code(text, image):
    return {"nvcc_reads_sha3_512": text, "images": {"kernels.cubin": image}}


def test_code_of_two_machines_is_compared_where_the_text_is_the_same():
    report = {"builds": {"x": _code("t", 1), "y": _code("t", 2), "z": _code("t", 3)}}
    other = {"machine": {}, "cubins": {"x": _code("t", 1), "y": _code("t", 5), "z": _code("u", 3), "w": _code("t", 1)}}
    found = gpu_checks.other_machine(report, other)
    assert found == {"machine": {}, "compared": ["x", "y"], "differ": ["y"], "of_other_text": ["z"]}
    with pytest.raises(UsageError, match="same text"):
        gpu_checks.other_machine(report, {"machine": {}, "cubins": {"z": _code("u", 3)}})


def test_rows_follow_the_axis_of_the_batch():
    arrays = {"input": np.arange(6).reshape(3, 2), "state": np.arange(6).reshape(2, 3, 1), "sr": np.array(8000)}
    row = row_of(arrays, {"input": (1, 2), "state": (2, 1, 1), "sr": ()}, 1)
    assert row["input"].tolist() == [[2, 3]] and row["state"].tolist() == [[[1]], [[4]]] and row["sr"] == 8000
    for shape in ((1, 1), (2, 2), (2,)):
        with pytest.raises(ValueError, match=r"no axis is the batch|is shorter|argument 2"):
            row_of({"x": np.zeros((3, 2))}, {"x": shape}, 0)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside this checkout")
def test_rows_of_a_file_whose_outputs_have_the_batch_in_the_second_axis(tmp_path):
    file = SHARED / "brainmaze_seizure_cnn_bilstm.onnx"
    made = []
    for batch in (1, 2):
        subject = Subject(file.stem, str(file), batch)
        gpu_engines.generate(subject, [CPU], tmp_path)
        made.append(gpu_engines.Runner(gpu_engines.compile_generated(subject, CPU, tmp_path)))
    found = gpu_checks.rows(made[1], made[0], 2)
    assert found == {"rows": 2, "values": 1024, "differing": 0}


def test_words_that_mean_nothing_are_refused(capsys):
    assert gpu_evidence.main(["--phase", "built"]) == 2
    assert "no phase 'built'" in capsys.readouterr().err


def test_the_table_has_a_row_per_timed_network_and_names_what_is_not_reached(tmp_path, capsys):
    report = _report()
    report |= {
        "machine": {"date": "2026-12-01", "gpus": ["NVIDIA H200"], "torch": "2.11"},
        "sources": {"evidence": "ab"},
    }
    times = {"gpu_us": {"median": 190.9}}
    report["nets"]["ecg"]["torch"] = {"eager_graph": times, "compile_graph": times}
    report["verdict"] = verdict(report)
    place = tmp_path / "e.json"
    place.write_text(json.dumps(report))
    assert gpu_table.main([str(place)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| ECG CNN 12x5000 | 1.0 | 190.9 | 190.9 | 0.3 | 0.7 | 1.0 | 1.05 | 1.05 | 0.20 |"
    assert any("resnet18: device memory" in line for line in lines) and not any("missing: ['" in line for line in lines)
    place.write_text("{}")
    assert gpu_table.main([str(place)]) == 2


def test_jobs_begin_first_what_is_added_first_and_nothing_after_the_time():
    order = []
    with ThreadPoolExecutor(1) as pool:
        jobs = Jobs(pool, 1, lambda done, left: done == 4)
        for name in "abcd":
            jobs.add(name, attempt, order.append, name)
        for about, got in jobs.finished():
            assert got == {"ok": None}
            if about == "a":
                jobs.add("A", attempt, order.append, "A", first=True)
    assert order == ["a", "A", "b", "c"]


def test_a_piece_of_work_that_crashes_is_reported():
    assert apart(os._exit, 3) == {"error": "the process ended with 3"}
    assert attempt(int, "x")["error"].startswith("ValueError")
    with ProcessPoolExecutor(1) as pool:
        jobs = Jobs(pool, 1, lambda done, left: False)
        jobs.add("one", os._exit, 3)
        jobs.add("two", os.getpid)
        assert all("a worker died" in got["error"] for _, got in jobs.finished())


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "batch", "shapes"),
    [
        ("cxr_pneumonia_cnn", 7, [(7, 1, 28, 28)]),
        ("ppocr_cls_mobilenetv3", 2, [(2, 3, 48, 192)]),
        ("breast_cancer_rf_onnxml", 3, [(3, 30)]),
        ("brainmaze_seizure_cnn_bilstm", 2, [(2, 100, 64)]),
        ("silero_vad_if_lstm", 5, [(5, 576), (2, 5, 128), ()]),
    ],
)
def test_files_get_shapes_at_a_batch(name, batch, shapes):
    subject = Subject(name, str(SHARED / f"{name}.onnx"), batch)
    assert subject.batch_is_open()
    assert [v.type.dims for v in subject.freeze().module.main.inputs] == shapes


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside this checkout")
@pytest.mark.parametrize("name", ["brainchop_meshnet5_gwm", "synthetic_loop_if"])
def test_files_that_fix_their_batch_have_no_larger_one(name):
    assert not Subject(name, str(SHARED / f"{name}.onnx")).batch_is_open()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--nets", "resnet19"], "there is no network 'resnet19'"),
        (["--nets", "ecg:speed"], "there is no network 'ecg:speed'"),
        (["--batches", "2,x"], "'x' is no batch"),
        (["--workers", "-3"], "--workers: -3 is less than 0"),
        (["--files", "nowhere.onnx"], "there is no nowhere.onnx"),
        (["--cubins-of", "nowhere.json"], "there is no nowhere.json"),
        (["--resume"], "cannot be resumed"),
    ],
)
def test_what_cannot_be_asked_for_leaves_the_report_alone(words, sentence, tmp_path, capsys):
    place = tmp_path / "report.json"
    place.write_text("the report of before")
    assert gpu_evidence.main(["--nets", "", "--emulate", "--out", str(place), *words]) == 2
    assert sentence in capsys.readouterr().err
    assert place.read_text() == "the report of before"


def test_a_report_that_cannot_be_written_is_a_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    words = ["--phase", "cubins", "--nets", "", "--out", str(tmp_path / "file" / "report.json")]
    assert gpu_evidence.main(words) == 2
    assert "error: --out" in capsys.readouterr().err
