"""``cuvil keygen``: the cache key of several files, and the canonical forms it is made from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from compiler_kernels.stage import Json
from cuvil_assets.cli.outcome import print_json
from evidence.keygen.key import CacheKey, Entry, cache_key

_MANY = 200
"""From this many files on, progress is shown on a terminal."""


def run(paths: Sequence[Path], raw: Sequence[Path], explain: bool, as_json: bool) -> None:
    """Print the key, with ``explain`` the canonical forms too. Raises ``UsageError``."""
    shows = sys.stderr.isatty() and not as_json
    key = cache_key(paths, raw, _progress if shows else lambda done, total: None)
    if as_json:
        print_json(_document(key, explain))
        return
    if explain:
        for entry in key.entries:
            print(f"== {entry.name}  kind {entry.kind}  mode {entry.mode}  canonical sha256 {entry.form_sha256}")
            print(_form(entry))
    print(key.key)


def _document(key: CacheKey, explain: bool) -> dict[str, Json]:
    if not explain:
        return key.to_json()
    files: list[Json] = [{**entry.to_json(), "canonical": _form(entry)} for entry in key.entries]
    return {**key.to_json(), "files": files}


def _form(entry: Entry) -> str:
    if entry.canonical is None:
        return f"(the file's {entry.size:,} bytes, sha256 {entry.sha256})"
    return entry.canonical.decode("utf-8", "backslashreplace").removesuffix("\n")


def _progress(done: int, total: int) -> None:
    if total >= _MANY and (done % 50 == 0 or done == total):
        print(f"\r  {done} of {total} files", end="\n" if done == total else "", file=sys.stderr, flush=True)
