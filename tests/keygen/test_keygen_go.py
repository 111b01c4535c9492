"""Canonical Go: an own lexer against sources made to mislead one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygen_case import form

from evidence.keygen.text import Unreadable

BASE = """//go:build linux

// Package main is a sample.
package main

import (
\t"fmt"
\t"os" // for Args
)

//go:embed data.txt
var data string

/* several
lines */
func main() {
\tfmt.Println("http://x // no comment", `raw /* none */ "`, '"', '\\'', data,
\t\tos.Args[1:],
\t)
\tif x := 0x1p-2; x > .5e+1 {
\t\treturn
\t}
}
"""


def test_the_form_is_tokens_and_directives() -> None:
    assert form("go", BASE).splitlines() == [
        "//go:build linux",
        "package main ;",
        'import ( "fmt" ;',
        '"os" ) ;',
        "//go:embed data.txt",
        "var data string ;",
        "func main ( ) {",
        'fmt . Println ( "http://x // no comment" , `raw /* none */ "` , \'"\' , '
        "'\\'' , data , os . Args [ 1 : ] ) ;",
        "if x := 0x1p-2 ;",
        "x > .5e+1 {",
        "return }",
        "}",
        ";",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// Package main is a sample.\n", ""),
        ("/* several\nlines */\n", ""),
        (" // for Args", " /* for */ // Args \"`'"),
        ("\t\tos.Args[1:],\n\t)", " os.Args[1:])"),
        ("func main() {", "func  main ( ) { // x"),
        ("\n\n//go:embed", "\n//go:embed"),
        ("package main\n", "package main;\n"),
        ("\t\treturn\n\t}", "\t\treturn; }"),
        ("\n", "\r\n"),
        ("x > .5e+1", "x /**/>/* * / */.5e+1"),
    ],
)
def test_comments_and_formatting_leave_the_form(old: str, new: str) -> None:
    assert old in BASE
    assert form("go", BASE.replace(old, new)) == form("go", BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("//go:build linux\n", ""),
        ("//go:build linux", "//go:build linux && cgo"),
        ("//go:embed data.txt\n", ""),
        ("//go:embed data.txt\nvar", "// go:embed data.txt\nvar"),
        ("// no comment", "//no comment"),
        ("raw /* none */", "raw /* */"),
        ("'\"'", "'\\\"'"),
        ("\t\treturn\n", ""),
        ('"fmt"\n\t"os"', '"os"\n\t"fmt"'),
        ("[1:]", "[1:2]"),
        ("data,\n", "data,data,\n"),
    ],
)
def test_meaning_changes_the_form(old: str, new: str) -> None:
    assert old in BASE
    assert form("go", BASE.replace(old, new)) != form("go", BASE)


def body(text: str) -> str:
    return form("go", f"package p\nfunc f() {{\n{text}\n}}\n")


def test_a_line_end_is_a_semicolon_where_the_specification_says_so() -> None:
    assert body("return\n1") != body("return 1")
    assert body("return /* a\nb */ 1") == body("return\n1")
    assert body("return /* a b */ 1") == body("return 1")
    assert body("x++\ny") == body("x++; y")
    assert body("a +\nb") == body("a + b")
    assert body("break // x\ny") == body("break; y")
    assert form("go", "package p") == form("go", "package p\n")
    assert body("x := []int{1,\n2,\n}") == body("x := []int{1, 2}")


def test_a_comma_before_a_bracket_is_not_formatting() -> None:
    assert form("go", "package p\ntype T[P *C,] int\n") != form("go", "package p\ntype T[P *C] int\n")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a - -b", "a--b"),
        ("a & ^b", "a &^ b"),
        ('x("/*"); y("*/")', 'x(""); '),
        ("`a\nb`", "`a b`"),
        ("'/', '*'", "'/',  '/'"),
        ('"\\\\" // "', '"\\\\" + ""'),
        ("a<-b", "a < -b + 0"),
        ("1i", "1 + i"),
        ("héllo", "hello"),
    ],
)
def test_close_calls_differ(one: str, other: str) -> None:
    assert body(one) != body(other)


def test_quotes_hide_what_looks_like_comments_and_comments_hide_quotes() -> None:
    assert body('x("a\\"//b") // "') == body('x("a\\"//b")')
    assert body("x('\\'') // '") == body("x('\\'')")
    assert body("x(`\\`) // `") == body("x(`\\`)")
    assert body("/* ` \" ' // */ x") == body("x")
    assert body("// /*\nx\n// */") == body("x")
    assert body("x(`a\r\nb`)") == body("x(`a\nb`)")


CGO = 'package p\n\n// #include <math.h>\n// int f(void);\nimport "C"\n\nvar x = C.f()\n'


def test_the_preamble_of_cgo_counts_with_its_blank_lines() -> None:
    assert "#include <math.h>" in form("go", CGO)
    for old, new in [
        ("math.h", "time.h"),
        ('f(void);\nimport "C"', 'f(void);\n\nimport "C"'),
        ("// int f(void);\n", ""),
    ]:
        assert form("go", CGO.replace(old, new)) != form("go", CGO)
    assert form("go", CGO.replace("var x", "// y\nvar x")) == form("go", CGO)
    assert form("go", CGO.replace('"C"', '"c"')) == form("go", 'package p\nimport "c"\nvar x = C.f()\n')
    block = 'package p\nimport (\n// one\n"fmt"\n/*\nint f;\n*/\n"C"\n)\n'
    assert "int f;" in form("go", block)
    assert form("go", block.replace("int f;", "int g;")) != form("go", block)


def test_old_build_constraints_need_a_blank_line() -> None:
    with_blank, without = "// +build linux\n\npackage p\n", "// +build linux\npackage p\n"
    assert len({form("go", t) for t in (with_blank, without, "package p\n")}) == 3
    assert form("go", "package p\n// +build linux\n") == form("go", "package p\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("package p\nvar x = `abc\n", 2),
        ('package p\nvar x = "abc\nvar y = 1\n', 2),
        ("package p\n\n/* open\n", 3),
        ("package p\nvar x = ''\n", 2),
        ("package p\nfunc f() {\n", 2),
        ("package p\nvar x = )\n", 2),
        ("package p\nvar x = #\n", 2),
        ("var x = 1\n", 1),
        ("", 1),
        (b"package p\n// \xff\n", 2),
    ],
)
def test_what_is_no_go(text: str | bytes, line: int) -> None:
    with pytest.raises(Unreadable) as caught:
        form("go", text)
    assert caught.value.line == line


TOKENS = st.sampled_from(
    ["x", "1", "+", "-", "(", ")", '"//"', "`/*`", "'\"'", "return", "<-", "&^", ",", ".", "{", "}"]
)
GAPS = st.sampled_from([" ", "\t", " /* x */ ", '/*"*/', " /*`*/ ", "  /* // */"])


def balanced(tokens: list[str]) -> bool:
    depth = []
    for token in tokens:
        if token in "({":
            depth.append(token)
        elif token in ")}" and (not depth or depth.pop() != {")": "(", "}": "{"}[token]):
            return False
    return not depth


@given(st.lists(st.tuples(TOKENS, GAPS), max_size=12).filter(lambda p: balanced([t for t, _ in p])))
def test_gaps_without_line_ends_never_count(pairs: list[tuple[str, str]]) -> None:
    plain = "package p\n" + " ".join(token for token, _ in pairs)
    noisy = "package p // x\n" + "".join(gap + token for token, gap in pairs) + " // end"
    assert form("go", noisy) == form("go", plain)


@given(st.lists(TOKENS, max_size=12).filter(balanced), st.lists(TOKENS, max_size=12).filter(balanced))
def test_other_tokens_are_another_form(one: list[str], other: list[str]) -> None:
    def spelt(tokens: list[str]) -> list[str]:
        """Without one comma before a closing bracket, the only spelling that the form takes away here."""
        return [t for t, after in pairwise([*tokens, ""]) if t != "," or after not in (")", "}")]

    same = form("go", "package p\n" + " ".join(one)) == form("go", "package p\n" + " ".join(other))
    assert same == (spelt(one) == spelt(other))
