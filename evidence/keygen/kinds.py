"""Which kind a file has, by its name, and the canonical form of each kind."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from evidence.keygen import data_files, dockerfile, go_module, go_source, python_source, requirements, yaml_file

RAW: Final = "raw"
ONNX: Final = "onnx"

_PATTERNS: Final = (
    ("dockerfile", ("Dockerfile", "Dockerfile.*", "*.dockerfile", "Containerfile", "Containerfile.*")),
    ("python", ("*.py", "*.pyi")),
    ("go", ("*.go",)),
    ("go-module", ("go.mod", "go.work")),
    ("go-sums", ("go.sum", "go.work.sum")),
    ("lock", ("poetry.lock", "uv.lock", "pdm.lock", "Cargo.lock", "pylock.toml", "pylock.*.toml")),
    ("toml", ("*.toml",)),
    ("json", ("*.json", "Pipfile.lock")),
    ("yaml", ("*.yaml", "*.yml")),
    ("requirements", ("requirements.txt", "requirements*.txt", "*requirements.txt", "constraints*.txt")),
    (ONNX, ("*.onnx",)),
)
_FORMS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "dockerfile": dockerfile.canonical,
    "python": python_source.canonical,
    "go": go_source.canonical,
    "go-module": go_module.canonical_module,
    "go-sums": go_module.canonical_sums,
    "lock": data_files.canonical_lock,
    "toml": data_files.canonical_toml,
    "json": data_files.canonical_json,
    "yaml": yaml_file.canonical,
    "requirements": requirements.canonical,
}
KINDS: Final = (*_FORMS, ONNX, RAW)


def kind_of(name: str) -> str:
    """The kind of a file with this base name; ``raw`` for names that no pattern takes. The first pattern counts."""
    if name.endswith(".dockerignore"):
        return RAW
    return next((kind for kind, patterns in _PATTERNS if any(fnmatchcase(name, p) for p in patterns)), RAW)


def canonical_form(kind: str, data: bytes, folder: Path) -> bytes:
    """Canonical form of ``data``. ``folder`` is where an ONNX model's external weights lie. Raises ``Unreadable``."""
    if kind == ONNX:
        from evidence.keygen import onnx_file  # half a second that other kinds need not pay

        return onnx_file.canonical(data, folder)
    return data if kind == RAW else _FORMS[kind](data)
