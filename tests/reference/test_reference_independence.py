"""The reference shares no code with what it checks."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "evidence" / "reference"


def test_imports_only_numpy_the_standard_library_and_itself() -> None:
    modules = sorted(PACKAGE.glob("*.py"))
    assert len(modules) > 5
    for path in modules:
        for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(statement, ast.Import):
                names = [alias.name for alias in statement.names]
            elif isinstance(statement, ast.ImportFrom):
                assert statement.level == 0, path
                names = [statement.module or ""]
            else:
                continue
            for name in names:
                top = name.split(".")[0]
                own = name == "evidence.reference" or name.startswith("evidence.reference.")
                assert own or top == "numpy" or top in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_loading_it_loads_no_other_room() -> None:
    code = (
        "import sys, evidence.reference.vectors; "
        "rooms = ('compiler_kernels', 'cuvil_assets', 'fhir_registry', 'onnx'); "
        "print(*[m for m in sys.modules if m.split('.')[0] in rooms or"
        " (m.startswith('evidence.') and not m.startswith('evidence.reference'))])"
    )
    root = PACKAGE.parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
