"""``cuvil trace inject``: the propagation of a trace through a pipeline's own Python, as a diff or in place."""

from __future__ import annotations

import sys
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.files import sync_folder, write_temporary
from evidence.tracing.inject import Plan, plan
from evidence.tracing.sites import Said

REFUSED = 4


def run(place: Path, write: bool, diff: bool, strict: bool, as_json: bool) -> int:
    """The exit code: 4 when a place was refused; then nothing is written."""
    if write and diff:
        raise UsageError("--write and --diff exclude each other; look at the diff first, then write")
    plans = plan(place, strict)
    refused = [item for item in plans if item.refused]
    changed = [item for item in plans if item.changed]
    if write and not refused:
        _write(changed)
    if as_json:
        _print_json(plans, write and not refused)
    else:
        _print(plans, write, refused)
    return REFUSED if refused else 0


def _write(plans: list[Plan]) -> None:
    """Every file complete and with its mode, or none."""
    made: list[tuple[Path, Path]] = []
    try:
        for item in plans:
            path = item.path.resolve()  # behind a link the file changes, not the link
            made.append((write_temporary(path, item.new, path.stat().st_mode & 0o7777), path))
        for temporary, path in made:
            temporary.replace(path)
            sync_folder(path.parent)
    except OSError as error:
        for temporary, _ in made:
            temporary.unlink(missing_ok=True)
        raise UsageError(f"{error.filename}: cannot be written ({error.strerror}); make it writable") from None


def _print(plans: list[Plan], write: bool, refused: list[Plan]) -> None:
    if not write:
        for item in plans:
            sys.stdout.write(item.diff())
    sys.stdout.flush()
    for item in plans:
        for note in item.notes:
            print(f"{item.path}, line {note.line}: {note.sentence}", file=sys.stderr)
    for item in refused:
        for said in item.refused:
            print(f"cuvil: {item.path}, line {said.line}: {said.sentence}", file=sys.stderr)
    reads, starts, done = (sum(getattr(item, name) for item in plans) for name in ("reads", "starts", "done"))
    if refused:
        print(
            "cuvil: nothing is written: change these lines, or leave them as they are by the comment "
            "`# cuvil: not traced` at their end",
            file=sys.stderr,
        )
        return
    verb = "bound now" if write else "to bind"
    print(f"{verb}: calls of pydicom {reads}, starts of engines {starts}; bound before: {done}", file=sys.stderr)


def _print_json(plans: list[Plan], written: bool) -> None:
    files: list[Json] = [
        {
            "file": str(item.path),
            "changed": item.changed,
            "calls": item.reads,
            "engines": item.starts,
            "bound_before": item.done,
            "refused": _said(item.refused),
            "notes": _said(item.notes),
        }
        for item in plans
    ]
    print_json({"files": files, "written": written, "diff": "".join(item.diff() for item in plans)})


def _said(items: tuple[Said, ...]) -> list[Json]:
    return [{"line": item.line, "sentence": item.sentence} for item in items]
