"""Progress of work in counted steps: a bar on a terminal, plain lines elsewhere; on standard error."""

from __future__ import annotations

import sys
import time


class Bar:
    """``total`` steps of ``noun``; elsewhere than on a terminal every ``every``-th step is a line."""

    def __init__(self, total: int, noun: str, every: int = 1) -> None:
        self.total, self.noun, self.every = total, noun, every
        self.done = 0
        self.terminal = sys.stderr.isatty()
        self.began = time.perf_counter()

    def step(self, said: str = "") -> None:
        """One more is done; ``said`` stands behind the count."""
        self.done += 1
        seconds = time.perf_counter() - self.began
        text = f"{self.done}/{self.total} {self.noun}, {seconds:.0f} s{', ' if said else ''}{said}"
        if self.terminal:
            filled = 40 * self.done // self.total
            print(f"\r\x1b[K  {'#' * filled}{'.' * (40 - filled)} {text}", end="", file=sys.stderr, flush=True)
        elif self.done % self.every == 0 or self.done == self.total:
            print(f"  {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the line of the bar."""
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
