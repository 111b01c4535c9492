"""``torch.compile(model, backend="cuvil")``: results as in eager, weights noticed, gradients and operators refused."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'cuvil[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install 'cuvil[torch]')")

import nets  # noqa: E402

from compiler_kernels.errors import CuvilError, RefusedError, UnsupportedError  # noqa: E402
from cuvil.dynamo import cuvil_backend  # noqa: E402

# torch 2.13 calls functions of its own that it has deprecated
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Two(torch.nn.Module):
    """A dict and a size among the results, one result unused, and an argument that is a number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(6, 4)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x: Any, scale: float = 1.0) -> dict[str, Any]:
        y = torch.tanh(self.linear(x)) * scale + self.shift
        return {"y": y, "rows": x.shape[0], "largest": y.amax(-1)}


def test_torch_finds_the_backend_by_name() -> None:
    points = importlib.metadata.entry_points(group="torch_dynamo_backends")
    if "cuvil" not in points.names:
        pytest.skip("this checkout was not installed since it has the entry point (pip install -e .)")
    assert "cuvil" in torch._dynamo.list_backends()
    assert points["cuvil"].load() is cuvil_backend


def test_results_for_several_shapes_and_after_a_weight_was_written() -> None:
    net = Two().eval()
    compiled = torch.compile(net, backend=cuvil_backend)

    def compare(*args: Any) -> None:
        with torch.no_grad():
            found, expected = compiled(*args), net(*args)
        assert found.keys() == expected.keys() and found["rows"] == expected["rows"]
        for name in ("y", "largest"):
            assert found[name].dtype == expected[name].dtype
            np.testing.assert_allclose(found[name].numpy(), expected[name].numpy(), rtol=1e-5, atol=1e-6)

    for rows in (2, 5):
        compare(torch.randn(rows, 6), 1.0)
    with torch.no_grad():
        net.linear.bias.add_(1.0)
    compare(torch.randn(5, 6), 1.0)
    net.shift = torch.full((4,), 7.0)
    compare(torch.randn(5, 6), 1.0)


def test_a_network_matches_eager() -> None:
    net = nets.UNet().eval()
    x = torch.randn(1, 1, 16, 16)
    with torch.inference_mode():
        found = torch.compile(net, backend=cuvil_backend)(x)
        np.testing.assert_allclose(found.numpy(), net(x).numpy(), rtol=1e-5, atol=1e-6)


def test_gradients_are_refused() -> None:
    compiled = torch.compile(nets.Unseeded(), backend=cuvil_backend)
    with pytest.raises(RefusedError, match=r"computes no gradients, .* under torch\.no_grad\(\)"):
        compiled(torch.randn(1, 4))
    frozen = nets.Unseeded().requires_grad_(False)
    x = torch.randn(1, 4)
    found = torch.compile(frozen, backend=cuvil_backend)(x)
    np.testing.assert_allclose(found.numpy(), frozen(x).numpy(), rtol=1e-5, atol=1e-6)


def unsupported(x: Any) -> Any:
    return torch.linalg.qr(x)[0] + 1


def test_an_operator_without_translation_is_named_or_falls_back_aloud() -> None:
    x = torch.randn(3, 3)
    with torch.no_grad():
        with pytest.raises(UnsupportedError, match=r"the operator aten\.linalg_qr\.default has no translation"):
            torch.compile(unsupported, backend=cuvil_backend)(x)
        torch._dynamo.reset()
        compiled = torch.compile(unsupported, backend=cuvil_backend, options={"fallback": True})
        with pytest.warns(UserWarning, match=r"computed by torch, not by Cuvil: .*aten\.linalg_qr"):
            found = compiled(x)
        assert torch.equal(found, unsupported(x))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(x)  # said once


def test_state_is_refused_and_options_are_checked() -> None:
    with torch.no_grad(), pytest.raises(UnsupportedError, match="in place, and an engine keeps no state"):
        torch.compile(nets.Counts(), backend=cuvil_backend)(torch.ones(1))
    with torch.no_grad(), pytest.raises(Exception, match="has no option 'fast'") as caught:
        torch.compile(unsupported, backend=cuvil_backend, options={"fast": True})(torch.ones(3, 3))
    assert isinstance(caught.value, CuvilError) or "UsageError" in str(caught.value)
