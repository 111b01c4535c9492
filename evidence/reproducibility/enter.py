"""Enters the world of one rebuild and becomes its process: host name, umask, processors, environment.

Run as a file by a plain Python with nothing but the standard library (``evidence.reproducibility.launch`` starts it,
inside namespaces of its own where the system grants them). Argument: a JSON file with ``hostname`` (or empty),
``umask``,
``cpus`` (or 0), ``environment``, ``directory`` and ``command``. What cannot be changed stays as it is: the rebuild
reports what it found.
"""

import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path


def main(path: str) -> None:
    """Never returns."""
    world = json.loads(Path(path).read_bytes())
    if world["hostname"]:
        with suppress(OSError):
            socket.sethostname(world["hostname"])
    if world["cpus"]:
        with suppress(OSError):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: world["cpus"]])
    os.umask(int(world["umask"], 8))
    os.chdir(world["directory"])
    os.execve(world["command"][0], world["command"], world["environment"])


if __name__ == "__main__":
    main(sys.argv[1])
