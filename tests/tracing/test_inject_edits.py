"""What ``cuvil trace inject`` edits, and that it edits nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.tracing.inject import Plan, plan, plan_file
from evidence.verifier.errors import UsageError


def planned(tmp_path: Path, text: str | bytes, strict: bool = False) -> Plan:
    path = tmp_path / "pipeline.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return plan_file(path, strict)


def after(tmp_path: Path, text: str, strict: bool = False) -> str:
    made = planned(tmp_path, text, strict)
    assert not made.refused, made.refused
    return made.new.decode()


HEAD = "import pydicom\nfrom cuvil import trace as cuvil_trace\n"
PLACES = [
    ("x = {}", "assigned"),
    ("x: object = {}", "assigned with a type"),
    ("def f():\n    return {}", "returned"),
    ("def f():\n    yield {}", "yielded"),
    ("async def f():\n    return {}", "in a coroutine"),
    ("with {} as x:\n    pass", "as a context"),
    ("x = [{} for p in paths]", "in a list"),
    ("x = {{p: {} for p in paths}}", "in a dict"),
    ("x = sum(s.n for s in ({} for p in paths))", "in a generator"),
    ("x = (lambda p: {})(1)", "in a lambda"),
    ("x = {}.pixel_array[0]", "with an attribute behind it"),
    ("print({}, file=None)", "as an argument"),
    ("x = [*map(len, [{}])]", "deep inside"),
    ("if (x := {}) is not None:\n    pass", "in an assignment expression"),
    ("class A:\n    x = {}\n    def f(self, y={}):\n        return {}", "in a class"),
    ("@{}\ndef f(): pass", "as a decorator"),
    ("try:\n    x = {}\nexcept Exception:\n    raise\nfinally:\n    pass", "in a try"),
    ("x = await_ if False else {}", "in a condition"),
    ("ä = '漢字😀'; x = {}  # ü", "behind characters of several bytes"),
    ("x = y = {}", "assigned twice"),
    ("x = {} ; z = {}", "twice in a line"),
    ("assert {}, {}", "in an assertion"),
    ("x = not {}", "behind an operator"),
    ("match {}:\n    case None:\n        pass", "matched"),
]


@pytest.mark.parametrize(("place", "name"), PLACES, ids=[name for _, name in PLACES])
def test_a_call_is_bound_where_it_stands(tmp_path: Path, place: str, name: str) -> None:
    call = "pydicom.dcmread(p)"
    text = "import pydicom\n" + place.format(*[call] * 3) + "\n"
    expected = HEAD + place.format(*[f"cuvil_trace.bind_dicom({call})"] * 3) + "\n"
    assert after(tmp_path, text) == expected
    assert after(tmp_path, expected) == expected
    assert planned(tmp_path, expected).done == place.count("{}") - place.count("{{}}")


IMPORTS = [
    ("import pydicom", "pydicom.dcmread"),
    ("import pydicom as dcm", "dcm.dcmread"),
    ("import os, pydicom as dcm", "dcm.read_file"),
    ("import pydicom.filereader", "pydicom.filereader.dcmread"),
    ("import pydicom.filereader as fr", "fr.dcmread"),
    ("from pydicom import dcmread", "dcmread"),
    ("from pydicom import dcmread as x", "x"),
    ("from pydicom import filereader as fr", "fr.read_file"),
    ("from pydicom.filereader import (\n    dcmread as read,\n)", "read"),
    ("import pydicom\nreader = pydicom.dcmread", "reader"),
    ("import pydicom\nr: object = pydicom\n", "r.dcmread"),
    ("try:\n    from pydicom import dcmread\nexcept ImportError:\n    dcmread = None", "dcmread"),
    ("def load():\n    global d\n    import pydicom as d", "d.dcmread"),
]


@pytest.mark.parametrize(("imports", "call"), IMPORTS)
def test_pydicom_is_known_under_every_name_it_is_imported_by(tmp_path: Path, imports: str, call: str) -> None:
    made = after(tmp_path, f"{imports}\n\n\ndef f(p):\n    return {call}(p, stop_before_pixels=True)\n")
    assert f"    return cuvil_trace.bind_dicom({call}(p, stop_before_pixels=True))\n" in made


SHADOWS = [
    "from pydicom import dcmread\ndef f(dcmread, p):\n    return dcmread(p)\n",
    "import pydicom\ndef f(pydicom, p):\n    return pydicom.dcmread(p)\n",
    "import pydicom\ndef f(p):\n    for pydicom in p:\n        pydicom.dcmread(p)\n",
    "import pydicom\nx = [pydicom.dcmread(1) for pydicom in y]\n",
    "def g():\n    import pydicom\ndef f(p):\n    return pydicom.dcmread(p)\n",
    "import pydicom\nclass A:\n    from json import load as dcmread\n    def f(self): return self.dcmread(1)\n",
    "class A:\n    from pydicom import dcmread\n    def f(self, p):\n        return dcmread(p)\n",
    "from mine import dcmread\ndcmread(1)\n",
    "from . import pydicom\npydicom.dcmread(1)\n",
    "from .pydicom import dcmread\ndcmread(1)\n",
    "import pydicom\npydicom.dcmwrite(1)\n",
    "import json\njson.load(1)\n",
]


@pytest.mark.parametrize("text", SHADOWS)
def test_what_only_has_the_name_is_left_alone(tmp_path: Path, text: str) -> None:
    made = planned(tmp_path, text)
    assert made.new == made.old and not made.refused
    # where it is called `dcmread`, whoever reviews is told
    assert bool(made.notes) == ("dcmread(" in text.replace("def f(dcmread", ""))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            '"""Doc."""\nfrom __future__ import annotations\nimport os\nfrom pydicom import dcmread\n\ndcmread(1)\n',
            5,
        ),
        (
            "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n\ndef f():\n    import pydicom\n    pydicom.dcmread(1)\n",
            4,
        ),
        ('"""Doc.\n\nMore."""\n\ndef f():\n    import pydicom\n    return pydicom.dcmread(1)\n', 4),
        ("@staticmethod\ndef f():\n    import pydicom\n    return pydicom.dcmread(1)\n", 1),
        ("import os; import pydicom\nX = pydicom.dcmread(1)\n", 2),
        ("import os\nimport pydicom; X = pydicom.dcmread(1)\n", 2),
        ("from __future__ import annotations; import pydicom\npydicom.dcmread(1)\n", 2),
        ('"""Doc."""; from __future__ import annotations\nimport pydicom\npydicom.dcmread(1)\n', 3),
        ("from pydicom import (\n    dcmread,\n    dcmwrite,\n)\ndcmread(1)\n", 5),
    ],
)
def test_the_import_stands_behind_those_the_file_begins_with(tmp_path: Path, text: str, line: int) -> None:
    lines = after(tmp_path, text).splitlines()
    assert lines[line - 1] == "from cuvil import trace as cuvil_trace"
    del lines[line - 1]
    assert [made.replace("cuvil_trace.bind_dicom(", "").replace("1))", "1)") for made in lines] == text.splitlines()


def test_no_name_of_the_program_is_taken_and_an_import_that_is_there_is_used(tmp_path: Path) -> None:
    made = after(tmp_path, "import pydicom\ndef f(cuvil_trace):\n    return pydicom.dcmread(cuvil_trace)\n")
    assert "from cuvil import trace as _cuvil_trace\n" in made and "_cuvil_trace.bind_dicom(pydicom" in made
    text = "from cuvil import trace\nimport pydicom\nx = pydicom.dcmread(1)\n"
    assert after(tmp_path, text) == text.replace("pydicom.dcmread(1)", "trace.bind_dicom(pydicom.dcmread(1))")
    shadowed = text + "def f(trace): return pydicom.dcmread(trace)\n"
    assert "from cuvil import trace as cuvil_trace\n" in after(tmp_path, shadowed)
    late = "import pydicom\nx = pydicom.dcmread(1)\nfrom cuvil import trace\n"
    assert "from cuvil import trace as cuvil_trace\n" in after(tmp_path, late)


def test_half_bound_files_are_completed(tmp_path: Path) -> None:
    text = HEAD + "a = cuvil_trace.bind_dicom(pydicom.dcmread(1))\nb = pydicom.dcmread(2)\n"
    assert after(tmp_path, text) == text.replace("pydicom.dcmread(2)", "cuvil_trace.bind_dicom(pydicom.dcmread(2))")


def test_strict_is_written_into_the_calls(tmp_path: Path) -> None:
    made = after(tmp_path, "import pydicom\nx = pydicom.dcmread(\n    1,\n)\n", strict=True)
    assert made.endswith("x = cuvil_trace.bind_dicom(pydicom.dcmread(\n    1,\n), strict=True)\n")


STARTS = [
    ('subprocess.run([e, "--output-dir", d])', 'subprocess.run([e, "--output-dir", d], env={})'),
    ('subprocess.run([e, "--output-dir", d],)', 'subprocess.run([e, "--output-dir", d], env={},)'),
    (
        'subprocess.check_call(\n    ("cuvil", "run", "--output-dir", d),  # , ) (\n    cwd=d,  # )\n)',
        'subprocess.check_call(\n    ("cuvil", "run", "--output-dir", d),  # , ) (\n    cwd=d, env={},  # )\n)',
    ),
    (
        'subprocess.Popen(f"{e} --output-dir {d}", shell=True)',
        'subprocess.Popen(f"{e} --output-dir {d}", shell=True, env={})',
    ),
    ('subprocess.run(args=([e, "--output-dir", d]))', 'subprocess.run(args=([e, "--output-dir", d]), env={})'),
    ('subprocess.run([e, "--output-dir", d], env=E)', 'subprocess.run([e, "--output-dir", d], env={E})'),
    (
        'subprocess.run([e, "--output-dir", d], env={"A": "1"})',
        'subprocess.run([e, "--output-dir", d], env={{"A": "1"}})',
    ),
    ('c = [e, "--output-dir", d]\nsubprocess.run(c)', 'c = [e, "--output-dir", d]\nsubprocess.run(c, env={})'),
    (
        'c = [e]\nc += ["--output-dir", d]\nsubprocess.run(c)',
        'c = [e]\nc += ["--output-dir", d]\nsubprocess.run(c, env={})',
    ),
    (
        'c = [e]\nc.extend(["--output-dir", d])\nif x:\n    subprocess.run([*c, d])',
        'c = [e]\nc.extend(["--output-dir", d])\nif x:\n    subprocess.run([*c, d], env={})',
    ),
    (
        'asyncio.create_subprocess_exec(e, "--output-dir", *d)',
        'asyncio.create_subprocess_exec(e, "--output-dir", *d, env={})',
    ),
]


@pytest.mark.parametrize(("text", "expected"), STARTS)
def test_engines_get_the_context_in_their_environment(tmp_path: Path, text: str, expected: str) -> None:
    head = "import asyncio, subprocess, pydicom\n"
    tail = "\nx = pydicom.dcmread(1)\n"
    made = after(tmp_path, head + text + tail)
    body = made.removeprefix(head + "from cuvil import trace as cuvil_trace\n").removesuffix(
        "\nx = cuvil_trace.bind_dicom(pydicom.dcmread(1))\n"
    )
    outside, _, inside = expected.partition("env={")
    if inside.startswith("}"):
        wanted = f"{outside}env=cuvil_trace.environment(){inside[1:]}"
    else:
        content, _, rest = inside.rpartition("}")
        wanted = f"{outside}env=cuvil_trace.environment({content}){rest}"
    assert body == wanted
    assert after(tmp_path, made) == made
    # without an image there is nothing to pass on
    assert after(tmp_path, head + text + "\n") == head + text + "\n"


@pytest.mark.parametrize("call", ["subprocess.run(['ls'])", "subprocess.run(c)", "other.run(['--output-dir'])"])
def test_other_programs_are_started_as_before(tmp_path: Path, call: str) -> None:
    made = after(tmp_path, f"import subprocess, pydicom\nx = pydicom.dcmread(1)\n{call}\n")
    assert f"\n{call}\n" in made


def test_a_call_as_last_argument_of_a_start(tmp_path: Path) -> None:
    text = "import subprocess, pydicom\nsubprocess.run(['--output-dir'], pydicom.dcmread(1))\n"
    assert after(tmp_path, text, strict=True).endswith(
        "(['--output-dir'], cuvil_trace.bind_dicom(pydicom.dcmread(1), strict=True), env=cuvil_trace.environment())\n"
    )


def test_bytes_of_the_file_stay_what_they_were(tmp_path: Path) -> None:
    for newline in ("\n", "\r\n", "\r"):
        text = newline.join(["import pydicom", "x = pydicom.dcmread(1)  # ü\x0c \x1c \u2028 ", "# end"])
        for bom in (b"", b"\xef\xbb\xbf"):
            made = planned(tmp_path, bom + text.encode())
            lines = made.new.decode().split(newline)
            assert made.new.startswith(bom) and lines.pop(1) == "from cuvil import trace as cuvil_trace"
            assert (
                newline.join(lines).encode()
                == bom + text.replace("pydicom.dcmread(1)", "cuvil_trace.bind_dicom(pydicom.dcmread(1))").encode()
            )
    latin = "# coding: latin-1\nimport pydicom\nx = 'ü', pydicom.dcmread(1)\n".encode("latin-1")
    assert b"'\xfc', cuvil_trace.bind_dicom(" in planned(tmp_path, latin).new
    only = planned(tmp_path, "import pydicom")
    assert only.new == b"import pydicom" and only.diff() == ""
    bare = planned(tmp_path, "def f():\n  import pydicom\n  return pydicom.dcmread(1)")
    assert bare.new.endswith(b"  return cuvil_trace.bind_dicom(pydicom.dcmread(1))")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_the_diff_applies_with_git(tmp_path: Path, newline: str, end: str) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    text = newline.join(["import pydicom", *["#"] * 20, "x = pydicom.dcmread(1)"]) + end
    made = planned(tmp_path, text)
    diff = made.diff().replace(made.path.as_posix().lstrip("/"), "pipeline.py").encode()
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], input=diff, cwd=tmp_path, check=True, capture_output=True
    )
    assert made.path.read_bytes() == made.new != made.old


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"def f(:\n", "line 1: is no Python"),
        (b"\0", "is no Python|cannot be decoded"),
        (b"# coding: nonsense\n", "is no Python|cannot be decoded"),
        (b"x = '\xff'\n", "is no Python|cannot be decoded"),
        (b"x = " + b"(" * 5000 + b"1" + b")" * 5000, "is no Python|nested too deeply"),
        (b"x = " + b"-" * 100_000 + b"1", "is no Python|nested too deeply"),
        (b"x = " + b"+".join([b"1"] * 20_000), "nested too deeply"),
    ],
)
def test_what_is_no_python_gets_a_sentence(tmp_path: Path, data: bytes, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        planned(tmp_path, data)


def test_of_a_folder_its_own_files_that_mention_pydicom(tmp_path: Path) -> None:
    text = "import pydicom\npydicom.dcmread(1)\n"
    for name in ("a.py", "sub/b.py", ".hidden/c.py", "venv/d.py", "e.txt", "mine/lib/f.py", "site-packages/g.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "mine" / "pyvenv.cfg").touch()
    (tmp_path / "other.py").write_text("def f(: no Python, and none of our business\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    assert [item.path.relative_to(tmp_path).as_posix() for item in plan(tmp_path)] == ["a.py", "sub/b.py"]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UsageError, match="no Python file in it mentions pydicom"):
        plan(empty)
    with pytest.raises(UsageError, match="notebook"):
        plan(tmp_path / "e.txt")
    with pytest.raises(UsageError, match="no such Python file"):
        plan(tmp_path / "missing.py")


def same_program(made: Plan) -> None:
    """Lines stay in their places but for the import, and what was there is there in its order."""
    old, new = made.old.decode(made.encoding), made.new.decode(made.encoding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks about the program as it was
        compile(new, str(made.path), "exec", dont_inherit=True)
    assert new.count("\n") == old.count("\n") + made.changed * (
        "import trace as" in new and "import trace as" not in old
    )
    rest = iter(new)
    assert all(character in rest for character in old)


def test_real_programs_that_use_pydicom(tmp_path: Path) -> None:
    """pydicom's own sources: readers of folders, command line tools, code generators."""
    folder = Path(sysconfig.get_paths()["purelib"]) / "pydicom"
    edited = 0
    for path in sorted(folder.rglob("*.py")):
        if "dcmread" in path.read_text():
            made = plan_file(path)
            same_program(made)
            edited += made.reads
            copy = tmp_path / path.name
            copy.write_bytes(made.new)
            again = plan_file(copy)
            assert again.new == made.new and again.done == made.reads + made.done
    assert edited > 5


def library() -> Iterator[tuple[Path, str]]:
    """Every tenth file of the standard library that is UTF-8."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))[::10]:
        if "site-packages" not in path.parts:
            with suppress(UnicodeDecodeError):
                yield path, path.read_bytes().decode()


def test_remarks_of_python_about_the_style_are_no_errors(tmp_path: Path) -> None:
    made = after(tmp_path, "import pydicom\nx = pydicom.dcmread('\\d') is 3\n")
    assert "cuvil_trace.bind_dicom(pydicom.dcmread('\\d')) is 3" in made


@pytest.mark.slow
def test_the_standard_library_stays_untouched() -> None:
    for path, _ in library():
        with suppress(UsageError):  # files that are no Python of this version, for tests of parsers
            made = plan_file(path)
            assert made.new == made.old and made.reads == 0, path


@pytest.mark.slow
def test_calls_all_over_the_standard_library_are_bound_and_nothing_else_changes(tmp_path: Path) -> None:
    """Its common functions become pydicom's in the text: real layouts, in places nobody would think of."""
    files = calls = 0
    for _, text in library():
        text = re.sub(r"(?<![\w.])(len|open|str|list|print|super|range|repr|isinstance)\(", "pydicom.dcmread(", text)
        text = re.sub(r"self\.assertEqual\(", "pydicom.filereader.read_file(", text)
        first = re.search(r"^(import|from) (?!__future__)", text, re.MULTILINE)
        if first is None:
            continue
        with suppress(UsageError):
            made = planned(tmp_path, f"{text[: first.start()]}import pydicom\n{text[first.start() :]}", files % 2 == 1)
            assert not [said for said in made.refused if "edit" in said.sentence or "no place" in said.sentence]
            same_program(made)
            again = planned(tmp_path, made.new)
            assert again.new == made.new and again.done == made.reads
            files, calls = files + 1, calls + made.reads
    assert files > 100 and calls > 1000


CALLS = st.sampled_from(["pydicom.dcmread(p)", "pydicom.dcmread(\n    p,\n)", "pydicom.dcmread (p) . x", "len(p)", "p"])


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    shapes = [
        "({})",
        "f({}, {})",
        "[{}, *{}]",
        "({} if {} else 0)",
        "{}[{}]",
        "(lambda: {})()",
        "[{} for p in {}]",
        "({}, 'é', {})",
    ]
    return st.builds(lambda shape, a, b: shape.format(a, b), st.sampled_from(shapes), inner, inner)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.recursive(CALLS, _nested, max_leaves=8), min_size=1, max_size=4), st.booleans())
def test_any_expressions_stay_the_same_program(
    tmp_path_factory: pytest.TempPathFactory, expressions: list[str], strict: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    text = "import pydicom\n" + "".join(f"x = {item}\n" for item in expressions)
    made = planned(folder, text, strict)
    assert not made.refused and made.reads == text.count("dcmread")
    same_program(made)
    assert planned(folder, made.new, strict).new == made.new
