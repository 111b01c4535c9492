"""Content store and action cache: verified hits, damage treated as a miss and repaired."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Artifact, StageResult, sha3_512_hex
from cuvil_assets.store import Action, ActionCache, ContentStore, decode, encode

RESULT = StageResult(
    "engine",
    "1+abc",
    {"generated_source/engine.c": "ab" * 64},
    {"target": "x86_64-linux-musl", "shapes": {"image": [1, 1, 8, 8]}, "nothing": None},
    (Artifact("inference-engine.bin", b"\x7fELF"), Artifact("build.json", b"{}", "application/json")),
    {"bytes": 4, "ratio": 0.1 + 0.2, "note": "胸部", "list": [1, 2.5, None, True]},
)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def test_put_then_find_gives_the_bytes(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    digest = store.put(b"weights")
    assert digest == sha3_512_hex(b"weights")
    assert store.find(digest) == b"weights"
    assert store.find("00" * 64) is None
    assert [path.name for path in (tmp_path / "cas").iterdir()] == [digest]


def test_damaged_content_is_absent_until_put_again(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    digest = store.put(b"weights")
    damage(tmp_path / "cas" / digest)
    assert store.find(digest) is None
    store.put(b"weights")
    assert store.find(digest) == b"weights"


def test_result_survives_the_cache_exactly(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path)
    cache.remember("k", RESULT)
    assert cache.recall("k") == RESULT
    assert cache.recall("other") is None


@pytest.mark.parametrize("which", ["entry", "artifact", "second artifact"])
def test_damage_anywhere_is_a_miss_and_is_replaced(tmp_path: Path, which: str) -> None:
    cache = ActionCache(tmp_path)
    cache.remember("k", RESULT)
    artifact = RESULT.artifacts[1 if which == "second artifact" else 0]
    damage(tmp_path / "ac" / "k" if which == "entry" else tmp_path / "cas" / artifact.sha3_512)
    assert cache.recall("k") is None
    cache.remember("k", RESULT)
    assert cache.recall("k") == RESULT


def test_entry_edited_without_its_digest_is_a_miss(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path)
    cache.remember("k", RESULT)
    path = tmp_path / "ac" / "k"
    entry = json.loads(path.read_text())
    entry["result"] = entry["result"].replace("1+abc", "1+abd")
    path.chmod(0o644)
    path.write_text(json.dumps(entry))
    assert cache.recall("k") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"result": 1, "sha3_512": 2}', "\xff"])
def test_garbage_entry_is_a_miss(tmp_path: Path, text: str) -> None:
    cache = ActionCache(tmp_path)
    (tmp_path / "ac").mkdir()
    (tmp_path / "ac" / "k").write_bytes(text.encode("latin-1"))
    assert cache.recall("k") is None


def test_decode_refuses_another_format(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format"):
        decode({**encode(RESULT), "format": "cuvil-result/2"}, ContentStore(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "engine2"},
        {"code_version": "2"},
        {"inputs": {"a": "01"}},
        {"inputs": {"b": "00"}},
        {"config": {"target": "aarch64-linux-musl"}},
        {"config": {}},
    ],
)
def test_key_depends_on_every_part(change: dict[str, object]) -> None:
    action = Action("engine", "1", {"a": "00"}, {"target": "x86_64-linux-musl"})
    assert replace(action, **change).key != action.key  # type: ignore[arg-type]


def test_key_does_not_depend_on_the_order_of_inputs() -> None:
    one, two = {"a": "00", "b": "01"}, {"b": "01", "a": "00"}
    assert Action("s", "1", one, {}).key == Action("s", "1", two, {}).key


def test_unwritable_store_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="CUVIL_HOME"):
        ContentStore(tmp_path / "file").put(b"x")
