"""The benchmark and the comparison of bits: what they report, and that they report faults."""

import hashlib
import json

import numpy as np
import pytest
import small_models

from benchmarks import bench, bits, zoo
from compiler_kernels.compile import native_target
from compiler_kernels.targets.isa import SCALAR, VARIANTS
from compiler_kernels.targets.registry import runs_natively
from compiler_kernels.toolchain import engines
from evidence.timing import bench as timing
from evidence.timing import machine
from evidence.timing.runners import Runner, Sample
from evidence.timing.table import ratio, table

pytestmark = pytest.mark.skipif(not runs_natively(native_target()), reason="no engine runs natively here")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "residual.onnx"
    path.write_bytes(small_models.residual())
    return path


def test_export_gives_the_same_file_again(tmp_path):
    pytest.importorskip("torch")
    lines = []
    assert zoo.main(["ecg", "bilstm", "--folder", str(tmp_path / "a")], lines.append) == 0
    assert zoo.main(["ecg", "bilstm", "--folder", str(tmp_path / "b")]) == 0
    for first in (tmp_path / "a").iterdir():
        assert first.read_bytes() == (tmp_path / "b" / first.name).read_bytes()
        assert any(line.startswith(hashlib.sha256(first.read_bytes()).hexdigest()) for line in lines)
    assert "0.64 M parameters" in lines[0] and "0.14 M parameters" in lines[1]
    assert zoo.main(["alexnet"]) == 2


@pytest.mark.parametrize(
    ("name", "millions"), [("resnet18", 11.69), ("mobilenetv2", 3.50), ("vit_tiny", 5.72), ("unet2m", 1.94)]
)
def test_networks_have_the_published_sizes(name, millions):
    pytest.importorskip("torch")
    model = zoo.build(zoo.ZOO[name])
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == pytest.approx(millions, abs=0.015)
    again = zoo.build(zoo.ZOO[name])
    assert all(bool((a == b).all()) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_inputs_are_seeded_and_differ():
    net = zoo.ZOO["ecg"]
    assert np.array_equal(zoo.example_input(net), zoo.example_input(net, 0))
    assert not np.array_equal(zoo.example_input(net), zoo.example_input(net, 1))


def test_peak_is_measured_with_the_wide_registers():
    peak = machine.fma_peak(5)
    assert set(peak) <= {isa.name for isa in VARIANTS[native_target().machine]} and min(peak.values()) > 1
    assert machine.describe()["cores"] >= 1


class _Logged(Runner):
    def __init__(self, name, log):
        super().__init__()
        self.name, self.log = name, log  # type: ignore[misc]

    def infer(self):
        pass

    def output(self):
        raise AssertionError

    def sample(self):
        self.log.append(self.name)
        return Sample(len(self.log), 0, 1)


def test_order_is_peer_ours_peer_ours():
    log: list[str] = []
    ours, a, b = (_Logged(n, log) for n in ("cuvil", "a", "b"))
    samples = timing.interleave(ours, [a, b], 2)
    assert log == ["a", "cuvil", "b", "cuvil"] * 2
    assert [s.cpu for s in samples["cuvil"]] == [2, 4, 6, 8] and len(samples["a"]) == 2
    assert timing.statistics(samples["cuvil"])["cpu_ms"] == {"min": 2e-6, "median": 5e-6}
    systems = {"cuvil": {"t": {"min": 2.0, "median": 4.0}}, "a": {"t": {"min": 3.0, "median": 5.0}}}
    assert ratio({**systems, "b": {"t": {"min": 9.0, "median": 4.8}}}, "t") == {"median": 1.2, "min": 1.5}


def test_document_and_table(model, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("matplotlib")
    words = [str(model), "--peers", "onnxruntime", "--runs", "3", "--json", str(tmp_path / "b.json")]
    assert bench.main([*words, "--picture", str(tmp_path / "b.png")]) == 0
    document = json.loads((tmp_path / "b.json").read_text())
    (entry,) = document["models"]
    ours, peer = entry["systems"]["cuvil"], entry["systems"]["onnxruntime"]
    assert len(ours["samples_ns"]["cpu"]) == len(peer["samples_ns"]["wall"]) == 3
    assert peer["flags"]["intra_op_num_threads"] == 1 and peer["version"] and peer["difference"] < 1e-5
    assert entry["sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert ours["flags"]["isa"] in {isa.name for isa in VARIANTS[native_target().machine]}
    assert all(layer["kernel"].endswith(ours["flags"]["isa"]) for layer in entry["layers"])
    assert any("conv2" in layer["node"] for layer in entry["layers"])
    assert all(0 < layer["wall_us"] < 1e6 for layer in entry["layers"])
    assert 12 * 12 * 9 * 20 * 23 < entry["multiply_adds"] < 12 * 12 * 9 * 20 * 23 * 1.2
    assert document["machine"]["fma_peak_gflops_per_core"] and document["machine"]["processor"]
    printed = capsys.readouterr()
    assert "residual" in printed.out and "measured peak" in printed.err
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


def test_threads_are_really_used(model):
    document = bench.bench_models([str(model)], [], threads=2, runs=1)
    assert document["models"][0]["systems"]["cuvil"]["flags"]["threads"] == 2


@pytest.mark.slow  # it compares times
def test_slow_vector_kernels_fail_the_benchmark(model, monkeypatch, capsys):
    """Plain C put in the place of the vector kernels, and the other way round."""
    best = VARIANTS[native_target().machine][-1]
    monkeypatch.setitem(VARIANTS, native_target().machine, (SCALAR,))
    monkeypatch.setattr(timing, "SCALAR", best)
    monkeypatch.setattr(machine, "fma_peak", lambda: {"none": 1.0})  # it has no plain form
    assert bench.main([str(model), "--peers", "none", "--runs", "2"]) == 1
    assert "the vector kernels are not in use" in capsys.readouterr().out


def test_a_wrong_result_fails_the_benchmark(model, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    from evidence.timing.runners import OnnxRuntime

    monkeypatch.setattr(OnnxRuntime, "output", lambda self: np.asarray(self.values[0]) + np.float32(0.01))
    assert bench.main([str(model), "--peers", "onnxruntime", "--runs", "1", "--no-scalar"]) == 1
    assert "differs from onnxruntime's" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere.onnx"], "nowhere.onnx: no such file"),
        (["--peers", "mxnet"], "no peer 'mxnet'"),
        (["--runs", "0"], "at least 1"),
    ],
)
def test_usage_errors(words, sentence, model, capsys):
    assert bench.main([str(model), *words] if words[0].startswith("--") else words) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_a_model_that_cannot_be_compiled_is_a_row(tmp_path):
    pytest.importorskip("torch")
    document = bench.bench_models([str(zoo.model_file("bilstm", tmp_path))], [], runs=1)
    entry = document["models"][0]
    if "cuvil" in entry["refused"]:
        assert "LSTM" in entry["refused"]["cuvil"] and "refused" in "\n".join(table(document))
    else:
        assert entry["systems"]["cuvil"]


def test_bits_are_equal_over_all_ways(model, tmp_path, capsys):
    assert bits.main([str(model), "--json", str(tmp_path / "bits.json")]) == 0
    (entry,) = json.loads((tmp_path / "bits.json").read_text())["models"]
    assert len(entry["digests"]) >= 2 * (1 + len(VARIANTS[native_target().machine]))
    assert any("2 thread(s)" in way for way in entry["digests"]) and any("scalar" in way for way in entry["digests"])
    assert "residual: equal" in capsys.readouterr().out


def test_bits_notice_a_thread_that_leaves_out_its_last_item(model, monkeypatch, capsys):
    whole = engines.host_sources(False)
    good = b"end = share(step->items, self + 1);"
    assert good in whole["cuvil_threads.c"]
    broken = {
        **whole,
        "cuvil_threads.c": whole["cuvil_threads.c"].replace(good, b"end = share(step->items, self + 1) - self;"),
    }
    monkeypatch.setattr(engines, "host_sources", lambda gpu: broken)
    assert bits.main([str(model), "--no-emulator"]) == 1
    assert "DIFFERENT RESULTS" in capsys.readouterr().out
