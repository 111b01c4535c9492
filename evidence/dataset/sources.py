"""Where the items of a split come from: a folder of files, an array, or a manifest made elsewhere."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from compiler_kernels.errors import UsageError
from evidence.dataset.items import Array, Item, array_items, file_item
from evidence.dataset.manifest import read_manifest
from evidence.keygen.files import find_files

Progress = Callable[[int, int], None]


def read_source(text: str, only: Sequence[str], numbers: bool, progress: Progress) -> list[Item]:
    """Items of ``text``: a folder, a ``.npy`` file, ``FILE.npz:ARRAY``, or a manifest (``.json``).

    ``only``: patterns of file names in a folder. ``numbers``: name items by number, since names may tell who it is.
    Raises ``UsageError`` for what cannot be read, and for a source without items.
    """
    path = Path(text)
    if path.is_dir():
        found = list(_folder(path, only, progress))
    elif path.suffix == ".json":
        found = read_manifest(path).items
    else:
        found = list(array_items(read_array(text)))
    if not found:
        raise UsageError(f"{text}: holds no item; give a folder, an array or a manifest with items")
    if numbers:
        found = [replace(item, id=f"item {index}") for index, item in enumerate(found)]
    return list(found)


def read_array(text: str, least_axes: int = 2) -> Array:
    """``FILE.npy`` or ``FILE.npz:ARRAY``, whose first axis counts items; ``UsageError`` for anything else."""
    file, colon, name = text.rpartition(":")
    path = Path(file) if colon and file.endswith(".npz") else Path(text)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            array = loaded
        else:
            with loaded:
                names = list(loaded)
                if path == Path(text):
                    raise UsageError(f"{text}: holds {', '.join(names)}; say which as {text}:NAME")
                if name not in names:
                    raise UsageError(f"{path}: has no array {name!r}, but {', '.join(names)}; give one of them")
                array = loaded[name]
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"{path}: is no folder, manifest (.json), .npy or .npz file ({error})") from None
    if array.ndim < least_axes:
        raise UsageError(f"{text}: has {array.ndim} axes; the first one must count images")
    return array


def _folder(folder: Path, only: Sequence[str], progress: Progress) -> Iterator[Item]:
    files = find_files([folder])
    chosen = [f for f in files if not only or any(fnmatchcase(f.path.name, pattern) for pattern in only)]
    for index, found in enumerate(chosen):
        progress(index, len(chosen))
        try:
            data = found.path.read_bytes()
        except OSError as error:
            raise UsageError(f"{found.shown}: cannot be read ({error.strerror}); restore it or leave it out") from None
        yield file_item(found.name, data, _pixels(found.path.name, data))
    progress(len(chosen), len(chosen))


def _pixels(name: str, data: bytes) -> Array | None:
    """Pixels of an image or DICOM file, ``None`` where it is none or the package that reads it is not installed."""
    if data[128:132] == b"DICM":
        return _dicom(data)
    if name.endswith(".npy"):
        try:
            loaded = np.load(io.BytesIO(data), allow_pickle=False)
        except (ValueError, EOFError, OSError):
            return None
        return loaded if isinstance(loaded, np.ndarray) else None
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                return np.asarray(image.convert("RGB" if image.mode == "P" else "L") if image.mode in "1P" else image)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _dicom(data: bytes) -> Array | None:
    try:
        import pydicom
    except ImportError:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stored: Any = pydicom.dcmread(io.BytesIO(data)).pixel_array
    except Exception:  # pydicom raises many kinds for files without or with unreadable pixels
        return None
    return np.asarray(stored)
