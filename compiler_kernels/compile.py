"""From an ONNX model to an engine in one call, without stage records or signatures, for tools and tests."""

from __future__ import annotations

import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.policy import Policy, PolicyMisfit, check_against, load_policy, merge_pins
from compiler_kernels.policy.model import ModelIdentity
from compiler_kernels.stage import sha3_512_hex
from compiler_kernels.stages.backend import (
    clinical_of,
    config_digest,
    lower_to_l2,
    program_of,
)
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.c.program import COMPILED_FILES, Identity
from compiler_kernels.targets.isa import BY_NAME, Isa
from compiler_kernels.targets.registry import TARGETS, Target, resolve_target
from compiler_kernels.toolchain.engines import DEVICE_FILES, build_engine
from compiler_kernels.toolchain.zig import cuvil_home

Kind = Literal["so", "bin"]


@dataclass(frozen=True)
class Frozen:
    """A model up to the freeze: the frozen module, its constants, the policy and the pinned shapes."""

    module: Module
    store: WeightStore
    policy: Policy
    pins: Mapping[str, tuple[int, ...]]

    @property
    def digest(self) -> str:
        """SHA3-512 of the frozen graph's text, which names the arithmetic."""
        return sha3_512_hex(print_module(self.module).encode())


def native_target() -> Target:
    """The target whose engines run on this machine's processor; ``UnsupportedError`` when there is none."""
    for target in TARGETS.values():
        if platform.system() == "Linux" and target.machine == platform.machine():
            return target
    raise UnsupportedError(
        f"no target runs on this machine ({platform.system()} {platform.machine()}): name one of "
        f"{', '.join(sorted(TARGETS))} to compile for another"
    )


def freeze_model(
    model: str | os.PathLike[str] | bytes,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    policy: Policy | str | os.PathLike[str] | None = None,
) -> Frozen:
    """The part of :func:`compile_model` before the freeze; the same arguments and errors."""
    data, filename = _model_bytes(model)
    chosen = _policy(policy, filename)
    pins = merge_pins(chosen, {name: tuple(shape) for name, shape in (input_shapes or {}).items()})
    module, store = import_onnx(
        data,
        filename=filename,
        pins=pins,
        ranges=chosen.input_ranges(),
        bounds=chosen.bounds(),
        random_seed=chosen.random_seed,
    )
    try:
        check_against(chosen, module)
    except PolicyMisfit as error:
        if isinstance(policy, Policy) or policy is None:
            raise
        raise error.placed(Path(policy).read_bytes(), str(policy)) from None
    frozen, _ = freeze(module, store, chosen.numerics)
    return Frozen(frozen, store, chosen, pins)


def build_frozen(frozen: Frozen, target: Target, kind: Kind = "so", isas: Sequence[Isa] | None = None) -> bytes:
    """The engine of a frozen model as bytes: a shared library or an executable for ``target``."""
    return build_engine(generate_frozen(frozen, target, isas), target, kind).data


def generate_frozen(frozen: Frozen, target: Target, isas: Sequence[Isa] | None = None) -> dict[str, bytes]:
    """The generated files of a frozen model that the compilers read, by name."""
    lowered = lower_to_l2(frozen.module, frozen.store)
    pins_json = (json.dumps({n: list(s) for n, s in frozen.pins.items()}, sort_keys=True) + "\n").encode()
    identity = Identity(
        frozen.policy.model.name,
        frozen.policy.model.version,
        frozen.digest,
        config_digest(frozen.policy.canonical_json(), pins_json, target.triple),
        target.triple,
    )
    clinical = clinical_of(frozen.policy, frozen.module)
    source = (frozen.module, frozen.store)
    program = program_of(lowered, frozen.store, identity, frozen.policy, clinical, target, isas, source)
    names = (*COMPILED_FILES, *DEVICE_FILES)
    return {name: program.files[name] for name in names if name in program.files}


def compile_model(
    model: str | os.PathLike[str] | bytes,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    target: str | None = None,
    policy: Policy | str | os.PathLike[str] | None = None,
    kind: Kind = "so",
    output: str | os.PathLike[str] | None = None,
    isas: Sequence[Isa | str] | None = None,
) -> Path:
    """Compile an ONNX model (path or bytes) and return the path of the engine.

    ``input_shapes`` pins symbolic dimensions, by input name. ``target`` is a triple, that of this machine if not given.
    ``policy`` is a policy or the path of one; without it the engine has no guards and the version "0". ``kind`` is
    ``"so"`` for :func:`load_engine` or ``"bin"`` for a program. ``output`` is the file to write (replaced only by a
    complete one); if not given, a file named after its content below $CUVIL_HOME/engines. ``isas`` are the instruction
    sets to make kernels for, best first, by default those of the target's processor family; the result's bits do not
    depend on them.

    ``UsageError``: unreadable model or policy, wrong shapes, unwritable output. ``UnsupportedError``: unknown target or
    instruction set, an operator that cannot be compiled.
    """
    chosen_target = resolve_target(target) if target is not None else native_target()
    if kind not in ("so", "bin"):
        raise UsageError(f"there is no kind of engine {kind!r}: choose 'so' or 'bin'")
    chosen_isas = None if isas is None else [_isa(item) for item in isas]
    if chosen_isas == []:
        raise UsageError("isas is empty: name at least one instruction set, or leave it out")
    data = build_frozen(freeze_model(model, input_shapes, policy), chosen_target, kind, chosen_isas)
    path = Path(output) if output is not None else _default_path(data, kind)
    _write(path, data)
    return path


def _model_bytes(model: str | os.PathLike[str] | bytes) -> tuple[bytes, str]:
    if isinstance(model, bytes):
        return model, "model.onnx"
    path = Path(model)
    try:
        return path.read_bytes(), path.name
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give an ONNX file") from None


def _policy(policy: Policy | str | os.PathLike[str] | None, filename: str) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if policy is None:
        name = re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(filename).stem).strip("._+-")[:80] or "model"
        return Policy(version=1, model=ModelIdentity(name=name, version="0"))
    path = Path(policy)
    try:
        return load_policy(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a policy file (docs/policy.md)") from None


def _isa(item: Isa | str) -> Isa:
    if isinstance(item, Isa):
        return item
    if item not in BY_NAME:
        raise UnsupportedError(f"there is no instruction set {item!r}: choose from {', '.join(BY_NAME)}")
    return BY_NAME[item]


def _default_path(data: bytes, kind: Kind) -> Path:
    folder = cuvil_home() / "engines"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot create {folder} ({error.strerror}); name an output file or set CUVIL_HOME to a writable directory"
        ) from None
    return folder / f"{sha3_512_hex(data)[:32]}.{kind}"


def _write(path: Path, data: bytes) -> None:
    """The whole file or nothing. A loaded library keeps its old file: the new one gets the name, not the place."""
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), 0o755)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise UsageError(f"{path}: cannot be written ({error.strerror}); give a path in a writable directory") from None
