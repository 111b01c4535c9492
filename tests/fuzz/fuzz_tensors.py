"""Strange numbers and small constants, and damage to constants."""

from __future__ import annotations

import random

import numpy as np
from onnx import TensorProto, numpy_helper

INTEGERS = (0, 1, 2, 3, 5, 7, -1, -2, -7, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
SMALL = (0, 1, 2, 3, 4, -1, -2)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-5, 1e30, -1e30, 1e-42, float("nan"), float("inf"), float("-inf"))


def integer(rng: random.Random) -> int:
    return rng.choice(SMALL) if rng.random() < 0.6 else rng.choice(INTEGERS)


def tensor(rng: random.Random) -> TensorProto:
    """A small constant of any element type, of strange values now and then."""
    shape = tuple(rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.randrange(4)))
    dtype = rng.choice(("float32", "int64", "int32", "bool", "float16", "float64", "uint8", "int8"))
    count = int(np.prod(shape, dtype=np.int64))
    draw = (lambda: rng.choice(FLOATS)) if dtype.startswith("float") else (lambda: rng.choice(SMALL))
    with np.errstate(all="ignore"):
        array = np.array([draw() for _ in range(count)], np.float64).astype(dtype).reshape(shape)
    return numpy_helper.from_array(array, "t")


def damage_tensor(proto: TensorProto, rng: random.Random) -> None:
    kind = rng.randrange(9)
    if kind == 0 and proto.dims:
        proto.dims[rng.randrange(len(proto.dims))] = integer(rng)
    elif kind == 1:
        proto.dims.insert(rng.randrange(len(proto.dims) + 1), integer(rng))
    elif kind == 2:
        proto.data_type = rng.randrange(30)
    elif kind == 3:
        proto.raw_data = proto.raw_data[: rng.randrange(len(proto.raw_data) + 1)]
    elif kind == 4:
        proto.data_location = TensorProto.EXTERNAL
        proto.external_data.add(key="location", value=rng.choice(("/etc/passwd", "../w.bin", "w.bin", "")))
    elif kind == 5:
        label = proto.name
        proto.CopyFrom(tensor(rng))
        proto.name = label
    elif kind == 6 and proto.dims:
        del proto.dims[rng.randrange(len(proto.dims))]
    else:
        _new_values(proto, rng)


def _new_values(proto: TensorProto, rng: random.Random) -> None:
    """Other values of the same type and shape."""
    try:
        array = np.array(numpy_helper.to_array(proto))
        flat = array.reshape(-1)
        for _ in range(rng.randrange(1, 4)):
            if flat.size:
                value = rng.choice(FLOATS) if array.dtype.kind == "f" else integer(rng)
                with np.errstate(all="ignore"):
                    flat[rng.randrange(flat.size)] = np.array([value]).astype(array.dtype)[0]
        proto.CopyFrom(numpy_helper.from_array(array, proto.name))
    except Exception:  # the tensor was damaged before: it has no values to replace
        proto.ClearField("raw_data")
