"""``cuvil trace keys`` and ``cuvil trace lookup``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuvil_assets.cli import main
from evidence.audit import AuditLog
from evidence.sessions.binding import bind, forget
from evidence.sessions.pseudonym import identifiers
from evidence.sessions.trace_context import new_context

IMAGE = identifiers("1.2.3", "1.2.3.4", "1.2.3.4.5", "PAT1")
ALL = ["--study", "1.2.3", "--series", "1.2.3.4", "--instance", "1.2.3.4.5", "--patient", "PAT1"]


def call(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    """Exit code and the one JSON object of a command."""
    capfd.readouterr()
    code = main([*words, "--json"])
    out, err = capfd.readouterr()
    assert err == ""
    document = json.loads(out)
    assert isinstance(document, dict)
    return code, document


def test_the_life_of_a_key(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(capfd, "trace", "keys", "list") == (0, {"epochs": []})
    assert call(capfd, "trace", "keys", "init")[1]["created"] is True
    assert call(capfd, "trace", "keys", "init")[1]["created"] is False
    assert call(capfd, "trace", "keys", "rotate") == (0, {"epoch": 2})
    assert call(capfd, "trace", "keys", "destroy", "1") == (0, {"epoch": 1, "state": "destroyed"})
    code, document = call(capfd, "trace", "keys", "destroy", "1")
    assert (code, document["error"], document["exit_code"]) == (2, "UsageError", 2)
    rows = call(capfd, "trace", "keys", "list")[1]["epochs"]
    assert isinstance(rows, list) and [row["state"] for row in rows] == ["destroyed", "current"]
    assert main(["trace", "keys", "list"]) == 0
    assert "current" in capfd.readouterr().out


def test_lookup_of_a_pseudonym_and_of_identifiers(keyed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    context = bind(keyed, new_context(), IMAGE)
    value = context.pseudonym or ""
    expected = {"StudyInstanceUID": "1.2.3", "SOPInstanceUID": "1.2.3.4.5", "PatientID": "PAT1"}
    for words in ([value], [context.tracestate], [f"congo=1,cuvil={value}"], ["--patient", "PAT1 "], ALL):
        code, document = call(capfd, "trace", "lookup", *words)
        images = document["images"]
        assert code == 0 and isinstance(images, list) and len(images) == 1
        assert images[0].items() >= {"pseudonym": value, "epoch": 1, **expected}.items()
    assert main(["trace", "lookup", value]) == 0
    assert "'PAT1'" in capfd.readouterr().out
    code, document = call(capfd, "trace", "lookup", "--recompute", *ALL)
    assert (code, document) == (0, {"pseudonyms": [{"epoch": 1, "pseudonym": value, "in_store": True}]})
    assert forget(keyed, "PAT1") == [value]
    assert call(capfd, "trace", "lookup", "--recompute", *ALL)[1]["pseudonyms"] == [
        {"epoch": 1, "pseudonym": value, "in_store": False}
    ]
    for words in ([value], ["--patient", "PAT1"]):
        code, document = call(capfd, "trace", "lookup", *words)
        assert (code, document["check"]) == (1, "lookup")


def test_every_lookup_is_recorded_without_naming_the_patient(keyed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    value = bind(keyed, new_context(), IMAGE).pseudonym or ""
    call(capfd, "trace", "lookup", value)
    call(capfd, "trace", "lookup", "--patient", "PAT1")
    call(capfd, "trace", "lookup", "--patient", "nobody")
    events = [event for event in AuditLog(keyed).events() if event.kind == "pseudonym-lookup"]
    assert [event.fields["asked"] for event in events] == ["identifiers", "pseudonyms", "pseudonyms"]
    assert events[0].fields["pseudonym"] == value
    assert b"PAT1" not in (keyed / "audit" / "events.jsonl").read_bytes()


def test_a_pseudonym_that_begins_with_a_hyphen_is_no_option(keyed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for value in ("-" + "A" * 42, "--" + "A" * 41):
        code = main(["trace", "lookup", value])
        captured = capfd.readouterr()
        assert "option" not in captured.err.lower(), captured.err
        assert value in captured.out + captured.err
        assert code in (0, 1)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "either a pseudonym or identifiers"),
        (["A" * 43, "--patient", "P"], "either a pseudonym or identifiers"),
        (["A" * 43, "--recompute"], "cannot be reversed"),
        (["A" * 42], "no pseudonym"),
        (["congo=1"], "no pseudonym"),
        (["--patient", "  "], "either a pseudonym or identifiers"),
    ],
)
def test_wrong_words_get_a_sentence(home: Path, capfd: pytest.CaptureFixture[str], words: list[str], part: str) -> None:
    assert main(["trace", "lookup", *words]) == 2
    assert part in capfd.readouterr().err
    assert not (home / "audit").exists()
