"""SPDX licences of Python distributions, from their metadata; what the metadata leaves open is looked up, not guessed.

``evidence/data/licences.json`` maps classifiers that name exactly one licence, and names distributions whose licence
text was read. A distribution in neither has no licence in the bill of materials, and a property says so.
"""

from __future__ import annotations

import importlib.metadata
import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

from evidence.sbom.parts import Licence

PROPERTY = "cuvil:licence"


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    found = json.loads((files("evidence") / "data" / "licences.json").read_bytes())
    assert isinstance(found, dict)
    return found


def is_spdx(text: str) -> bool:
    """Whether ``text`` is an SPDX identifier or expression of known identifiers."""
    from cyclonedx.spdx import is_expression, is_supported_id

    return bool(text) and len(text) < 200 and (is_supported_id(text) or is_expression(text))


def licence_of(name: str, properties: dict[str, str]) -> Licence | None:
    """Licence and texts of the installed distribution ``name``; where it comes from is added to ``properties``."""
    metadata = importlib.metadata.metadata(name)
    spdx = _field(name, "License-Expression")
    source = "License-Expression of its metadata"
    if spdx is None and is_spdx(_field(name, "License") or ""):
        spdx, source = metadata["License"], "License field of its metadata"
    if spdx is None:
        spdx, source = _table()["distributions"].get(name), "reviewed table"
    if spdx is None:
        classifiers = [c for c in metadata.get_all("Classifier") or [] if c.startswith("License ::")]
        known = {_table()["classifiers"].get(c) for c in classifiers}
        spdx, source = (known.pop() if len(known) == 1 else None), "classifier of its metadata"
    if spdx is None:
        properties[PROPERTY] = "not stated as an SPDX expression"
        return None
    properties[PROPERTY] = source
    return Licence(spdx, _texts(name))


def _field(name: str, key: str) -> str | None:
    found = importlib.metadata.metadata(name).get_all(key)
    return str(found[0]) if found else None


def _texts(name: str) -> tuple[bytes, ...]:
    """The licence files in the distribution's metadata folder, sorted by path."""
    listed = sorted(importlib.metadata.files(name) or [], key=str)
    found = []
    for path in listed:
        upper = path.name.upper()
        if ".dist-info" in str(path) and upper.startswith(("LICEN", "COPYING", "NOTICE")):
            try:
                found.append(path.read_binary())
            except OSError:
                continue
    return tuple(dict.fromkeys(found))
