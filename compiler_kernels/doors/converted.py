"""What a door returns: the ONNX model, the user's own file, and how one became the other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError
from compiler_kernels.stage import Json, sha3_512_hex

Sizes = tuple[int | str, ...]
"""A shape with numbers, or names of symbolic dimensions where the door knows them."""


@dataclass(frozen=True)
class Converted:
    """An ONNX model made from something else.

    ``source`` is the file as the user gave it (for a folder: an archive of it), ``facts`` the door, the names, the
    digest of the source and the versions of every program that took part.
    """

    model: bytes
    source_name: str
    source: bytes
    facts: Mapping[str, Json]


def stated(
    model: bytes, source_name: str, source: bytes, door: str, entry: str | None, facts: Mapping[str, Json]
) -> Converted:
    """A ``Converted`` whose facts name the source and the model by digest."""
    head: dict[str, Json] = {"door": door, "source": source_name, "source_sha3_512": sha3_512_hex(source)}
    if entry is not None:
        head["entry"] = entry
    return Converted(model, source_name, source, {**head, "model_sha3_512": sha3_512_hex(model), **facts})


def write_answer(folder: Path, model: bytes, facts: Mapping[str, Json]) -> None:
    """The child's half of the protocol: model and facts as files in ``folder``."""
    (folder / "model.onnx").write_bytes(model)
    (folder / "facts.json").write_text(json.dumps(dict(facts), sort_keys=True))


def write_refusal(folder: Path, error: CuvilError) -> None:
    """The child's half of the protocol when it cannot: the sentence, and which kind of error it is."""
    kind = "unsupported" if isinstance(error, UnsupportedError) else "usage"
    (folder / "refusal.json").write_text(json.dumps({"kind": kind, "message": str(error)}))


def read_refusal(folder: Path) -> CuvilError | None:
    path = folder / "refusal.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    return (UnsupportedError if found["kind"] == "unsupported" else UsageError)(found["message"])
