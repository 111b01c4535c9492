"""What a build leaves behind when it is killed, when the disk is full, and when another one runs beside it.

The program is the command line in a process of its own; what is tested is what the next one finds.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_models import ModelMaker

from cuvil_assets.home import Home
from cuvil_assets.surveil import surveil
from cuvil_assets.watch import Watch
from evidence.ca import utc_now

TARGET = "x86_64-linux-musl"
DELIVERED = ["inference-engine.bin", "inference-engine.equivalence.json", "inference-engine.proof.json"]


class Case:
    """Builds of one model and policy in one home, always to the same output folder."""

    def __init__(self, home: Path, model: Path, policy: Path, output: Path) -> None:
        self.home, self.output = home, output
        self.words = [sys.executable, "-m", "cuvil_assets.cli", "build", "--model", str(model), "--policy", str(policy)]
        self.words += [
            "--target",
            TARGET,
            "--output",
            str(output / DELIVERED[0]),
            "--equivalence-inputs",
            "1",
            "--json",
        ]

    def start(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.words, *more],
            env={**os.environ, "CUVIL_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def build(self, *more: str) -> tuple[int, dict[str, object]]:
        started = self.start(*more)
        out, err = started.communicate(timeout=300)
        assert out, err
        document = json.loads(out)
        assert isinstance(document, dict)
        return started.returncode, document

    def engine(self) -> str:
        return hashlib.sha3_512((self.output / DELIVERED[0]).read_bytes()).hexdigest()


@pytest.fixture
def case(home_maker: Callable[[], Path], tiny_model: ModelMaker, tiny_policy: Path, tmp_path: Path) -> Case:
    return Case(home_maker(), tiny_model(), tiny_policy, tmp_path / "out")


def complete_or_absent(output: Path) -> None:
    """Every file at its place is whole: between renames some may be missing, none may be half there."""
    if not output.exists():
        return
    for path in output.iterdir():
        if path.name in DELIVERED[1:]:
            json.loads(path.read_bytes())
        elif path.name == DELIVERED[0]:
            assert path.read_bytes()[:4] == b"\x7fELF" and path.stat().st_mode & 0o777 == 0o755


def store_is_sound(home: Path) -> None:
    """Every file that a reader would take for an artefact has the digest that is its name."""
    for path in (home / "store" / "cas").glob("[0-9a-f]*"):
        assert hashlib.sha3_512(path.read_bytes()).hexdigest() == path.name


def kill_at_random_points(case: Case, points: int) -> None:
    began = time.monotonic()
    code, first = case.build("--no-cache")
    assert code == 0
    seconds = time.monotonic() - began
    expected = case.engine()
    rng = random.Random(7)
    killed = 0
    for number in range(points):
        if number % 3 == 0:  # without anything made before, then with what the killed one left
            for folder in ("store", "builds", "requests", "dagster"):
                shutil.rmtree(case.home / folder, ignore_errors=True)
            shutil.rmtree(case.output, ignore_errors=True)
        running = case.start("--no-cache")
        time.sleep(rng.uniform(0.05, seconds))
        if running.poll() is None:
            killed += 1
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=60)
        complete_or_absent(case.output)
        store_is_sound(case.home)
        code, document = case.build()
        assert code == 0, (number, document)
        assert case.engine() == expected, number
        assert surveil(Home(case.home), Watch(), utc_now()).findings == (), number
        assert sorted(p.name for p in case.output.iterdir() if not p.name.startswith(".")) == DELIVERED
    assert killed > points // 2, "the builds ended before they were killed: nothing was tested"
    assert first["engine_sha3_512"] == expected


def test_the_build_after_a_killed_one_is_right(case: Case) -> None:
    kill_at_random_points(case, 3)


@pytest.mark.slow
def test_the_build_after_each_of_200_killed_ones_is_right(case: Case) -> None:
    kill_at_random_points(case, 200)


def test_two_builds_of_one_partition_at_once(case: Case) -> None:
    both = [case.start("--no-cache") for _ in range(2)]
    ended = [(one.communicate(timeout=300), one.returncode) for one in both]
    assert [code for _, code in ended] == [0, 0], ended
    digests = {json.loads(out)["engine_sha3_512"] for (out, _), _ in ended}
    assert digests == {case.engine()}
    assert surveil(Home(case.home), Watch(), utc_now()).findings == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a file system of so many kilobytes; skips where that is not allowed."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(kilobytes: int) -> Path:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("this account may not mount a small file system")
        return place

    yield mount
    subprocess.run(["umount", str(place)], capture_output=True, check=False)


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(
    case: Case, small_disk: Callable[[int], Path]
) -> None:
    """The home on disks from almost nothing to nearly enough, then on one that is large enough."""
    failures = 0
    for kilobytes in (100, 700):
        disk = small_disk(kilobytes)
        case.home = disk / "home"
        code, document = case.build()
        if code:
            failures += 1
            assert code == 2, document
            assert "No space left" in str(document["message"]) and "Traceback" not in str(document["message"])
            assert not case.output.exists() or not list(case.output.iterdir())
        subprocess.run(["umount", str(disk)], check=True, capture_output=True)
    assert failures >= 2, "the disks were large enough: nothing was tested"
    case.home = small_disk(200_000) / "home"
    code, document = case.build()
    assert code == 0, document
