"""The verifier stands alone: standard library, asn1crypto and libcrypto, nothing of Cuvil's other rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from evidence.verifier.canonical import MalformedError, canonical_bytes

FOLDER = Path(__file__).resolve().parents[2] / "evidence" / "verifier"
MODULES = sorted(FOLDER.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_imports_only_what_every_auditor_has(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            top = name.partition(".")[0]
            ours = name == "evidence.verifier" or name.startswith("evidence.verifier.")
            assert ours or top == "asn1crypto" or top in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_a_verification_loads_neither_compiler_nor_dagster() -> None:
    code = (
        "import sys, evidence.verifier.verify\n"
        "bad = {'compiler_kernels', 'dagster', 'numpy', 'onnx', 'cryptography', 'rfc8785'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(bad)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER.parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(JSON)
def test_our_canonical_json_is_that_of_rfc_8785(value: object) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1.5, 2**53, "\ud800", {"a": [float("nan")]}])
def test_what_evidence_does_not_carry_is_refused(value: object) -> None:
    with pytest.raises(MalformedError):
        canonical_bytes(value)  # type: ignore[arg-type]
