"""Result types of the windowed L0 operations: convolutions, pooling."""

from __future__ import annotations

from compiler_kernels.arithmetic.winograd import DIRECT, WINOGRAD, fits
from compiler_kernels.ir.dims import ceildiv, maximum, minimum
from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Shape, Site, cast_sizes, require


def window_size(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], ceil_mode: bool) -> int:
    """Outputs of a sliding window along one axis (ONNX pooling formula; 0 or less when the window does not fit).

    With ``ceil_mode`` a window that would start in the end padding does not count.
    """
    room = size + sum(pads) - ((kernel - 1) * dilation + 1)
    if room < 0:
        return 0
    out = (-(-room // stride) if ceil_mode else room // stride) + 1
    if not ceil_mode:
        return out
    over = (out - 1) * stride - (size + pads[0]) + 1  # at least 1 where the last window starts in the end padding
    if isinstance(over, int):
        return out - 1 if over >= 1 else out
    if pads[1] <= (kernel - 1) * dilation:  # at most one window starts there: count those that start before it
        return cast_sizes([minimum(out, ceildiv(size + pads[0], stride))])[0]
    return cast_sizes([out - minimum(1, maximum(0, over))])[0]


def _windows(site: Site, kernel: Shape, ceil_mode: bool) -> Shape:
    x = site.shape(0)
    n = len(x) - 2
    strides, dilations, pads = site.ints("strides", n), site.ints("dilations", n), site.ints("pads", 2 * n)
    if min((*kernel, *strides, *dilations), default=1) < 1 or min(pads, default=0) < 0:
        site.fail("kernel, strides and dilations must be positive and pads not negative")
    out = tuple(
        window_size(x[2 + i], kernel[i], strides[i], dilations[i], (pads[i], pads[n + i]), ceil_mode) for i in range(n)
    )
    if any(size < 1 for size in out):
        site.fail(f"a window of {list(kernel)} does not fit into {list(x)} with pads {list(pads)}")
    return out


def _spatial(site: Site) -> Shape:
    x = site.shape(0)
    if len(x) < 3:
        site.fail(f"x needs batch, channel and at least one spatial axis, but has shape {list(x)}")
    return x


def conv(site: Site) -> TensorType:
    x, w, group = _spatial(site), site.shape(1), site.int_("group")
    if len(w) != len(x):
        site.fail(f"x has rank {len(x)}, w rank {len(w)}")
    if group < 1 or x[1] != w[1] * group or w[0] % group:
        site.fail(f"{x[1]} input channels do not match w {list(w)} in {group} groups")
    require(site, 2, (w[0],), "bias")
    out = _windows(site, w[2:], False)
    name = str(site.attrs.get("arithmetic", DIRECT))
    ones = all(v == 1 for key in ("strides", "dilations") for v in site.ints(key))
    if name != DIRECT and (name not in WINOGRAD or not (group == 1 and ones and fits(name, w[2:]))):
        site.fail(f"arithmetic {name!r} does not exist for a kernel {list(w[2:])} in {group} groups with these strides")
    return site.result((x[0], w[0], *out))


def conv_transpose(site: Site) -> TensorType:
    x, w, group = _spatial(site), site.shape(1), site.int_("group")
    n = len(x) - 2
    if len(w) != len(x):
        site.fail(f"x has rank {len(x)}, w rank {len(w)}")
    if group < 1 or x[1] != w[0] or x[1] % group:
        site.fail(f"{x[1]} input channels do not match w {list(w)} in {group} groups")
    strides, dilations, pads = site.ints("strides", n), site.ints("dilations", n), site.ints("pads", 2 * n)
    extra = site.ints("output_padding", n)
    if min((*w[2:], *strides, *dilations), default=1) < 1 or min((*pads, *extra), default=0) < 0:
        site.fail("kernel, strides and dilations must be positive, pads and output_padding not negative")
    require(site, 2, (w[1] * group,), "bias")
    out = [
        strides[i] * (x[2 + i] - 1) + extra[i] + (w[2 + i] - 1) * dilations[i] + 1 - pads[i] - pads[n + i]
        for i in range(n)
    ]
    if any(size < 1 for size in out):
        site.fail(f"pads {list(pads)} leave nothing of the result")
    return site.result((x[0], w[1] * group, *out))


def pool(site: Site) -> TensorType:
    x = _spatial(site)
    kernel = site.ints("kernel", len(x) - 2)
    return site.result((*x[:2], *_windows(site, kernel, bool(site.attrs["ceil_mode"]))))


def global_pool(site: Site) -> TensorType:
    x = _spatial(site)
    return site.result((*x[:2], *(1 for _ in x[2:])))
