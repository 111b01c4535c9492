"""``cuvil.trace``: real DICOM files bound to the context of a thread or task."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pydicom
import pytest
from opentelemetry.sdk.trace import TracerProvider
from pydicom.data import get_testdata_file

from cuvil import trace
from evidence.sessions.identifier_store import IdentifierStore
from evidence.sessions.pseudonym import identifiers
from evidence.sessions.trace_context import TraceContext, read_context

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def read(name: str, **options: Any) -> pydicom.FileDataset:
    path = get_testdata_file(name, download=False)
    assert isinstance(path, str)
    return pydicom.dcmread(path, **options)


def now() -> TraceContext:
    context = trace.current()
    assert context is not None
    return context


@pytest.mark.parametrize("name", ["CT_small.dcm", "MR_small.dcm", "rtplan.dcm", "test-SR.dcm", "waveform_ecg.dcm"])
def test_the_identifiers_of_a_file_are_those_that_pydicom_decodes(name: str) -> None:
    plain = read(name)
    expected = identifiers(
        *(str(plain.get(k, "")) for k in ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "PatientID"))
    )
    assert expected.instance
    assert trace.read_identifiers(read(name)) == expected
    assert trace.read_identifiers(plain) == expected  # decoded before
    deferred = read(name, defer_size=4)
    assert trace.read_identifiers(deferred) == expected


def test_a_bound_image_is_found_again(keyed: Path) -> None:
    image = read("CT_small.dcm")
    assert trace.bind_dicom(image) is image
    value = now().pseudonym
    assert value is not None
    entry = IdentifierStore(keyed).find(value)
    assert entry is not None and entry.subject.patient == "1CT1" and entry.subject.instance == image.SOPInstanceUID
    assert trace.headers() == {"traceparent": now().traceparent, "tracestate": f"cuvil={value}"}
    shown = {trace.TRACEPARENT: now().traceparent, trace.TRACESTATE: f"cuvil={value}"}
    assert trace.environment({"A": "1", trace.TRACESTATE: "old=1"}) == {"A": "1", **shown}
    assert trace.environment().items() >= {**os.environ, **shown}.items()


def test_binding_leaves_the_data_set_as_it_was_read(keyed: Path) -> None:
    """Odd padding in an element is written back as it was; decoding it would mend it."""
    odd = read("CT_small.dcm")
    odd.add_new(0x00080018, "UI", "1.2.3")
    stream = io.BytesIO()
    odd.save_as(stream)
    data = stream.getvalue().replace(b"UI\x06\x001.2.3\0", b"UI\x06\x001.2.3 ")
    assert data != stream.getvalue()
    plain, traced = (pydicom.dcmread(io.BytesIO(data)) for _ in range(2))
    trace.bind_dicom(traced)
    written = []
    for dataset in (plain, traced):
        out = io.BytesIO()
        dataset.save_as(out)
        written.append(out.getvalue())
    assert written[0] == written[1] and b"1.2.3 " in written[1]
    entry = IdentifierStore(keyed).find(now().pseudonym or "")
    assert entry is not None and entry.subject.instance == "1.2.3"


@pytest.mark.parametrize(
    ("charset", "raw", "expected"),
    [
        ("GB18030", bytes.fromhex("cdf55ed0a1b6ab"), "王^小东"),
        ("ISO_IR 100", b"M\xfcller ", "Müller"),
        ("ISO_IR 192", "患者1".encode(), "患者1"),
        (None, b"A\\B", "A\\B"),
    ],
)
def test_a_patient_id_is_read_in_its_character_set(charset: str | None, raw: bytes, expected: str) -> None:
    image = read("CT_small.dcm")
    image.SpecificCharacterSet = charset
    image.PatientID = "?" * (len(raw) + len(raw) % 2)
    stream = io.BytesIO()
    image.save_as(stream)
    again = pydicom.dcmread(
        io.BytesIO(stream.getvalue().replace(b"?" * len(image.PatientID), raw.ljust(len(image.PatientID))))
    )
    assert trace.read_identifiers(again).patient == expected
    assert isinstance(again.get_item(0x00100020).value, bytes)  # still undecoded


def test_parts_of_an_image_and_other_objects_are_read_as_far_as_they_go(keyed: Path) -> None:
    assert trace.read_identifiers(pydicom.Dataset()) == identifiers()
    part = read("CT_small.dcm", specific_tags=["StudyInstanceUID"])
    assert trace.read_identifiers(part) == identifiers(study=part.StudyInstanceUID)
    assert trace.read_identifiers({"PatientID": " P "}) == identifiers(patient="P")
    trace.bind_dicom({"PatientID": "P"})
    trace.bind_dicom(pydicom.Dataset())  # nothing to bind: the image before it must not stay
    assert now().pseudonym is None


@pytest.mark.parametrize("thing", [None, 3, "text", object()])
def test_what_is_no_data_set_is_said_and_returned(keyed: Path, thing: object, caplog: pytest.LogCaptureFixture) -> None:
    assert trace.bind_dicom(thing) is thing
    assert now().pseudonym is None
    assert "cannot be read" in caplog.text


def test_without_a_key_the_pipeline_goes_on_and_is_told_once(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "cuvil.trace"):
        for _ in range(3):
            trace.bind_dicom(read("CT_small.dcm"))
    assert now().pseudonym is None and read_context(now().traceparent) is not None
    assert [record.message.partition(":")[0] for record in caplog.records] == ["an image is not bound to its trace"]
    assert "cuvil trace keys init" in caplog.text


def test_strict_mode_by_argument_and_by_variable(keyed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace.bind_dicom(read("CT_small.dcm"), strict=True)
    assert now().members == ()
    monkeypatch.setenv(trace.STRICT, "1")
    trace.bind_dicom(read("CT_small.dcm"))
    assert now().members == () and IdentifierStore(keyed).count() == 0
    trace.bind_dicom(read("CT_small.dcm"), strict=False)
    assert now().pseudonym is not None


def test_each_study_begins_a_trace_unless_one_was_accepted(keyed: Path) -> None:
    trace.bind_dicom(read("CT_small.dcm"))
    first = now()
    trace.bind_dicom(read("CT_small.dcm"))
    assert now() == first
    trace.bind_dicom(read("MR_small.dcm"))
    assert now().trace_id != first.trace_id
    assert trace.accept(PARENT, "congo=1")
    for name in ("CT_small.dcm", "MR_small.dcm"):
        trace.bind_dicom(read(name))
        assert now().traceparent == PARENT
        assert [key for key, _ in now().members] == ["cuvil", "congo"]
    assert not trace.accept("00-nonsense", "congo=1") and now().traceparent == PARENT
    trace.unbind()
    assert trace.current() is None and trace.headers() == {} and trace.environment({"A": "1"}) == {"A": "1"}


def test_the_trace_of_the_environment_goes_on(keyed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(trace.TRACEPARENT, PARENT)
    monkeypatch.setenv(trace.TRACESTATE, "congo=1")
    assert now().tracestate == "congo=1"
    trace.bind_dicom(read("CT_small.dcm"))
    assert now().traceparent == PARENT and now().tracestate == f"cuvil={now().pseudonym},congo=1"
    monkeypatch.setenv(trace.TRACEPARENT, "00-broken")
    trace.unbind()
    assert trace.current() is None
    assert not {trace.TRACEPARENT, trace.TRACESTATE} & trace.environment().keys()  # an engine would refuse them


def test_an_active_span_of_opentelemetry_goes_before(keyed: Path) -> None:
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("outer") as span:
        trace.bind_dicom(read("CT_small.dcm"))
        value = now().pseudonym
        with tracer.start_as_current_span("inner") as inner:
            assert int(now().parent_id, 16) == inner.get_span_context().span_id
            assert int(now().trace_id, 16) == span.get_span_context().trace_id and now().pseudonym == value
    with tracer.start_as_current_span("another request"):
        assert now().pseudonym is None  # the image belonged to another trace


def test_threads_and_tasks_have_images_of_their_own(keyed: Path) -> None:
    found: dict[str, str | None] = {}
    barrier = threading.Barrier(2)

    def work(name: str) -> None:
        trace.bind_dicom(read(name))
        barrier.wait(20)
        found[name] = now().pseudonym

    threads = [threading.Thread(target=work, args=(name,)) for name in ("CT_small.dcm", "MR_small.dcm")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found.values())) == 2 and trace.current() is None

    async def task(name: str) -> str | None:
        trace.bind_dicom(read(name))
        await asyncio.sleep(0)
        return now().pseudonym

    async def both() -> list[str | None]:
        return await asyncio.gather(task("CT_small.dcm"), task("MR_small.dcm"))

    assert asyncio.run(both()) == [found["CT_small.dcm"], found["MR_small.dcm"]]


def test_a_program_that_is_started_goes_on_with_the_trace(keyed: Path) -> None:
    trace.bind_dicom(read("CT_small.dcm"))
    code = "from cuvil import trace; c = trace.current(); print(c.traceparent, c.tracestate)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=trace.environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [now().traceparent, now().tracestate]


def test_no_warning_of_pydicom_comes_twice_because_of_the_binding(keyed: Path) -> None:
    image = read("CT_small.dcm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image.PatientID = "x" * 70  # longer than LO allows
    stream = io.BytesIO()
    image.save_as(stream)
    stream.seek(0)
    trace.bind_dicom(pydicom.dcmread(stream))
    assert now().pseudonym is not None


def test_importing_the_module_loads_neither_compiler_nor_pydicom() -> None:
    code = "import cuvil.trace, sys; print(sorted({'pydicom', 'numpy', 'sqlite3', 'opentelemetry'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
