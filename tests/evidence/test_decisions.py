"""Two engines on a frozen test set: planted flips are counted, block a release, and pass with a waiver."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tiny_models import tiny_model_bytes

from compiler_kernels.errors import UsageError
from compiler_kernels.policy import load_policy
from compiler_kernels.policy.recertification import Recertification
from cuvil_assets import chain
from cuvil_assets.assets import ASSETS, LATER
from cuvil_assets.builder import build, open_instance
from cuvil_assets.cli import main
from cuvil_assets.cli.decisions import section_of
from cuvil_assets.home import Home
from cuvil_assets.inputs import BuildOptions
from evidence.decisions.compare import Comparison, compare
from evidence.decisions.data import prepare, read_test_set
from evidence.decisions.sides import EngineSide, OnnxRuntimeSide
from evidence.verifier.canonical import MalformedError, canonical_bytes
from evidence.verifier.decisions import check_decisions, findings
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.trust import load_trust_root

TARGET = "x86_64-linux-musl"
COUNT = 60
SMALL = 'version: 1\nmodel: {name: m, version: "1"}\n'
DIGESTS = f"  data: {'a' * 64}\n  labels: {'b' * 64}\n"


@dataclass(frozen=True)
class Case:
    """Two engines of one policy, the second with changed weights, and the test set that the policy names."""

    home: Path
    model: Path
    before: Path
    after: Path
    data: str
    labels: str
    cutoff: float

    @property
    def words(self) -> list[str]:
        return ["--data", self.data, "--labels", self.labels]


def shifted(data: bytes, amount: float) -> bytes:
    """The tiny model with another bias of its last layer: every score moves the same way."""
    model = onnx.load_from_string(data)
    (bias,) = (item for item in model.graph.initializer if item.name == "n")
    value = numpy_helper.to_array(bias) + np.array([0, amount], np.float32)
    bias.CopyFrom(numpy_helper.from_array(value, "n"))
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, home_maker: Callable[[], Path]) -> Case:
    ort = pytest.importorskip("onnxruntime")
    folder, home = tmp_path_factory.mktemp("decisions"), home_maker()
    images = np.random.default_rng(5).integers(0, 250, (COUNT, 8, 8), dtype=np.uint8)
    images[::3] //= 4
    images[5::10, 0, 0] = 255  # the guard refuses these
    x = (images[:, None] / np.float32(255)).astype(np.float32)
    models = {"a": tiny_model_bytes(), "b": shifted(tiny_model_bytes(), 0.05)}
    scores = ort.InferenceSession(models["a"]).run(None, {"image": x})[0][:, 1]
    cutoff = float(np.median(scores)) + 1e-4
    labels = (scores >= cutoff).astype(np.uint8)
    labels[4] ^= 1  # no perfect model
    np.savez(folder / "set.npz", images=images, labels=labels[:, None])
    text = {"data": f"{folder / 'set.npz'}:images", "labels": f"{folder / 'set.npz'}:labels"}
    found = read_test_set(**text)
    policy = (
        'version: 1\nmodel: {name: tiny, version: "1.0"}\n'
        "inputs:\n  image: {shape: [1, 1, 8, 8], range: [0.0, 0.99]}\n"
        f"thresholds: {{cutoff: {cutoff!r}}}\n"
        'decisions:\n  ill: "prob[0, 1] >= cutoff"\n  dark: "mean(image) < 0.3"\n'
        "fallbacks: {default: refuse}\n"
        "release: {demand: [decisions]}\n"
        "recertification:\n"
        f"  data: {found.manifest_sha256}\n  labels: {found.labels_sha256}\n"
        "  divide_by: 255\n  score: prob\n  decision: ill\n  min_sensitivity: 0.5\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUVIL_HOME", str(home))
        engines = []
        for minor, (name, data) in enumerate(models.items()):
            (folder / f"{name}.yaml").write_text(policy.replace('"1.0"', f'"1.{minor}"'))
            (folder / f"{name}.onnx").write_bytes(data)
            engines.append(folder / name / "inference-engine.bin")
            build(
                BuildOptions(
                    folder / f"{name}.onnx", folder / f"{name}.yaml", TARGET, engines[-1], equivalence_inputs=1
                )
            )
    return Case(home, folder / "a.onnx", *engines, **text, cutoff=cutoff)


@pytest.fixture
def at_home(case: Case, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setenv("CUVIL_HOME", str(case.home))
    return case


def materialised(case: Case) -> dg.AssetCheckEvaluation:
    """The asset ``decisions`` of the second engine in Dagster: its check."""
    with open_instance(Home(case.home)) as instance:
        instance.add_dynamic_partitions("model_version", ["tiny-1.1"])
        key = dg.MultiPartitionKey({"model_version": "tiny-1.1", "target": TARGET})
        result = dg.materialize(
            [*ASSETS, *LATER], selection=[chain.DECISIONS], partition_key=key, instance=instance, raise_on_error=False
        )
    (found,) = result.get_asset_check_evaluations()
    return found


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, Any]:
    capsys.readouterr()
    code = main([str(word) for word in words] + ["--json"])
    return code, json.loads(capsys.readouterr().out)


def refused_items(case: Case) -> int:
    return int((read_test_set(case.data, case.labels).items > 252).any(axis=(1, 2)).sum())


def rule_of(case: Case, **fields: Any) -> Recertification:
    data = read_test_set(case.data, case.labels)
    base = {"data": data.manifest_sha256, "labels": data.labels_sha256, "divide_by": 255.0, "score": "prob"}
    return Recertification(**{**base, **fields})


def on(case: Case, before: Any, after: Any, jobs: int = 2, **fields: Any) -> Comparison:
    data, rule = read_test_set(case.data, case.labels), rule_of(case, **fields)
    return compare(before, EngineSide(after), data, rule, section_of(rule), jobs=jobs)


def test_an_engine_flips_nothing_against_itself(case: Case) -> None:
    found = on(case, EngineSide(case.before), case.before, decision="ill")
    report: Any = found.report
    gone = refused_items(case)
    assert 0 < gone < COUNT
    assert (report["verdict"], report["flips"]["items"], report["outputs"]["elements_differing"]) == ("passed", 0, 0)
    assert report["outputs"]["elements"] == 2 * (COUNT - gone)
    assert report["after"]["without_decision"] == report["after"]["without_score"] == gone
    assert report["paired"]["mcnemar_p"] == "1"
    assert found.encode() == on(case, EngineSide(case.before), case.before, jobs=1, decision="ill").encode()


def test_counts_are_those_of_the_model(case: Case) -> None:
    """Against NumPy over onnxruntime's scores: which items the changed model calls the other way."""
    data = read_test_set(case.data, case.labels)
    x = (data.items[:, None].astype(np.float32) / np.float32(255)).reshape(COUNT, 1, 1, 8, 8)
    sides = [OnnxRuntimeSide(path) for path in (case.model, case.model.with_name("b.onnx"))]
    scores = np.array([[float(side.answer(item).outputs["prob"][0, 1]) for item in x] for side in sides])
    answered = ~(data.items > 252).any(axis=(1, 2))
    calls = (scores >= case.cutoff) & answered
    report: Any = on(case, EngineSide(case.before), case.after, decision="ill").report
    flips = np.flatnonzero(calls[0] != calls[1])
    assert len(flips) > 2
    assert [item["item"] for item in report["flips"]["listed"]] == [f"row {i}" for i in flips]
    assert report["flips"]["by_decision"] == {
        "dark": {"turned_true": 0, "turned_false": 0}, "ill": {"turned_true": len(flips), "turned_false": 0},
    }  # fmt: skip
    ill = data.labels == 1
    for side, name in enumerate(("before", "after")):
        # an item without a decision counts as wrong
        assert report[name]["true_positive"] == int((calls[side] & ill).sum())
        assert report[name]["true_negative"] == int((~calls[side] & ~ill & answered).sum())
    assert (report["verdict"], report["findings"]) == ("failed", ["flips"])


def test_a_threshold_gives_the_same_calls(case: Case) -> None:
    by_decision: Any = on(case, EngineSide(case.before), case.after, decision="ill").report
    by_threshold: Any = on(case, EngineSide(case.before), case.after, threshold=case.cutoff).report
    for part in ("before", "after", "paired", "flips"):
        assert by_decision[part] == by_threshold[part]


def test_the_model_itself_can_be_the_baseline(case: Case) -> None:
    """The engine's own logic decides on onnxruntime's outputs; only what the guard refuses differs."""
    report: Any = on(case, OnnxRuntimeSide(case.model), case.before, decision="ill").report
    flips = [item for item in report["flips"]["listed"] if item["after"]["status"] != "refused"]
    assert flips == []
    assert report["before"]["target"].startswith("onnxruntime ")


def test_limits_are_judged_by_estimate_or_bound(case: Case) -> None:
    after: Any = on(case, EngineSide(case.before), case.before, decision="ill").report["after"]
    value = float(after["sensitivity"]["estimate"])
    judged = [
        on(case, EngineSide(case.before), case.before, decision="ill", min_sensitivity=least, judge=judge).verdict
        for least, judge in ((value, "estimate"), (value + 0.001, "estimate"), (value, "lower_bound"))
    ]
    assert judged == ["passed", "failed", "failed"]


def test_a_flip_blocks_a_release_and_a_waiver_passes(
    at_home: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = at_home
    engine = tmp_path / "build" / "inference-engine.bin"
    shutil.copytree(case.after.parent, engine.parent)
    code, missing = run(capsys, "release", engine, "--output", tmp_path / "without")
    assert code == 3 and "cuvil decisions" in missing["message"]
    code, report = run(capsys, "decisions", case.before, engine, *case.words)
    assert (code, report["verdict"], report["check"]) == (1, "failed", "decisions")
    written = Path(report["files"]["report"])
    assert written == engine.with_name("inference-engine.decisions.json")
    assert Path(report["files"]["signed"]).is_file()
    code, blocked = run(capsys, "release", engine, "--output", tmp_path / "failed")
    assert code == 3 and "failed" in blocked["message"]
    check = materialised(case)
    assert (check.passed, check.blocking) == (False, True) and "broken: flips" in str(check.description)

    waiver = tmp_path / "waiver.json"
    words = ["waive", written, "--person", "Ada", "--reason", "retrained on purpose", "--output", waiver]
    code, said = run(capsys, *words)
    assert (code, said["gate"]) == (0, "decisions")
    code, report = run(capsys, "decisions", case.before, engine, *case.words, "--waiver", waiver)
    assert (code, report["verdict"], report["waiver"]["person"]) == (0, "waived", "Ada")
    check = materialised(case)
    assert check.passed and "Ada waived limits" in str(check.description)
    folder = tmp_path / "release"
    assert run(capsys, "release", engine, "--output", folder)[0] == 0
    code, verified = run(capsys, "verify", folder)
    assert code == 0
    said = {item["name"]: item["sentence"] for item in verified["checks"]}["demanded-part"]
    assert "Ada waived limits on the test set (flips): retrained on purpose" in said

    # a waiver of this finding does not cover another one: here that of the model as baseline
    code, other = run(capsys, "decisions", case.model, engine, *case.words, "--waiver", waiver)
    assert (code, other["check"]) == (1, "waiver")
    # what the release states is what the policy demands, and nothing else passes for it
    data, policy = written.read_bytes(), json.loads((folder / "inference-engine.policy.json").read_bytes())
    root, digest = load_trust_root(case.home / "keys" / "trust-root.json"), report["after"]["sha3_512"]
    assert "Ada" in check_decisions(data, policy, digest, root)
    for change, error, why in [
        (lambda d: d["flips"].update(items=0), MalformedError, "does not follow"),
        (lambda d: d.pop("waiver") and d.update(verdict="passed"), MalformedError, "does not follow"),
        (lambda d: d["recertification"].update(max_flips=99), VerificationFailed, "limits"),
        (lambda d: d["data"].update(labels_sha256="0" * 64), VerificationFailed, "labels"),
        (lambda d: d["paired"].update(only_after_right=9), VerificationFailed, "another finding"),
    ]:
        forged = json.loads(data)
        change(forged)
        with pytest.raises(error, match=why):
            check_decisions(canonical_bytes(forged), policy, digest, root)
    with pytest.raises(VerificationFailed, match="another engine"):
        check_decisions(data, policy, "0" * 128, root)
    with pytest.raises(VerificationFailed, match="section"):
        check_decisions(data, {}, digest, root)


def test_other_data_and_contradicting_options_are_refused(
    at_home: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, pair = at_home, (at_home.before, at_home.after)
    data = read_test_set(case.data, case.labels)
    np.savez(tmp_path / "other.npz", images=data.items[::-1], labels=1 - data.labels, short=data.labels[1:])
    other = tmp_path / "other.npz"
    for words, code, said in [
        (["--data", f"{other}:images", "--labels", case.labels], 1, "test set"),
        (["--data", case.data, "--labels", f"{other}:labels"], 1, "labels"),
        (["--data", case.data, "--labels", f"{other}:short"], 2, "whole number"),
        ([*case.words, "--threshold", "0.2"], 2, "leave it out"),
        ([*case.words, "--policy", case.model], 2, "UTF-8"),
    ]:
        found, answer = run(capsys, "decisions", *pair, *words)
        assert (found, said in answer["message"]) == (code, True), answer
    assert run(capsys, "decisions", case.model.with_name("gone.onnx"), case.after, *case.words)[0] == 2
    assert not case.after.with_name("inference-engine.decisions.json").exists()


def test_picture(case: Case, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from evidence.decisions.picture import draw

    draw(on(case, EngineSide(case.before), case.after, decision="ill"), tmp_path / "roc.png")
    assert (tmp_path / "roc.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("item", "shape", "dtype", "divide_by", "layout", "wanted"),
    [
        (np.uint8([[0, 255]]), [1, 1, 1, 2], "float32", 255.0, "as_stored", np.float32([0, 1])),
        (np.uint8([[[1, 2, 3]], [[4, 5, 6]]]), [1, 3, 2, 1], "float32", 1.0, "channels_last",
         np.float32([1, 4, 2, 5, 3, 6])),
        (np.float64([0.5, 2.0]), [2], "float32", 1.0, "as_stored", np.float32([0.5, 2])),
        (np.int64([3, -4]), [1, 2], "int8", 1.0, "as_stored", np.int8([3, -4])),
        (np.uint8([[7, 8, 9]]), ["n", 1, 1, "width"], "float32", 1.0, "as_stored", np.float32([7, 8, 9])),
    ],
)  # fmt: skip
def test_preparation(item: Any, shape: Any, dtype: Any, divide_by: Any, layout: Any, wanted: Any) -> None:
    made = prepare(item, shape, dtype, divide_by, layout)
    named = {"n": 1, "width": 3}
    assert (made.shape, made.dtype) == (tuple(named.get(n, n) for n in shape), wanted.dtype)
    assert made.reshape(-1).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("item", "shape", "dtype", "divide_by", "why"),
    [
        (np.zeros((3, 4)), [1, 4, 3], "float32", 1.0, "does not fit"),
        (np.zeros((3, 4)), ["n", 1, 5, "w"], "float32", 1.0, "does not fit"),
        (np.zeros((2, 1, 3, 4)), ["n", "h", "w"], "float32", 1.0, "does not fit"),
        (np.float64([0.1]), [1], "float32", 1.0, "lose values"),
        (np.int64([300]), [1], "uint8", 1.0, "lose values"),
        (np.float32([2.0]), [1], "int32", 1.0, "lose values"),
        (np.uint8([3]), [1], "uint8", 2.0, "floating-point"),
    ],
)
def test_nothing_is_converted_silently(item: Any, shape: Any, dtype: Any, divide_by: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        prepare(item, shape, dtype, divide_by, "as_stored")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (f"{DIGESTS}  score: prob\n", "4:3: recertification must have either threshold or decision"),
        (f"{DIGESTS}  score: prob\n  threshold: 0.5\n  min_auk: 1\n", "8:3: recertification.min_auk is not a known"),
        (f"{DIGESTS}  score: prob\n  threshold: 0.5\n  min_auc: 1.5\n", "8:12: recertification.min_auc"),
        (f"{DIGESTS}  score: prob\n  threshold: 0.5\n  max_flips: -1\n", "8:14: recertification.max_flips"),
        (f"{DIGESTS}  score: prob\n  decision: ill\n", "7:13: recertification.decision is no decision of the policy"),
        (f"{DIGESTS}  score: prob\n  threshold: 0\ndataset:\n  splits:\n    train: {{sha256: {'c' * 64}}}\n"
         f"    test: {{sha256: {'d' * 64}}}\n", "4:9: recertification.data is not dataset.splits.test.sha256"),
        ("  data: abc\n", "4:9: recertification.data"),
    ],
)  # fmt: skip
def test_errors_of_the_section_have_a_place(section: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_policy(f"{SMALL}recertification:\n{section}", "p.yaml")
    assert f"p.yaml:{said}" in str(caught.value)


def test_findings_need_counts() -> None:
    with pytest.raises(MalformedError):
        findings({"recertification": {"max_flips": 0}, "after": {}, "flips": {"items": -1}})
