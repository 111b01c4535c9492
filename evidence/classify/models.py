"""Differences between two models: from their imported graphs where those can be found, else from the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from evidence.classify.build import Build, documents
from evidence.classify.rules import Difference, difference

_COUNTED: Final = ("kinds", "operations", "parameters", "weights")
_GRAPH: Final = ("ir_l0", "ir_l0.json")


def same_model(a: Build, b: Build) -> bool:
    """Whether the imported graphs are the same, weights included, as the records say."""
    engines = [build.statement.subject_digests["sha3_512"] for build in (a, b)]
    return engines[0] == engines[1] or a.digest(*_GRAPH) == b.digest(*_GRAPH) != ""


def compare_models(a: Build, b: Build) -> list[Difference]:
    """What differs between the models of two builds; a policy that pins other sizes shows here too."""
    if same_model(a, b):
        files = [build.digest("source_model", "model.onnx") for build in (a, b)]
        return [] if files[0] == files[1] else [difference("model.file", "the imported graph is the same, bit for bit")]
    graphs = documents(a, b, *_GRAPH)
    if isinstance(graphs, str):
        return _from_records(a, b)
    return compare_graphs(*graphs) or [difference("model.names", "operators and weights are the same")]


def compare_graphs(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Differences of two graphs in neutral form (``cuvil-graph/1``), whatever their nodes and tensors are called."""
    found = []
    ends = [_interface(graph) for graph in (a, b)]
    if ends[0] != ends[1]:
        found.append(difference("model.interface", _first_other(ends[0], ends[1])))
    nodes = [_nodes(graph) for graph in (a, b)]
    if nodes[0] != nodes[1]:
        found.append(difference("model.operators", _operators(nodes[0], nodes[1])))
    weights = [[item["sha3_512"] for item in graph["weights"]] for graph in (a, b)]
    if weights[0] != weights[1]:
        kept = (Counter(weights[0]) & Counter(weights[1])).total()
        found.append(difference("model.weights", f"{len(weights[1]) - kept} of {len(weights[1])} tensors are others"))
    return found


def _interface(graph: Mapping[str, Any]) -> list[str]:
    made = {node["output"]: node for node in graph["nodes"]} | {item["id"]: item for item in graph["inputs"]}
    made |= {item["id"]: item for item in graph["weights"]}
    ends = [("input", item, item) for item in graph["inputs"]]
    ends += [("output", item, made[item["id"]]) for item in graph["outputs"]]
    return [f"{kind} {item['name']} {of['dtype']}{of['shape']}" for kind, item, of in ends]


def _nodes(graph: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Operators with sizes and connections; values are numbered by their place, so names do not count."""
    values = [item["id"] for item in (*graph["inputs"], *graph["weights"])]
    numbers = {name: number for number, name in enumerate([*values, *(node["output"] for node in graph["nodes"])])}
    shapes = [("weight", item["shape"], item["dtype"]) for item in graph["weights"]]
    return shapes + [
        (
            node["op"],
            node["shape"],
            node["dtype"],
            node["attrs"],
            [numbers.get(name, name) for name in node["inputs"]],
            numbers.get(node.get("extents")),
        )
        for node in graph["nodes"]
    ]


def _operators(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]]) -> str:
    counts = [Counter(item[0] for item in nodes) for nodes in (a, b)]
    if counts[0] != counts[1]:
        more, fewer = counts[1] - counts[0], counts[0] - counts[1]
        parts = [f"{sign}{n} {op}" for sign, c in (("+", more), ("-", fewer)) for op, n in sorted(c.items())]
        return f"operators: {', '.join(parts)}"
    index = next(i for i, (one, other) in enumerate(zip(a, b, strict=True)) if one != other)
    return f"the same kinds of operators, the first other one is a {b[index][0]} of shape {b[index][1]}"


def _first_other(a: list[str], b: list[str]) -> str:
    gone, new = [t for t in a if t not in b], [t for t in b if t not in a]
    return f"{'; '.join(gone) or 'nothing'} became {'; '.join(new) or 'nothing'}" if gone or new else "another order"


def _from_records(a: Build, b: Build) -> list[Difference]:
    facts = [build.facts("ir_l0") for build in (a, b)]
    found = []
    signatures = [
        {key: value for key, value in {**f, **_pins(build)}.items() if key.startswith(("signature.", "pins"))}
        for f, build in zip(facts, (a, b), strict=True)
    ]
    if signatures[0] != signatures[1]:
        found.append(difference("model.interface", "the recorded signatures or pinned sizes differ"))
    others = [key for key in _COUNTED if facts[0].get(key) != facts[1].get(key)]
    if others:
        said = ", ".join(f"{key} {facts[0].get(key)} became {facts[1].get(key)}" for key in others)
        found.append(difference("model.operators", f"the records say: {said}"))
    if a.digest("ir_l0", "weights.bin") != b.digest("ir_l0", "weights.bin"):
        found.append(difference("model.weights", "the digests of the weights differ"))
    if not others:
        found.append(
            difference("model.untold", "kinds and counts of operators agree; how they are connected is not told")
        )
    return found


def _pins(build: Build) -> dict[str, Any]:
    return {"pins": build.facts("source_model").get("pins")}
