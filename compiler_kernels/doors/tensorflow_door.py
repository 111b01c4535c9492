"""Keras files and SavedModel folders, through tf2onnx in this interpreter or in one the user names."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from compiler_kernels.doors.child import run_child
from compiler_kernels.doors.converted import Converted, Sizes, stated
from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json

PYTHON_VARIABLE = "CUVIL_TF_PYTHON"
"""Environment variable: an interpreter with tensorflow and tf2onnx, where they do not fit beside Cuvil."""
SUFFIXES = (".keras", ".h5", ".hdf5")


def is_tensorflow(path: Path) -> bool:
    """Whether ``path`` is a Keras file by its suffix, or a folder with a SavedModel."""
    return path.suffix in SUFFIXES or (path / "saved_model.pb").is_file()


def convert_tensorflow(path: Path, shapes: Mapping[str, Sizes]) -> Converted:
    """The ONNX model of a ``.keras`` or ``.h5`` file or a SavedModel folder.

    ``UsageError`` for what cannot be loaded, ``UnsupportedError`` for what tf2onnx cannot translate.
    """
    source = archive(path) if path.is_dir() else _read(path)
    name = f"{path.name}.tar" if path.is_dir() else path.name
    script = Path(__file__).with_name("tensorflow_script.py")
    other = os.environ.get(PYTHON_VARIABLE)
    command = [other or sys.executable, str(script)]
    # another interpreter must not find the packages of this one
    environment = {"PYTHONPATH": "" if other else os.environ.get("PYTHONPATH", "")}
    request: dict[str, Json] = {"path": str(path), "shapes": {n: list(s) for n, s in shapes.items()}}
    model, facts = run_child(command, request, path.name, environment)
    return stated(model, name, source, "tensorflow", None, facts)


def archive(folder: Path) -> bytes:
    """A tar archive of ``folder`` that depends on names and contents only."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            data = _read(path)
            info = tarfile.TarInfo(path.relative_to(folder).as_posix())
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a file that exists") from None
