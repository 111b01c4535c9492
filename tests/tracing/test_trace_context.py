"""``traceparent`` and ``tracestate`` after W3C Trace Context, level 1; cases are those of its text and test suite."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.sessions.trace_context import (
    MEMBERS_MAX,
    TraceContext,
    new_context,
    read_context,
    read_traceparent,
    read_tracestate,
)

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (GOOD, 1),
        (f"00-{TRACE}-{PARENT}-00", 0),
        (f"00-{TRACE}-{PARENT}-ff", 255),
        (f" \t{GOOD}\t ", 1),
        (f"01-{TRACE}-{PARENT}-01", 1),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like", 1),
        (f"cc-{TRACE}-{PARENT}-01-", 1),
    ],
)
def test_valid_traceparents(text: str, flags: int) -> None:
    assert read_traceparent(text) == TraceContext(TRACE, PARENT, flags)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        GOOD[:-1],
        GOOD + "1",
        GOOD + "-",
        GOOD + "-extra",
        GOOD.upper(),
        f"ff-{TRACE}-{PARENT}-01",
        f"0x-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}.-{PARENT}-01",
        f"00-{TRACE}-{PARENT[:-1]}X-01",
        f"00-{TRACE}-{PARENT}-0.",
        f"00_{TRACE}_{PARENT}_01",
        f"cc-{TRACE}-{PARENT}-01.what-the-future-will-not-be-like",
        f"{GOOD}\n",
        f"٠٠-{TRACE}-{PARENT}-01",
    ],
)
def test_malformed_traceparents_discard_both_headers(text: str) -> None:
    assert read_traceparent(text) is None
    assert read_context(text, "foo=1") is None


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("", ()),
        ("foo=1", (("foo", "1"),)),
        ("foo=1,bar=2", (("foo", "1"), ("bar", "2"))),
        (" foo=1 \t,\t bar=2 , ,,", (("foo", "1"), ("bar", "2"))),
        ("foo= 1", (("foo", " 1"),)),
        ("a_-*/0=x y", (("a_-*/0", "x y"),)),
        ("0tenant@sys=!", (("0tenant@sys", "!"),)),
        (f"{'a' * 256}={'v' * 256}", (("a" * 256, "v" * 256),)),
        (f"{'t' * 241}@{'v' * 14}=1", (("t" * 241 + "@" + "v" * 14, "1"),)),
    ],
)
def test_valid_tracestates(text: str, members: tuple[tuple[str, str], ...]) -> None:
    assert read_tracestate(text) == members


@pytest.mark.parametrize(
    "text",
    [
        "foo",
        "foo=",
        "=1",
        "foo=1=2",
        "foo =1",
        "FOO=1",
        "0foo=1",
        "foo.bar=1",
        "foo@=1,bar=2",
        "@foo=1,bar=2",
        "foo@@bar=1",
        "foo@bar@baz=1",
        "foo=1,foo=2",
        f"{'a' * 257}=1",
        f"{'t' * 242}@v=1",
        f"t@{'v' * 15}=1",
        f"foo={'v' * 257}",
        "foo=ü",
        "foo=a\x7f",
        ",".join(f"k{index}=1" for index in range(MEMBERS_MAX + 1)),
    ],
)
def test_a_malformed_tracestate_is_discarded_alone(text: str) -> None:
    assert read_tracestate(text) is None
    assert read_context(GOOD, text) == TraceContext(TRACE, PARENT)


def test_our_member_goes_first_and_others_stay_as_they_were() -> None:
    context = read_context(GOOD, "congo=t61rcWkgMzE,cuvil=old,rojo=00f067aa0ba902b7")
    assert context is not None and context.pseudonym == "old"
    assert context.with_pseudonym("new").tracestate == "cuvil=new,congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"
    assert context.with_pseudonym(None).tracestate == "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"


def test_the_rightmost_member_makes_room_in_a_full_list() -> None:
    full = read_context(GOOD, ",".join(f"k{index}=1" for index in range(MEMBERS_MAX)))
    assert full is not None
    members = full.with_pseudonym("x").members
    assert len(members) == MEMBERS_MAX
    assert [key for key, _ in members] == ["cuvil", *(f"k{index}" for index in range(MEMBERS_MAX - 1))]


def test_a_long_header_loses_whole_members_the_longest_kind_first() -> None:
    members = [("cuvil", "x" * 43), ("long1", "1" * 130), *((f"k{n}", "v" * 50) for n in range(8))]
    members.append(("long2", "2" * 130))
    text = ",".join(f"{key}={value}" for key, value in members)
    context = read_context(GOOD, text)
    assert context is not None and len(context.members) == 11
    kept = context.tracestate
    assert len(kept) <= 512 and kept == ",".join(f"{key}={value}" for key, value in [members[0], *members[2:-1]])
    shorter = read_context(GOOD, ",".join(f"{key}={value}" for key, value in [*members[:5], members[-1]]))
    assert shorter is not None and [key for key, _ in read_tracestate(shorter.tracestate) or ()] == [
        *("cuvil", "long1", "k0", "k1", "k2", "long2")
    ]


@pytest.mark.parametrize("value", ["", "a,b", "a=b", "a ", "v" * 257, "ü", "a\n"])
def test_a_value_that_a_member_cannot_hold_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="no value"):
        new_context().with_pseudonym(value)


def test_later_versions_and_unknown_flags_are_sent_as_version_00() -> None:
    context = read_context(f"cc-{TRACE}-{PARENT}-ff-more")
    assert context is not None and context.traceparent == GOOD


def test_a_new_trace_is_valid_and_another_each_time() -> None:
    first, second = new_context(), new_context()
    assert read_context(first.traceparent) == first
    assert first.trace_id != second.trace_id


KEYS = st.from_regex(r"[a-z][a-z0-9_*/-]{0,20}", fullmatch=True)
VALUES = st.from_regex(r"[!-+\--<>-~]([ -+\--<>-~]{0,20}[!-+\--<>-~])?", fullmatch=True)


@given(st.dictionaries(KEYS, VALUES, max_size=MEMBERS_MAX))
def test_what_is_written_is_read_again(members: dict[str, str]) -> None:
    context = TraceContext(TRACE, PARENT, 1, tuple(members.items()))
    again = read_context(context.traceparent, context.tracestate)
    if sum(len(key) + len(value) + 2 for key, value in members.items()) <= 513:
        assert again == context
    else:
        assert again is not None and set(again.members) < set(context.members)


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_is_read_or_discarded_and_what_is_read_can_be_sent(parent: str, state: str) -> None:
    members = read_tracestate(state)
    if members:
        sent = read_tracestate(TraceContext(TRACE, PARENT, 1, members).tracestate)
        assert sent is not None and set(sent) <= set(members)
    context = read_traceparent(parent)
    assert context is None or read_traceparent(context.traceparent) is not None
