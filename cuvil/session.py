"""``InferenceSession``: the class onnxruntime's users know, computing with Cuvil engines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.importers.signature import anonymous_name, symbol
from compiler_kernels.policy import Policy, load_policy
from cuvil.engines import DEFAULT_LOADED, EnginePool, Shapes, Source
from cuvil.errors import InvalidArgument, InvalidModel, NoSuchFile
from cuvil.model import Signature, read_signature, self_contained
from cuvil.options import (
    CPU,
    ENGINES_ENTRY,
    POLICY_ENTRY,
    SHAPES_ENTRY,
    RunOptions,
    SessionOptions,
    check_providers,
)
from cuvil.values import IOBinding, ModelMetadata, NodeArg, OrtValue, type_name


class InferenceSession:
    """An ONNX model ready to run.

    ``path_or_bytes`` is an ONNX file (weights in files beside it are read too) or its bytes. A model with static shapes
    is compiled here, one with symbolic dimensions on the first run of each combination of input shapes, or, where the
    policy or the entry ``cuvil.shapes`` bounds all of them, here as one engine for every size; engines are kept below
    $CUVIL_HOME. ``providers`` other than the processor are warned about. ``run`` may be called from several
    threads; the calls of one session take turns, those of different sessions do not.

    ``NoSuchFile``, ``InvalidModel`` and ``InvalidArgument`` (all ``UsageError``) for what was given wrongly,
    ``UnsupportedError`` for what cannot be compiled.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._options = sess_options or SessionOptions()
        self._options.check()
        check_providers(providers)
        name, data = _model(path_or_bytes)
        self._signature: Signature = read_signature(data, name)
        self._overridden = [_override(arg, self._options.free_dimensions) for arg in self._signature.inputs]
        policy, policy_name = _policy(self._options)
        self._every_size = policy is not None and self._bounded(load_policy(policy, policy_name))
        self._pool = EnginePool(Source(data, policy, policy_name), _limit(self._options))
        if all(isinstance(dim, int) for arg in self._overridden for dim in arg.shape) and self._signature.ranked:
            self._pool.prepare(self._shapes({arg.name: _sizes(arg) for arg in self._overridden}))
        elif self._every_size:
            self._pool.prepare(())

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[NDArray[Any]]:
        """Outputs in the order of ``output_names``, or all of them for ``None``.

        ``input_feed`` holds an array (or ``OrtValue``) for every input, of its type and of a shape the model allows.
        """
        names = list(output_names or [arg.name for arg in self._signature.outputs])
        known = [arg.name for arg in self._signature.outputs]
        for name in names:
            if name not in known:
                raise InvalidArgument(f"the model has no output {name!r}: its outputs are {_listed(known)}")
        feeds = self._feeds(input_feed)
        found = self._pool.run(self._shapes({name: array.shape for name, array in feeds.items()}), feeds)
        return [found[name] for name in names]

    def run_with_iobinding(self, binding: IOBinding, run_options: RunOptions | None = None) -> None:
        binding.run()

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue], run_options: Any = None
    ) -> list[OrtValue]:
        return [OrtValue(array) for array in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("run_async is not supported: call run from a thread of your own")

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def get_inputs(self) -> list[NodeArg]:
        return list(self._overridden)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._signature.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Always empty: weights are compiled into the engine."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        return self._signature.metadata

    def get_providers(self) -> list[str]:
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {CPU: {}}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:
        check_providers(providers)

    def get_session_options(self) -> SessionOptions:
        return self._options

    def disable_fallback(self) -> None:
        """Nothing to disable: there is one provider."""

    def enable_fallback(self) -> None:
        """Nothing to fall back to: there is one provider."""

    def end_profiling(self) -> str:
        """The empty string, as in onnxruntime where profiling was not enabled."""
        return ""

    def _shapes(self, sizes: Mapping[str, tuple[int, ...]]) -> Shapes:
        """What picks the engine: nothing where one takes every size."""
        if self._every_size:
            return ()
        return tuple(sorted((name, tuple(int(n) for n in shape)) for name, shape in sizes.items() if shape))

    def _bounded(self, policy: Policy) -> bool:
        """Whether the policy bounds every symbolic dimension of the inputs, so that one engine serves all sizes."""
        bounds = policy.bounds()
        symbols = [
            anonymous_name(arg.name, axis) if dim is None else symbol(dim)
            for arg in self._signature.inputs
            for axis, dim in enumerate(arg.shape)
            if not isinstance(dim, int)
        ]
        pinned = bool(self._options.free_dimensions) or bool(policy.input_shapes())
        return self._signature.ranked and not pinned and bool(symbols) and all(name in bounds for name in symbols)

    def _feeds(self, given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        if not isinstance(given, Mapping):
            raise InvalidArgument(f"the input feed is a {type(given).__name__}: give a dict of arrays by input name")
        names = [arg.name for arg in self._overridden]
        for name in given:
            if name not in names:
                raise InvalidArgument(f"the model has no input {name!r}: its inputs are {_listed(names)}")
        missing = [arg for arg in self._overridden if arg.name not in given]
        if missing:
            raise InvalidArgument(
                f"the input {missing[0].name!r} is missing from the feed: give an array of {missing[0].describe()}"
            )
        feeds = {arg.name: _array(arg, given[arg.name]) for arg in self._overridden}
        bound: dict[str, tuple[int, str]] = {}
        for arg in self._overridden:
            _check_shape(arg, feeds[arg.name].shape, bound, self._signature.unranked)
        return feeds


def _model(given: str | os.PathLike[str] | bytes) -> tuple[str, bytes]:
    if isinstance(given, bytes | bytearray | memoryview):
        return "model.onnx", bytes(given)
    if not isinstance(given, str | os.PathLike):
        raise InvalidArgument(f"a session is made from a path or bytes, not from {type(given).__name__}")
    path = Path(given)
    try:
        return path.name, self_contained(path, path.read_bytes())
    except FileNotFoundError:
        raise NoSuchFile(f"{path}: does not exist; give the path of an ONNX file") from None
    except OSError as error:
        raise InvalidArgument(f"{path}: cannot be read ({error.strerror}); give the path of an ONNX file") from None


def _policy(options: SessionOptions) -> tuple[bytes | None, str]:
    """The policy in force and its name; the entry ``cuvil.shapes`` makes one that holds its bounds only."""
    if options.has_session_config_entry(SHAPES_ENTRY):
        if options.has_session_config_entry(POLICY_ENTRY):
            raise InvalidArgument(f"both {POLICY_ENTRY} and {SHAPES_ENTRY} are given: state the bounds in the policy")
        bounds = options.get_session_config_entry(SHAPES_ENTRY)
        text = f'version: 1\nmodel: {{name: model, version: "0"}}\nshapes: {{{bounds}}}\n'
        return text.encode(), f"the entry {SHAPES_ENTRY}"
    if not options.has_session_config_entry(POLICY_ENTRY):
        return None, ""
    path = Path(options.get_session_config_entry(POLICY_ENTRY))
    try:
        return path.read_bytes(), str(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a policy file (docs/policy.md)") from None


def _limit(options: SessionOptions) -> int:
    if not options.has_session_config_entry(ENGINES_ENTRY):
        return DEFAULT_LOADED
    text = options.get_session_config_entry(ENGINES_ENTRY)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise InvalidArgument(f"the entry {ENGINES_ENTRY} is {text!r}: give a number from 1 to 1024")
    return int(text)


def _override(arg: NodeArg, sizes: Mapping[str, int]) -> NodeArg:
    shape = [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in arg.shape]
    return NodeArg(arg.name, arg.type, shape)


def _sizes(arg: NodeArg) -> tuple[int, ...]:
    return tuple(dim for dim in arg.shape if isinstance(dim, int))


def _array(arg: NodeArg, given: Any) -> NDArray[Any]:
    """``given`` as an array of the input's type; lists are converted, arrays of another type are refused."""
    array = given.numpy() if isinstance(given, OrtValue) else given
    if isinstance(array, list | tuple | int | float | bool):
        array = np.asarray(array)
        if np.can_cast(array.dtype, _numpy_type(arg.type), "same_kind"):
            array = array.astype(_numpy_type(arg.type))
    array = np.asarray(array)
    found = type_name(str(array.dtype))
    if found != arg.type:
        raise InvalidArgument(
            f"the input {arg.name!r} is {found} {array.shape} where the model takes {arg.describe()}: convert it with "
            f".astype(numpy.{_numpy_type(arg.type)})"
        )
    return array


def _numpy_type(name: str) -> str:
    inner = name.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(inner, inner)


def _check_shape(
    arg: NodeArg, shape: tuple[int, ...], bound: dict[str, tuple[int, str]], unranked: frozenset[str]
) -> None:
    if arg.name in unranked:
        return
    if len(shape) != len(arg.shape):
        raise InvalidArgument(
            f"the input {arg.name!r} has the shape {shape}, of rank {len(shape)}, where the model takes "
            f"{arg.describe()}: give an array of rank {len(arg.shape)}"
        )
    for axis, (size, dim) in enumerate(zip(shape, arg.shape, strict=True)):
        if isinstance(dim, int) and size != dim:
            raise InvalidArgument(
                f"the input {arg.name!r} has the shape {shape} where the model takes {arg.describe()}: axis {axis} is "
                f"{size} and must be {dim}"
            )
        if size < 1:
            raise InvalidArgument(f"the input {arg.name!r} has the shape {shape}: empty arrays are not computed")
        if isinstance(dim, str):
            known, where = bound.setdefault(dim, (size, arg.name))
            if known != size:
                raise InvalidArgument(
                    f"the inputs {where!r} and {arg.name!r} give the dimension {dim!r} as {known} and {size}: give it "
                    "one size"
                )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"


__all__ = ["InferenceSession", "InvalidModel"]
