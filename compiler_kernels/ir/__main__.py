"""``python -m compiler_kernels.ir FILE``: read an IR text in either form, verify it and print it in full."""

from __future__ import annotations

import sys
from pathlib import Path

from compiler_kernels.errors import CuvilError, UsageError
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify


def main(arguments: list[str]) -> int:
    """0 and the canonical text on standard output, or the error's exit code and its sentence on standard error."""
    try:
        if len(arguments) != 1:
            raise UsageError("give one IR file: python -m compiler_kernels.ir FILE")
        try:
            text = Path(arguments[0]).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"{arguments[0]}: cannot be read as UTF-8 text ({error}); give an IR file") from None
        try:
            module = parse_module(text)
            verify(module)
        except CuvilError as error:
            raise UsageError(f"{arguments[0]}: {error}") from None
        print(print_module(module), end="")
    except CuvilError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
