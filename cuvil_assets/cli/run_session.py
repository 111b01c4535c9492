"""``cuvil run --session``: an inference that is recorded, with its inputs kept where the policy says so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from compiler_kernels.errors import UsageError
from cuvil_assets.cli.replay import program_of
from cuvil_assets.home import current_home
from evidence.audit_erase import Subject
from evidence.sessions import engine_places as known_engines
from evidence.sessions import inputs as kept
from evidence.sessions.archive import Archive
from evidence.sessions.record import INFERENCE
from evidence.verifier.errors import UsageError as VerifierUsageError
from evidence.verifier.files import read_small


def run(
    engine: Path,
    inputs: list[str],
    output_dir: Path,
    as_json: bool,
    threads: int | None,
    folder: Path,
    subject_name: str,
    coverage: Path | None = None,
) -> int:
    """The engine's exit code, after it and this process said what the engine says.

    With a subject the digests are salted with its salt; where the policy keeps inputs, they lie encrypted in the
    archive before the engine runs.
    """
    program = program_of(engine)
    described = program.describe()
    known_engines.remember(current_home().root, str(described["config_digest"]), engine)
    sessions = described.get("sessions")
    if not isinstance(sessions, dict):
        raise UsageError(
            f"{engine}: keeps no records; build it with audit.sessions in its policy, or leave out --session"
        )
    archive = Archive(folder)
    keeps = sessions.get("inputs") == "keep"
    if keeps and not subject_name:
        raise UsageError(
            "the engine's policy keeps inputs: say whose they are with --subject, so that they can be erased"
        )
    subject = kept.new_subject(current_home().root, archive, subject_name) if subject_name else None
    expected = _keep(archive, subject, described, inputs) if keeps and subject else []
    words = [word for text in inputs for word in ("--input", text)]
    words += ["--output-dir", str(output_dir), "--session", str(folder)] + (["--json"] if as_json else [])
    words += [] if threads is None else ["--threads", str(threads)]
    words += [] if coverage is None else ["--coverage", str(coverage)]
    before = archive.end()
    code, out, said = program.infer([*words, *(["--kept"] if expected else [])], subject)
    sys.stderr.write(said)
    sys.stdout.write(out)
    if subject and expected and code in (0, 3):
        _same(archive, before, subject.token, expected)
    return code


def _keep(archive: Archive, subject: Subject, described: dict[str, Any], texts: list[str]) -> list[str]:
    """Keep every input; their digests in the engine's order.

    Nothing is kept where a file or a name is wrong: the engine says what.
    """
    paths = {}
    names = [item["name"] for item in described["inputs"]]
    for text in texts:
        name = next((n for n in names if text.startswith(f"{n}=")), names[0] if len(names) == 1 else "")
        paths[name] = Path(text.removeprefix(f"{name}="))
    files: dict[str, bytes] = {}
    digests: list[str] = []
    for item in described["inputs"]:
        if item["name"] not in paths:
            return []
        try:
            data = read_small(paths[item["name"]], "input", "give an existing .npy file", kept.LARGEST)
            digests.append(kept.digest_of_npy(data, item["dtype"], subject.salt))
        except VerifierUsageError:
            return []
        files[digests[-1]] = data
    kept.keep(archive, subject, files)
    return digests


def _same(archive: Archive, before: int, token: str, expected: list[str]) -> None:
    """That the engine read what was kept: nobody exchanged a file in between. Others may have written records too."""
    own = [item for item in archive.records(before) if item.subject == token and item.kind == INFERENCE]
    if not any([tensor.digest for tensor in item.inputs] == expected for item in own):
        raise UsageError(
            f"{archive.folder}: an input file changed while the engine ran: what is kept is not what it read; run again"
        )
