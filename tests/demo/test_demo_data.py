"""The photograph, the ridge filter and the errors around them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from compiler_kernels.errors import UsageError
from cuvil_assets import demo_data


def drawing() -> demo_data.Image:
    """A bright 96 x 96 field with one dark vertical line of width 3 and a dark disc."""
    rgb = np.full((96, 96, 3), 0.6, dtype=np.float32)
    rgb[:, 30:33] = 0.3
    y, x = np.mgrid[:96, :96]
    rgb[(y - 48) ** 2 + (x - 66) ** 2 < 15**2] = 0.3
    return rgb


def test_halves_are_the_two_sides_of_one_photograph() -> None:
    halves = demo_data.load_halves()
    for half in (halves.training, halves.held_out):
        assert half.shape == (640, 320, 3) and half.dtype == np.float32
        assert half.min() >= 0 and half.max() <= 1
    # neighbouring columns of a photograph resemble each other, and the two halves are not the same
    seam = np.abs(halves.training[:, -1] - halves.held_out[:, 0]).mean()
    assert seam < 0.02 < np.abs(halves.training - halves.held_out).mean()


def test_ridge_filter_answers_to_a_line_and_not_to_a_disc() -> None:
    response = demo_data.ridge_response(drawing())
    assert response[48, 31] > 0.1
    assert response[48, 66] < 0.1 * response[48, 31]
    # next to nothing on the flat field (what is left comes from the local mean)
    assert abs(response[48, 10]) < 5e-3


def test_pseudo_labels_keep_the_line_and_drop_small_pieces() -> None:
    rgb = drawing()
    rgb[20:24, 45:48] = 0.3
    label = demo_data.pseudo_labels(rgb, (0.1, 0.2))
    assert label[:, 31].all()
    assert not label[15:30, 42:52].any()


def test_dice() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert demo_data.dice(a, b) == 0.5
    assert demo_data.dice(a, a) == 1.0
    assert demo_data.dice(a, ~a) == 0.0
    assert demo_data.dice(a & ~a, b & ~b) == 1.0


def test_nchw_is_contiguous_and_keeps_values() -> None:
    rgb = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    out = demo_data.as_nchw(rgb)
    assert out.shape == (1, 3, 2, 4) and out.flags["C_CONTIGUOUS"]
    assert out[0, 2, 1, 3] == rgb[1, 3, 2]


@pytest.mark.parametrize(
    ("hidden", "package"), [("PIL.Image", "pillow"), ("scipy.ndimage", "scipy"), ("skimage", "scikit-image")]
)
def test_missing_package_is_one_sentence_with_the_remedy(
    hidden: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hidden == "skimage":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    else:
        monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(UsageError) as error:
        demo_data.thresholds(demo_data.load_halves().training)
    assert str(error.value) == (
        f"the demonstration needs the package {package}, which cannot be imported; run: pip install 'cuvil[demo]'"
    )


def test_another_photograph_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "skimage" / "__init__.py"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: type("Spec", (), {"origin": str(fake)}))
    with pytest.raises(UsageError, match=r"retina\.jpg: the photograph cannot be read \(No such file"):
        demo_data.load_halves()
    (tmp_path / "skimage" / "data").mkdir(parents=True)
    (tmp_path / "skimage" / "data" / "retina.jpg").write_bytes(b"another picture")
    with pytest.raises(UsageError, match=r"retina\.jpg: the photograph is not the one .* install scikit-image again"):
        demo_data.load_halves()
