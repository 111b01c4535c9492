"""Rebuilds in varied worlds: equal as they should be, and planted nondeterminism found and named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from rebuild_case import Delivered

from evidence.reproducibility.difference import Comparison, Difference
from evidence.reproducibility.inputs import COMPILE
from evidence.reproducibility.launch import CODE, ROOMS, rebuild
from evidence.reproducibility.plan import make_plan
from evidence.reproducibility.report import in_effect

WORLDS = make_plan(8, fresh_caches=0)
SOURCES_ONLY = COMPILE[: COMPILE.index("generated_source") + 1]


def first(delivered: Delivered, number: int, stages: tuple[str, ...] = COMPILE, code: Path = CODE) -> Difference | None:
    """The first difference of rebuild ``number`` of the plan."""
    comparison = Comparison(delivered.recorded, delivered.store.find, diffoscope=False)
    return comparison.first(rebuild(delivered.recorded, WORLDS[number - 1], stages, code))


def planted(folder: Path, statement: str) -> Path:
    """Cuvil's code with a generator that writes the value of an expression into the C program."""
    for room in ROOMS:
        shutil.copytree(CODE / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "compiler_kernels" / "targets" / "c" / "program.py"
    path.write_text(
        path.read_text()
        + "\n\n_plain = generate\n\n\n"
        + "def generate(*words, **named):\n"
        + "    import os, pathlib, socket, tempfile, time\n"
        + "    program = _plain(*words, **named)\n"
        + f'    program.files["engine.c"] += ("/* " + str({statement}) + " */\\n").encode()\n'
        + "    return program\n"
    )
    return folder


def test_a_varied_rebuild_gives_every_recorded_byte_and_saw_its_world(delivered: Delivered) -> None:
    rebuilt = rebuild(delivered.recorded, WORLDS[3])
    assert rebuilt.error is None
    assert Comparison(delivered.recorded, delivered.store.find).first(rebuilt) is None
    assert tuple(rebuilt.stages) == COMPILE
    certain = {"directory", "user", "umask", "timezone", "file_order", "hash_seed", "environment", "compiler_cache"}
    assert certain <= set(in_effect(rebuilt))


def test_what_was_not_in_effect_is_not_called_varied(delivered: Delivered) -> None:
    rebuilt = rebuild(delivered.recorded, WORLDS[0], COMPILE[:1])
    rebuilt.observed["hostname"] = "this-host"  # type: ignore[index]
    rebuilt.observed["clock"] = rebuilt.started  # type: ignore[index]
    assert not {"hostname", "clock"} & set(in_effect(rebuilt))


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("statement", "trace"),
    [
        ("os.getcwd()", "directory"),
        pytest.param("tempfile.gettempdir()", "directory", marks=SLOW),
        pytest.param("int(time.time())", "clock", marks=SLOW),
        pytest.param("os.environ['USER']", "user", marks=SLOW),
        pytest.param("os.environ['TZ']", "timezone", marks=SLOW),
        pytest.param("os.environ['CUVIL_REBUILD_PADDING']", "environment", marks=SLOW),
    ],
)
def test_a_source_that_quotes_the_world_is_found_and_named(
    delivered: Delivered, tmp_path: Path, statement: str, trace: str
) -> None:
    found = first(delivered, 2, SOURCES_ONLY, planted(tmp_path, statement))
    assert found is not None
    assert (found.stage, found.artifact) == ("generated_source", "engine.c")
    assert trace in found.traces
    line = found.places[0]
    assert isinstance(line, dict)
    assert str(line["found"]).startswith("/* ")
    assert line["expected"] == ""
    assert f"it shows the {trace}" in found.sentence()


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    ["hash('a')", "list({'a', 'b', 'c', 'd', 'e', 'f'})", "os.listdir(pathlib.Path(__file__).parent)"],
)
def test_orders_of_sets_and_directories_differ_between_rebuilds(
    delivered: Delivered, tmp_path: Path, statement: str
) -> None:
    code = planted(tmp_path, statement)
    digests = set()
    for number in (1, 2):
        found = first(delivered, number, SOURCES_ONLY, code)
        assert found is not None
        assert (found.stage, found.artifact) == ("generated_source", "engine.c")
        digests.add(found.found)
    assert len(digests) == 2


def test_a_compiler_that_changes_one_byte_is_found_and_named(delivered: Delivered, wrapper: int) -> None:
    found = first(delivered, 1)
    assert found is not None
    assert (found.stage, found.artifact, found.also) == ("engine", "inference-engine.bin", ("engine/build.json",))
    place = found.places[0]
    assert isinstance(place, dict)
    assert (place["offset"], place["length"], place["source"]) == (wrapper, 1, "weights.S")
    assert int(str(place["expected"]), 16) ^ 1 == int(str(place["found"]), 16)
    assert re.search(r"bytes differ in 1 place, the first in \.\w+ at offset 0x[0-9a-f]+", found.message)


def test_a_stage_that_refuses_is_a_difference(delivered: Delivered, tmp_path: Path) -> None:
    code = planted(tmp_path, "1")
    path = code / "compiler_kernels" / "stages" / "backend.py"
    text = path.read_text().replace("    passes = l1_passes(module)\n", '    raise CuvilError("planted")\n')
    path.write_text(text.replace("import json\n", "import json\nfrom compiler_kernels.errors import CuvilError\n", 1))
    found = first(delivered, 1, SOURCES_ONLY, code)
    assert found is not None
    assert (found.stage, found.artifact) == ("ir_l1", "")
    assert "planted" in found.message
