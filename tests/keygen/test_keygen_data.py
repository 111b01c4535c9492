"""Canonical JSON, TOML, lock files, YAML, Python, go.mod and requirements."""

from __future__ import annotations

import json
import string

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from keygen_case import form

from evidence.keygen.text import Unreadable, number

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\x85\u2028\u2029\ufeff"), max_size=6)
SCALAR = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
DATA = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))

SAME = {
    "json": [
        ('{"a": 1, "b": [true, null]}', ' {\n"b":[ true,null ],"a" : 1}\n'),
        ('{"a": "\\u00e9"}', '{"a": "é"}'),
        ("[1.50, 1e2]", "[15E-1, 100.0]"),
    ],
    "toml": [
        ('a = 1 # x\n[b]\nc = "d"\n', "b = { c = 'd' }\na = 0x1\n"),
        ("a = 1_000.0\n", "# x\na = 1e3\n"),
    ],
    "yaml": [
        ("a: 1\nb: [x, z]\n", "# c\nb:\n- x\n- 'z'\na: 1\n"),
        ("a: &x {k: v}\nb: *x\n", "a: {k: v}\nb: {k: v}\n"),
        ("a: text of words\n", 'a: "text of words"\n'),
        ("a: b\n---\nc: d\n", "---\na: b\n---\n{c: d}\n"),
    ],
    "python": [
        ("x = 1  # c\n", "#\n\n(x) = (\n 1\n)\n"),
        ("f('a', [1, 2])\n", 'f("a", [1, 2,],)\n'),
        ("def f(a):\n  return a\n", "def f(a):\n        # c\n        return a\n"),
        ("x = 'a' 'b'\n", "x = u'ab'\n"),
        ("# -*- coding: utf-8 -*-\nx = 'é'\n", "x = '\\u00e9'\n"),
    ],
    "go-module": [
        (
            "module m\n\ngo 1.22\nrequire (\n\ta v1 // x\n\tb v2\n)\n",
            "go 1.22\nmodule m // y\nrequire b v2\nrequire a v1\n",
        ),
        ('module "m"\nretract [v1, v2] // why\n', "module m\nretract [v1,v2]\n"),
        ("module m\nreplace a => ./b\n", "module m\nreplace (\n a   => `./b`\n)\n"),
    ],
    "go-sums": [("a v1 h1:x=\nb v2 h1:y=\n", "b  v2 h1:y=\n\na v1 h1:x=\na v1 h1:x=\n")],
    "requirements": [
        ("Foo_Bar==1.0\nb>=2,<3\n", "# c\nb <3, >=2  # d\nfoo-bar == 1.0\n"),
        ("a==1 --hash=sha256:x --hash=sha256:y\n", "a==1 \\\n  --hash=sha256:y \\\n  --hash=sha256:x\n"),
        ("a[y,x]; python_version>'3'\n", 'a[x, y] ; python_version > "3"\n'),
    ],
    "lock": [
        (
            'version = 1\n[[package]]\nname = "a"\n[[package]]\nname = "b"\ndependencies = ["c", "d"]\n',
            '# made\nversion = 1\n[[package]]\ndependencies = ["d", "c"]\nname = "b"\n[[package]]\nname = "a"\n',
        )
    ],
}

DIFFERENT = {
    "json": [
        ("[1, 2]", "[2, 1]"),
        ("[1]", "[1.0]"),
        ("[1]", '["1"]'),
        ("[0.1]", "[0.10000000000000000001]"),
        ("{}", "[]"),
    ],
    "toml": [("a = 1\n", "a = 1.0\n"), ("a = 2020-01-01\n", 'a = "2020-01-01"\n'), ("a = [1, 2]\n", "a = [2, 1]\n")],
    "yaml": [
        ("a: no\n", "a: 'no'\n"),
        ("a: 1:30\n", "a: '1:30'\n"),
        ("a: 1\n", "a: 1.0\n"),
        ("1: a\n", "'1': a\n"),
        ("a: |\n  b\n", "a: |-\n  b\n"),
        ("a: !x b\n", "a: b\n"),
        ("a\n---\nb\n", "b\n---\na\n"),
        ("%YAML 1.1\n---\na: b\n", "a: b\n"),
        ("a: ~\n", "a: '~'\n"),
    ],
    "python": [
        ("x = 1\n", "x = 1.0\n"),
        ("x = 0.0\n", "x = -0.0\n"),
        ("x = 'a'\n", "x = b'a'\n"),
        ("def f():\n  'doc'\n", "def f():\n  'other'\n"),
        ("a\nb\n", "b\na\n"),
        ("#!/bin/a\nx\n", "#!/bin/b\nx\n"),
        ("x = 1\n", "x: int = 1\n"),
        ("x = True\n", "x = 1\n"),
        ("x = 1j\n", "x = 1\n"),
        ("if a:\n  b\nc\n", "if a:\n  b\n  c\n"),
    ],
    "go-module": [
        ("module m\nrequire a v1\n", "module m\nrequire a v2\n"),
        ("module m\nrequire a v1\n", "module m\nrequire a v1 // indirect\n"),
        ("module m\nreplace a => b\n", "module m\nreplace a => c\n"),
    ],
    "go-sums": [("a v1 h1:x=\n", "a v1 h1:y=\n")],
    "requirements": [
        ("a==1\n", "a==2\n"),
        ("a==1 --hash=sha256:x\n", "a==1 --hash=sha256:y\n"),
        ("--index-url u\na\n", "--index-url v\na\n"),
        ("-r one.txt\n-r two.txt\n", "-r two.txt\n-r one.txt\n"),
        ("a @ https://e/x#egg=a\n", "a @ https://e/x\n"),
        ("./a.whl\n", "./b.whl\n"),
    ],
    "lock": [('[[package]]\nname = "a"\nversion = "1"\n', '[[package]]\nname = "a"\nversion = "2"\n')],
}

BOMB = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD = [
    ("json", '{\n"a": 1,\n"b": {"a": 2},\n"a": 3}', "twice", 4),
    ("json", "{\n'a': 1}", "JSON", 2),
    ("json", "[NaN]", "NaN", 0),
    ("json", "[" * 100_000, "nested", 0),
    ("toml", "a = 1\na = 2\n", "TOML", 2),
    ("toml", "a = \n", "TOML", 1),
    ("yaml", "a: 1\nb: 2\na: 3\n", "twice", 3),
    ("yaml", "a: 1\n'a': 3\n", "twice", 2),
    ("yaml", "a: [1\n", "YAML", 2),
    ("yaml", "a: &x [*x]\n", "alias", 1),
    ("yaml", BOMB, "values", 7),
    ("python", "x = (\n", "Python", 1),
    ("python", "x = 1\n  y = 2\n", "Python", 2),
    ("go-module", "module m\nrequire (\na v1\n", "close", 2),
    ("go-module", "module m\nfoo bar\n", "foo", 2),
    ("go-module", '\nmodule "m\n', "string", 2),
    ("go-sums", "a v1\n", "checksum", 1),
    ("requirements", "a==1\n\nb=2\n", "requirement", 3),
]


@pytest.mark.parametrize(("kind", "one", "other"), [(k, *pair) for k, pairs in SAME.items() for pair in pairs])
def test_formatting_leaves_the_form(kind: str, one: str, other: str) -> None:
    assert form(kind, one) == form(kind, other)


@pytest.mark.parametrize(("kind", "one", "other"), [(k, *pair) for k, pairs in DIFFERENT.items() for pair in pairs])
def test_meaning_changes_the_form(kind: str, one: str, other: str) -> None:
    assert form(kind, one) != form(kind, other)


@pytest.mark.parametrize(("kind", "text", "why", "line"), BAD, ids=[f"{b[0]}-{n}" for n, b in enumerate(BAD)])
def test_what_does_not_parse_names_its_line(kind: str, text: str, why: str, line: int) -> None:
    with pytest.raises(Unreadable, match=why) as caught:
        form(kind, text)
    assert caught.value.line == line


@given(DATA, DATA)
def test_json_forms_are_equal_for_equal_data_only(one: object, other: object) -> None:
    assert form("json", json.dumps(one)) == form("json", json.dumps(one, indent=3, ensure_ascii=False, sort_keys=True))
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (form("json", json.dumps(one)) == form("json", json.dumps(other))) == same


WORDS = TEXT.map(lambda t: f"x{t}")  # text for every reader of YAML, quoted or not
WORD_DATA = st.recursive(
    st.integers() | WORDS, lambda i: st.lists(i, max_size=3) | st.dictionaries(WORDS, i, max_size=3)
)


@given(WORD_DATA)
def test_yaml_styles_are_one_form(data: object) -> None:
    block = yaml.safe_dump(data, default_flow_style=False, allow_unicode=True)
    flow = yaml.safe_dump(data, default_flow_style=True, width=1000)
    assert form("yaml", block) == form("yaml", flow)


@given(DATA, DATA)
def test_yaml_forms_are_equal_for_equal_data_only(one: object, other: object) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (form("yaml", yaml.safe_dump(one)) == form("yaml", yaml.safe_dump(other))) == same


NAME = st.text(string.ascii_lowercase, min_size=1, max_size=3).map(lambda s: f"v_{s}")
EXPRESSION = st.recursive(
    NAME | st.integers(0, 99).map(str) | st.text(string.printable, max_size=4).map(repr),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "*", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=6,
)


@settings(max_examples=50)
@given(st.lists(st.tuples(NAME, EXPRESSION), min_size=1, max_size=5))
def test_python_comments_and_blanks_never_count(lines: list[tuple[str, str]]) -> None:
    plain = "".join(f"{name} = {value}\n" for name, value in lines)
    noisy = "# head\n" + "".join(f"\n{name}  =  (\n  {value}  # c\n)\n# d\n" for name, value in lines)
    assert form("python", noisy) == form("python", plain)
    assert form("python", plain + "v_end = 1\n") != form("python", plain)


@given(st.integers(-(10**30), 10**30), st.integers(-50, 50))
def test_numbers_have_one_text(digits: int, exponent: int) -> None:
    texts = {number(t).text for t in (f"{digits}e{exponent}", f"{digits}0E{exponent - 1}", f"{digits}.00e{exponent}")}
    assert len(texts) == 1
    assert number(f"{digits + 1}e{exponent}").text not in texts
