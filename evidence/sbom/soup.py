"""The SOUP list: components of others in the engine, with what IEC 62304 asks to be recorded of each.

Title, manufacturer and unique designator (8.1.2) come from the bill of materials; functional and performance
requirements (5.3.3), needed hardware and software (5.3.4), safety class (4.3) and the evaluation of published anomalies
(7.1.3) are statements of the manufacturer, taken from the policy's ``sbom.soup``. A record nobody has made is an
empty cell, which ``findings`` names; it is never filled with a guess.
"""

from __future__ import annotations

import csv
import datetime
import io
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

from compiler_kernels.errors import UsageError
from compiler_kernels.policy.sbom import Sbom
from evidence.sbom.gates import is_soup
from evidence.sbom.parts import Part

COLUMNS = (
    "SOUP item",
    "Manufacturer",
    "Version",
    "Functional and performance requirements",
    "Hardware and software requirements",
    "Safety class",
    "Published anomaly list evaluated",
    "Licence",
    "Package URL",
    "SHA-256",
    "End of support",
)
CLAUSES = ("8.1.2", "8.1.2", "8.1.2", "5.3.3", "5.3.4", "4.3", "7.1.3")
"""Clause of IEC 62304 behind each of the first columns."""
STALE_DAYS = 365
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_PLACEHOLDER = re.compile(r"(tbd|tba|tbc|todo|fixme|xxx|\?+|pending|unknown|n/?a|none|-+)\W*", re.IGNORECASE)
_RANGE = re.compile(r"[\^~*<>|,]|\b(latest|any|or|to)\b|\.x\b", re.IGNORECASE)
_FIXED = "1980-01-01T00:00:00Z"


@dataclass(frozen=True)
class Finding:
    """A record that is missing or doubtful: item, column, clause, sentence."""

    item: str
    column: str
    clause: str
    sentence: str


def soup_rows(parts: Sequence[Part], section: Sbom | None) -> list[list[str]]:
    """One row per component of others, sorted by name, in the order of ``COLUMNS``."""
    rows = []
    for part in sorted((p for p in parts if is_soup(p)), key=lambda p: p.name):
        said = section.soup.get(part.name) if section is not None else None
        rows.append(
            [
                part.name,
                part.supplier,
                part.version,
                *([said.requirements, said.environment, said.safety_class] if said else ["", "", ""]),
                f"{said.reviewed}: {said.anomaly_list}" if said else "",
                part.licence.spdx if part.licence else "",
                part.purl,
                part.digests.sha256 if part.digests else "",
                part.properties.get("cuvil:end-of-support", ""),
            ]
        )
    return rows


def findings(rows: Sequence[Sequence[str]], today: datetime.date) -> list[Finding]:
    """Missing, placeholder, unpinned, unclassified, undated, outdated or doubled records of the list."""
    found = []
    if not rows:
        found.append(Finding("", "", "8.1.2", "the list has no item: true only if nothing of others is in the engine"))
    for row in rows:
        for column, clause, value in zip(COLUMNS, CLAUSES, row, strict=False):
            said = _record(row[0], column, value, today)
            found += [Finding(row[0], column, clause, sentence) for sentence in said]
    names = [row[0] for row in rows]
    found += [Finding(n, COLUMNS[0], "8.1.2", f"{n} is listed twice") for n in sorted(set(names)) if names.count(n) > 1]
    return found


def _record(item: str, column: str, value: str, today: datetime.date) -> list[str]:
    name = item or "an item"
    if not value.strip():
        return [f"{name}: {column} is not recorded"]
    if _PLACEHOLDER.fullmatch(value.strip()):
        return [f"{name}: {column} holds a placeholder ({value})"]
    if column == "Version" and _RANGE.search(value):
        return [f"{name}: the version {value} is no exact one"]
    if column == "Safety class" and value not in ("A", "B", "C"):
        return [f"{name}: the safety class {value!r} is not A, B or C"]
    if column == COLUMNS[6]:
        return _dated(name, value, today)
    return []


def _dated(name: str, value: str, today: datetime.date) -> list[str]:
    match = _DATE.search(value)
    if match is None:
        return [f"{name}: the evaluation of the anomaly list has no date"]
    age = (today - datetime.date.fromisoformat(match[0])).days
    if age < 0:
        return [f"{name}: the evaluation of the anomaly list is dated {match[0]}, after {today}"]
    return [f"{name}: the anomaly list was evaluated {age} days ago, on {match[0]}"] if age > STALE_DAYS else []


def soup_csv(rows: Sequence[Sequence[str]]) -> bytes:
    """The list as UTF-8 CSV with a byte order mark, which spreadsheet programs need for Chinese."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\r\n").writerows([COLUMNS, *rows])
    return b"\xef\xbb\xbf" + stream.getvalue().encode()


def soup_markdown(rows: Sequence[Sequence[str]]) -> bytes:
    """The list as a Markdown table."""
    lines = [
        [*COLUMNS],
        ["---"] * len(COLUMNS),
        *[[cell.replace("|", "\\|").replace("\n", " ") for cell in r] for r in rows],
    ]
    return ("".join(f"| {' | '.join(cells)} |\n" for cells in lines)).encode()


def soup_xlsx(rows: Sequence[Sequence[str]]) -> bytes:
    """The list as a workbook whose bytes depend on the rows only. ``UsageError`` when openpyxl is not installed."""
    try:
        from openpyxl import Workbook
        from openpyxl.styles import Font
    except ImportError:
        raise UsageError("a SOUP list as .xlsx needs openpyxl: pip install 'cuvil[sbom]', or ask for .csv") from None
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "SOUP"
    for row in (COLUMNS, *rows):
        sheet.append([*row])
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    for line in sheet.iter_rows(min_row=2):
        for cell in line:
            cell.data_type = "s"  # a text that begins with = is no formula
    sheet.freeze_panes = "B2"
    stream = io.BytesIO()
    book.save(stream)
    return _timeless(stream.getvalue())


def _timeless(data: bytes) -> bytes:
    """The same archive without the time of writing."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name in sorted(source.namelist()):
            body = source.read(name)
            if name == "docProps/core.xml":
                body = re.sub(rb"(W3CDTF\">)[^<]*", rb"\g<1>" + _FIXED.encode(), body)
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, body)
    return out.getvalue()
