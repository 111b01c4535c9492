"""The vector file of CA-1: generate, check, load.

``python -m evidence.reference.vectors --check FILE`` recomputes every expected output and exits 1 naming the first
vector that differs; ``--write FILE`` appends the vectors FILE lacks and refuses to change one that is there.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from evidence.reference import (
    vector_cases,
    vector_cases_elementwise,
    vector_cases_functions,
    vector_cases_index,
    vector_cases_more,
    vector_cases_recurrent,
    vector_cases_sampling,
    vector_cases_shapes,
    vector_cases_signal,
    vector_cases_winograd,
)
from evidence.reference.arithmetic import ARITHMETICS, Array
from evidence.reference.errors import ReferenceError
from evidence.reference.graph import RefGraph
from evidence.reference.interpreter import interpret
from evidence.reference.vector_cases import Case
from evidence.reference.vector_model import Expected, Vector
from evidence.reference.vector_nodes import reference_graph
from evidence.reference.vector_orders import (
    PRODUCT_ORDERS,
    SUM_ORDERS,
    Reordered,
    applicable_to_product,
    applicable_to_sum,
)
from evidence.reference.vector_recurrent import OPERATORS

FORMAT = "cuvil-vectors/1"
VERSION = "CA-1.4"
_ATTEMPTS = 40


def expected_output(vector: Vector) -> Array:
    """The reference's CA-1 result of a vector's node, NaN canonical."""
    graph, inputs = reference_graph(vector.onnx_model_parts())
    return interpret(ARITHMETICS["ca1"], graph, inputs)["y"]


def load_vectors(path: Path | str) -> list[Vector]:
    """Read a vector file; :class:`ReferenceError` for a file that is missing or not of this format."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ReferenceError(f"{path}: format is {document['format']!r}; this reference reads {FORMAT!r}")
        return [Vector.from_json(record) for record in document["vectors"]]
    except OSError as error:
        raise ReferenceError(f"{path}: cannot be read: {error.strerror}") from error
    except ReferenceError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ReferenceError(f"{path}: not a {FORMAT} file: {error!r}") from error


def first_difference(vectors: Sequence[Vector]) -> str | None:
    """Name of the first vector whose expected bits the reference does not reproduce."""
    for vector in vectors:
        if not vector.expected.matches(expected_output(vector)):
            return vector.name
    return None


def cases() -> Iterator[Case]:
    """Every case of the current version, in file order."""
    for family in (
        vector_cases.convolutions, vector_cases.transposed, vector_cases.matrices, vector_cases_more.pooling,
        vector_cases_more.reductions, vector_cases_more.softmaxes, vector_cases_more.norms,
        vector_cases_more.elementwise, vector_cases_more.resizes, vector_cases_more.movement,
        vector_cases_winograd.winograd, vector_cases_recurrent.recurrent, vector_cases_shapes.shapes,
        vector_cases_index.index, vector_cases_elementwise.elementwise,
        vector_cases_functions.functions, vector_cases_sampling.sampling,
        vector_cases_signal.signal,
    ):  # fmt: skip
        yield from family()


def build(case: Case) -> Vector:
    """Seed a case so that its bits tell CA-1 from every order that groups its sum differently.

    Raises :class:`ReferenceError` when no seed of the search does.
    """
    best: tuple[set[str], Vector] | None = None
    for attempt in range(_ATTEMPTS):
        vector = _seeded(case, attempt)
        possible, seen = _distinctions(vector)
        vector = replace(vector, distinguishes=tuple(sorted(seen)))
        if possible <= seen:
            return vector
        if best is None or len(possible & seen) > len(best[0]):
            best = (possible & seen, vector)
    missing = sorted(possible - best[0]) if best else []
    raise ReferenceError(f"vector {case.name}: no seed tells its bits from {', '.join(missing)}")


def _seeded(case: Case, attempt: int) -> Vector:
    base = zlib.crc32(case.name.encode()) * 64 + attempt * (1 << 40)
    inputs = tuple(
        replace(operand, source={**operand.source, "lcg": base + i}) if "lcg" in operand.source else operand
        for i, operand in enumerate(case.inputs)
    )
    draft = Vector(
        case.name, case.version, case.opset, case.op_type, case.attributes, inputs, Expected((), "", ""),
        arithmetic=case.arithmetic, output=case.output, domain=case.domain,
    )  # fmt: skip
    return replace(draft, expected=Expected.of(expected_output(draft)))


def _distinctions(vector: Vector) -> tuple[set[str], set[str]]:
    """The orders that must differ from the expected bits, and those that do."""
    parts = vector.onnx_model_parts()
    graph, inputs = reference_graph(parts)
    arrays = {**parts.graph_inputs, **parts.initializers}
    generated = all("lcg" in i.source for i in vector.inputs if i.name == "x" or i.name == "a")
    bias = None
    orders: Sequence[str] = PRODUCT_ORDERS
    if vector.op_type in OPERATORS:
        depth = max(arrays["w"].shape[2], arrays["r"].shape[2])
        possible = applicable_to_product(depth, 1, False) if generated else set()
    elif vector.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        extra = parts.inputs[2] if len(parts.inputs) > 2 and not vector.arithmetic else ""
        if extra and arrays[extra].ndim == 1 and arrays[extra].size > 1 and vector.attributes.get("beta", 1.0) == 1.0:
            bias = arrays[extra]
        if vector.arithmetic:
            orders = (*PRODUCT_ORDERS, "direct")
            leaf = int(vector.arithmetic.partition("/")[2])
            possible = {*applicable_to_product(*_product_size(vector, arrays), False, leaf), "direct"}
        else:
            possible = applicable_to_product(*_product_size(vector, arrays), bias is not None)
        # Results that are all zero, infinite or subnormal carry no trace of the order; their names say what they test.
        ordinary = all(abs(int(i.source.get("shift", 0))) < 40 for i in vector.inputs)
        possible = possible if generated and ordinary else set()
    else:
        orders, possible = SUM_ORDERS, set()
        size = _sum_size(vector, arrays)
        if size and generated:
            possible = applicable_to_sum(*size)
            if "Normalization" in vector.op_type or vector.op_type in ("Softmax", "LogSoftmax"):
                possible &= {"other-rule"}
    seen = set()
    for order in orders:
        if order == "bias-first" and bias is None:
            continue
        changed = _named(graph, "direct") if order == "direct" else graph
        other = interpret(Reordered(order, bias), changed, inputs)["y"]
        if not vector.expected.matches(other):
            seen.add(order)
    return possible, seen


def _named(graph: RefGraph, form: str) -> RefGraph:
    """The one-node ``graph`` with the convolution in the named form."""
    node = graph.nodes[0]
    return replace(graph, nodes=(replace(node, attrs={**node.attrs, "arithmetic": form}),))


def _product_size(vector: Vector, arrays: dict[str, Array]) -> tuple[int, int]:
    """(channels, positions) of the longest sum of a product operator."""
    names = [i.name for i in vector.inputs]
    first, second = arrays[names[0]], arrays[names[1]]
    if vector.arithmetic:
        return second.shape[1], -(-second.shape[2] // 3) if second.ndim == 3 else 1
    if vector.op_type == "Conv":
        return second.shape[1], math.prod(second.shape[2:])
    if vector.op_type == "ConvTranspose":
        # Every phase is a sum of its own; only the bias distinction is demanded of all of them.
        return second.shape[0] // int(vector.attributes.get("group", 1)), 1
    return first.shape[0 if vector.attributes.get("transA", 0) else -1], 1


def _sum_size(vector: Vector, arrays: dict[str, Array]) -> tuple[int, bool] | None:
    """(elements, in lanes) where the operator is one plain sum over whole axes."""
    if not vector.inputs:
        return None
    x = arrays[vector.inputs[0].name]
    if vector.op_type == "GlobalAveragePool":
        return math.prod(x.shape[2:]), False
    if vector.op_type in ("ReduceMean", "ReduceSum") and x.dtype == np.float32:
        axes = sorted(int(a) % x.ndim for a in arrays["axes"])
        spatial = vector.op_type == "ReduceMean" and x.ndim >= 4 and axes == list(range(2, x.ndim))
        lanes = axes == list(range(x.ndim - len(axes), x.ndim)) and not spatial
        return math.prod([x.shape[a] for a in axes]), lanes
    return None


def write(path: Path) -> int:
    """Append the missing cases to ``path``; the number appended. An existing vector that differs is refused."""
    present = load_vectors(path) if path.exists() else []
    wrong = first_difference(present)
    if wrong is not None:
        raise ReferenceError(f"{path}: vector {wrong} would change; an existing vector never does within CA-1")
    known = {vector.name for vector in present}
    added = [build(case) for case in cases() if case.name not in known]
    names = [vector.name for vector in (*present, *added)]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ReferenceError(f"two vectors are called {repeated[0]}")
    lines = ",\n".join(json.dumps(v.to_json(), sort_keys=True, allow_nan=False) for v in (*present, *added))
    text = f'{{"format": "{FORMAT}", "version": "{VERSION}", "vectors": [\n{lines}\n]}}\n'
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return len(added)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 done, 1 a vector differs or would change, 2 the file cannot be read or written."""
    parser = argparse.ArgumentParser(prog="python -m evidence.reference.vectors", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--check", type=Path, metavar="FILE")
    choice.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.write is not None:
        try:
            print(f"{options.write}: {write(options.write)} vectors appended")
        except ReferenceError as error:
            print(error, file=sys.stderr)
            return 1
        except OSError as error:
            print(f"{options.write}: cannot be written: {error.strerror}", file=sys.stderr)
            return 2
        return 0
    try:
        vectors = load_vectors(options.check)
    except ReferenceError as error:
        print(error, file=sys.stderr)
        return 2
    wrong = first_difference(vectors)
    if wrong is not None:
        print(f"{options.check}: vector {wrong} differs from the reference", file=sys.stderr)
        return 1
    print(f"{options.check}: {len(vectors)} vectors, all reproduced")
    return 0


if __name__ == "__main__":
    sys.exit(main())
