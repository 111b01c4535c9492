"""The graph of assets as a committed snapshot, code versions, and loading the definitions as Dagster does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import cuvil_assets
from cuvil_assets import chain
from cuvil_assets.assets import ASSETS, BY_PEOPLE, LATER
from cuvil_assets.definitions import JOB, LATER_JOB, defs

SNAPSHOT = Path(__file__).with_name("asset_graph.json")
ROOT = Path(cuvil_assets.__file__).parents[1]


def graph() -> list[dict[str, Any]]:
    """Every asset as plain data; code versions are left out, since every change of the source changes them."""
    found = []
    checks = {next(iter(a.keys)): list(a.check_specs) for a in (*ASSETS, *LATER)}
    for spec in (*(next(iter(a.specs)) for a in (*ASSETS, *LATER)), *BY_PEOPLE):
        partitions = spec.partitions_def
        assert isinstance(partitions, dg.MultiPartitionsDefinition)
        found.append(
            {
                "key": spec.key.to_user_string(),
                "deps": sorted(dep.asset_key.to_user_string() for dep in spec.deps),
                "group": spec.group_name,
                "kinds": sorted(spec.kinds),
                "description": spec.description,
                "partitions": [dimension.name for dimension in partitions.partitions_defs],
                "checks": [
                    {"name": check.name, "blocking": check.blocking}
                    for check in sorted(checks.get(spec.key, []), key=lambda check: check.name)
                ],
            }
        )
    return found


def test_graph_is_the_committed_one(request: pytest.FixtureRequest) -> None:
    text = json.dumps(graph(), indent=1) + "\n"
    if request.config.getoption("--regenerate"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text(), "the graph changed: run pytest tests/assets --regenerate and review the diff"


def test_every_stage_is_an_asset_with_checks_and_a_code_version() -> None:
    assert [next(iter(asset.keys)).to_user_string() for asset in ASSETS] == list(chain.NAMES)
    assert [next(iter(asset.keys)).to_user_string() for asset in LATER] == list(chain.LATER)
    for asset in (*ASSETS, *LATER):
        name = next(iter(asset.keys)).to_user_string()
        assert list(asset.check_specs), name
        assert next(iter(asset.specs)).code_version == chain.code_version(name)


def test_definitions_load_as_a_code_location() -> None:
    dg.Definitions.validate_loadable(defs)
    assert set(defs.resolve_job_def(JOB).asset_layer.selected_asset_keys) == {dg.AssetKey(n) for n in chain.NAMES}
    later = defs.resolve_job_def(LATER_JOB).asset_layer.selected_asset_keys
    assert set(later) == {dg.AssetKey(n) for n in chain.LATER}


def test_ancestors_are_transitive_and_ordered() -> None:
    assert chain.ancestors("ir_l2") == ("source_model", "ir_l0", "frozen_graph", "ir_l1")
    assert chain.ancestors("build_proof") == chain.NAMES[:-1]


def code_versions(root: Path) -> dict[str, str]:
    program = (
        "import json; from cuvil_assets import chain as c; print(json.dumps({n: c.code_version(n) for n in c.NAMES}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, check=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_code_version_follows_the_source_of_the_rooms(tmp_path: Path) -> None:
    """In copies of the packages: a changed C header changes every stage, a changed module of evidence only its own."""
    for room in ("compiler_kernels", "evidence", "cuvil_assets"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__", "data"))
    before = code_versions(tmp_path)
    assert code_versions(tmp_path) == before
    with (tmp_path / "evidence" / "chain.py").open("a") as stream:
        stream.write("# changed\n")
    after = code_versions(tmp_path)
    assert {name for name in before if before[name] != after[name]} == {"budget", "equivalence", "build_proof"}
    with (tmp_path / "compiler_kernels" / "runtime" / "ca1_sum.h").open("a") as stream:
        stream.write("/* changed */\n")
    last = code_versions(tmp_path)
    assert {name for name in before if after[name] != last[name]} == set(chain.NAMES) - {"build_proof"}


def test_dagster_yaml_is_the_packaged_one() -> None:
    assert (ROOT / "dagster.yaml").read_bytes() == (ROOT / "cuvil_assets" / "dagster.yaml").read_bytes()
