"""DFT, STFT, Det and TfIdfVectorizer beside onnxruntime, onnx.reference and torch."""

from __future__ import annotations

import pytest
from differential import PEERS, compare, drawn
from draw_signal import draw_signal


def agree(seeds: range) -> None:
    """No draw disagrees with anything, and every peer answers."""
    found = compare(drawn("signal", draw_signal, seeds))
    assert not found.lines, "\n".join(found.lines)
    assert all(found.answered[peer] >= len(seeds) // 5 for peer in PEERS), found.answered


def test_signal() -> None:
    agree(range(16))


@pytest.mark.slow
def test_many_signals() -> None:
    agree(range(16, 300))
