"""The latest report of a kind that a home keeps: ``$CUVIL_HOME/FOLDER/latest.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from cuvil_assets.files import write_atomic
from cuvil_assets.home import Home

NAME = "latest.json"


def keep_report(home: Home, folder: str, document: Mapping[str, Json]) -> Path:
    """Write ``document`` as the latest of ``folder``; ``UsageError`` when the home cannot be written."""
    path = home.ensure(home.root / folder) / NAME
    try:
        write_atomic(path, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}); free space or set CUVIL_HOME elsewhere"
        ) from None
    return path


def kept_report(home: Home, folder: str, form: str) -> dict[str, Json] | None:
    """The report kept last whose field ``format`` is ``form``, or ``None``; a damaged one counts as none."""
    try:
        document = json.loads((home.root / folder / NAME).read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("format") == form else None
