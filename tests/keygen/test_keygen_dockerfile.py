"""Canonical Dockerfiles: what is formatting, and what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygen_case import form

from evidence.keygen.text import Unreadable

BASE = """# syntax=docker/dockerfile:1
# a remark
FROM debian:12 AS build
ARG CACHE_KEY

ENV A=1 B="two  words"
RUN apt-get update && \\
    # a remark inside
    apt-get install -y gcc   # trailing is data

RUN <<EOF
# this line is data
echo  hi
EOF
COPY --from=build ["a", "b"]
CMD ["run", "it"]
"""


def test_the_form_is_one_line_per_instruction() -> None:
    assert form("dockerfile", BASE).splitlines() == [
        "# syntax=docker/dockerfile:1",
        "FROM debian:12 AS build",
        "ARG CACHE_KEY",
        'ENV A=1 B="two  words"',
        "RUN apt-get update && apt-get install -y gcc # trailing is data",
        "RUN <<EOF",
        "<<EOF",
        "|# this line is data",
        "|echo  hi",
        'COPY --from=build ["a","b"]',
        'CMD ["run","it"]',
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a remark\n", ""),
        ("# a remark\n", "\n   # another\n\n"),
        ("    # a remark inside\n", ""),
        ("    # a remark inside\n", "\n  \t\n"),
        ("FROM", "from"),
        (" AS ", " as "),
        ("ARG CACHE_KEY", "  arg   CACHE_KEY  "),
        (" && \\\n    # a remark inside\n    apt-get", " && apt-get"),
        ("-y gcc", "-y \\\n\tgcc"),
        ('["a", "b"]', '[ "a" ,"b"]'),
        ('CMD ["run", "it"]', 'CMD ["run", \\\n "\\u0069t"]'),
        ("# syntax=docker", "#  SYNTAX = docker"),
        ("COPY --from=build [", "COPY   --from=build   ["),
    ],
)
def test_formatting_leaves_the_form(old: str, new: str) -> None:
    assert old in BASE
    assert form("dockerfile", BASE.replace(old, new)) == form("dockerfile", BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# syntax=docker/dockerfile:1\n", ""),
        ("dockerfile:1", "dockerfile:1.7"),
        ("FROM debian:12 AS build\nARG CACHE_KEY\n", "ARG CACHE_KEY\nFROM debian:12 AS build\n"),
        ("# this line is data\n", ""),
        ("echo  hi", "echo hi"),
        ("   # trailing is data", ""),
        ('"two  words"', '"two words"'),
        ("RUN <<EOF", "RUN <<'EOF'"),
        ('CMD ["run", "it"]', "CMD run it"),
        ("debian:12", "debian:12.1"),
        ("ENV A=1", "ENV A 1"),
        ("gcc ", "gcc\\ "),
    ],
)
def test_meaning_changes_the_form(old: str, new: str) -> None:
    assert old in BASE
    assert form("dockerfile", BASE.replace(old, new)) != form("dockerfile", BASE)


def test_windows_line_ends() -> None:
    assert form("dockerfile", "FROM a\r\nRUN b \\\r\n  c\r\n") == form("dockerfile", "FROM a\nRUN b \\\n  c\n")


def test_blanks_are_kept_where_the_shell_may_not_be_posix() -> None:
    for head in ("# escape=`\nFROM a\n", 'FROM a\nSHELL ["pwsh"]\n'):
        assert form("dockerfile", head + "RUN a  b\n") != form("dockerfile", head + "RUN a b\n")
    assert form("dockerfile", "FROM a\nENV name  two  words\n").endswith("ENV name  two  words\n")
    assert form("dockerfile", "FROM a\nRUN $'a\\'b  c'\n").endswith("RUN $'a\\'b  c'\n")


def test_continuation_character() -> None:
    assert form("dockerfile", "# escape=`\nFROM a\nRUN b `\n c\n").endswith("RUN b  c\n")
    assert form("dockerfile", "FROM a\nRUN b \\\\\nRUN c\n").splitlines() == ["FROM a", "RUN b \\\\", "RUN c"]
    assert form("dockerfile", "FROM a\nONBUILD run  x\\\n").endswith("ONBUILD RUN x\n")


def test_here_documents() -> None:
    two = "FROM a\nCOPY <<A <<-B /x/\nFROM no\nA\n\tb\n\tB\nRUN c\n"
    assert form("dockerfile", two).splitlines()[1:] == ["COPY <<A <<-B /x/", "<<A", "|FROM no", "<<B", "|\tb", "RUN c"]
    assert form("dockerfile", "FROM a\nRUN cat <<< x\nRUN d\n").count("RUN") == 2


@pytest.mark.parametrize(
    ("text", "why", "line"),
    [
        ("FROM a\nFRUM b\n", "FRUM", 2),
        ("FROM a\n\nRUN <<EOF\nx\n", "EOF", 3),
        ("# only a remark\n", "no instruction", 1),
        ("FROM a\n\n# x\n&& b\n", "&&", 4),
        (b"FROM a\nRUN \xff\n", "UTF-8", 2),
    ],
)
def test_what_is_no_dockerfile(text: str | bytes, why: str, line: int) -> None:
    with pytest.raises(Unreadable, match=why) as caught:
        form("dockerfile", text)
    assert caught.value.line == line


def test_a_frontend_of_its_own_may_have_its_own_instructions() -> None:
    assert "USES x" in form("dockerfile", "# syntax=example/frontend\nFROM a\nuses   x\n")


INSTRUCTION = st.sampled_from(
    ["RUN make  all", "ENV A=1", "COPY a b", "WORKDIR /x", 'LABEL a="b  c"', "USER 1000:1000"]
)
REMARK = st.sampled_from(["", "\n", "# remark\n", "  # RUN no\n\n", "\t\n"])


@given(st.lists(st.tuples(INSTRUCTION, REMARK), min_size=2, max_size=8))
def test_remarks_anywhere(pairs: list[tuple[str, str]]) -> None:
    plain = "FROM a\n" + "".join(f"{text}\n" for text, _ in pairs)
    noisy = "# head\nFROM a\n" + "".join(r + text.replace(" ", f" \\\n{r} ", 1) + "\n" for text, r in pairs)
    assert form("dockerfile", noisy) == form("dockerfile", plain)


@given(st.lists(INSTRUCTION, min_size=2, max_size=6, unique=True))
def test_order_counts(lines: list[str]) -> None:
    other = [*lines[1:], lines[0]]
    texts = ["FROM a\n" + "\n".join(each) for each in (lines, other)]
    assert form("dockerfile", texts[0]) != form("dockerfile", texts[1])
