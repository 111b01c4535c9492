"""What ``cuvil trace inject`` cannot place: named with line and remedy, and then nothing is written."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from cuvil_assets import files
from cuvil_assets.cli import main, trace_inject
from evidence.tracing.inject import plan_file

GOOD = "import pydicom\nx = pydicom.dcmread(1)\n"

REFUSED = [
    ("from pydicom import *\nx = dcmread(1)\n", 1, "hides which names"),
    ("from pydicom.filereader import *\n", 1, "hides which names"),
    ("import pydicom\nx = map(pydicom.dcmread, p)\n", 2, "handed on"),
    ("from functools import partial\nfrom pydicom import dcmread\nf = partial(dcmread, force=True)\n", 3, "handed on"),
    ("from pydicom import dcmread\ndef f(pool, p):\n    return pool.submit(dcmread, p)\n", 3, "bind the result where"),
    ("from pydicom import dcmread\nREADERS = {'dcm': dcmread}\n", 2, "handed on"),
    ("import pydicom\nclass A:\n    pass\nA.read = pydicom.dcmread\n", 4, "handed on"),
    ("import pydicom\ndef f():\n    return pydicom.dcmread\n", 3, "handed on"),
    ("import pydicom\nx = f'{pydicom.dcmread(1).PatientID}'\n", 2, "f-string"),
    ("import pydicom\nx = f'{f(\"a\"):{pydicom.dcmread(1).n}}'\n", 2, "f-string"),
    ("import pydicom\nexec(code)\n", 2, "`exec` or `eval`"),
    ("eval('pydicom.dcmread(1)')\n", 1, "`exec` or `eval`"),
    ("import pydicom\ngetattr(pydicom, name)(1)\n", 2, "at run time"),
    ("import pydicom\ngetattr(pydicom, 'dcmread')(1)\n", 2, "at run time"),
    ("import importlib\np = importlib.import_module('pydicom')\n", 2, "imported by a call"),
    ("p = __import__('pydicom')\n", 1, "imported by a call"),
    (GOOD + "import os\nos.system(f'engine --output-dir {d}')\n", 4, "takes no environment"),
    (GOOD + "import subprocess\nsubprocess.run(['e', '--output-dir', d], **options)\n", 4, "`**` may hold"),
    (GOOD + "import subprocess\nx = f'{subprocess.run([\"--output-dir\"])}'\n", 4, "f-string"),
    ("'Doc.'; import pydicom; x = pydicom.dcmread(1)\n", 1, "no place is left for the import"),
]


@pytest.mark.parametrize(("text", "line", "part"), REFUSED)
def test_it_is_named_with_its_line(tmp_path: Path, text: str, line: int, part: str) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text(text)
    made = plan_file(path)
    assert [said.line for said in made.refused] == [line]
    assert part in made.refused[0].sentence


@pytest.mark.parametrize(
    "text",
    [
        "exec('x = 1')\n",
        "exec(code)\n",
        "eval(code)\n",
        "import pydicom\neval('1 + 1')\n",
        "import pydicom\nx = pydicom.dcmread.__doc__\n",
        "import pydicom\ngetattr(pydicom, 'config')\n",
        "import importlib\nimportlib.import_module(name)\n",
        "import os\nos.system('engine --output-dir d')\n",
        "from json import *\n",
        "from .pydicom import *\n",
    ],
)
def test_what_has_nothing_to_do_with_it_is_not_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text(text)
    made = plan_file(path)
    assert made.refused == () and made.new == made.old


def test_a_comment_leaves_a_line_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.py"
    line = "y = map(pydicom.dcmread, p)  # cuvil: not traced\n"
    path.write_text(GOOD + line + "z = pydicom.dcmread(2)  # cuvil: not traced\n")
    made = plan_file(path)
    assert made.refused == () and made.reads == 1
    assert line.encode() in made.new and b"z = pydicom.dcmread(2)  #" in made.new
    assert [note.line for note in made.notes] == [4]


def test_a_function_that_parses_and_is_handed_on_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text("import pydicom\ndef load(p):\n    return pydicom.dcmread(p)\nload(1)\nx = pool.map(load, paths)\n")
    made = plan_file(path)
    assert made.reads == 1 and made.refused == ()
    assert [(note.line, "another thread" in note.sentence) for note in made.notes] == [(5, True)]


def test_the_command_shows_writes_and_refuses(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "sub" / "bad.py"
    bad.parent.mkdir()
    good.write_text(GOOD)
    good.chmod(0o754)
    bad.write_text("from pydicom import *\n")

    assert main(["trace", "inject", str(tmp_path)]) == 4
    out, err = capfd.readouterr()
    assert "+x = cuvil_trace.bind_dicom(pydicom.dcmread(1))\n" in out and f"{bad}, line 1: " in err
    assert "nothing is written" in err
    assert main(["trace", "inject", str(tmp_path), "--write"]) == 4
    assert good.read_text() == GOOD
    capfd.readouterr()

    assert main(["trace", "inject", str(tmp_path), "--json"]) == 4
    document = json.loads(capfd.readouterr().out)
    assert document["written"] is False and "b/" in document["diff"]
    assert [item["refused"] for item in document["files"]][1][0]["line"] == 1

    assert main(["trace", "inject", str(good), "--diff"]) == 0
    assert "+from cuvil import trace as cuvil_trace" in capfd.readouterr().out and good.read_text() == GOOD
    assert main(["trace", "inject", str(good), "--write"]) == 0
    out, err = capfd.readouterr()
    assert out == "" and "bound now: calls of pydicom 1" in err
    assert stat.S_IMODE(good.stat().st_mode) == 0o754
    written = good.read_text()
    assert main(["trace", "inject", str(good), "--write"]) == 0
    assert good.read_text() == written and "bound before: 1" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.py", "sub"]

    link = tmp_path / "link.py"
    link.symlink_to(good)
    good.write_text(GOOD)
    assert main(["trace", "inject", str(link), "--write"]) == 0
    assert link.is_symlink() and good.read_text() == written

    assert main(["trace", "inject", str(good), "--write", "--diff"]) == 2
    assert main(["trace", "inject", str(tmp_path / "missing.py")]) == 2


def test_of_several_files_all_are_written_or_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(GOOD)

    def full(path: Path, data: bytes, mode: int) -> Path:
        if path.name == "b.py":
            raise OSError(28, "No space left on device", str(path))
        return files.write_temporary(path, data, mode)

    monkeypatch.setattr(trace_inject, "write_temporary", full)
    assert main(["trace", "inject", str(tmp_path), "--write"]) == 2
    assert "b.py: cannot be written (No space left on device)" in capfd.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.py": GOOD, "b.py": GOOD}
