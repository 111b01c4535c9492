"""U-Nets exported by PyTorch with symbolic batch and height: every size is an expression, every access proved."""

from __future__ import annotations

import io

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'cuvil[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install 'cuvil[torch]')")

from compiler_kernels.errors import UnsupportedError  # noqa: E402
from compiler_kernels.importers.onnx_importer import import_onnx  # noqa: E402
from compiler_kernels.ir.bind import bind  # noqa: E402
from compiler_kernels.ir.symbols import Bound  # noqa: E402
from compiler_kernels.ir.verify import verify  # noqa: E402
from compiler_kernels.proofs.access import prove_accesses  # noqa: E402
from compiler_kernels.stages.frontend import freeze  # noqa: E402

# torch 2.13 calls functions of its own that it has deprecated
pytestmark = pytest.mark.filterwarnings("ignore::Warning")


class UNet(torch.nn.Module):  # type: ignore[misc]
    """Two levels; ``up`` is ``transpose`` (ConvTranspose), ``size`` or ``scale`` (Resize)."""

    def __init__(self, up: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        nn = torch.nn
        self.kind = up
        self.down = nn.ModuleList([self.block(3, 4), self.block(4, 8)])
        self.deep = self.block(8, 16)
        make = (lambda a, b: nn.ConvTranspose2d(a, b, 2, 2)) if up == "transpose" else (lambda a, b: nn.Conv2d(a, b, 1))
        self.up = nn.ModuleList([make(16, 8), make(8, 4)])
        self.merge = nn.ModuleList([self.block(16, 8), self.block(8, 4)])
        self.head = nn.Conv2d(4, 1, 1)

    @staticmethod
    def block(a: int, b: int) -> torch.nn.Module:
        nn = torch.nn
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = torch.nn.functional.max_pool2d(x, 2)
        x = self.deep(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips), strict=True):
            if self.kind == "size":
                x = torch.nn.functional.interpolate(x, size=skip.shape[-2:], mode="bilinear")
            elif self.kind == "scale":
                x = torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")
            x = merge(torch.cat([skip, up(x)], 1))
        return torch.sigmoid(self.head(x))


def exported(up: str) -> bytes:
    shapes = ({0: torch.export.Dim("batch", min=1, max=8), 2: torch.export.Dim("height", min=8, max=512)},)
    example = (torch.randn(2, 3, 32, 24),)
    program = torch.onnx.export(UNet(up).eval(), example, dynamo=True, dynamic_shapes=shapes, verbose=False)
    stream = io.BytesIO()
    program.save(stream)
    return stream.getvalue()


def check(up: str) -> None:
    data = exported(up)
    module, store = import_onnx(data, filename="m", bounds={"batch": Bound(1, 8), "height": Bound(8, 512, 4)})
    verify(module)
    sizes = {op.out.shape[2] for op in module.main.ops}
    assert sizes == {"height", "height // 2", "height // 4"}
    assert all(op.out.shape[0] == "batch" for op in module.main.ops)
    assert prove_accesses(module).undescribed == ()
    frozen, _ = freeze(module, store)
    assert frozen.level == "frozen" and frozen.main.ops[-1].out.shape == ("batch", 1, "height", 24)
    static = import_onnx(data, filename="m", pins={frozen.main.inputs[0].name: (3, 3, 100, 24)})[0]
    bound = bind(module, {"batch": 3, "height": 100})
    assert [(op.name, op.type, op.attrs) for op in bound.main.ops] == [
        (op.name, op.type, op.attrs) for op in static.main.ops
    ]
    if up == "size":
        assert import_onnx(data, filename="m", bounds={"batch": Bound(1, 8), "height": Bound(8, 512)})
    else:
        with pytest.raises(UnsupportedError, match=r"^height = \d+ breaks node .* differ outside axis 1"):
            import_onnx(data, filename="m", bounds={"batch": Bound(1, 8), "height": Bound(8, 512)})


def test_unet_with_transposed_convolutions() -> None:
    check("transpose")


@pytest.mark.slow
@pytest.mark.parametrize("up", ["size", "scale"])
def test_unet_with_resize(up: str) -> None:
    check(up)
