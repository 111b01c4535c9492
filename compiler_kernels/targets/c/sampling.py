"""GridSample, RoiAlign, MaxRoiPool and the samples of DeformConv: emitters of ``t0`` for one output element."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import SUFFIX, Code, c_number, c_type, decode, linear, root_of, strides

FMA = {"float32": "ca1_fmaf", "float64": "ca1_fma64"}
_BITS = {"float32": "f", "float64": ""}


def grid_sample(function: Graph, code: Code) -> None:
    """Coordinates come last axis first in the grid."""
    op, types = root_of(function), function.types()
    x, grid = op.operands[:2]
    dims, out, place = types[x].dims, op.out.dims, types[grid].dtype
    n, ctype = len(dims) - 2, c_type(op.out)
    code.add(*decode(out))
    at = linear([(f"i{a}", s) for a, s in zip((0, *range(2, n + 2)), strides((out[0], *out[2:])), strict=True)])
    code.add(
        f"const {c_type(types[grid])} *g = {grid} + ({at}) * {n};",
        f"const {ctype} *xc = {x} + (i0 * {dims[1]} + i1) * {prod(dims[2:])};",
    )
    corners, padding = int(bool(op.attr("align_corners"))), f"CA1_{op.str_('padding').upper()}"
    suffix = SUFFIX[place]
    for a, size in enumerate(dims[2:]):
        value = f"ca1_place_{suffix}(g[{n - 1 - a}], {size}, {corners})"
        if op.str_("mode") == "nearest":
            whole = f"ca1_position_{suffix}(__builtin_rint{_BITS[place]}({value}))"
            code.add(f"const int k{a} = ca1_pixel({whole}, {size}, {padding}, {corners});")
        else:
            # as torch and onnxruntime: with cubic and border only the taps are moved to the edge
            if op.str_("mode") != "cubic" or op.str_("padding") != "border":
                value = f"ca1_inside_{suffix}({value}, {size}, {padding}, {corners})"
            code.add(f"const {ctype} c{a} = {value};")
    if op.str_("mode") == "nearest":
        none = " || ".join(f"k{a} < 0" for a in range(n))
        index = linear([(f"k{a}", s) for a, s in enumerate(strides(dims[2:]))])
        code.add(f"const {ctype} t0 = {none} ? {c_number(0.0, op.out.dtype)} : xc[{index}];")
        return
    value = _interpolated(code, dims[2:], op.out.dtype, op.str_("mode") == "cubic", padding, corners)
    code.add(f"const {ctype} t0 = {value};")


def _interpolated(code: Code, dims: Sequence[int], dtype: str, cubic: bool, padding: str, corners: int) -> str:
    """The value of ``xc`` at ``c0, c1...``: along each axis, innermost first, a chain over the neighbours from +0."""
    ctype, suffix, taps = ("float" if dtype == "float32" else "double"), SUFFIX[dtype], 4 if cubic else 2
    for a, size in enumerate(dims):
        code.add(
            f"const {ctype} f{a} = __builtin_floor{_BITS[dtype]}(c{a});",
            f"const int64_t b{a} = ca1_position_{suffix}(f{a}){' - 1' if cubic else ''};",
            f"{ctype} w{a}[{taps}];",
            f"int at{a}[{taps}];",
            f"ca1_{'cubic' if cubic else 'lerp'}_{suffix}(c{a} - f{a}, w{a});",
            f"for (int k = 0; k < {taps}; k++) at{a}[k] = ca1_pixel(b{a} + k, {size}, {padding}, {corners});",
        )
    steps = strides(dims)

    def along(a: int) -> str:
        if a == len(dims):
            none = " || ".join(f"at{k}[k{k}] < 0" for k in range(a))
            return f"({none} ? 0 : xc[{linear([(f'at{k}[k{k}]', steps[k]) for k in range(a)])}])"
        code.add(f"{ctype} r{a} = 0;")
        with code.block(f"for (int k{a} = 0; k{a} < {taps}; k{a}++)"):
            inner = along(a + 1)
            code.add(f"r{a} = {FMA[dtype]}(w{a}[k{a}], {inner}, r{a});")
        return f"r{a}"

    return along(0)


def deform_sample(function: Graph, code: Code) -> None:
    """Channel ``i1`` under kernel position ``i2`` at output position ``i3``, moved by its offset."""
    op, types = root_of(function), function.types()
    x, offset, mask = (*op.operands, "")[:3]
    dims, kernel, group = types[x].dims, op.ints("kernel"), op.int_("offset_group")
    out, n, ctype, dtype = types[offset].dims[2:], len(kernel), c_type(op.out), op.out.dtype
    steps, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    code.add(
        *decode(op.out.dims),
        *decode(out, prefix="o", flat="i3"),
        *decode(kernel, prefix="q", flat="i2"),
        f"const int set = (i0 * {group} + i1 / {dims[1] // group}) * {prod(kernel)} + i2;",
        f"const {ctype} *xc = {x} + (i0 * {dims[1]} + i1) * {prod(dims[2:])};",
    )
    for a in range(n):
        start = linear([(f"o{a}", steps[a]), (f"q{a}", dilations[a])], -pads[a])
        code.add(f"const {ctype} c{a} = ({ctype})({start}) + {offset}[(set * {n} + {a}) * {prod(out)} + i3];")
    value = _interpolated(code, dims[2:], dtype, False, "CA1_ZEROS", 0)
    code.add(f"const {ctype} t0 = {value}{f' * {mask}[set * {prod(out)} + i3]' if mask else ''};")


def roi_align(function: Graph, code: Code) -> None:
    op, types = root_of(function), function.types()
    x, rois, batch = op.operands
    dims, (height, width) = types[x].dims, op.ints("output")
    dtype, ctype = op.out.dtype, c_type(op.out)
    suffix, average, half = SUFFIX[dtype], op.str_("mode") == "avg", bool(op.attr("half_pixel"))
    shift = f" - {c_number(0.5, dtype)}" if half else ""
    scale = c_number(op.float_("spatial_scale"), dtype)
    code.add(
        *decode(op.out.dims),
        f"const {ctype} *roi = {rois} + i0 * 4;",
        f"const {ctype} *xc = {x} + (ca1_read_at({batch}[i0], {dims[0]}) * {dims[1]} + i1) * {prod(dims[2:])};",
    )
    size = "size_{0}" if half else "(size_{0} > 1 ? size_{0} : 1)"
    for name, first, bins, given in (("h", 1, height, 2), ("w", 0, width, 3)):
        code.add(
            f"const {ctype} start_{name} = roi[{first}] * {scale}{shift};",
            f"const {ctype} end_{name} = roi[{first + 2}] * {scale}{shift};",
            f"const {ctype} size_{name} = end_{name} - start_{name};",
            f"const {ctype} bin_{name} = {size.format(name)} / {bins};",
            f"const int n_{name} = ca1_roi_samples_{suffix}(bin_{name}, {op.int_('sampling_ratio')});",
            f"const {ctype} from_{name} = start_{name} + ({ctype})i{given} * bin_{name};",
        )
    tree = "" if dtype == "float32" else "_f64"
    if average:
        code.add(f"ca1_tree{tree} tree;", f"ca1_tree_init{tree}(&tree);", f"{ctype} acc = 0;", "int count = 0;")
    else:
        code.add(f"{ctype} best = 0;", "int started = 0;")
    with (
        code.block("for (int a = 0; a < n_h; a++)"),
        code.block("for (int b = 0; b < n_w; b++)"),
    ):
        for name, k in (("h", "a"), ("w", "b")):
            middle = f"(({ctype}){k} + {c_number(0.5, dtype)})"
            code.add(f"const {ctype} c_{name} = from_{name} + {middle} * bin_{name} / n_{name};")
        code.add("int low_h, low_w, high_h, high_w;", f"{ctype} t_h, t_w, value = 0;")
        inside = " && ".join(
            f"ca1_roi_axis_{suffix}(c_{name}, {n}, &low_{name}, &high_{name}, &t_{name})"
            for name, n in (("h", dims[2]), ("w", dims[3]))
        )
        with code.block(f"if ({inside})"):
            code.add(f"const {ctype} s_h = 1 - t_h, s_w = 1 - t_w;")
            corners = [
                (f"{p}_h * {q}_w", f"xc[{v}_h * {dims[3]} + {u}_w]")
                for p, v in (("s", "low"), ("t", "high"))
                for q, u in (("s", "low"), ("t", "high"))
            ]
            for later, (weight, value) in enumerate(corners):
                if average:
                    code.add(f"value = {FMA[dtype]}({weight}, {value}, value);")
                else:
                    product = f"{weight} * {value}"
                    code.add(f"value = {_max(dtype)}(value, {product});" if later else f"value = {product};")
        if average:
            code.add(
                f"if (count && count % 64 == 0) {{ ca1_tree_push{tree}(&tree, acc); acc = 0; }}",
                "acc = acc + value;",
                "count++;",
            )
        else:
            code.add(f"best = started ? {_max(dtype)}(best, value) : value;", "started = 1;")
    if average:
        code.add(
            f"ca1_tree_push{tree}(&tree, acc);",
            f"const {ctype} t0 = ca1_tree_sum{tree}(&tree) / ({ctype})(count > 0 ? count : 1);",
        )
    else:
        code.add(f"const {ctype} t0 = best;")


def _max(dtype: str) -> str:
    return "ca1_max_v1" if dtype == "float32" else "ca1_max_f64"


def max_roi_pool(function: Graph, code: Code) -> None:
    op, types = root_of(function), function.types()
    x, rois = op.operands
    dims, pooled = types[x].dims, op.ints("output")
    dtype, ctype = op.out.dtype, c_type(op.out)
    suffix, scale = SUFFIX[dtype], c_number(op.float_("spatial_scale"), dtype)
    infinity = f"(-__builtin_inf{_BITS[dtype]}())"
    code.add(
        *decode(op.out.dims),
        f"const {ctype} *roi = {rois} + i0 * 5;",
        f"const int entry = ca1_read_at(ca1_position_{suffix}(__builtin_trunc{_BITS[dtype]}(roi[0])), {dims[0]});",
        f"const {ctype} *xc = {x} + (entry * {dims[1]} + i1) * {prod(dims[2:])};",
    )
    for name, first, bins, size, given in (("h", 2, pooled[0], dims[2], 2), ("w", 1, pooled[1], dims[3], 3)):
        code.add(
            f"const int64_t start_{name} = ca1_nearest_{suffix}(roi[{first}] * {scale});",
            f"const int64_t end_{name} = ca1_nearest_{suffix}(roi[{first + 2}] * {scale});",
            f"const int64_t span_{name} = end_{name} - start_{name} + 1;",
            f"const {ctype} bin_{name} = ({ctype})(span_{name} > 1 ? span_{name} : 1) / {bins};",
        )
        for end, move, rounding in (("low", "", "floor"), ("high", " + 1", "ceil")):
            whole = f"__builtin_{rounding}{_BITS[dtype]}(({ctype})(i{given}{move}) * bin_{name})"
            code.add(
                f"const int64_t {end}_{name} = cuvil_max(0, cuvil_min({size}, "
                f"start_{name} + ca1_position_{suffix}({whole})));"
            )
    code.add(f"{ctype} best = {infinity};")
    code.add("for (int64_t a = low_h; a < high_h; a++)")
    code.add(f"    for (int64_t b = low_w; b < high_w; b++) best = {_max(dtype)}(best, xc[a * {dims[3]} + b]);")
    code.add(f"const {ctype} t0 = high_h > low_h && high_w > low_w ? best : 0;")


POINT = {
    "grid_sample": grid_sample,
    "deform_sample": deform_sample,
    "roi_align": roi_align,
    "max_roi_pool": max_roi_pool,
}
