"""Translation validation: right passes pass, five wrong ones and random mutations do not get through."""

from dataclasses import replace

import numpy as np
import pytest
import small_models
from mutations import mutated

from compiler_kernels.compile import freeze_model, native_target
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import CuvilError, IRError, VerificationFailed
from compiler_kernels.ir.verify import complaints, verify
from compiler_kernels.passes.infra import PassResult, run_passes
from compiler_kernels.stages.backend import L1_PASSES, L2_PASSES
from compiler_kernels.targets.c.program import Identity, generate
from compiler_kernels.targets.registry import runs_natively
from compiler_kernels.toolchain.sources import runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver
from evidence.translation import baseline, validate, validated_passes, validation_inputs

ALL = (*L1_PASSES, *L2_PASSES)
MODELS = {
    "residual": small_models.residual(),
    "blocks": small_models.blocks(),
    "chain": small_models.long_chain(24),
    "moves": small_models.moves(),
    "lines": small_models.lines(),
    "recurrent": small_models.recurrent(),
}


class Wrong:
    """A pass that changes every statement of the main graph by a function (``None``: leave out)."""

    name = "wrong"
    changes_bits = False

    def __init__(self, change, graph_change=None):
        self.change, self.graph_change = change, graph_change

    def run(self, module, store):
        graph = module.main
        ops = tuple(new for op in graph.ops if (new := self.change(op)) is not None)
        assert ops != graph.ops, "the wrong pass found nothing to break"
        return PassResult(replace(module, graphs=(replace(graph, ops=ops), *module.graphs[1:])), True)


def passed(model, passes):
    frozen = freeze_model(model)
    inputs = validation_inputs(frozen.module)
    return list(validated_passes(frozen.module, frozen.store, passes, inputs))


def after(name):
    """The passes up to and including the one called ``name``."""
    names = [p.name for p in ALL]
    return ALL[: names.index(name) + 1]


@pytest.mark.parametrize("name", MODELS)
def test_the_compilers_passes_are_accepted(name):
    done = passed(MODELS[name], ALL)
    assert [note["pass"] for _, note in done] == [p.name for p in ALL]
    assert all(note["values"] > 0 for _, note in done if note["changed"])
    assert done[-1][0].level == "l2" and sum(bool(note["changed"]) for _, note in done) >= 5


def test_wrong_order_of_fused_operations():
    def swap(op):
        if len(op.body) < 3:
            return op
        *rest, before, last = op.body
        if last.kind not in ("relu", "leaky_relu") or before.result not in last.operands:
            return op
        renamed = {before.result: last.result}
        first = replace(last, operands=(next(o for o in before.operands if o == rest[-1].result),), result="swapped")
        second = replace(before, operands=tuple("swapped" if o == rest[-1].result else o for o in before.operands))
        second = replace(second, result=renamed[before.result], type=last.type)
        return replace(op, body=(*rest, first, second))

    with pytest.raises(VerificationFailed, match="pass wrong changed what is computed"):
        passed(MODELS["residual"], (*after("fuse-elementwise"), Wrong(swap)))


def test_wrong_layout():
    """A blocked value read as if it were row-major: the conversion becomes a view."""

    def to_view(op):
        if op.name != "op.relayout" or op.out.layout:
            return op
        return replace(op, name="op.reshape")

    with pytest.raises(VerificationFailed, match=r"differs from the frozen graph|halo"):
        passed(MODELS["blocks"], (*after("assign-layouts"), Wrong(to_view), *ALL[len(after("assign-layouts")) :]))


@pytest.mark.parametrize("packing", ["packed oc16", "packed w23"])
def test_wrong_axis_of_packed_weights(packing):
    frozen = freeze_model(MODELS["blocks"])
    if packing == "packed w23":  # whatever the cost model would choose

        def form(op):
            return op.with_attrs(arithmetic="W23/32") if op.node == "conv2" else op

        ops = tuple(form(op) for op in frozen.module.main.ops)
        frozen = replace(frozen, module=replace(frozen.module, graphs=(replace(frozen.module.main, ops=ops),)))
    inputs = validation_inputs(frozen.module)
    module, _ = run_passes(frozen.module, frozen.store, after("assign-layouts"))
    validate(module, frozen.store, baseline(frozen.module, frozen.store, inputs))
    weight = next(w for w in module.main.weights if w.type.layout.startswith(packing))
    flat = frozen.store.raw(weight).reshape(-1, 16)
    swapped = frozen.store.packed(weight.id, weight.type, np.ascontiguousarray(flat[:, ::-1]).reshape(-1))
    weights = tuple(swapped if w is weight else w for w in module.main.weights)
    wrong = replace(module, graphs=(replace(module.main, weights=weights),))
    verify(wrong)
    with pytest.raises(VerificationFailed, match=r"differs|halo|Winograd transform"):
        validate(wrong, frozen.store, baseline(frozen.module, frozen.store, inputs))


def test_halo_that_is_too_narrow():
    def narrow(op):
        def thin(t):
            return replace(t, layout=t.layout.replace(" 1 1", " 0 0")) if t and t.layout.startswith("c16") else t

        body = tuple(replace(o, type=thin(o.type)) for o in op.body)
        return replace(op, type=thin(op.type), body=body)

    with pytest.raises(VerificationFailed, match="reads 1 elements beyond"):
        passed(MODELS["residual"], (*after("assign-layouts"), Wrong(narrow)))


def test_halo_that_is_not_zeroed():
    """A value takes over memory as if it were laid out with a halo, which nobody wrote: a view into a larger buffer."""
    frozen = freeze_model(MODELS["blocks"])
    inputs = validation_inputs(frozen.module)
    module, _ = run_passes(frozen.module, frozen.store, after("assign-buffers"))
    graph = module.main
    conv = next(o for o in graph.ops if "conv" in o.name and o.out.layout == "c16 1 1")
    ops = []
    for op in graph.ops:
        if op is conv:
            thin = replace(conv.out, layout="c16 0 0")
            body = tuple(replace(o, type=thin if o.result == conv.result else o.type) for o in conv.body)
            body = tuple(replace(o, result="thin" if o.result == conv.result else o.result) for o in body)
            ops.append(replace(conv, type=thin, result="thin", body=body))
            ops.append(replace(conv, name="view.reshape", operands=("thin",), into="", body=(), attrs=()))
        else:
            ops.append(op)
    wrong = replace(module, graphs=(replace(graph, ops=tuple(ops)),))
    with pytest.raises(VerificationFailed, match=r"halo|larger than what it is a view of"):
        validate(wrong, frozen.store, baseline(frozen.module, frozen.store, inputs))


def _l1(name):
    frozen = freeze_model(MODELS[name])
    inputs = validation_inputs(frozen.module)
    module, _ = run_passes(frozen.module, frozen.store, after("assign-buffers"))
    return frozen, module, baseline(frozen.module, frozen.store, inputs)


def test_alias_onto_a_live_value():
    """A statement writes over a value that is read again later."""
    frozen, module, base = _l1("residual")
    ops = list(module.main.ops)
    made = {o.result: o for o in ops if o.into}
    reads = [o for op in ops for o in op.operands]
    live = next(v for v, o in made.items() if reads.count(v) >= 2)
    reader = next(i for i, o in enumerate(ops) if live in o.operands and o.into and o.into != made[live].into)
    ops[reader] = replace(ops[reader].with_attrs(in_place=ops[reader].operands.index(live)), into=made[live].into)
    wrong = replace(module, graphs=(replace(module.main, ops=tuple(ops)),))
    with pytest.raises(IRError, match=r"after it was overwritten|does not fit|never"):
        verify(wrong)
    with pytest.raises(VerificationFailed):
        validate(wrong, frozen.store, base)


@pytest.mark.parametrize("kind", ["softmax", "conv"])
def test_in_place_where_a_kernel_reads_its_neighbours(kind):
    """The verifier cannot know this; executing the statement in two parts shows it."""
    frozen, module, base = _l1("blocks" if kind == "conv" else "residual")
    ops, types = list(module.main.ops), module.main.types()
    home = {o.result: o.into for o in ops if o.into}
    for i, op in enumerate(ops):
        if kind in op.name and op.into and home.get(op.operands[0]) and types[op.operands[0]].nbytes >= op.out.nbytes:
            ops[i] = replace(op, into=home[op.operands[0]])
            ops.append(replace(op, name="op.copy", operands=(op.result,), result="kept", attrs=(), body=()))
            ops.pop()
            break
    else:
        pytest.fail("no statement to break")
    if op.result in module.main.outputs:  # the output's own buffer must still receive something
        ops.insert(i + 1, replace(op, name="op.copy", operands=(op.result,), result="last", attrs=(), body=()))
    wrong = replace(module, graphs=(replace(module.main, ops=tuple(ops)),))
    with pytest.raises(VerificationFailed, match=r"differs from the frozen graph|halo"):
        validate(wrong, frozen.store, base)


def test_fusion_across_a_second_reader():
    """relu2 is fused into its producer and the other reader of that producer gets the fused value."""
    frozen = freeze_model(MODELS["blocks"])
    graph = frozen.module.main
    uses = graph.uses()
    producer = next(o for o in graph.ops if o.kind == "conv" and uses[o.result] == 2)
    relu = next(o for o in graph.ops if o.kind == "relu" and producer.result in o.operands)
    fused = replace(relu, name="fused.conv_relu", operands=producer.operands, body=(producer, relu), attrs=())

    def change(op):
        if op is producer:
            return fused
        if op is relu:
            return None
        return replace(op, operands=tuple(relu.result if o == producer.result else o for o in op.operands))

    inputs = validation_inputs(frozen.module)
    with pytest.raises(VerificationFailed, match="pass wrong changed what is computed"):
        list(validated_passes(frozen.module, frozen.store, [Wrong(change)], inputs))


def test_memory_that_overlaps():
    """Two buffers that live at once get the same place in the arena."""
    frozen = freeze_model(MODELS["residual"])
    inputs = validation_inputs(frozen.module)
    module, _ = run_passes(frozen.module, frozen.store, ALL)

    def collapse(op):
        return op.with_attrs(offset=0) if op.name == "tensor.alloc" and op.has("offset") else op

    wrong = Wrong(collapse).run(module, frozen.store).module
    with pytest.raises(VerificationFailed):
        validate(wrong, frozen.store, baseline(frozen.module, frozen.store, inputs))


def test_buffers_that_overlap_by_a_shift():
    """A result one position behind the operand it is made from: only the order of writing makes it wrong."""
    frozen = freeze_model(MODELS["chain"])
    base = baseline(frozen.module, frozen.store, validation_inputs(frozen.module))
    module, _ = run_passes(frozen.module, frozen.store, ALL)
    allocs = {o.result: o for o in module.main.ops if o.name == "tensor.alloc" and o.has("offset")}
    home = {o.result: o.into for o in module.main.ops if o.into in allocs}
    meta = tuple((k, str(int(v) + 4096) if k == "arena_bytes" else v) for k, v in module.meta)
    refused = 0
    for op in module.main.ops:
        sources = [home[o] for o in op.operands if o in home]
        if op.into not in allocs or not sources or op.into in sources:
            continue
        start = allocs[sources[0]].int_("offset") + 64
        ops = tuple(o.with_attrs(offset=start) if o.result == op.into else o for o in module.main.ops)
        wrong = replace(module, graphs=(replace(module.main, ops=ops), *module.graphs[1:]), meta=meta)
        if not any("over a stretch of its operand" in text for text in complaints(wrong)):
            continue
        with pytest.raises(VerificationFailed):
            validate(wrong, frozen.store, base)
        refused += 1
    assert refused >= 1


@pytest.mark.skipif(not runs_natively(native_target()), reason="no engine runs natively here")
def test_a_hundred_mutations_are_caught_or_change_no_bit(tmp_path):
    """Each mutation of a pass's output is refused by the verifier, refused by validation, or harmless; that the last is
    true is shown on engines compiled from some of them."""
    frozen = freeze_model(MODELS["residual"])
    base = baseline(frozen.module, frozen.store, validation_inputs(frozen.module))
    levels = []
    module = frozen.module
    for item in ALL:
        result = item.run(module, frozen.store)
        module = result.module
        if result.modified:
            levels.append((item.name, module))
    caught = {"verifier": 0, "validation": 0}
    harmless = []
    rng = np.random.default_rng(20261130)
    for number in range(100):
        name, module = levels[number % len(levels)]
        changed = mutated(module, rng)
        assert changed != module
        try:
            verify(changed)
        except IRError:
            caught["verifier"] += 1
            continue
        try:
            validate(changed, frozen.store, base)
        except VerificationFailed as error:
            assert error.check == "translation-validation"
            caught["validation"] += 1
            continue
        harmless.append((name, changed))
    assert caught["verifier"] >= 15 and caught["validation"] >= 15, (caught, len(harmless))
    compiled = 0
    for number, (name, changed) in enumerate(harmless):
        if compiled == 6:
            break
        compiled += _engine_agrees(frozen, changed, after(name), base, tmp_path / f"{number}.so")
    assert compiled >= 3


def _engine_agrees(frozen, module, done, base, path) -> bool:
    """Whether an engine could be compiled from the mutated module; asserts that its bits are the frozen graph's."""
    try:
        module, _ = run_passes(module, frozen.store, ALL[len(done) :])
        program = generate(module, frozen.store, Identity("m", "1", "0" * 128, "0" * 128, native_target().triple))
    except (CuvilError, ValueError, KeyError, IndexError, TypeError, AssertionError):
        return False  # later passes or the generator stop at it
    from compiler_kernels.targets.isa import SCALAR

    sources = {**runtime_sources(), **program.files}
    path.write_bytes(ZigDriver().build(sources, native_target(), "so", (SCALAR,)).data)
    engine = load_engine(path)
    for one, want in zip(base.inputs, base.expected, strict=True):
        got = engine.run(one)
        for name, value in want.items():
            clean = np.where(np.isnan(value), np.float32(np.nan), value)
            assert got[name].tobytes() == clean.tobytes(), "a mutation that validation let through changes bits"
    return True
