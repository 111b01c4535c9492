"""Running an engine's program so that it records its inference."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.audit_erase import Subject
from evidence.verifier.errors import UnsupportedError, UsageError

SALT_VARIABLE = "CUVIL_SESSION_SALT"
_TRACE_VARIABLES = ("TRACEPARENT", "TRACESTATE")


@dataclass(frozen=True)
class Program:
    """An engine and the words that start it here: an emulator's, or none."""

    path: Path
    prefix: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        # An absolute path: a bare name would be looked up on PATH.
        return [*self.prefix, str(self.path.absolute())]

    def describe(self) -> dict[str, Any]:
        """What ``--version --json`` prints; ``UsageError`` when the file is no engine."""
        done = self._run(["--version", "--json"], {}, ())
        try:
            document = json.loads(done.stdout)
        except ValueError:
            document = None
        if done.returncode != 0 or not isinstance(document, dict) or "config_digest" not in document:
            raise UsageError(
                f"{self.path}: does not describe itself as an engine does; give the file `cuvil build` wrote"
            )
        return document

    def infer(
        self,
        arguments: Sequence[str],
        subject: Subject | None = None,
        descriptors: Sequence[int] = (),
        trace: bool = True,
    ) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of one call; the engine gets the subject's token and salt.

        ``trace``: whether the caller's TRACEPARENT and TRACESTATE reach the engine.
        """
        environment = {SALT_VARIABLE: subject.salt.hex()} if subject else {}
        options = ["--subject", subject.token] if subject else []
        done = self._run([*arguments, *options], environment, descriptors, trace)
        return done.returncode, done.stdout, done.stderr

    def _run(
        self, words: Sequence[str], more: Mapping[str, str], descriptors: Sequence[int], trace: bool = True
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            k: v for k, v in os.environ.items() if k != SALT_VARIABLE and (trace or k not in _TRACE_VARIABLES)
        }
        try:
            return subprocess.run(
                [*self.words, *words],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env={**environment, **more},
                pass_fds=tuple(descriptors),
                check=False,
            )
        except OSError as error:
            raise UsageError(
                f"{self.words[0]}: cannot be started ({error.strerror}); make it executable: chmod +x"
            ) from None


@contextmanager
def in_memory(files: Mapping[str, bytes]) -> Iterator[tuple[dict[str, str], list[int]]]:
    """Paths through which a child reads ``files`` from anonymous memory, and the descriptors it must inherit.

    A decrypted input never reaches a disk this way. Linux only (memfd_create); ``UnsupportedError`` elsewhere.
    """
    paths: dict[str, str] = {}
    descriptors: list[int] = []
    try:
        for name, data in files.items():
            try:
                descriptor = os.memfd_create("cuvil-input")
            except (OSError, AttributeError):
                raise UnsupportedError("this system offers no anonymous memory files (memfd_create of Linux)") from None
            descriptors.append(descriptor)
            with os.fdopen(os.dup(descriptor), "wb") as stream:
                stream.write(data)
            os.lseek(descriptor, 0, os.SEEK_SET)
            paths[name] = f"/dev/fd/{descriptor}"
        yield paths, descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
