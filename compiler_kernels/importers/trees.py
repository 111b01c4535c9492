"""ai.onnx.ml tree ensembles as constant tables: TreeEnsembleRegressor, TreeEnsembleClassifier, TreeEnsemble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.folding import to_array
from compiler_kernels.importers.post_transform import bind_label, by_largest, labels_of, post_transform, two_classes
from compiler_kernels.ir.dtypes import COMPUTED
from compiler_kernels.ir.graph import Attr
from compiler_kernels.ir.shapes_trees import AGGREGATES, MODES, NODE_FIELDS

Array = NDArray[Any]
_BRANCHES: Final = {f"BRANCH_{name.upper()}": number for number, name in enumerate(MODES)}
_NUMBERED: Final = ("average", "sum", "min", "max")
"""aggregate_function of TreeEnsemble by its number."""


@dataclass
class Tables:
    """Nodes in the order in which they are first reached, so that every branch leads to a later node or to a leaf."""

    nodes: list[tuple[int, ...]] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    leaves: list[tuple[int, int]] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    members: list[float] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def leaf(self, entries: Sequence[tuple[int, float]]) -> int:
        """A leaf that adds ``entries`` (target, weight); the number that stands for it as a next node."""
        self.leaves.append((len(self.targets), len(entries)))
        self.targets += [t for t, _ in entries]
        self.weights += [w for _, w in entries]
        return -len(self.leaves)


@dataclass(frozen=True)
class Source:
    """One tree of the model: ``branch`` gives (feature, mode, split, holding, failing, missing, members) of a node, or
    ``None`` for a leaf, whose entries ``leaf`` gives. Nodes are named by what the model names them."""

    root: Any
    branch: Callable[[Any], tuple[int, int, float, Any, Any, int, Sequence[float]] | None]
    leaf: Callable[[Any], Sequence[tuple[int, float]]]


def add_tree(ctx: Context, tables: Tables, tree: Source, features: int, targets: int) -> None:
    """Append one tree, depth first; invalid where a node is reached twice or names a feature or target outside."""
    places: dict[Any, int] = {}
    slots: list[tuple[int, int, Any]] = [(-1, 0, tree.root)]  # (node that leads here, which of its fields, name)
    while slots:
        parent, where, name = slots.pop()
        if name in places:
            ctx.at.invalid(f"reaches the tree node {name} from two places")
        found = tree.branch(name)
        if found is None:
            entries = tree.leaf(name)
            if any(not 0 <= t < targets for t, _ in entries):
                ctx.at.invalid(f"has a leaf for a target outside the {targets} there are")
            place = tables.leaf(entries)
        else:
            feature, mode, split, holding, failing, missing, members = found
            if not 0 <= feature < features:
                ctx.at.invalid(f"compares feature {feature} of an input with {features}")
            place = len(tables.nodes)
            first = len(tables.members)
            tables.members += list(members)
            tables.nodes.append((feature, mode, 0, 0, missing, first, len(members)))
            tables.splits.append(split)
            slots += [(place, 3, failing), (place, 2, holding)]
        places[name] = place
        if parent < 0:
            tables.roots.append(place)
        else:
            row = tables.nodes[parent]
            tables.nodes[parent] = (*row[:where], place, *row[where + 1 :])


def emitted(ctx: Context, x: Tensor, tables: Tables, aggregate: str, base: Array) -> Tensor:
    """The operation on ``x`` (rows, features)."""
    if not tables.roots:
        ctx.at.invalid("has no tree")
    dtype = np.dtype(x.type.dtype)

    def column(values: Sequence[Any], kind: Any, shape: tuple[int, ...]) -> Tensor:
        array = np.array(values, dtype=kind).reshape(shape) if len(values) else np.zeros([1, *shape[1:]], dtype=kind)
        return constant(array)

    operands = [
        x,
        column(tables.roots, np.int32, (-1,)),
        column(tables.nodes, np.int32, (-1, NODE_FIELDS)),
        column(tables.splits, dtype, (-1,)),
        column(tables.leaves, np.int32, (-1, 2)),
        column(tables.targets, np.int32, (-1,)),
        column(tables.weights, dtype, (-1,)),
        column(tables.members, dtype, (-1,)),
        constant(base.astype(dtype)),
    ]
    attrs: dict[str, Attr] = {"targets": int(base.size), "aggregate": aggregate}
    return ctx.emit("tree_ensemble", operands, attrs)


def rows_of(ctx: Context) -> Tensor:
    """The input as rows of floating-point features; integers become binary32."""
    x = ctx.wide(0)
    if x.type.dtype not in COMPUTED:
        x = ctx.cast(x, "float32")
    return ctx.reshape(x, (1, *x.shape)) if x.rank == 1 else x


def _numbers(ctx: Context, key: str) -> list[float]:
    """Attribute ``key`` (binary32 numbers) or ``key_as_tensor`` (of any type)."""
    tensor = ctx.at.attr(f"{key}_as_tensor")
    if isinstance(tensor, onnx.TensorProto):
        return [float(v) for v in to_array(tensor).reshape(-1)]
    return list(ctx.at.floats(key))


def _words(ctx: Context, key: str) -> list[str]:
    value = ctx.at.attr(key, [])
    if not isinstance(value, list | tuple) or not all(isinstance(v, bytes) for v in value):
        ctx.at.invalid(f"has an attribute {key} that is not a list of strings")
    return [bytes(v).decode("utf-8", "replace") for v in value]


def _column(ctx: Context, key: str, length: int, default: int | None = None) -> tuple[int, ...]:
    return ctx.at.ints(key, None if default is None else (default,) * length, length)


def _old_form(ctx: Context, x: Tensor, entries: str, targets: int) -> Tables:
    """Nodes named by tree and number; leaves by rows of (tree, number, target, weight) under the prefix ``entries``."""
    if x.rank != 2:
        ctx.at.invalid(f"takes rows of features, not a tensor of shape {list(x.shape)}")
    modes = _words(ctx, "nodes_modes")
    count = len(modes)
    names = list(zip(_column(ctx, "nodes_treeids", count), _column(ctx, "nodes_nodeids", count), strict=True))
    if len(set(names)) != count:
        ctx.at.invalid("numbers two nodes of a tree alike")
    splits = _numbers(ctx, "nodes_values")
    columns = [_column(ctx, f"nodes_{key}", count) for key in ("featureids", "truenodeids", "falsenodeids")]
    missing = _column(ctx, "nodes_missing_value_tracks_true", count, 0)
    for unused in ("nodes_hitrates", "nodes_hitrates_as_tensor"):
        ctx.at.attr(unused)
    if len(splits) != count:
        ctx.at.invalid(f"has {len(splits)} values for {count} nodes")
    place = {name: n for n, name in enumerate(names)}
    leaves: dict[tuple[int, int], list[tuple[int, float]]] = {}
    weights = _numbers(ctx, f"{entries}_weights")
    ids = [_column(ctx, f"{entries}_{key}", len(weights)) for key in ("treeids", "nodeids", "ids")]
    for tree, number, target, weight in zip(*ids, weights, strict=True):
        leaves.setdefault((tree, number), []).append((target, weight))
    for tree, number in leaves:
        if (tree, number) not in place or modes[place[tree, number]] != "LEAF":
            ctx.at.invalid(f"gives a weight to node {number} of tree {tree}, which is no leaf")

    def branch(name: tuple[int, int]) -> tuple[int, int, float, Any, Any, int, Sequence[float]] | None:
        if name not in place:
            ctx.at.invalid(f"leads to node {name[1]} of tree {name[0]}, which it lacks")
        n = place[name]
        if modes[n] == "LEAF":
            return None
        if modes[n] not in _BRANCHES or modes[n] == "BRANCH_MEMBER":
            ctx.at.invalid(f"has the mode {modes[n]!r} at node {name[1]} of tree {name[0]}")
        feature, true, false = (c[n] for c in columns)
        return feature, _BRANCHES[modes[n]], splits[n], (name[0], true), (name[0], false), missing[n], ()

    tables = Tables()
    roots = _roots(ctx, names, modes, columns)
    for root in roots:
        add_tree(ctx, tables, Source(root, branch, lambda name: leaves.get(name, [])), x.shape[1], targets)
    return tables


def _roots(
    ctx: Context, names: list[tuple[int, int]], modes: list[str], columns: list[tuple[int, ...]]
) -> list[tuple[int, int]]:
    """Per tree, in the order of their first nodes, the one node that no branch leads to."""
    led_to = {
        (name[0], column[n]) for n, name in enumerate(names) if modes[n] != "LEAF" for column in columns[1:]
    }  # fmt: skip
    trees = list(dict.fromkeys(tree for tree, _ in names))
    roots = [[name for name in names if name[0] == tree and name not in led_to] for tree in trees]
    for tree, found in zip(trees, roots, strict=True):
        if len(found) != 1:
            ctx.at.invalid(f"has {len(found)} nodes of tree {tree} that no branch leads to, where a tree has one")
    return [found[0] for found in roots]


def _base(ctx: Context, targets: int) -> Array:
    given = _numbers(ctx, "base_values")
    if len(given) not in (0, targets):
        ctx.at.invalid(f"has {len(given)} base values for {targets} targets")
    return np.array(given or [0.0] * targets)


def regressor(ctx: Context) -> None:
    x, targets = rows_of(ctx), ctx.at.int_("n_targets", 1)
    aggregate = ctx.at.str_("aggregate_function", "SUM").lower()
    if aggregate not in AGGREGATES:
        ctx.at.invalid(f"has aggregate_function {aggregate!r}")
    tables = _old_form(ctx, x, "target", targets)
    y = emitted(ctx, x, tables, aggregate, _base(ctx, targets))
    ctx.bind(post_transform(ctx, ctx.cast(y, "float32"), ctx.at.str_("post_transform", "NONE")))


def classifier(ctx: Context) -> None:
    """One score per class; with two classes of which one only has weights, that score decides."""
    x, labels = rows_of(ctx), labels_of(ctx)
    weights, given = _numbers(ctx, "class_weights"), _numbers(ctx, "base_values")
    classes = len(labels) if labels is not None else len(_words(ctx, "classlabels_strings"))
    ids = set(ctx.at.ints("class_ids"))
    form = ctx.at.str_("post_transform", "NONE")
    positive = min(weights, default=0.0) >= 0
    tables = _old_form(ctx, x, "class", classes)
    if classes == 2 and given and (ids != {0} or len(given) != 1):
        ctx.at.unsupported("has base values for two classes in a form that runtimes read differently")
    if classes == 2 and ids == {0}:
        score = ctx.cast(emitted(ctx, x, tables, "sum", np.array(given or [0.0])), "float32")
        two_classes(ctx, score, form, labels, 0.5 if positive else 0.0, positive)
        return
    scores = ctx.cast(emitted(ctx, x, tables, "sum", _base(ctx, classes)), "float32")
    if classes == 2 and ids == {1}:
        limit = ctx.scalar(0.5 if positive else 0.0)
        second = ctx.slice(scores, [0, 1], [1, 1], [x.shape[0], 1])
        chosen = ctx.reshape(ctx.emit("greater", [second, limit]), (x.shape[0],))
        bind_label(ctx, ctx.cast(chosen, "int64"), labels)
        if ctx.used(1):
            ctx.bind(post_transform(ctx, scores, form), 1)
        return
    if classes == 2 and ctx.used(0):
        ctx.at.unsupported("labels two classes that both have weights, which runtimes do differently; use the scores")
    by_largest(ctx, scores, form, labels)


def _tensor(ctx: Context, key: str) -> Array:
    value = ctx.at.attr(key)
    return to_array(value).reshape(-1) if isinstance(value, onnx.TensorProto) else np.zeros(0)


def ensemble(ctx: Context) -> None:
    """TreeEnsemble of ai.onnx.ml 5: interior nodes and leaves are numbered apart."""
    x, targets = rows_of(ctx), ctx.at.int_("n_targets", 1)
    modes, splits = _tensor(ctx, "nodes_modes"), _tensor(ctx, "nodes_splits")
    count = len(modes)
    keys = ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")
    features, true, true_leaf, false, false_leaf = (_column(ctx, f"nodes_{key}", count) for key in keys)
    missing = _column(ctx, "nodes_missing_value_tracks_true", count, 0)
    ctx.at.attr("nodes_hitrates")
    weights = _tensor(ctx, "leaf_weights")
    leaf_targets = _column(ctx, "leaf_targetids", len(weights))
    sets = _sets(_tensor(ctx, "membership_values"))
    wanted = [n for n in range(count) if modes[n] == MODES.index("member")]
    if len(splits) != count or len(sets) != len(wanted):
        ctx.at.invalid(f"has {len(splits)} splits for {count} nodes, {len(sets)} sets for {len(wanted)} set members")
    members = dict(zip(wanted, sets, strict=True))

    def branch(name: tuple[bool, int]) -> tuple[int, int, float, Any, Any, int, Sequence[float]] | None:
        leaf, n = name
        if not 0 <= n < (len(weights) if leaf else count):
            ctx.at.invalid(f"leads to {'leaf' if leaf else 'node'} {n}, which it lacks")
        if leaf:
            return None
        ends = (bool(true_leaf[n]), true[n]), (bool(false_leaf[n]), false[n])
        return features[n], int(modes[n]), float(splits[n]), *ends, missing[n], members.get(n, ())

    tables = Tables()
    for root in ctx.at.ints("tree_roots"):
        # A tree of a single leaf is a node both of whose branches lead to that leaf.
        single = 0 <= root < count and true_leaf[root] and false_leaf[root] and true[root] == false[root]
        start = (True, true[root]) if single else (False, root)
        tree = Source(start, branch, lambda name: [(leaf_targets[name[1]], float(weights[name[1]]))])
        add_tree(ctx, tables, tree, x.shape[1], targets)
    number = ctx.at.int_("aggregate_function", 1)
    forms = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    form = ctx.at.int_("post_transform", 0)
    if not 0 <= number < len(_NUMBERED) or not 0 <= form < len(forms):
        ctx.at.invalid(f"has aggregate_function {number} and post_transform {form}")
    y = emitted(ctx, x, tables, _NUMBERED[number], np.zeros(targets))
    ctx.bind(ctx.narrow(post_transform(ctx, y, forms[form]), ctx.tensor(0)))


def _sets(values: Array) -> list[list[float]]:
    """Sets divided by NaN."""
    sets: list[list[float]] = [[]] if values.size else []
    for value in values:
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(float(value))
    return [s for s in sets if s]


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "TreeEnsembleRegressor": regressor,
    "TreeEnsembleClassifier": classifier,
    "TreeEnsemble": ensemble,
}
