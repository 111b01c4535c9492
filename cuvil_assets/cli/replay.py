"""``cuvil replay``: archived inferences once more, bit for bit."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.stage import Json
from compiler_kernels.targets.registry import runner, why_not_here
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.cli.run import target_of
from cuvil_assets.cli.session import record_at, split_record
from cuvil_assets.engine_words import engine_words
from cuvil_assets.home import current_home
from evidence.sessions import engine_places
from evidence.sessions.engine_process import Program
from evidence.sessions.record import INFERENCE, Record
from evidence.sessions.replay import Replayed, Source, check_engine, replay_record
from evidence.verifier.errors import VerificationFailed, VerifierError
from evidence.verifier.files import read_small

_NPY_LIMIT = 1 << 32
_SHOWN = 20


def run(
    text: str, engine: Path | None, inputs: list[str], isa: str, threads: int | None, jobs: int, as_json: bool
) -> int:
    """Replay, print, return the exit code: 1 at a difference. ``VerificationFailed`` where one record was asked for."""
    archive, number = split_record(text)
    options = [*(["--isa", isa] if isa else []), *(["--threads", str(threads)] if threads is not None else [])]
    given = _given(inputs)
    records = archive.records()
    source = Source.of(current_home().root, archive, records)

    opened = ExitStack()

    @cache
    def program(path: Path) -> tuple[Program, dict[str, Any]]:
        described = program_of(path).describe()
        return Program(path, opened.enter_context(engine_words(path, str(described["target"])))), described

    def replayed(record: Record) -> Replayed:
        path = engine or engine_places.find(current_home().root, _config_digest(record))
        found, described = program(path)
        check_engine(record, described, path)
        subject, files = source.files(record, given)
        return replay_record(record, files, subject, found, options)

    with opened:
        if number is not None:
            record = record_at(archive, number)
            if record.kind != INFERENCE:
                raise UsageError(f"{text}: record {number} is of kind {record.kind}; only inferences can be replayed")
            return _one(replayed(record), as_json)
        if given:
            raise UsageError(f"{text}: --input belongs to one record; name it, as in {text}:0")
        return _all(archive.folder, [item for item in records if item.kind == INFERENCE], replayed, jobs, as_json)


def program_of(engine: Path) -> Program:
    """The engine with the emulator it needs here; ``UnsupportedError`` when there is none."""
    target = target_of(engine)
    prefix = runner(target)
    if prefix is None:
        raise UnsupportedError(f"{engine}: this machine cannot run {target.triple} engines; {why_not_here(target)}")
    return Program(engine, tuple(prefix))


def _config_digest(record: Record) -> str:
    engine = record.fields["engine"]
    assert isinstance(engine, dict)
    return str(engine["config_digest"])


def _one(outcome: Replayed, as_json: bool) -> int:
    if as_json:
        print_json(outcome.to_json())
        return 1 if outcome.difference else 0
    where = f"{outcome.engine['target']}, {outcome.run['isa']}, threads {outcome.run['threads']}"
    where += f", {outcome.run['device']}" if "device" in outcome.run else ""
    if outcome.difference:
        raise VerificationFailed(
            "replay", f"record {outcome.index} computes differently ({where}): {outcome.difference}"
        )
    print(f"record {outcome.index}: the same bits ({where}): {', '.join(outcome.compared)}")
    return 0


def _all(folder: Path, records: list[Record], replayed: object, jobs: int, as_json: bool) -> int:
    assert callable(replayed)
    equal, different, refused = 0, [], []
    for record, outcome in _progress(records, replayed, jobs, as_json):
        if isinstance(outcome, Replayed) and not outcome.difference:
            equal += 1
        elif isinstance(outcome, Replayed):
            different.append(outcome)
        else:
            refused.append((record.index, outcome))
    if as_json:
        rows: list[Json] = [{"record": index, **error.details()} for index, error in refused]
        print_json(
            {
                "inferences": len(records),
                "equal": equal,
                "different": [item.to_json() for item in different],
                "not_replayed": rows,
            }
        )
    else:
        for item in different:
            print(f"record {item.index}: {item.difference}")
        for index, error in refused[:_SHOWN]:
            print(f"record {index}: not replayed [{_name(error)}]: {error}")
        if len(refused) > _SHOWN:
            print(f"and {len(refused) - _SHOWN} more that were not replayed; --json has them all")
        print(
            f"{folder}: {len(records)} inferences, {equal} with the same bits, {len(different)} different, "
            f"{len(refused)} not replayed"
        )
    return 1 if different or any(_name(error) != "session-erased" for _, error in refused) else 0


def _name(error: VerifierError) -> str:
    return getattr(error, "check", "usage")


def _progress(
    records: list[Record], replayed: object, jobs: int, as_json: bool
) -> Iterator[tuple[Record, Replayed | VerifierError]]:
    """Outcomes in order, with a bar on a terminal and a line now and then elsewhere."""
    assert callable(replayed)

    def attempt(record: Record) -> Replayed | VerifierError:
        try:
            outcome = replayed(record)
            assert isinstance(outcome, Replayed)
            return outcome
        except VerifierError as error:
            return error

    began, terminal = time.perf_counter(), sys.stderr.isatty()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for done, (record, outcome) in enumerate(zip(records, pool.map(attempt, records), strict=True), 1):
                if not as_json and (terminal or done % 250 == 0):
                    text = f"{done}/{len(records)} replayed, {time.perf_counter() - began:.0f} s"
                    filled = 40 * done // len(records)
                    line = f"\r\x1b[K  {'#' * filled}{'.' * (40 - filled)} {text}" if terminal else f"  {text}\n"
                    print(line, end="", file=sys.stderr, flush=True)
                yield record, outcome
        finally:
            pool.shutdown(cancel_futures=True)
            if terminal and not as_json:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _given(texts: list[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not path:
            raise UsageError(f"--input {text!r} is not of the form NAME=FILE.npy")
        if name in found:
            raise UsageError(f"--input gives {name!r} twice; give it once")
        found[name] = read_small(Path(path), "input", "give an existing .npy file", _NPY_LIMIT)
    return found
