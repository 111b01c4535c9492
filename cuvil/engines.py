"""Engines of one model: compiled on first use, kept below $CUVIL_HOME by digest, loaded privately, called one by one.

A loaded engine's memory is static, and the dynamic loader gives the same memory for the same file. So each session
loads a copy of its own: sessions of one model run beside each other without sharing a byte, and a lock makes the calls
of one session take turns. (One lock for all sessions would need no copies, and would let no two sessions run at once.)
"""

from __future__ import annotations

import _ctypes
import json
import os
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from compiler_kernels.compile import compile_model, native_target
from compiler_kernels.engine import Engine
from compiler_kernels.errors import CuvilError, UsageError
from compiler_kernels.policy import load_policy
from compiler_kernels.stage import sha3_512_hex
from compiler_kernels.stages.base import source_digest
from compiler_kernels.toolchain.zig import cuvil_home, zig_version

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Pinned shapes by input name, sorted: the part of a cache key that changes from run to run."""
DEFAULT_LOADED = 8


@dataclass(frozen=True)
class Source:
    """What an engine is made of: the ONNX model's bytes and the policy's, or ``None`` for no guards."""

    model: bytes
    policy: bytes | None
    policy_name: str = "policy"
    digests: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        policy = "" if self.policy is None else sha3_512_hex(self.policy)
        object.__setattr__(self, "digests", (sha3_512_hex(self.model), policy))

    def key(self, shapes: Shapes) -> str:
        """Digest of everything the engine's bytes depend on: model, policy, shapes, compiler, target."""
        target = native_target()
        parts = [*self.digests, dict(shapes), source_digest("compiler_kernels"), zig_version(), target.triple]
        return sha3_512_hex(json.dumps(parts, sort_keys=True).encode())


def cached_engine(source: Source, shapes: Shapes) -> bytes:
    """The bytes of the engine for ``shapes``, from $CUVIL_HOME/engines or compiled and kept there.

    A kept engine is used only while its SHA3-512 is the one written beside it. Raises what ``compile_model`` raises.
    """
    name = f"session-{source.key(shapes)[:40]}"
    folder = cuvil_home() / "engines"
    path, note = folder / f"{name}.so", folder / f"{name}.sha3"
    try:
        data = path.read_bytes()
        if sha3_512_hex(data) == note.read_text().strip():
            return data
    except (OSError, UnicodeDecodeError):
        pass  # never compiled, or half of it removed: compile it
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {folder} ({error.strerror}); set CUVIL_HOME to a writable directory") from None
    policy = None if source.policy is None else load_policy(source.policy, source.policy_name)
    compile_model(source.model, input_shapes=dict(shapes), policy=policy, output=path)
    data = path.read_bytes()
    _replace(note, sha3_512_hex(data).encode() + b"\n")
    return data


class EnginePool:
    """The loaded engines of one session, at most ``limit`` of them; the one not used for longest goes first."""

    def __init__(self, source: Source, limit: int = DEFAULT_LOADED) -> None:
        self.source = source
        self.limit = limit
        self._lock = threading.Lock()
        self._engines: OrderedDict[Shapes, Engine] = OrderedDict()
        finalizer = weakref.finalize(self, _unload_all, self._engines)
        finalizer.atexit = False  # the process's memory goes anyway, and other finalisers may still compute

    @property
    def loaded(self) -> list[Shapes]:
        """Shapes of the loaded engines, the one used last at the end."""
        return list(self._engines)

    def prepare(self, shapes: Shapes) -> None:
        """Compile (or find) and load the engine for ``shapes``."""
        with self._lock:
            self._engine(shapes)

    def run(self, shapes: Shapes, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name; arrays of the caller's own. Safe from any thread."""
        with self._lock:
            return dict(self._engine(shapes).run(feeds))

    def _engine(self, shapes: Shapes) -> Engine:
        engine = self._engines.get(shapes)
        if engine is None:
            engine = load_private(cached_engine(self.source, shapes))
            while len(self._engines) >= self.limit:
                _unload(self._engines.popitem(last=False)[1])
            self._engines[shapes] = engine
        self._engines.move_to_end(shapes)
        return engine


def load_private(data: bytes) -> Engine:
    """Load ``data`` as an engine with memory of its own; the file it is loaded from is gone afterwards."""
    folder = cuvil_home() / "engines"
    try:
        descriptor, name = tempfile.mkstemp(prefix=".private-", suffix=".so", dir=folder)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
    except OSError as error:
        raise CuvilError(f"{folder}: cannot hold a copy of the engine ({error.strerror}); free space there") from None
    try:
        return Engine(Path(name))
    finally:
        Path(name).unlink()


def _unload(engine: Engine) -> None:
    # ctypes never unloads. Results are copies, so nothing points into the library once its engine is dropped.
    _ctypes.dlclose(engine._library._handle)


def _unload_all(engines: OrderedDict[Shapes, Engine]) -> None:
    while engines:
        _unload(engines.popitem()[1])


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{path}: cannot be written ({error.strerror}); set CUVIL_HOME elsewhere") from None
