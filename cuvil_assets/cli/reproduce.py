"""``cuvil reproduce``: varied rebuilds of an engine, the second compiler, report, log and signed result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.errors import RefusedError, UsageError, VerificationFailed
from compiler_kernels.stage import sha3_512_hex
from cuvil_assets import audit
from cuvil_assets.cli.bar import Bar
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.cli.sbom import statement_of
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from cuvil_assets.inputs import MODEL_LIMIT, POLICY_LIMIT, read_file
from cuvil_assets.reproduce import Wanted, rebuilds_of, reproduced
from cuvil_assets.store import ContentStore
from evidence.delivered import REPORT_SUFFIXES, REPRODUCE_LOG, REPRODUCE_SIGNED, Delivered
from evidence.reproducibility.difference import Difference
from evidence.reproducibility.inputs import Recorded
from evidence.reproducibility.launch import Rebuilt
from evidence.reproducibility.report import Outcome
from evidence.reproducibility.statement import signed_result
from evidence.signing_keys import load_signing_keys
from evidence.verifier.digests import digest_bytes, digest_file
from evidence.verifier.statement import Statement
from evidence.verifier.subjects import subject_of

SUFFIX = REPORT_SUFFIXES["reproducibility"]
MOST_REBUILDS = 1000


@dataclass(frozen=True)
class Options:
    """Options of ``cuvil reproduce``; ``rebuilds`` and ``jobs`` of ``None`` are the policy's and the processors'."""

    engine: Path
    rebuilds: int | None
    model: Path | None
    policy: Path | None
    key: Path | None
    seed: int
    jobs: int | None
    fresh_caches: int


def run(options: Options, as_json: bool) -> None:
    """Rebuild, compare, write report, log and signed result beside the engine.

    Raises ``VerificationFailed`` (``reproducibility``) for a difference and ``RefusedError`` when less was done than
    the policy asks for, both after the report is written.
    """
    outcome = _reproduced(options, as_json)
    paths = _written(options, outcome)
    remark = audit.record(
        current_home().root,
        "reproduce",
        {"engine": options.engine.name, "verdict": outcome.verdict, "sha3_512": audit.digest_of(paths["report"])},
    )
    if remark:
        note(remark)
    if as_json and outcome.verdict == "passed":
        print_json({"files": {kind: str(path) for kind, path in paths.items()}, **outcome.to_json()})
    elif not as_json:
        print("\n".join(summary(outcome, paths)))
    if outcome.verdict == "failed":
        said = [item.sentence() for item in outcome.differences]
        said += [outcome.second.sentence] if outcome.second is not None and outcome.second.verdict == "failed" else []
        more = f" (and {len(said) - 1} more; see {paths['report']})" if len(said) > 1 else f" (see {paths['report']})"
        raise VerificationFailed("reproducibility", f"{options.engine} is not reproduced: {said[0]}{more}")
    if outcome.verdict != "passed":
        raise RefusedError(f"{options.engine} does not count as reproduced: {'; '.join(outcome.shortfalls)}")


def _reproduced(options: Options, quiet: bool) -> Outcome:
    statement = statement_of(options.engine)
    store = ContentStore(current_home().store)
    given = given_sources(statement, options.model, options.policy)
    wanted = Wanted(options.rebuilds, options.seed, options.jobs, options.fresh_caches, given)
    rebuilds = rebuilds_of(statement, store.find, wanted)
    for name, value, least, most in (
        ("--rebuilds", rebuilds, 1, MOST_REBUILDS),
        ("--fresh-caches", options.fresh_caches, 0, MOST_REBUILDS),
        ("--jobs", 1 if options.jobs is None else options.jobs, 1, 64),
    ):
        if not least <= value <= most:
            raise UsageError(f"{name} {value} is not between {least} and {most}")
    load_signing_keys(options.key or current_home().root)  # before the long work
    bar = None if quiet else Bar(rebuilds, "rebuilds")
    wrong = 0

    def step(done: int, rebuilt: Rebuilt, difference: Difference | None) -> None:
        nonlocal wrong
        wrong += difference is not None
        if bar is not None:
            bar.step(f"{wrong} differ" if wrong else "all equal")

    def started(recorded: Recorded) -> None:
        if recorded.other_code and not quiet:
            note(f"this is not the Cuvil that built the engine: stage {recorded.other_code[0]} has other code here")

    delivered = Delivered(options.engine)
    try:
        return reproduced(
            statement,
            store.find,
            subject_of(options.engine.name, digest_file(options.engine)),
            subject_of(delivered.proof_name, digest_bytes(delivered.proof())),
            wanted,
            started=started,
            step=step,
            remark=(lambda sentence: None) if quiet else note,
        )
    finally:
        if bar is not None:
            bar.close()


def given_sources(statement: Statement, model: Path | None, policy: Path | None) -> dict[str, tuple[str, bytes]]:
    """The files the user gave, by the role they have in the build's proof."""
    given = {}
    if model is not None:
        data = read_file(model, "model", "give the model of the build", MODEL_LIMIT)
        # Of a model that was converted (docs/doors.md) the proof names the ONNX file and the file it came from.
        roles = [role for role, digest in statement.sources.items() if digest == sha3_512_hex(data)]
        given[roles[0] if roles else "model.onnx"] = (str(model), data)
    if policy is not None:
        given["policy.yaml"] = (str(policy), read_file(policy, "policy", "give the policy of the build", POLICY_LIMIT))
    return given


def _written(options: Options, outcome: Outcome) -> dict[str, Path]:
    stem = Delivered(options.engine).stem
    report, log = outcome.encode(), outcome.log()
    signed = signed_result(
        outcome,
        subject_of(stem + SUFFIX, digest_bytes(report)),
        subject_of(stem + REPRODUCE_LOG, digest_bytes(log)),
        load_signing_keys(options.key or current_home().root),
    )
    paths = {
        "report": options.engine.with_name(stem + SUFFIX),
        "log": options.engine.with_name(stem + REPRODUCE_LOG),
        "signed": options.engine.with_name(stem + REPRODUCE_SIGNED),
    }
    for path, data in zip(paths.values(), (report, log, signed), strict=True):
        try:
            write_atomic(path, data)
        except OSError as error:
            raise UsageError(f"{path}: cannot be written ({error.strerror}); choose a writable folder") from None
    return paths


def summary(outcome: Outcome, paths: dict[str, Path]) -> list[str]:
    """Lines for people."""
    document = outcome.to_json()
    digests = document["engine_digests"]
    assert isinstance(digests, dict)
    rows = [
        ("rebuilds", f"{len(outcome.rebuilds)}, of which {document['equal']} gave every recorded byte"),
        (
            "digest",
            f"{len(digests)} of the engine: {', '.join(f'{d[:16]}... ({n} times)' for d, n in digests.items())}",
        ),
    ]
    varied, not_varied = [], []
    for kind, value in outcome.varied().items():
        assert isinstance(value, dict)
        if value["not_varied"]:
            not_varied.append(f"{kind} ({value['not_varied']})")
        else:
            varied.append(f"{kind} {value['values']}")
    rows.append(("varied", ", ".join(varied) + " (number of values)"))
    if not_varied:
        rows.append(("not varied", ", ".join(not_varied)))
    second = outcome.second
    rows.append(("second", "left out") if second is None else (second.name, f"{second.verdict}: {second.sentence}"))
    rows += [("difference", item.sentence()) for item in outcome.differences]
    rows.append(("verdict", outcome.verdict))
    rows += [(kind, str(path)) for kind, path in paths.items()]
    return [f"{name:12} {text}" for name, text in rows]
