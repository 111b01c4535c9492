"""An edited pipeline computes what it computed, and the engines it starts learn which image it is about."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydicom.data import get_testdata_file

from evidence.sessions.identifier_store import IdentifierStore
from evidence.sessions.trace_context import read_context
from evidence.tracing.inject import plan_file

PIPELINE = '''\
"""Statistics of images: one JSON line for each."""

import hashlib
import json
import subprocess
import sys
from contextlib import suppress

import pydicom
from pydicom import dcmread as read, config

head = lambda path: read(path, stop_before_pixels=True, specific_tags=["Modality"])   # only the modality


class Loader:
    def __init__(self, path: str) -> None:
        with pydicom.dcmread(path) as image:
            self.image = image

    def __iter__(self):
        yield from (read(path) for path in [self.image.filename])


def report(path):
    first = Loader(path)
    [second] = first
    images = [
        pydicom.dcmread(
            path,
            force=False,
        )
        for _ in range(2)
    ]
    pixels = hashlib.sha256(b"".join(image.PixelData for image in images)).hexdigest()
    done = subprocess.run([*sys.argv[1:3], "--output-dir", "."], capture_output=True, check=True)
    return {
        "modality": head(path).Modality, "same": first.image == second == images[0], "pixels": pixels,
        "engine": json.loads(done.stdout),
    }


for path in sys.argv[3:]:
    with suppress(pydicom.errors.InvalidDicomError):
        print(json.dumps(report(path)), flush=True)
raise SystemExit(7)
'''
ENGINE = 'import json, os\nprint(json.dumps([os.environ.get("TRACEPARENT"), os.environ.get("TRACESTATE")]))\n'
"""Stands for an engine, which reads these two variables of its environment (docs/sessions.md)."""


def run(folder: Path, pipeline: Path, home: Path) -> list[dict[str, object]]:
    engine = folder / "engine.py"
    engine.write_text(ENGINE)
    images = [str(get_testdata_file(name, download=False)) for name in ("CT_small.dcm", "MR_small.dcm", "README.txt")]
    done = subprocess.run(
        [sys.executable, pipeline, sys.executable, engine, *images],
        env={**os.environ, "CUVIL_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (7, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("strict", [False, True])
def test_a_pipeline_computes_the_same_and_its_engines_know_the_image(tmp_path: Path, keyed: Path, strict: bool) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text(PIPELINE)
    before = run(tmp_path, path, keyed)
    assert [row.pop("engine") for row in before] == [[None, None]] * 2
    assert IdentifierStore(keyed).count() == 0

    made = plan_file(path, strict)
    assert (made.reads, made.starts, made.refused, made.notes) == (4, 1, (), ())
    path.write_bytes(made.new)
    after = run(tmp_path, path, keyed)
    contexts = [read_context(*row.pop("engine")) for row in after]  # type: ignore[misc]
    assert after == before
    assert len({context.trace_id for context in contexts if context}) == 2
    pseudonyms = [context.pseudonym for context in contexts if context]
    if strict:
        assert pseudonyms == [None, None] and IdentifierStore(keyed).count() == 0
        return
    entries = [IdentifierStore(keyed).find(value or "") for value in pseudonyms]
    assert [entry and entry.subject.patient for entry in entries] == ["1CT1", "4MR1"]


def test_an_edited_pipeline_without_a_key_says_so_and_computes_the_same(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text("import pydicom, sys\nprint(pydicom.dcmread(sys.argv[1]).PatientID)\n")
    path.write_bytes(plan_file(path).new)
    image = str(get_testdata_file("CT_small.dcm", download=False))
    done = subprocess.run(
        [sys.executable, path, image], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == "1CT1\n"
    assert done.stderr.count("\n") == 1 and "run `cuvil trace keys init`" in done.stderr
