"""The table of measured tiles: every row fits its shape, and the sweep's reader takes the fastest right one."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from emulation import lowered
from test_cuda_conv import DIRECT, conv_model, lowered_in_form

from benchmarks import gpu_tiles
from benchmarks.gpu_tiles import table
from compiler_kernels.targets.cuda.families import conv_tiles, winograd_tiles
from compiler_kernels.targets.cuda.families.tiles_table import table_file, tabled
from compiler_kernels.targets.cuda.gpu import SM_80, SM_90

stem_tiles = import_module("compiler_kernels.targets.cuda.families.stem")


def rows():
    found: dict[str, list[int]] = json.loads(table_file(SM_90).read_bytes())
    return found


def test_every_row_fits_its_shape():
    kinds = set()
    for key, row in rows().items():
        family, *numbers = key.split(" ")
        n = [int(v) for v in numbers]
        kinds.add(family)
        if family == "direct":
            threes = [(n[i], n[i + 1], n[i + 2]) for i in (2, 5, 8, 11)]
            shape = conv_tiles.Shape(n[0], n[1], *threes, n[14], n[15], n[16], bool(n[17]))
            assert shape.key == tuple(n) and conv_tiles.Tile(*row).fits(shape, SM_90), key
        elif family in ("winograd", "taps"):
            assert winograd_tiles.Tile(*row).fits(winograd_tiles.Shape(*n, taps=family == "taps"), SM_90), key
        else:
            assert conv_tiles.Tile(*row).columns <= 16
        assert tabled(family, SM_90, n) == tuple(row)
        assert tabled(family, SM_80, n) is None
    assert kinds - {"taps"} == {"direct", "winograd", "stem"}


def test_reader_takes_the_fastest():
    lines = ["# chip", "RESULT\tdirect 1\t[1, 2]\t3.5\t0", "RESULT\tdirect 1\t[3, 4]\t2.5\t0", "NAME\tdirect 1\tx"]
    assert table(lines) == {"direct 1": [3, 4]}


def test_reader_refuses_a_difference():
    with pytest.raises(ValueError, match=r"direct 1, tile .* 7 values differ"):
        table(["RESULT\tdirect 1\t[1, 2]\t3.5\t7"])


def test_sweep_of_a_small_network(tmp_path, monkeypatch):
    module, _ = lowered(conv_model(1, 32, 32, (9, 11), (3, 3), first=True), numerics=DIRECT)
    monkeypatch.setattr(gpu_tiles, "lowered", lambda net: module)
    count = gpu_tiles.write(tmp_path, ["small"], 3)
    units = "".join(p.read_text() for p in tmp_path.glob("unit*.cu"))
    assert 4 <= count <= 6 and units.count('extern "C" __global__') == count  # tiles of the 3x3 and of the 1x1
    assert '"direct 1 4 1 3 3 1 1 1 1 1 1 1 9 11 2 0 1 0"' in (tmp_path / "table.cu").read_text()
    assert "void ref1(" in (tmp_path / "reference.c").read_text() and (tmp_path / "run.sh").is_file()


def test_sweep_of_kernels_that_transform_taps(tmp_path, monkeypatch):
    _, module, _ = lowered_in_form(conv_model(1, 128, 128, (6, 6), (3, 3), first=True), 32)
    monkeypatch.setattr(gpu_tiles, "lowered", lambda net: module)
    count = gpu_tiles.write(tmp_path, ["small"], 2, only=["winograd", "taps"])
    units = "".join(p.read_text() for p in tmp_path.glob("unit*.cu"))
    table_text = (tmp_path / "table.cu").read_text()
    assert count == 4 and units.count("TAPS = 1") == units.count("TAPS = 0") == 2
    groups = 128 // 16 * (128 // 8)
    assert table_text.count(f", {groups}, 16}},") == 1 and table_text.count(", 0, 1},") == 1
    assert '"taps 2 1 16 4 1 8 9"' in table_text and '"winograd 2 1 16 4 1 8 9"' in table_text


def test_sweep_refuses_an_unknown_network(tmp_path, capsys):
    assert gpu_tiles.main(["write", str(tmp_path), "nonsense"]) == 2
    assert "there is no network 'nonsense'" in capsys.readouterr().err


def test_table_of_a_file_that_is_not_there(tmp_path, capsys):
    assert gpu_tiles.main(["table", str(tmp_path / "none.txt")]) == 2
    assert "none.txt" in capsys.readouterr().err
