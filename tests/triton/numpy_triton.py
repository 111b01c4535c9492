"""The text of Triton kernels executed in NumPy, program by program, with correctly rounded fma: what the text says, not
what Triton makes of it. Triton's own interpreter rounds an fma twice. Every access is checked against its buffer.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evidence.reference.rounding import fmaf


class Tensor(np.ndarray):
    """An array with the one method of tensors that the kernels use."""

    def to(self, dtype: Any, bitcast: bool = False) -> Tensor:
        assert bitcast
        return self.view(dtype)


def tensor(value: Any, dtype: Any = np.float32) -> Tensor:
    return np.asarray(value, dtype).view(Tensor)


class Pointer:
    """Elements of ``memory`` at ``places``."""

    def __init__(self, memory: np.ndarray, places: Any) -> None:
        self.memory, self.places = memory, places

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.memory, self.places + offset)

    def __getitem__(self, key: Any) -> Pointer:
        return Pointer(self.memory, np.asarray(self.places)[key])

    def chosen(self, mask: Any) -> tuple[np.ndarray, np.ndarray]:
        """Places and mask of the same shape; those that exist lie in the buffer."""
        places, mask = np.broadcast_arrays(self.places, True if mask is None else mask)
        inside = places[mask]
        assert not inside.size or (inside.min() >= 0 and inside.max() < self.memory.size), "outside of the buffer"
        return places, mask


class Language(types.ModuleType):
    """``triton.language`` as far as the kernels use it."""

    float32, int32 = np.float32, np.int32

    def __init__(self) -> None:
        super().__init__("triton.language")
        self.program = 0
        self.math = types.SimpleNamespace(
            fma=lambda a, b, c: tensor(fmaf(a, b, c)),
            div_rn=lambda a, b: tensor(np.divide(np.float32(a), np.float32(b))),
            sqrt_rn=lambda a: tensor(np.sqrt(a)),
            floor=lambda a: tensor(np.floor(a)),
            ceil=lambda a: tensor(np.ceil(a)),
        )

    def program_id(self, axis: int) -> int:
        assert axis == 0
        return self.program

    @staticmethod
    def arange(first: int, last: int) -> np.ndarray:
        size = last - first
        assert size & (size - 1) == 0
        return np.arange(first, last, dtype=np.int64)

    @staticmethod
    def zeros(shape: Sequence[int], dtype: Any) -> Tensor:
        assert all(n & (n - 1) == 0 for n in shape)
        return tensor(np.zeros(shape, dtype))

    @staticmethod
    def load(pointer: Pointer, mask: Any = None, other: float = 0.0) -> Tensor:
        places, chosen = pointer.chosen(mask)
        assert np.shape(pointer.places) == places.shape
        found = np.full(places.shape, other, np.float32)
        found[chosen] = pointer.memory[places[chosen]]
        return tensor(found)

    @staticmethod
    def store(pointer: Pointer, value: Any, mask: Any = None) -> None:
        places, chosen = pointer.chosen(mask)
        assert np.shape(pointer.places) == places.shape == np.shape(value) or np.shape(value) == (1, *places.shape[1:])
        pointer.memory[places[chosen]] = np.broadcast_to(np.asarray(value, np.float32), places.shape)[chosen]

    @staticmethod
    def dot(a: Any, b: Any, acc: Any, input_precision: str, max_num_imprecise_acc: int) -> Tensor:
        assert input_precision == "ieee" and max_num_imprecise_acc and a.shape[1] == b.shape[0] >= 16
        for k in range(a.shape[1]):
            acc = fmaf(a[:, k, None], b[None, k], acc)
        return tensor(acc)

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Tensor:
        return tensor(np.where(condition, np.float32(a), np.float32(b)))

    @staticmethod
    def abs(a: Any) -> Tensor:
        return tensor(np.abs(a))

    @staticmethod
    def minimum(a: Any, b: Any) -> Any:
        return min(a, b)

    @staticmethod
    def broadcast_to(a: Any, shape: Sequence[int]) -> Tensor:
        return tensor(np.broadcast_to(a, shape))

    @staticmethod
    def static_range(first: int, last: int) -> range:
        return range(first, last)


def namespace(text: str) -> tuple[dict[str, Any], Language]:
    """The functions of kernels_triton.py over this language."""
    language = Language()
    package = types.ModuleType("triton")
    package.jit = lambda function: function  # type: ignore[attr-defined]
    package.language = language  # type: ignore[attr-defined]
    names: dict[str, Any] = {}
    before = {name: sys.modules.get(name) for name in ("triton", "triton.language")}
    sys.modules |= {"triton": package, "triton.language": language}
    try:
        exec(compile(text, "kernels_triton.py", "exec"), names)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return names, language


def run(text: str, name: str, programs: int, buffers: Mapping[str, np.ndarray]) -> None:
    """All programs of kernel ``name`` on float32 ``buffers`` by parameter, the result ``y`` among them."""
    names, language = namespace(text)
    pointers = [Pointer(memory, 0) for memory in buffers.values()]
    with np.errstate(all="ignore"):
        for language.program in range(programs):
            names[name](*pointers)


def special_values() -> np.ndarray:
    """Numbers at which elementwise operations change their behaviour, and random ones of every size."""
    rng = np.random.default_rng(3)
    fixed = [0.0, 1.0, 4.0, 9.125, 88.0, 89.0, 104.0, 0.625, 1e-45, 1.2e-38, 3.4e38, np.inf, np.nan, 0.8203125]
    signed = list(itertools.chain.from_iterable((v, -v) for v in fixed))
    wide = rng.standard_normal(200) * 10.0 ** rng.uniform(-40, 38, 200)
    return np.array([*signed, *wide, *(rng.standard_normal(284) * 4)], np.float32)
