"""What a build proof quotes from the records of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

from evidence.verifier.canonical import MalformedError
from evidence.verifier.chain import Chain
from evidence.verifier.records import StageRecord
from evidence.verifier.statement import VERDICTS, Equivalence


def proof_name(engine_name: str) -> str:
    """File name of the proof beside ``engine_name``: its stem and ``.proof.json``."""
    return f"{PurePath(engine_name).stem}.proof.json"


def equivalence_of(record: StageRecord) -> Equivalence:
    """Verdict, grade and report digest from the record of stage ``equivalence``; ``MalformedError`` when unknown."""
    verdict, grade = record.facts.get("verdict"), record.facts.get("grade")
    if verdict not in VERDICTS or not isinstance(grade, str) or not grade:
        raise MalformedError(f"stage equivalence states no grade, or a verdict that is none of {', '.join(VERDICTS)}")
    return Equivalence(str(verdict), grade, record.principal.sha3_512)


def holds_engine(chain: Chain, digests: Mapping[str, str]) -> bool:
    """Whether the record of stage ``engine`` has an artefact with exactly these three digests."""
    record = chain.record("engine")
    wanted = (digests["sha256"], digests["sha3_512"], digests["sm3"])
    return record is not None and wanted in [(item.sha256, item.sha3_512, item.sm3) for item in record.artifacts]


def quoted_config_digest(chain: Chain) -> str | None:
    """``config_digest`` from the config or facts of the record of ``generated_source``."""
    record = chain.record("generated_source")
    value = None if record is None else record.config.get("config_digest", record.facts.get("config_digest"))
    return value if isinstance(value, str) else None
