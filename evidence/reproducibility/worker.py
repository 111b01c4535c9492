"""One rebuild, in a process of its own: the stages of the compile on the recorded inputs, no action cache.

``python -m evidence.reproducibility.worker FOLDER`` reads ``FOLDER/task.json`` and the sources beside it, and writes
``FOLDER/result.json``: what the process saw of its world, and per stage the digests of everything made. An artefact
whose digest is not the expected one is kept as ``FOLDER/kept/<SHA3-512>``.
"""

from __future__ import annotations

import importlib
import json
import locale
import os
import random
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def shuffle_directories(seed: int) -> None:
    """From now on directories list their files in an order drawn from ``seed`` and the directory's own content.

    Every listing in Python goes through these two functions; a file system that shuffles needs FUSE.
    """
    listdir, scandir = os.listdir, os.scandir

    def shuffled_listdir(path: Any = ".") -> Any:
        names = sorted(listdir(path))
        random.Random(seed + len(names)).shuffle(names)
        return names

    @contextmanager
    def shuffled_scandir(path: Any = ".") -> Iterator[Iterator[Any]]:
        with scandir(path) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        random.Random(seed + len(entries)).shuffle(entries)
        yield iter(entries)

    class Scandir:
        """What ``os.scandir`` returns: an iterator that is also a context."""

        def __init__(self, path: Any = ".") -> None:
            with shuffled_scandir(path) as entries:
                self.entries = entries

        def __iter__(self) -> Iterator[Any]:
            return self.entries

        def __next__(self) -> Any:
            return next(self.entries)

        def __enter__(self) -> Scandir:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def close(self) -> None:
            self.entries = iter(())

    os.listdir = shuffled_listdir
    os.scandir = Scandir  # type: ignore[assignment]


def observed() -> dict[str, Any]:
    """What this process sees of the world it was put into."""
    mask = os.umask(0o022)
    os.umask(mask)
    try:
        locale.setlocale(locale.LC_ALL, "")
        chosen = os.environ.get("LC_ALL", "")
    except locale.Error:
        chosen = ""
    numpy: Any = importlib.import_module("numpy._core._multiarray_umath")
    return {
        "directory": str(Path.cwd()),
        "user": os.environ.get("USER", ""),
        "uid": os.getuid(),
        "umask": f"{mask:04o}",
        "utc_offset": -time.timezone,
        "locale": chosen,
        "clock": time.time(),
        "cpus": len(os.sched_getaffinity(0)),
        "file_order": os.listdir.__name__ == "shuffled_listdir",
        "hostname": socket.gethostname(),
        "hash_seed": os.environ.get("PYTHONHASHSEED", ""),
        "vectors": any(numpy.__cpu_features__.get(name) for name in numpy.__cpu_dispatch__),
        "environment": len(os.environ.get("CUVIL_REBUILD_PADDING", "")),
        "compiler_cache": Path(os.environ["CUVIL_ZIG_CACHE"]).is_dir(),
    }


def _cpu_seconds() -> float:
    """Of this process and the children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def rebuild(folder: Path, task: dict[str, Any]) -> dict[str, Any]:
    """Run the stages; the result as JSON. A stage that refuses ends it, with its sentence under ``error``."""
    from compiler_kernels.errors import CuvilError
    from compiler_kernels.stage import Artifact
    from compiler_kernels.stages.order import COMPILE_STAGES
    from evidence.budget import BUDGET
    from evidence.equivalence import EQUIVALENCE
    from evidence.records import record_of

    known: dict[str, Artifact] = {
        role: Artifact(role, (folder / name).read_bytes()) for role, name in task["sources"].items()
    }
    expected = {digest for made in task["expected"].values() for digest in made.values()}
    (folder / "kept").mkdir()
    stages: list[dict[str, Any]] = []
    result: dict[str, Any] = {"stages": stages, "error": None}
    every = {stage.name: stage for stage in (*COMPILE_STAGES, BUDGET, EQUIVALENCE)}
    for stage in (every[name] for name in task["stages"]):
        began = (time.perf_counter(), _cpu_seconds())
        try:
            made = stage.execute(known, task["config"])
        except CuvilError as error:
            result["error"] = {"stage": stage.name, "message": str(error)}
            break
        record = record_of(made)
        stages.append(
            {
                "stage": stage.name,
                "code_version": made.code_version,
                "artifacts": {item.name: item.sha3_512 for item in made.artifacts},
                "facts": record.to_json()["facts"],
                "wall_seconds": round(time.perf_counter() - began[0], 3),
                "cpu_seconds": round(_cpu_seconds() - began[1], 3),
            }
        )
        for item in made.artifacts:
            known[f"{stage.name}/{item.name}"] = item
    changed = {path: item for path, item in known.items() if "/" in path and item.sha3_512 not in expected}
    if any(path.startswith("engine/") for path in changed):
        # The sources of a differing engine help to name the place, wherever the recorded ones are.
        changed |= {path: item for path, item in known.items() if path.startswith("generated_source/")}
    for item in changed.values():
        (folder / "kept" / item.sha3_512).write_bytes(item.data)
    return result


def main(folder: Path) -> int:
    """Exit code 0 when ``result.json`` was written, whatever it says."""
    task = json.loads((folder / "task.json").read_bytes())
    shuffle_directories(task["file_order"])
    seen = observed()
    result = {"observed": seen, **rebuild(folder, task)}
    result["observed"]["clock_end"] = time.time()
    temporary = folder / "result.json.tmp"
    temporary.write_text(json.dumps(result))
    temporary.rename(folder / "result.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
