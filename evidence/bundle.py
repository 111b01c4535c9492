"""Deterministic zip files: the verifier as ``cuvil-verify.pyz``, and a release as one bundle.

Equal content gives equal bytes: entries in the order of their names, stored without compression (whose bytes depend on
the zlib at hand), with one fixed time. The zipapp form is that of Python's ``zipapp`` module (PEP 441).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path

import asn1crypto

import evidence.verifier
from evidence.verifier.errors import UsageError
from evidence.verifier.listing import list_release

VERIFIER_NAME = "cuvil-verify.pyz"
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = b"import sys\n\nfrom evidence.verifier.__main__ import main\n\nsys.exit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def zip_bytes(files: Mapping[str, bytes], executable: frozenset[str] = frozenset()) -> bytes:
    """A zip of ``files`` by name; those in ``executable`` get mode 0755, the others 0644."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as package:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = (0o100755 if name in executable else 0o100644) << 16
            package.writestr(entry, files[name])
    return buffer.getvalue()


@lru_cache(maxsize=1)
def verifier_zipapp() -> bytes:
    """``cuvil-verify.pyz``: evidence/verifier and asn1crypto with its licence; runs with any Python from 3.11."""
    files = {"__main__.py": _MAIN, "evidence/__init__.py": b'"""Cuvil\'s verifier, by itself."""\n'}
    for prefix, module in (("evidence/verifier", evidence.verifier), ("asn1crypto", asn1crypto)):
        folder = Path(str(module.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            files[f"{prefix}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    files["licences/asn1crypto.txt"] = asn1crypto_licence()
    return _SHEBANG + zip_bytes(files)


def asn1crypto_licence() -> bytes:
    """The licence text (MIT) of the installed asn1crypto; ``UsageError`` when the installation lacks it."""
    for path in distribution("asn1crypto").files or []:
        if path.name.upper().startswith("LICENSE"):
            return Path(str(path.locate())).read_bytes()
    raise UsageError("the installed asn1crypto has no licence text; install it from its wheel")


def bundle(release: Path, without: Collection[str] = ()) -> bytes:
    """The release in a folder, or in a bundle, as one zip whose entries lie in a folder of the release's name.

    ``without``: names that are left out. Raises ``UsageError`` when the release holds a link, a special file or a name
    a release never has.
    """
    listing = list_release(release)
    if listing.faults or not listing.digests:
        raise UsageError(f"{release}: {listing.faults[0] if listing.faults else 'is empty'}; give a release folder")
    kept = [item for item in listing.digests if item not in without]
    if listing.archive is None:
        name = release.resolve().name
        files = {f"{name}/{item}": (release / item).read_bytes() for item in kept}
    else:
        with zipfile.ZipFile(listing.archive) as package:
            files = {listing.prefix + item: package.read(listing.prefix + item) for item in kept}
    runs = frozenset(item for item in files if item.endswith((".bin", ".sh", ".pyz")))
    return zip_bytes(files, runs)
