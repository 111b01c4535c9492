"""The instructions behind a step of a finished engine, found from its own table of steps in the stripped file.

A step is ``{run, items, kernel, node}`` (runtime/cuvil_engine.h): the name of the kernel is looked up in the file, the
entry that points to it gives the address of its code, and calls and jumps are followed from there in objdump's listing.
"""

from __future__ import annotations

import re
import struct
import subprocess
from itertools import pairwise
from pathlib import Path

from compiler_kernels.toolchain.elf import read_sections

_LINE = re.compile(r"^\s*([0-9a-f]+):\t(\S+)\s*(.*)$")
_TARGET = re.compile(r"^(?:0x)?([0-9a-f]+)\b")


class Listing:
    """The disassembled text of one executable."""

    def __init__(self, engine: Path) -> None:
        words = ["objdump", "-d", "--no-show-raw-insn", "-M", "att", str(engine)]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found = (_LINE.match(line) for line in text.splitlines())
        self.lines = {int(m[1], 16): (m[2], m[3]) for m in found if m}
        order = sorted(self.lines)
        self.after = dict(pairwise(order))
        self.data = engine.read_bytes()
        self.sections = [s for s in read_sections(self.data) if s.loaded and s.kind != 8]

    def kernel(self, name: str) -> list[str]:
        """All instructions a call of the step with this kernel can reach, as text."""
        wanted = self._address(b"\0" + name.encode() + b"\0") + 1
        (entry,) = self._pointing_to(wanted)
        return self._reachable(entry)

    def _address(self, content: bytes) -> int:
        at = self.data.find(content)
        assert at >= 0, content
        (section,) = (s for s in self.sections if s.offset <= at < s.offset + s.size)
        return section.address + at - section.offset

    def _pointing_to(self, name: int) -> set[int]:
        """``run`` of the entries whose ``kernel``, 16 bytes further, is the address ``name``."""
        found = set()
        for section in self.sections:
            for at in range(section.offset + 16, section.offset + section.size - 7, 8):
                if struct.unpack_from("<Q", self.data, at)[0] == name:
                    found.add(struct.unpack_from("<Q", self.data, at - 16)[0])
        return found

    def _reachable(self, entry: int) -> list[str]:
        waiting, seen = [entry], set()
        while waiting:
            at = waiting.pop()
            while at in self.lines and at not in seen:
                seen.add(at)
                name, operands = self.lines[at]
                target = _TARGET.match(operands)
                if name.startswith(("j", "call")) and target:
                    waiting.append(int(target[1], 16))
                if name in ("ret", "retq", "jmp", "jmpq", "ud2"):
                    break
                at = self.after.get(at, -1)
        return [" ".join(self.lines[at]) for at in sorted(seen)]
