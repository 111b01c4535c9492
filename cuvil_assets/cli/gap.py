"""``cuvil gap``: the clause table, and which clauses an engine's folder answers."""

from __future__ import annotations

from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.policy import Policy, policy_from_json
from compiler_kernels.stage import Json, as_json
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from evidence.clauses.check import Row, check_clauses
from evidence.clauses.folder import POLICY, read_folder, stem_of
from evidence.clauses.table import Clause, clause_table

LANGUAGES = ("en", "zh")
_STATES = {
    "en": {"answered": "answered", "open": "open", "not applicable": "not applicable"},
    "zh": {"answered": "已回答", "open": "未回答", "not applicable": "不适用"},
}
_TITLES = {
    "en": ("older ids, and what was found about them", "missing", "stands for"),
    "zh": ("旧编号及核对结果", "缺少", "对应"),
}


def run(place: Path | None, lang: str, json: bool) -> None:
    """Print the table; with an engine or a folder, what is answered. Raises ``UsageError``."""
    if lang not in LANGUAGES:
        raise UsageError(f"--lang {lang!r} is not known; choose one of {', '.join(LANGUAGES)}")
    table = clause_table()
    rows = check_clauses(place, _policy(place)).rows if place is not None else ()
    found = {row.clause.id: row for row in rows}
    if json:
        print_json(
            {
                "table_sha3_512": table.sha3_512,
                "place": str(place) if place is not None else None,
                "documents": as_json(table.documents),
                "clauses": [_document(clause, found.get(clause.id)) for clause in table.clauses.values()],
                "aliases": [
                    {
                        "id": item.id,
                        "status": "alias",
                        "maps_to": [*item.maps_to],
                        "truth": {"en": item.truth_en, "zh": item.truth_zh},
                    }
                    for item in table.aliases.values()
                ],
            }
        )
        return
    _print(list(table.clauses.values()), found, lang)
    title, _, stands_for = _TITLES[lang]
    print(f"\n{title}")
    for item in table.aliases.values():
        print(f"  {item.id}: {item.truth_zh if lang == 'zh' else item.truth_en}")
        print(f"    {stands_for} {', '.join(item.maps_to)}")
    if rows:
        counts = {state: sum(row.state == state for row in rows) for state in _STATES[lang]}
        print("\n" + ", ".join(f"{count} {_STATES[lang][state]}" for state, count in counts.items()))


def _print(clauses: list[Clause], found: dict[str, Row], lang: str) -> None:
    documents = clause_table().documents
    current = ""
    for clause in clauses:
        if clause.document != current:
            current = clause.document
            print(f"\n{current}: {documents[current][lang]} ({documents[current]['kind']})")
        row = found.get(clause.id)
        state = f"{_STATES[lang][row.state]:16}" if row is not None else ""
        print(
            f"  {state}{clause.clause:28} {clause.zh if lang == 'zh' else clause.en} [{clause.status}, {clause.seen}]"
        )
        if row is not None and row.missing:
            print(f"  {'':16}{_TITLES[lang][1]}: {', '.join(str(answer) for answer in row.missing)}")


def _document(clause: Clause, row: Row | None) -> Json:
    return {
        "id": clause.id,
        "document": clause.document,
        "zh": clause.zh,
        "en": clause.en,
        "status": clause.status,
        "seen": clause.seen,
        "note": clause.note,
        "answers": [str(answer) for answer in clause.answers],
        "state": row.state if row is not None else None,
        "missing": [str(answer) for answer in row.missing] if row is not None else [],
    }


def _policy(place: Path) -> Policy | None:
    """The policy of a build, from the store of this machine, where no policy file lies beside the engine."""
    stem = stem_of(place)
    if stem.with_name(stem.name + POLICY).exists():
        return None
    proof = read_folder(place).get("proof")
    digest = proof["predicate"]["policy"]["sha3_512"] if proof is not None else ""
    data = ContentStore(current_home().store).find(digest) if digest else None
    return policy_from_json(data) if data is not None else None
