"""Run a program, stop it where it ends, and look for byte patterns in its memory and its threads' registers.

``python exit_scan.py PATTERNS PROGRAM ARGUMENT...``; PATTERNS is a JSON list of hexadecimal strings. The program is
traced (ptrace(2), PTRACE_O_TRACEEXIT): it stops after the last instruction of its own, with its memory still mapped.
Prints one JSON object: exit code, number of threads, bytes looked at, and for every place (mapping, or ``registers``)
how many of the patterns were found there.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import sys
from pathlib import Path

import numpy as np

TRACEME, CONT, SETOPTIONS, GETREGSET = 0, 7, 0x4200, 0x4204
EXEC_STOPS, CLONE, EXIT = 0x10, 0x08, 0x40  # PTRACE_O_TRACEEXEC, _TRACECLONE, _TRACEEXIT
EVENT_EXEC, EVENT_CLONE, EVENT_EXIT = 4, 3, 6
ALL_CHILDREN = 0x40000000  # __WALL
NT_PRSTATUS, NT_FPREGSET, NT_X86_XSTATE = 1, 2, 0x202

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    if libc.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")


def registers(pid: int) -> bytes:
    """General-purpose and all vector registers of a stopped thread."""
    found = b""
    kinds = [NT_PRSTATUS, NT_X86_XSTATE] if platform.machine() == "x86_64" else [NT_PRSTATUS, NT_FPREGSET]
    for kind in kinds:
        buffer = ctypes.create_string_buffer(16384)
        vector = _Vector(ctypes.addressof(buffer), len(buffer))
        if libc.ptrace(GETREGSET, pid, kind, ctypes.addressof(vector)) < 0:
            raise OSError(ctypes.get_errno(), f"registers {kind:#x}")
        found += buffer.raw[: vector.length]
    return found


def memory(pid: int) -> dict[str, bytes]:
    """Every mapping that can be written, and the others that hold no file, by name and address."""
    found = {}
    with Path(f"/proc/{pid}/mem").open("rb", 0) as stream:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, access, _, _, inode, *name = line.split(maxsplit=5)
            start, end = (int(part, 16) for part in span.split("-"))
            if "r" not in access or ("w" not in access and inode != "0") or name == ["[vvar]"]:
                continue
            try:
                stream.seek(start)
                found[f"{name[0] if name else 'anonymous'} {span} {access}"] = stream.read(end - start)
            except (OSError, OverflowError, ValueError):
                continue  # [vsyscall]
    return found


def found_in(data: bytes, patterns: list[bytes]) -> int:
    """How many of the patterns, of at least eight bytes each, are somewhere in ``data``."""
    by_start: dict[int, set[bytes]] = {}
    for pattern in patterns:
        by_start.setdefault(int.from_bytes(pattern[:8], "little"), set()).add(pattern)
    starts = np.array(sorted(by_start), np.uint64)
    found: set[bytes] = set()
    for shift in range(8):
        words = np.frombuffer(data, np.uint64, count=max(0, len(data) - shift) // 8, offset=shift)
        filled = np.flatnonzero(words)  # most of it is zeros
        nearest = np.minimum(np.searchsorted(starts, words[filled]), len(starts) - 1)
        for place in filled[starts[nearest] == words[filled]]:
            at = 8 * int(place) + shift
            found |= {p for p in by_start[int(words[place])] if data.startswith(p, at)}
    return len(found)


def main() -> int:
    patterns = [bytes.fromhex(text) for text in json.loads(Path(sys.argv[1]).read_text())]
    leader = os.fork()
    if leader == 0:
        ptrace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.execv(sys.argv[2], sys.argv[2:])
    os.waitpid(leader, 0)
    ptrace(SETOPTIONS, leader, 0, EXEC_STOPS | CLONE | EXIT)
    ptrace(CONT, leader)
    places: dict[str, bytes] = {}
    threads, code, vectors = {leader}, None, []
    while threads:
        pid, status = os.waitpid(-1, ALL_CHILDREN)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            threads.discard(pid)
            if pid == leader:
                code = os.waitstatus_to_exitcode(status)
            continue
        threads.add(pid)
        event = status >> 16
        if event == EVENT_EXIT:
            vectors.append(registers(pid))
            if pid == leader:
                places = memory(pid)
        passed = 0 if event or os.WSTOPSIG(status) in (signal.SIGSTOP, signal.SIGTRAP) else os.WSTOPSIG(status)
        ptrace(CONT, pid, 0, passed)
    places["registers"] = b"".join(vectors)
    counts = {name: found_in(data, patterns) for name, data in places.items()}
    answer = {
        "exit": code,
        "bytes": sum(map(len, places.values())),
        "threads": len(vectors),
        "found": {name: count for name, count in counts.items() if count},
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
