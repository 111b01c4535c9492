"""Shape-like inputs at run time, through compiled engines: ONNX's node tests, and random operands against NumPy."""

from __future__ import annotations

import numpy as np
from made_cases import Array, case, ints, random_array

from evidence.conformance import Case, Kind, run_cases, run_jobs

NODE_TESTS = """
test_reshape_reduced_dims test_reshape_allowzero_reordered test_reshape_zero_and_negative_dim test_expand_dim_changed
test_expand_dim_unchanged test_tile test_squeeze_negative_axes test_unsqueeze_three_axes test_unsqueeze_unsorted_axes
test_split_variable_parts_2d_opset18 test_split_zero_size_splits_opset13 test_slice_start_out_of_bounds
test_slice_negative_axes test_slice_neg_steps test_constant_pad test_constant_pad_negative_axes test_wrap_pad
test_reflect_pad test_edge_pad test_constantofshape_int_shape_zero test_range_float_type_positive_delta
test_range_int32_type_negative_delta test_center_crop_pad_crop_and_pad test_center_crop_pad_crop_negative_axes_hwc
test_affine_grid_3d_align_corners test_col2im_5d test_col2im_pads test_reduce_max_bool_inputs
test_reduce_sum_empty_axes_input_noop test_reduce_sum_empty_set_non_reduced_axis_zero test_reduce_prod_empty_set
test_reduce_l2_do_not_keepdims_example test_reduce_log_sum_exp_keepdims_random_expanded
test_reduce_mean_negative_axes_keepdims_random
test_lppool_2d_dilations test_lppool_2d_same_lower test_optional_get_element_tensor
test_optional_has_element_empty_no_input_name_tensor_input
""".split()


def passed(cases: list[Case]) -> None:
    outcomes = run_jobs([(c, "as-is") for c in cases])
    assert [(o.name, o.kind, o.detail) for o in outcomes if o.kind is not Kind.PASSED] == []


def test_node_tests_with_run_time_shapes() -> None:
    outcomes = run_cases(NODE_TESTS, "as-is")
    assert [(o.name, o.detail) for o in outcomes if o.kind is not Kind.PASSED] == []


def _slice_case(number: int, rng: np.random.Generator) -> Case:
    """Bounds inside, outside and far outside the axis, steps of both signs, axes named in any order and sign."""
    rank = int(rng.integers(1, 4))
    x = random_array(rng, rng.integers(1, 6, rank), str(rng.choice(["float32", "int64", "uint8", "float16", "bool"])))
    axes = list(rng.permutation(rank)[: rng.integers(1, rank + 1)])
    limits = [-(2**63), -7, -2, -1, 0, 1, 2, 3, 7, 2**63 - 1]
    begins, ends, steps, want = [], [], [], x
    for axis in axes:
        step = int(rng.choice([-(2**63), -3, -2, -1, 1, 2, 3, 2**40]))
        begin, end = int(rng.choice(limits)), int(rng.choice(limits))
        if step < 0 and begin < -x.shape[axis]:  # NumPy leaves the axis, ONNX begins at 0
            begin = 0
        begins.append(begin), ends.append(end), steps.append(step)
        want = want[tuple(slice(begin, end, step) if a == axis else slice(None) for a in range(rank))]
    named = [int(a) - rank * int(rng.integers(0, 2)) for a in axes]
    inputs: dict[str, Array] = {"x": x, "b": ints(*begins), "e": ints(*ends), "a": ints(*named), "s": ints(*steps)}
    fixed = [n for n in "besa" if rng.random() < 0.25]
    if len(fixed) == 4:
        fixed.pop()
    return case(f"slice{number}", "Slice", inputs, {"y": np.ascontiguousarray(want)}, constants=fixed)


def test_slices_by_run_time_bounds() -> None:
    rng = np.random.default_rng(4)
    passed([_slice_case(number, rng) for number in range(40)])


def test_negative_steps_clamp_the_begin_as_onnx_says() -> None:
    """ONNX clamps a begin to [0, d - 1] for a negative step, onnxruntime too; NumPy gives an empty slice."""
    x = np.arange(5, dtype=np.float32)
    inputs = {"x": x, "b": ints(-9), "e": ints(-(2**63)), "a": ints(0), "s": ints(-1)}
    constant = ("b", "e", "a", "s")
    passed([case("slice_clamped", "Slice", inputs, {"y": x[:1]}),
            case("slice_clamped_constant", "Slice", inputs, {"y": x[:1]}, constants=constant[:2])])  # fmt: skip


def _pad_case(number: int, rng: np.random.Generator) -> Case:
    mode = str(rng.choice(["constant", "edge", "reflect", "wrap"]))
    rank = int(rng.integers(1, 4))
    x = random_array(rng, rng.integers(3, 6, rank), str(rng.choice(["float32", "int32", "float64", "bfloat16"])))
    axes = list(rng.permutation(rank)[: rng.integers(1, rank + 1)])
    low = -1 if mode == "constant" else 0
    pads = {a: (int(rng.integers(low, 3)), int(rng.integers(low, 3))) for a in axes}
    cut = x[
        tuple(slice(max(0, -pads.get(a, (0, 0))[0]), x.shape[a] - max(0, -pads.get(a, (0, 0))[1])) for a in range(rank))
    ]
    width = [tuple(max(0, p) for p in pads.get(a, (0, 0))) for a in range(rank)]
    fill = random_array(rng, (), str(x.dtype.name))
    want = (
        np.pad(cut, width, mode="constant", constant_values=fill)
        if mode == "constant"
        else np.pad(cut, width, mode=mode)
    )
    amounts = ints(*(pads[a][0] for a in axes), *(pads[a][1] for a in axes))
    inputs: dict[str, Array] = {
        "x": x,
        "p": amounts,
        "v": fill,
        "a": ints(*(int(a) - rank * (number % 2) for a in axes)),
    }
    options: dict[str, object] = {}
    if mode != "constant":
        del inputs["v"]
        options["absent"] = (2,)
    fixed = [["p", "a"], ["a"], [], ["v"]][number % 4]
    return case(f"pad{number}", "Pad", inputs, {"y": want.astype(x.dtype)}, attrs={"mode": mode},
                constants=[n for n in fixed if n in inputs], **options)  # fmt: skip


def test_pads_by_run_time_amounts() -> None:
    rng = np.random.default_rng(5)
    passed([_pad_case(number, rng) for number in range(32)])


def test_ranges() -> None:
    cases = []
    for dtype in ("float32", "float64", "int16", "int32", "int64"):
        bounds = [(0, 5, 1), (10, 4, -2), (3, 3, 1), (-3, 4, 3)] + ([(0.5, 2.1, 0.4)] if "float" in dtype else [])
        for number, (start, limit, delta) in enumerate(bounds):
            inputs = {n: np.array(v, dtype=dtype) for n, v in zip("sld", (start, limit, delta), strict=True)}
            want = np.arange(start, limit, delta).astype(dtype)
            for fixed in ("", "sd", "sld"):
                name = f"range_{dtype}_{number}_{fixed}"
                cases.append(case(name, "Range", inputs, {"y": want}, constants=list(fixed)))
    passed(cases)
