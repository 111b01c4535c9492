"""The clause table, its pointers, the gate, and the ids in generated C."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from compiler_kernels.errors import RefusedError, UsageError
from compiler_kernels.policy import Policy, load_policy
from compiler_kernels.targets.c import includes
from compiler_kernels.toolchain.sources import runtime_sources
from cuvil_assets.cli import main
from evidence.clauses.check import NOT_APPLICABLE, check_clauses, judge
from evidence.clauses.folder import ARTEFACTS, read_folder, stem_of
from evidence.clauses.pointer import answered, select
from evidence.clauses.table import ALIAS, NOT_FOUND, SEEN, VERIFIED, clause_table

DATA = json.loads((files("evidence") / "data" / "clauses.json").read_bytes())
FORBIDDEN = ("FIPS 140-3 validated", "商用密码认证", "complies with", "required by IEC 62304 Annex C", "certified")


def policy(*required: str) -> Policy:
    listed = json.dumps(list(required), ensure_ascii=False)
    return load_policy(f'version: 1\nmodel: {{name: m, version: "1"}}\nclauses: {{required: {listed}}}\n', "p.yaml")


def test_ids_are_unique_and_documents_exist() -> None:
    ids = [item["id"] for item in (*DATA["clauses"], *DATA["aliases"])]
    assert len(set(ids)) == len(ids) >= 60
    assert {item["document"] for item in DATA["clauses"]} == set(DATA["documents"])
    for item in DATA["clauses"]:
        assert item["id"] == f"{item['document']} {item['clause']}"
        assert item["zh"] and item["en"] and item["answers"]
        assert {answer["artefact"] for answer in item["answers"]} <= set(ARTEFACTS)
        assert all(answer["pointer"] == "" or answer["pointer"].startswith("/") for answer in item["answers"])
    for document in DATA["documents"].values():
        assert document["zh"] and document["en"] and document["seen"] in SEEN


def test_a_status_is_no_better_than_what_was_read() -> None:
    for item in DATA["clauses"]:
        assert item["status"] == (VERIFIED if item["seen"] == "read" else NOT_FOUND), item["id"]
        if DATA["documents"][item["document"]]["seen"] != "read":
            assert item["seen"] != "read", item["id"]
    assert {item["status"] for item in DATA["aliases"]} == {ALIAS}


def test_older_ids_stand_for_true_clauses_with_the_truth_beside_them() -> None:
    table = clause_table()
    assert set(table.aliases) == {
        "NMPA 附录II 2.1.2",
        "NMPA 附录II 2.1.3",
        "62304 Annex C",
        "IEEE 754-2019 Annex L",
    }
    for item in table.aliases.values():
        assert set(item.maps_to) <= set(table.clauses) and item.truth_en and item.truth_zh
    assert table.resolve("IEEE 754-2019 Annex L") == ("IEEE-754-2019 11",)
    with pytest.raises(UsageError, match=r"no clause 'IEC-62304 8\.1\.22'; did you mean IEC-62304 8\.1\.2"):
        table.resolve("IEC-62304 8.1.22")


def test_words_that_are_not_said() -> None:
    text = json.dumps(DATA, ensure_ascii=False)
    assert [word for word in FORBIDDEN if word.lower() in text.lower()] == []


def test_includes_of_generated_code_name_clauses_of_the_table() -> None:
    known = set(clause_table().clauses)
    for header in (name for name in runtime_sources() if name.endswith(".h")):
        try:
            ids = includes.clauses_of(header)
        except KeyError:
            continue
        assert ids and set(ids) <= known and all(i.isascii() for i in ids)
    assert includes.include("ca1_sum.h") == '#include "ca1_sum.h" /* clauses: IEEE-754-2019 11; IEC-62304 5.5.5 */'
    assert re.fullmatch(r'#include "cuvil_engine\.h" /\* clauses: [ -~]+ \*/', includes.include("cuvil_engine.h"))
    with pytest.raises(KeyError):
        includes.include("stdio.h")


DOCUMENT = {
    "components": [
        {"ref": "library:a", "version": "1", "licenses": []},
        {"ref": "library:b", "version": ""},
        {"ref": "file:c"},
    ],
    "a/b": {"x": "unknown", "y": "1"},
    "0": "zero",
}
POINTERS: list[tuple[str, list[Any], bool]] = [
    ("/components/0/version", ["1"], True),
    ("/components/[ref=library:a]/version", ["1"], True),
    ("/components/[ref^=library:]/version", ["1", ""], False),
    ("/components/*/version", [], False),  # the file has none
    ("/components/[ref=library:a]/licenses", [[]], False),
    ("/components/[ref=nothing]/version", [], False),
    ("/a~1b/x", ["unknown"], False),
    ("/a~1b/y", ["1"], True),
    ("/a~1b/*", ["unknown", "1"], False),
    ("/0", ["zero"], True),
    ("/components/9", [], False),
    ("/components/0/version/0", [], False),
]


@pytest.mark.parametrize(("pointer", "values", "said"), POINTERS)
def test_pointers(pointer: str, values: list[Any], said: bool) -> None:
    assert select(DOCUMENT, pointer) == values and answered(DOCUMENT, pointer) is said


def test_answers_open_and_not_applicable() -> None:
    report = judge({"proof": {"predicate": {"arithmetic": "CA-1"}}, "equivalence": {"verdict": "passed"}})
    assert "IEEE-754-2019 11" in report.answered and "IEC-62304 5.5.5" in report.answered
    assert "NMPA-2019-43 2.6.1" in report.open and report.ids(NOT_APPLICABLE) == ("CMDE-2022-7 二(二)",)
    assert "IEEE-754-2019 11" in judge({"proof": {}, "equivalence": {"verdict": "failed"}}).open
    stated = {"policy": {"sbom": {"datasets": [{"description": "public"}]}}}
    assert "CMDE-2022-7 二(二)" in judge(stated).answered
    summary = report.to_json()
    total = len(summary["answered"]) + len(summary["open"]) + len(summary["not_applicable"])
    assert total == len(DATA["clauses"]) and len(summary["table"]["sha3_512"]) == 128


def test_the_gate_names_clause_place_and_remedy() -> None:
    report = judge({"proof": {"predicate": {"arithmetic": "CA-1"}}})
    report.require(policy())
    with pytest.raises(
        RefusedError, match=r"IEEE-754-2019 11 has no answer, equivalence#/verdict is missing"
    ) as caught:
        report.require(policy("IEEE-754-2019 11"))
    assert caught.value.exit_code == 3
    with pytest.raises(RefusedError, match=r"62304 Annex C \(that is IEC-62304 5\.5\.5\) has no answer"):
        report.require(policy("62304 Annex C"))
    with pytest.raises(UsageError, match="there is no clause 'ISO 1'"):
        report.require(policy("ISO 1"))
    judge({"equivalence": {"verdict": "passed"}}).require(policy("62304 Annex C"))


def test_a_release_being_made_is_judged_before_it_is_a_file(tmp_path: Path) -> None:
    engine = tmp_path / "e.bin"
    engine.write_bytes(b"x")
    (tmp_path / "e.equivalence.json").write_text('{"verdict": "passed"}')
    people = [{"role": "developer", "person": "A"}, {"role": "tester", "person": "B"}]
    release = {"predicate": {"approvals": people}, "subject": [{"digest": {"sha256": "0"}}]}
    assert "NMPA-2019-43 2.1.2" in check_clauses(engine).open
    report = check_clauses(engine, policy("NMPA-2019-43 2.1.2"), {"release": release})
    assert {"NMPA-2019-43 2.1.2", "NMPA-2019-43 2.6.1"} <= set(report.answered)
    report.require(policy("NMPA-2019-43 2.1.2"))


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no proof"):
        stem_of(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        stem_of(tmp_path / "gone")
    engine = tmp_path / "e.bin"
    engine.write_bytes(b"x")
    assert read_folder(engine) == {}
    (tmp_path / "e.cdx.json").write_text("{")
    with pytest.raises(UsageError, match=r"e\.cdx\.json: is not JSON"):
        read_folder(engine)
    (tmp_path / "e.cdx.json").unlink()
    (tmp_path / "e.proof.json").write_text("{}")
    with pytest.raises(UsageError, match=r"e\.proof\.json: is no signed statement"):
        read_folder(tmp_path)
    (tmp_path / "f.proof.json").write_text("{}")
    with pytest.raises(UsageError, match="holds 2 proofs"):
        stem_of(tmp_path)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gap", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["clauses"]) == len(DATA["clauses"]) and found["clauses"][0]["state"] is None
    assert main(["gap", "--lang", "zh"]) == 0
    assert "旧编号" in capsys.readouterr().out
    assert main(["gap", "--lang", "de"]) == 2
    assert main(["gap", "/nonexistent/engine"]) == 2
