"""Engine.run(session=...): records from Python are those of the engine's program, byte by byte."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from session_case import PARENT, Maker, image, lines_of, picture

from compiler_kernels import compile_model, load_engine
from compiler_kernels.compile import native_target
from compiler_kernels.engine import Engine
from compiler_kernels.errors import RefusedError
from compiler_kernels.targets.registry import runs_natively
from evidence.sessions.archive import Archive
from evidence.sessions.check import check_archive
from evidence.sessions.inputs import kept_check
from evidence.sessions.recorder import SessionRecorder
from evidence.sessions.trace_context import TraceContext, read_context
from evidence.verifier.errors import UsageError

pytestmark = pytest.mark.skipif(not runs_natively(native_target()), reason="no engine runs natively here")


def library(maker: Maker, inputs: str, folder: Path) -> Engine:
    """The same engine as a library: model and policy lie beside the program."""
    program = maker(inputs).path
    policy = program.with_name(f"policy-{inputs}.yaml")
    return load_engine(compile_model(program.with_name("tiny.onnx"), policy=policy, output=folder / f"{inputs}.so"))


def trace() -> TraceContext:
    found = read_context(PARENT, "a=b")
    assert found is not None
    return found


@pytest.mark.parametrize("inputs", ["keep", "clinical-keep"])
def test_the_records_are_the_same_bytes(maker: Maker, inputs: str, home: Path, tmp_path: Path) -> None:
    """Computed or decided, withheld by a safety guard, refused by an input guard."""
    engine, arrays = library(maker, inputs, tmp_path), [picture(1)]
    arrays += [np.full((1, 1, 8, 8), value, np.float32) for value in (0.25, 2)]
    recorder = SessionRecorder(tmp_path / "python", "someone", keep_inputs=True, trace=trace())
    subject = recorder._subject
    assert subject is not None
    for number, array in enumerate(arrays):
        try:
            engine.run(array, session=recorder)
        except RefusedError:
            assert number > 0
        np.save(tmp_path / "x.npy", array)
        words = ["--subject", subject.token, "--kept", "--traceparent", PARENT, "--tracestate", "a=b"]
        words += ["--isa", engine.isa]
        maker(inputs).infer(tmp_path / "c", tmp_path / "x.npy", *words, env={"CUVIL_SESSION_SALT": subject.salt.hex()})
    assert lines_of(tmp_path / "python") == lines_of(tmp_path / "c")
    assert recorder.last is not None and recorder.last.index == 2
    archive = Archive(tmp_path / "python")
    report = check_archive(archive, None, kept_check(home, archive))
    assert report.ok and report.kept == 3


def test_decide_is_recorded_too(maker: Maker, home: Path, tmp_path: Path) -> None:
    engine = library(maker, "clinical-keep", tmp_path)
    recorder = SessionRecorder(tmp_path / "s")
    answer = engine.decide(picture(1), session=recorder)
    assert recorder.last is not None and recorder.last.fields["decisions"] == answer.decisions
    assert recorder.last.fields["salted"] is False and not (tmp_path / "s" / "inputs").exists()


def test_without_record_no_output(maker: Maker, home: Path, tmp_path: Path) -> None:
    engine = library(maker, "keep", tmp_path)
    recorder = SessionRecorder(tmp_path / "s")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "session.jsonl").write_text("no record\n")
    with pytest.raises(UsageError, match="its last line"):
        engine.run(picture(1), session=recorder)
    with pytest.raises(UsageError, match="say whose"):
        SessionRecorder(tmp_path / "s", keep_inputs=True)


def test_a_torn_end_is_repaired_as_engines_do(maker: Maker, home: Path, tmp_path: Path) -> None:
    engine = library(maker, "keep", tmp_path)
    for folder in (tmp_path / "python", tmp_path / "c"):
        maker("keep").infer(folder, image(tmp_path, 1))
        with (folder / "session.jsonl").open("ab") as stream:
            stream.write(b'{"torn')
    engine.run(picture(2), session=SessionRecorder(tmp_path / "python"))
    maker("keep").infer(tmp_path / "c", image(tmp_path, 2), "--isa", engine.isa)
    assert lines_of(tmp_path / "python") == lines_of(tmp_path / "c") and len(lines_of(tmp_path / "c")) == 3


def test_the_trace_may_change_between_inferences(maker: Maker, home: Path, tmp_path: Path) -> None:
    recorder = SessionRecorder(tmp_path / "s")
    engine = library(maker, "keep", tmp_path)
    engine.run(picture(1), session=recorder)
    recorder.trace = dataclasses.replace(trace(), members=())
    engine.run(picture(1), session=recorder)
    traces = [json.loads(line)["trace"] for line in lines_of(tmp_path / "s")]
    assert traces == [None, {"parent": PARENT, "state": None}]
