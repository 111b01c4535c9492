"""One direction of dependency: a lower room never imports an upper one (docs/architecture.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("compiler_kernels", "evidence", "fhir_registry", "cuvil_assets", "benchmarks", "tests")
ABOVE = {
    "compiler_kernels": (*ROOMS[1:], "cuvil"),
    "evidence": (*ROOMS[2:], "cuvil"),
    "fhir_registry": (*ROOMS[3:], "cuvil"),
    "cuvil_assets": (*ROOMS[4:], "cuvil"),
    # the facade people import: it sees the compiler and the exceptions below, and no room sees it
    "cuvil": ROOMS[1:],
}
EXCEPT = {"cuvil": ("evidence.sessions", "evidence.verifier.errors")}  # cuvil.trace binds images to records


def imports(source: str) -> Iterator[str]:
    """Modules of every import, those inside functions included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def allowed(room: str, module: str) -> bool:
    spared = any(f"{module}.".startswith(f"{name}.") for name in EXCEPT.get(room, ()))
    return spared or module.partition(".")[0] not in ABOVE[room]


@pytest.mark.parametrize("room", ABOVE)
def test_a_room_imports_no_room_above_it(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    wrong = [
        (str(f.relative_to(ROOT)), name) for f in files for name in imports(f.read_text()) if not allowed(room, name)
    ]
    assert wrong == []


def test_the_check_sees_imports_inside_functions() -> None:
    assert list(imports("def f():\n    from evidence.dsse import sign\n    import os.path\n")) == [
        "evidence.dsse",
        "os.path",
    ]
    assert not allowed("cuvil", "evidence.dsse") and not allowed("cuvil", "evidence.sessions_of_others")
    assert allowed("cuvil", "evidence.sessions.binding") and not allowed("evidence", "cuvil.trace")
