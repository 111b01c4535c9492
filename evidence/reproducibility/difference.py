"""What a rebuild made otherwise: the first artefact in build order, the places in it, traces of the world there."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.stage import Json
from evidence.reproducibility.inputs import Recorded
from evidence.reproducibility.launch import Rebuilt
from evidence.reproducibility.places import SymbolMap, byte_places, engine_places, symbol_map, text_places

DIFFOSCOPE_SECONDS = 120
DIFFOSCOPE_BYTES = 200_000


@dataclass(frozen=True)
class Difference:
    """The first difference of one rebuild and the record.

    ``stage`` and ``artifact`` name it; ``artifact`` is empty where the stage refused (``message`` is its sentence) and
    ``facts`` where only the record differs. ``also``: further artefacts that differ, as ``stage/artifact``. ``places``:
    at most ``places.MOST`` of ``count``. ``traces``: kinds of the variation whose value stands in the artefact.
    ``diffoscope``: its output, or empty.
    """

    rebuild: int
    stage: str
    artifact: str
    message: str
    expected: str = ""
    found: str = ""
    also: tuple[str, ...] = ()
    places: tuple[Json, ...] = ()
    count: int = 0
    traces: tuple[str, ...] = ()
    diffoscope: str = ""

    def to_json(self) -> dict[str, Json]:
        return {
            "rebuild": self.rebuild,
            "stage": self.stage,
            "artifact": self.artifact,
            "message": self.message,
            "expected_sha3_512": self.expected,
            "found_sha3_512": self.found,
            "also": list(self.also),
            "places": list(self.places),
            "places_count": self.count,
            "traces": list(self.traces),
            "diffoscope": self.diffoscope,
        }

    def sentence(self) -> str:
        """One line for people."""
        where = f"stage {self.stage}, {self.artifact}" if self.artifact else f"stage {self.stage}"
        text = f"rebuild {self.rebuild}: {where}: {self.message}"
        if self.traces:
            text += f"; it shows the {', '.join(self.traces)} of the rebuild"
        return text


class Comparison:
    """Compares rebuilds with ``recorded``; ``find`` gives the recorded bytes of a digest where the store has them.

    ``diffoscope``: whether to run it, where installed, on the first difference found.
    """

    def __init__(self, recorded: Recorded, find: Callable[[str], bytes | None], *, diffoscope: bool = True) -> None:
        self.recorded = recorded
        self.find = find
        self._diffoscope = diffoscope and shutil.which("diffoscope") is not None
        self._symbols: list[SymbolMap | None] = []

    def first(self, rebuilt: Rebuilt) -> Difference | None:
        """The first difference, or ``None`` when every artefact and fact is as recorded."""
        number = rebuilt.variation.number
        changed = []
        for stage, made in rebuilt.stages.items():
            old = self.recorded.expected[stage]
            new: Mapping[str, str] = made["artifacts"]
            changed += [(stage, n, old.get(n, ""), new.get(n, "")) for n in {**old, **new} if old.get(n) != new.get(n)]
        if changed:
            return self._described(rebuilt, changed)
        if rebuilt.error is not None:
            return Difference(number, rebuilt.error["stage"], "", f"it ended: {rebuilt.error['message']}")
        for stage, made in rebuilt.stages.items():
            if stage not in self.recorded.other_code and made["facts"] != self.recorded.facts[stage]:
                names = sorted(
                    key
                    for key in {**made["facts"], **self.recorded.facts[stage]}
                    if made["facts"].get(key) != self.recorded.facts[stage].get(key)
                )
                return Difference(number, stage, "facts", f"the recorded facts differ: {', '.join(names)}")
        return None

    def _described(self, rebuilt: Rebuilt, changed: list[tuple[str, str, str, str]]) -> Difference:
        stage, name, old, new = changed[0]
        also = tuple(f"{other}/{artifact}" for other, artifact, *_ in changed[1:])
        expected, found = self.find(old) if old else None, rebuilt.kept.get(new)
        message, count = "it was not made", 0
        places: list[Json] = []
        if not old:
            message = "the record has no such file"
        elif new and (expected is None or found is None):
            message = "the digest differs; the recorded bytes are not on this machine, so no place can be named"
        elif expected is not None and found is not None:
            message, places, count = self._places(rebuilt, name, expected, found)
        return Difference(
            rebuilt.variation.number,
            stage,
            name,
            message,
            old,
            new,
            also,
            tuple(places),
            count,
            traces(found, expected or b"", rebuilt) if found is not None else (),
            self._run_diffoscope(name, expected, found) if expected is not None and found is not None else "",
        )

    def _places(self, rebuilt: Rebuilt, name: str, expected: bytes, found: bytes) -> tuple[str, list[Json], int]:
        if expected[:4] == b"\x7fELF" and found[:4] == b"\x7fELF":
            places, count = engine_places(expected, found, self._symbol_map(rebuilt))
            first = places[0]
            assert isinstance(first, dict)
            where = f"{first['section']} at offset 0x{int(str(first['offset'])):x}"
            where += f", symbol {first['symbol']}" if first.get("symbol") else ""
            where += f", source {first['source']}" if first.get("source") else ""
            return f"bytes differ in {_counted(count, 'place')}, the first in {where}", places, count
        try:
            places, count = text_places(expected.decode("utf-8"), found.decode("utf-8"))
        except UnicodeDecodeError:
            places, count = byte_places(expected, found)
            first = places[0]
            assert isinstance(first, dict)
            return f"bytes differ in {_counted(count, 'place')}, the first at offset {first['offset']}", places, count
        if not places:
            return "the ends of lines differ", *byte_places(expected, found)
        first = places[0]
        assert isinstance(first, dict)
        inside = f" in {first['function']}" if first.get("function") else ""
        return f"text differs in {_counted(count, 'line')}, the first is line {first['line']}{inside}", places, count

    def _symbol_map(self, rebuilt: Rebuilt) -> SymbolMap | None:
        """Symbols of the recorded engine; linked once, from the recorded sources or from equal ones of a rebuild."""
        if not self._symbols:
            generated = {}
            for name, digest in self.recorded.expected["generated_source"].items():
                data = self.find(digest) or rebuilt.kept.get(digest)
                if data is not None:
                    generated[name] = data
            complete = set(generated) == set(self.recorded.expected["generated_source"])
            target = self.recorded.statement.target
            self._symbols.append(symbol_map(generated, target) if complete else None)
        return self._symbols[0]

    def _run_diffoscope(self, name: str, expected: bytes, found: bytes) -> str:
        if not self._diffoscope:
            return ""
        self._diffoscope = False
        with tempfile.TemporaryDirectory(prefix="cuvil-diffoscope-") as folder:
            for side, data in (("recorded", expected), ("rebuilt", found)):
                path = Path(folder) / side / name
                path.parent.mkdir(parents=True)
                path.write_bytes(data)
            command = ["diffoscope", "--text", "-", "--max-report-size", str(DIFFOSCOPE_BYTES)]
            try:
                done = subprocess.run(
                    [*command, f"recorded/{name}", f"rebuilt/{name}"],
                    cwd=folder,
                    capture_output=True,
                    timeout=DIFFOSCOPE_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired):
                return ""
        return done.stdout.decode("utf-8", "replace")[:DIFFOSCOPE_BYTES]


def traces(found: bytes, expected: bytes, rebuilt: Rebuilt) -> tuple[str, ...]:
    """Kinds of the variation whose value stands in ``found`` and not in ``expected``."""
    world, seen = rebuilt.variation, rebuilt.observed
    began, ended = float(seen["clock"]), float(seen["clock_end"])
    seconds = range(int(began), int(ended) + 2)
    texts = {
        "directory": [str(seen["directory"]), world.directory],
        "user": [world.user, str(seen["uid"])],
        "hostname": [str(seen["hostname"])],
        "timezone": [world.timezone],
        "locale": [f"LC_ALL={world.locale}"],
        "clock": [str(second) for second in seconds] + [time.strftime("%Y-%m-%d", time.gmtime(began))],
        "hash_seed": [str(world.hash_seed)],
        "environment": ["p" * min(world.environment, 64)],
    }
    # A value of one or two characters stands in every file.
    return tuple(
        kind
        for kind, values in texts.items()
        if any(len(v) > 3 and v.encode() in found and v.encode() not in expected for v in values)
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
