"""From a DICOM file through an edited pipeline and a real engine into an archive, to OpenTelemetry, and to erasure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from otlp_case import PARENT, receiving, spans_of
from pydicom.data import get_testdata_file
from tiny_models import POLICY, tiny_model_bytes

from compiler_kernels import compile_model
from cuvil_assets.cli import main
from evidence.sessions.archive import Archive
from evidence.sessions.identifier_store import IdentifierStore
from evidence.tracing.inject import plan_file

PIPELINE = """\
import subprocess
import sys

import numpy as np
import pydicom

program, archive, *paths = sys.argv[1:]
for path in paths:
    image = pydicom.dcmread(path)
    pixels = image.pixel_array[:8, :8].astype(np.float32)
    np.save("image.npy", (pixels / pixels.max())[None, None])
    words = [*program.split(), "--input", "image=image.npy", "--output-dir", "out", "--session", archive]
    if "cuvil_assets.cli" in words:
        words += ["--subject", image.PatientID]
    subprocess.run(words, check=True)
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced-engine")
    (folder / "tiny.onnx").write_bytes(tiny_model_bytes())
    (folder / "policy.yaml").write_text(POLICY + "audit: {sessions: {inputs: keep}}\n")
    compile_model(folder / "tiny.onnx", policy=folder / "policy.yaml", kind="bin", output=folder / "engine.bin")
    return folder / "engine.bin"


def run(folder: Path, program: str, archive: Path, *names: str) -> None:
    images = [str(get_testdata_file(name, download=False)) for name in names]
    words = [sys.executable, folder / "pipeline.py", program, archive, *images]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr


def test_records_name_the_image_and_forget_it(
    tmp_path: Path, keyed: Path, engine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, archive = tmp_path / "pipeline.py", tmp_path / "archive"
    path.write_text(PIPELINE)
    run(tmp_path, str(engine), archive, "CT_small.dcm")
    made = plan_file(path)
    assert (made.reads, made.starts) == (1, 1)
    path.write_bytes(made.new)
    run(tmp_path, str(engine), archive, "CT_small.dcm", "MR_small.dcm")
    run(tmp_path, f"{sys.executable} -m cuvil_assets.cli run {engine}", archive, "MR_small.dcm")

    records = Archive(archive).records()
    traces = [record.fields["trace"] for record in records]
    assert traces[0] is None
    # the same pixels with and without a trace: not a bit of the outputs differs
    assert records[0].outputs == records[1].outputs
    assert b"1CT1" not in (archive / "session.jsonl").read_bytes()
    states = [str(trace["state"]) for trace in traces[1:] if isinstance(trace, dict)]
    store = IdentifierStore(keyed)
    patients = [entry and entry.subject.patient for entry in (store.find(s.removeprefix("cuvil=")) for s in states)]
    assert patients == ["1CT1", "4MR1", "4MR1"]
    assert main(["trace", "lookup", states[0]]) == 0
    assert "'1CT1'" in capfd.readouterr().out

    with receiving() as server:
        assert main(["trace", "export", str(archive), "--otlp", server.url]) == 0
        (got,) = (item[2] for item in server.got)
    spans = sorted((span for _, _, span in spans_of(got).values()), key=lambda span: span.attributes[0].value.int_value)
    assert [span.trace_state for span in spans] == ["", *states]
    parents = [str(trace["parent"]) for trace in traces[1:] if isinstance(trace, dict)]
    assert [f"{span.trace_id.hex()}-{span.parent_span_id.hex()}" for span in spans[1:]] == [p[3:52] for p in parents]
    capfd.readouterr()

    assert main(["erase", str(archive), "--subject", "4MR1", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["images_forgotten"] == 1
    assert store.find(states[1].removeprefix("cuvil=")) is None
    held = b"".join(file.read_bytes() for file in (keyed / "trace").rglob("*") if file.is_file())
    assert b"4MR1" not in held and b"1CT1" in held
    assert main(["trace", "forget", "1CT1"]) == 0
    assert main(["trace", "forget", "1CT1"]) == 1
    assert store.count() == 0 and main(["session", "verify", str(archive)]) == 0


def test_an_erased_subject_takes_the_images_its_records_name_along(tmp_path: Path, keyed: Path, engine: Path) -> None:
    """Also where the archive knows the person by another name than the images do."""
    archive = tmp_path / "archive"
    path = tmp_path / "pipeline.py"
    path.write_text(PIPELINE.replace("image.PatientID]", "'study-participant-7']"))
    path.write_bytes(plan_file(path).new)
    run(tmp_path, f"{sys.executable} -m cuvil_assets.cli run {engine}", archive, "MR_small.dcm")
    run(tmp_path, str(engine), archive, "CT_small.dcm")
    assert IdentifierStore(keyed).count() == 2
    assert main(["erase", str(archive), "--subject", "study-participant-7"]) == 0
    assert [entry.subject.patient for entry in IdentifierStore(keyed).search(patient="1CT1")] == ["1CT1"]
    assert IdentifierStore(keyed).count() == 1


def test_a_trace_too_long_for_an_engine_is_shortened(
    tmp_path: Path, keyed: Path, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, path = tmp_path / "archive", tmp_path / "pipeline.py"
    path.write_text(PIPELINE)
    path.write_bytes(plan_file(path).new)
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("TRACESTATE", ",".join(f"k{number}={'v' * 60}" for number in range(20)))
    run(tmp_path, str(engine), archive, "CT_small.dcm")
    (record,) = Archive(archive).records()
    trace = record.fields["trace"]
    assert isinstance(trace, dict) and trace["parent"] == PARENT
    assert str(trace["state"]).startswith("cuvil=") and len(str(trace["state"])) <= 512
