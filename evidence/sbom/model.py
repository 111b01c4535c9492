"""The model as a component: its digests, its card, its weights and the data sets the policy names."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from compiler_kernels.errors import RefusedError
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.symbols import scope, symbols_of
from compiler_kernels.ir.text import format_type
from compiler_kernels.policy import Policy
from evidence.sbom.parts import DATA, Part
from evidence.verifier.chain import Chain
from evidence.verifier.digests import Digests
from evidence.verifier.records import ArtifactRecord

MODEL = "model"
Find = Callable[[str], bytes | None]


def digests_of(record: ArtifactRecord) -> Digests:
    """The digests a stage record states."""
    return Digests(record.size, record.sha256, record.sha3_512, record.sm3)


def model_parts(chain: Chain, policy: Policy) -> list[Part]:
    """Model file, frozen weights, data sets; raises ``RefusedError`` when the chain lacks the model or the graph."""
    source, frozen = chain.record("source_model"), chain.record("frozen_graph")
    weights = frozen.artifact("weights.bin") if frozen is not None else None
    if source is None or frozen is None or weights is None:
        raise RefusedError("the chain has no model or no frozen graph; build the engine again")
    sbom = policy.sbom
    maker = sbom.manufacturer if sbom is not None else ""
    sets = [
        Part(
            ref=f"dataset:{index}",
            kind="data",
            name=item.name,
            group=DATA,
            description=item.description,
            supplier=maker,
            digests=Digests(0, item.sha256, "", ""),
            properties={"cuvil:use": item.use, "cuvil:source": "stated by the policy"},
        )
        for index, item in enumerate(sbom.datasets if sbom is not None else ())
    ]
    model = Part(
        ref=MODEL,
        kind="machine-learning-model",
        name=policy.model.name,
        group=DATA,
        version=policy.model.version,
        description=policy.model.purpose,
        supplier=maker,
        digests=digests_of(source.principal),
        properties={
            "cuvil:file": source.principal.name,
            "cuvil:datasets": str(len(sets)) if sets else "not stated",
        },
        needs=("weights", *(part.ref for part in sets)),
    )
    frozen_weights = Part(
        ref="weights",
        kind="data",
        name="weights.bin",
        group=DATA,
        version=policy.model.version,
        description="Weights of the frozen graph.",
        supplier=maker,
        digests=digests_of(weights),
        properties={"cuvil:frozen-graph-sha3-512": frozen.principal.sha3_512},
    )
    return [model, frozen_weights, *sets]


def model_card(chain: Chain, policy: Policy, find: Find) -> dict[str, Any]:
    """The ``modelCard``: task, inputs, outputs, data sets, intended use, agreement with the reference.

    Raises ``RefusedError`` when the frozen graph is gone from the store.
    """
    frozen, equivalence = chain.record("frozen_graph"), chain.record("equivalence")
    text = find(frozen.principal.sha3_512) if frozen is not None else None
    if text is None:
        raise RefusedError("the store no longer holds the frozen graph; build the engine again here")
    module = parse_module(text.decode())
    with scope(symbols_of(module.meta)):
        main, types = module.main, module.main.types()
        outputs = zip(main.output_names or main.outputs, main.outputs, strict=True)
        parameters: dict[str, Any] = {
            "inputs": [{"format": f"{value.name} {format_type(value.type)}"} for value in main.inputs],
            "outputs": [{"format": f"{name} {format_type(types[value])}"} for name, value in outputs],
        }
    sbom = policy.sbom
    if sbom is not None and sbom.task:
        parameters["task"] = sbom.task
    if sbom is not None and sbom.datasets:
        parameters["datasets"] = [{"ref": f"dataset:{index}"} for index in range(len(sbom.datasets))]
    card: dict[str, Any] = {"modelParameters": parameters}
    if policy.model.purpose:
        card["considerations"] = {"useCases": [policy.model.purpose]}
    if equivalence is not None:
        facts = equivalence.facts
        card["properties"] = [
            {"name": f"cuvil:equivalence-{key}", "value": json.dumps(facts[key], ensure_ascii=False).strip('"')}
            for key in ("verdict", "grade", "inputs", "differing_values")
            if key in facts
        ]
    return card
