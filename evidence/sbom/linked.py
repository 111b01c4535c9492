"""Parts of the engine itself: every linked object and the source files behind the objects.

The list comes from the linker (``build.json`` of stage ``engine``); every digest in it is recomputed here from the
engine's bytes, so that a bill of materials can not name what the engine does not hold.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler_kernels.errors import RefusedError
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.engines import DEVICE_FILES
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources
from evidence.sbom.environment import cuvil_licence, cuvil_version
from evidence.sbom.parts import LINKED, TOOL, Licence, Part, listing_digests
from evidence.sbom.toolchain import Zig, installed_zig
from evidence.verifier.digests import digest_bytes
from evidence.verifier.records import StageRecord

MUSL, ZIG_LIBC, COMPILER_RT, OBJECT, LINKER = "musl", "zig-libc", "compiler-rt", "object", "linker"
GLIBC = "glibc"
DEVICE_COMPILER = "tool:nvcc"
MADE_BY_NVCC = ("kernels.cubin", "kernels.ptx")
SECOND_DEVICE_COMPILER = "tool:triton"
LIBRARIES = (MUSL, GLIBC, ZIG_LIBC, COMPILER_RT)
DIGEST_OF_LISTING = "the lines NAME SHA3-512 of its objects in this engine"
DIGEST_OF_BYTES = "the bytes it contributes to the engine, in address order"
MERGED = "Constants of several objects that the linker merged, and its own tables; it keeps no origin of them."
_INCLUDE = re.compile(r'^\s*(?:#\s*include|\.incbin)\s+"([^"]+)"', re.MULTILINE)


_PROVIDES = {"cuvil_sha3.c": ("crypto:sha3-512",), "cuvil_digest.c": ("crypto:shake256",)}


@dataclass(frozen=True)
class Library:
    """What is said about a library of others; the version with its source."""

    title: str
    version: str
    version_source: str
    supplier: str
    purl: str
    licence: Licence
    description: str


def libraries(zig: Zig) -> dict[str, Library]:
    """The libraries an engine may hold, as the compiler's distribution carries them."""
    release = f"ziglang {zig.version}"
    return {
        MUSL: Library(
            "musl",
            zig.musl_version,
            f"lib/libc/musl/src/internal/version.h of {release}",
            "musl libc contributors",
            f"pkg:generic/musl@{zig.musl_version}?download_url=pkg:pypi/ziglang%40{zig.version}",
            zig.musl_licence,
            "C library: start of the program, files, threads, text output. As the compiler's distribution carries it.",
        ),
        GLIBC: Library(
            "glibc start files",
            "2.28",
            f"the target triple; sources in lib/libc/glibc of {release}",
            "GNU C Library contributors",
            f"pkg:generic/glibc@2.28?download_url=pkg:pypi/ziglang%40{zig.version}",
            zig.glibc_licence,
            "Start of a program for the GNU system, whose C library is loaded at that moment; GPU engines only.",
        ),
        ZIG_LIBC: Library(
            "zig-libc",
            zig.version,
            f"part of {release} (lib/c)",
            "Zig contributors",
            f"pkg:pypi/ziglang@{zig.version}#ziglang/lib/c",
            zig.zig_licence,
            "Functions of the C library that the Zig distribution implements itself in place of musl's.",
        ),
        COMPILER_RT: Library(
            "compiler-rt",
            zig.version,
            f"part of {release} (lib/compiler_rt)",
            "Zig contributors",
            f"pkg:pypi/ziglang@{zig.version}#ziglang/lib/compiler_rt",
            zig.compiler_rt_licence,
            "Compiler support routines. Zig's implementation, parts of which are ports of LLVM's compiler-rt.",
        ),
    }


def linked_parts(engine: StageRecord, find: Callable[[str], bytes | None], sources: Mapping[str, bytes]) -> list[Part]:
    """Parts for objects, libraries, source files and a GPU's compiler; ``sources`` are the generated files by name.

    Raises ``RefusedError`` when the build report lists no linked objects (an engine of an older Cuvil), names bytes the
    engine does not hold, or was made with another compiler or runtime than those installed here.
    """
    report, image = _report(engine, find)
    zig = installed_zig()
    _same_compiler(report, zig)
    known = libraries(zig)
    machine = resolve_target(str(report["target"]["triple"])).machine
    files = {**_known_sources(), **sources}
    for made in (item for item in engine.artifacts if item.name.startswith("kernels.")):
        files[made.name] = find(made.sha3_512) or b""
    parts: list[Part] = []
    members: dict[str, list[Part]] = {}
    for entry in report["linked"]:
        part = _object(entry, image, known, zig, machine, report["files"])
        parts.append(part)
        members.setdefault(entry["origin"], []).append(part)
    for origin in (name for name in LIBRARIES if name in members):
        parts.append(_library(origin, known[origin], members[origin]))
    listed = {**report["files"], **report.get("cuda", {}).get("files", {})}
    return [*parts, *_files(listed, files, parts), *device_compiler(report)]


def _known_sources() -> dict[str, bytes]:
    """Every file of the runtime, on the processor's side and on the GPU's."""
    return {**runtime_sources(), **cuda_sources()}


def device_compiler(report: Mapping[str, Any]) -> list[Part]:
    """The compilers of the GPU kernels, where the build report of an engine names them."""
    if "cuda" not in report:
        return []
    compiler = report["cuda"]["compiler"]
    return [
        Part(
            ref=DEVICE_COMPILER,
            kind="application",
            name=compiler["name"],
            group=TOOL,
            version=compiler["version"],
            supplier="NVIDIA Corporation",
            description="Compiler of the GPU kernels: kernels.cu to the code that the engine embeds. The system's g++ "
            "resolves their #include lines.",
            properties={
                **{f"cuvil:program-sha256:{n}": digest for n, digest in compiler["programs_sha256"].items()},
                "cuvil:licence": "CUDA Toolkit End User License Agreement; it has no SPDX identifier",
            },
            own=False,
        ),
        *_second_device_compiler(report["cuda"]),
    ]


def _second_device_compiler(report: Mapping[str, Any]) -> list[Part]:
    if "triton" not in report:
        return []
    compiler = report["triton"]
    return [
        Part(
            ref=SECOND_DEVICE_COMPILER,
            kind="application",
            name=compiler["name"],
            group=TOOL,
            version=compiler["version"],
            supplier="Triton contributors",
            description="Compiler of the GPU kernels in kernels_triton.py, to PTX that nvcc's ptxas assembles.",
            purl=f"pkg:pypi/triton@{compiler['version']}",
            properties={"cuvil:program-sha256": compiler["sha256"], "cuvil:licence": "MIT"},
            own=False,
        )
    ]


def top_refs(parts: list[Part]) -> tuple[str, ...]:
    """What the engine depends on directly: libraries, its own objects, what the linker made."""
    return tuple(p.ref for p in parts if p.ref.startswith(("library:", f"{OBJECT}:", f"{LINKER}:")))


def _report(engine: StageRecord, find: Callable[[str], bytes | None]) -> tuple[dict[str, Any], bytes]:
    listed = engine.artifact("build.json")
    report, image = find(listed.sha3_512) if listed else None, find(engine.principal.sha3_512)
    if report is None or image is None:
        raise RefusedError("the store no longer holds the engine or its build report; build the engine again here")
    document = json.loads(report)
    if not isinstance(document.get("linked"), list):
        raise RefusedError("the build report does not list what was linked; build the engine again with this Cuvil")
    return document, image


def _same_compiler(report: dict[str, Any], zig: Zig) -> None:
    found = report["compiler"]["version"]
    if found != zig.version:
        raise RefusedError(
            f"the engine was built with zig {found}, and zig {zig.version} is installed here, whose licences and "
            f"versions would be stated wrongly; install ziglang=={found}, or build the engine again"
        )


def _object(
    entry: dict[str, Any], image: bytes, known: Mapping[str, Library], zig: Zig, machine: str, files: Mapping[str, Any]
) -> Part:
    origin, name = entry["origin"], entry["name"]
    data = b"".join(image[start : start + size] for start, size in entry["ranges"])
    digests = digest_bytes(data)
    if digests.sha3_512 != entry["sha3_512"] or digests.size != entry["bytes"]:
        raise RefusedError(f"the build report says {name} is in the engine, but its bytes are others; build it again")
    properties = {"cuvil:digest-of": DIGEST_OF_BYTES, "cuvil:bytes": str(entry["bytes"])}
    if entry["zeroed"]:
        properties["cuvil:zeroed-bytes"] = str(entry["zeroed"])
    if entry.get("sections"):
        properties["cuvil:sections"] = " ".join(entry["sections"])
    needs: tuple[str, ...] = ()
    if origin in known:
        library = known[origin]
        source = zig.musl_source(name, machine) if origin == MUSL else None
        if source is not None:
            properties["cuvil:source"] = source
            properties["cuvil:source-sha256"] = hashlib.sha256(zig.text(source)).hexdigest()
        version, supplier, licence = library.version, library.supplier, library.licence
    else:
        version, supplier, licence = cuvil_version(), "Cuvil contributors", cuvil_licence()
        if origin == OBJECT:
            needs = (f"file:{_source_of(name, files)}",)
    return Part(
        ref=f"{origin}:{name}" if origin != LINKER else f"{LINKER}:merged",
        kind="file",
        name=name,
        group=LINKED,
        version=version,
        supplier=supplier,
        licence=licence,
        digests=digests,
        properties=properties,
        needs=needs,
        own=origin not in known,
        description=MERGED if origin == LINKER else "",
    )


def _source_of(name: str, files: Mapping[str, Any]) -> str:
    """The source of an object: ``engine.c.o``, ``kernels_avx2.o`` and ``cuvil_main.o`` are named by the driver."""
    stem = name.removesuffix(".o")
    for candidate in (stem, f"{stem}.c", f"{stem}.S", "kernels.c" if stem.startswith("kernels_") else ""):
        if candidate in files:
            return candidate
    raise RefusedError(
        f"the object {name} is linked, but the build report has no source for it; build the engine again"
    )


def _library(origin: str, about: Library, members: list[Part]) -> Part:
    lines = {part.name: part.digests.sha3_512 for part in members if part.digests is not None}
    return Part(
        ref=f"library:{origin}",
        kind="library",
        name=about.title,
        group=LINKED,
        version=about.version,
        description=about.description,
        supplier=about.supplier,
        purl=about.purl,
        licence=about.licence,
        digests=listing_digests(lines),
        properties={
            "cuvil:digest-of": DIGEST_OF_LISTING,
            "cuvil:objects": str(len(members)),
            "cuvil:version-source": about.version_source,
            "cuvil:nmpa-class": "现成软件组件",
            "cuvil:release-date": "unknown",
            "cuvil:support-level": "unknown",
        },
        needs=tuple(sorted(part.ref for part in members)),
        own=False,
    )


def _files(listed: Mapping[str, Any], files: Mapping[str, bytes], objects: list[Part]) -> list[Part]:
    """Source files reachable from the linked objects by ``#include`` and ``.incbin``, and through what nvcc made."""
    found: dict[str, Part] = {}
    known = _known_sources()
    waiting = [ref.removeprefix("file:") for part in objects for ref in part.needs if ref.startswith("file:")]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        data = files.get(name)
        if data is None or hashlib.sha3_512(data).hexdigest() != listed[name]["sha3_512"]:
            raise RefusedError(f"{name} differs from what the engine was built from; build the engine again here")
        text = data.decode("utf-8", "replace") if name.endswith((".c", ".cu", ".h", ".S")) else ""
        needs = sorted({other for other in _INCLUDE.findall(text) if other in listed})
        needs += [other for other in DEVICE_FILES if name in MADE_BY_NVCC and other in listed]
        found[name] = Part(
            ref=f"file:{name}",
            kind="data" if name.endswith(".bin") else "file",
            name=name,
            group=LINKED,
            version=cuvil_version(),
            supplier="Cuvil contributors",
            licence=cuvil_licence() if name in known else None,
            digests=digest_bytes(data),
            properties={"cuvil:role": "runtime source" if name in known else "generated from the model"},
            needs=tuple(f"file:{other}" for other in needs),
            provides=_PROVIDES.get(name, ()),
        )
        waiting += needs
    return [found[name] for name in sorted(found)]
