"""``cuvil coverage``: vectors for the clinical logic of an engine built on this machine, and what they cover."""

from __future__ import annotations

from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json, as_json
from cuvil_assets.cli.bar import Bar
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.cli.sbom import statement_of
from cuvil_assets.delivery import deliver
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from evidence.coverage.make import make_coverage
from evidence.coverage.report import CRITERIA
from evidence.delivered import Delivered

BELOW_LIMIT = 3
DIFFERS = 1


def run(engine: Path, output_dir: Path | None, json: bool) -> int:
    """Write report, page and vectors beside the engine or into ``output_dir``; the exit code.

    3 when the report's verdict is failed because of a limit of the policy, 1 when records were lost or clang counts
    otherwise. Raises as ``make_coverage`` does, and ``UsageError`` for files.
    """
    if engine.is_dir():
        raise UsageError(f"{engine}: is a directory, not an engine; give the engine file")
    statement = statement_of(engine)
    stem = Delivered(engine).stem
    folder = output_dir or engine.parent
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--output-dir {folder}: is a file; give a folder")
    store = ContentStore(current_home().store)
    made = make_coverage(statement, store.find, engine.read_bytes(), stem, _Progress())
    paths = {
        "report": folder / f"{stem}.coverage.json",
        "page": folder / f"{stem}.coverage.html",
        "vectors": folder / f"{stem}.coverage.vectors.gz",
    }
    contents = {"report": made.data, "page": made.page, "vectors": made.vectors}
    deliver({paths[name]: (data, 0o644) for name, data in contents.items()})
    report = made.report
    if json:
        keys = ("verdict", "sentence", "problems", "criterion", "limits", "totals", "ring", "recount")
        document: dict[str, Json] = {name: str(path) for name, path in paths.items()}
        document |= {key: as_json(report[key]) for key in keys}
        document["vector_count"] = len(report["vectors"])
        print_json(document)
    else:
        for name in CRITERIA:
            total = report["totals"][name]
            print(
                f"{name:18} {total['percent']:g} % ({total['covered']} of {total['total']}, "
                f"{total['infeasible']} infeasible, {total['open']} open)"
            )
        print(f"vectors            {len(report['vectors'])} in {paths['vectors']}")
        print(f"recount            {report['recount']['tool'] or 'not recounted: ' + report['recount']['reason']}")
        print(f"report             {paths['report']}")
        print(f"{report['verdict']}: {report['sentence']}")
    if report["verdict"] == "passed":
        return 0
    below = any(report["totals"][name]["percent"] < limit for name, limit in report["limits"].items())
    return BELOW_LIMIT if below else DIFFERS


class _Progress:
    """A bar over the goals of the search."""

    def __init__(self) -> None:
        self.bar: Bar | None = None

    def __call__(self, done: int, total: int) -> None:
        if self.bar is None:
            self.bar = Bar(total, "goals", every=max(1, total // 4))
        if done < total:
            self.bar.step()
        else:
            self.bar.close()
