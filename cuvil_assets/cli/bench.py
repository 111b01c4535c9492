"""``cuvil bench``: engines and peers timed in one interleaved run (docs/benchmarks.md)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import as_json
from cuvil_assets.cli.outcome import print_json
from evidence.timing.bench import bench, failed
from evidence.timing.network import networks
from evidence.timing.runners import parse_peers
from evidence.timing.table import table


def run(
    models: list[Path],
    peers: str | None,
    threads: int,
    runs: int,
    shapes: Mapping[str, tuple[int, ...]],
    picture: Path | None,
    json: bool,
) -> int:
    """Time, print, return the exit code: 1 when the run is no measurement. Raises ``CuvilError``."""
    if picture is not None:
        from evidence.timing.picture import need_matplotlib

        need_matplotlib()
        if picture.is_dir() or not picture.parent.is_dir():
            raise UsageError(f"--picture {picture}: cannot be written; name a file in a folder that exists")

    def show(line: str) -> None:
        if not json:
            print(line, file=sys.stderr, flush=True)

    document = bench(networks(models, shapes), parse_peers(peers), threads, runs, show=show)
    if picture is not None:
        from evidence.timing.picture import draw

        draw(document, picture)
    if json:
        found = as_json(document)
        assert isinstance(found, dict)
        print_json(found)
    else:
        print("\n".join(table(document)))
    return 1 if failed(document) else 0
