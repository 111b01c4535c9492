"""The gate on PTX refuses every instruction that could change a bit, and nothing that CA-1 is made of."""

from __future__ import annotations

import pytest

from compiler_kernels.targets.cuda.ptx_gate import gate

FINE = """
.visible .entry k(.param .u64 p)
{
	.reg .f32 	%f<9>;
	ld.global.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd1];
	fma.rn.f32 	%f5, %f1, %f2, %f3;
	@%p1 add.rn.f32 	%f5, %f5, %f4;
	mul.rn.f32 %f6, %f5, 0f3F800000; sub.rn.f32 %f6, %f6, %f1;
	div.rn.f32 	%f6, %f6, %f5;
	sqrt.rn.f64 	%fd1, %fd2;
	add.rn.f64 	%fd1, %fd1, %fd2; sub.rn.f64 %fd1, %fd1, %fd2; mul.rn.f64 %fd1, %fd1, %fd2;
	mov.b64 	%fd2, {%r4, %r5};
	max.f32 	%f7, %f6, 0fFF800000;
	setp.nan.f32 	%p2, %f6, %f6;
	selp.f32 	%f8, 0f7FC00000, %f7, %p2;
	cvt.rni.f32.f32 	%f8, %f8;
	cvt.rn.f32.s32 	%f8, %r1;
	cvt.rzi.s32.f32 	%r2, %f8;
	cvt.f64.f32 	%fd3, %f8;
	cvt.rn.f32.f64 	%f8, %fd3;
	atom.global.add.u32 	%r3, [%rd2], 1;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];
	st.global.f32 	[%rd1], %f8;
	ret;
}
"""
PLANTED = {
    "fma.rn.ftz.f32 %f1, %f2, %f3, %f4;": "subnormals",
    "add.f32 %f1, %f2, %f3;": "not on the list",
    "mul.f32 %f1, %f2, %f3;": "not on the list",
    "mul.ftz.f32 %f1, %f2, %f3;": "subnormals",
    "ex2.approx.ftz.f32 %f1, %f2;": "subnormals",
    "rcp.approx.f32 %f1, %f2;": "approximation",
    "sin.approx.f32 %f1, %f2;": "approximation",
    "div.full.f32 %f1, %f2, %f3;": "division",
    "fma.rz.f32 %f1, %f2, %f3, %f4;": "another direction",
    "add.f64 %fd1, %fd2, %fd3;": "not on the list",
    "mul.f64 %fd1, %fd2, %fd3;": "not on the list",
    "sub.f64 %fd1, %fd2, %fd3;": "not on the list",
    "mul.rz.f64 %fd1, %fd2, %fd3;": "another direction",
    "add.rm.f64 %fd1, %fd2, %fd3;": "another direction",
    "cvt.rz.f32.f64 %f1, %fd2;": "not on the list",
    "cvt.rn.ftz.f32.f64 %f1, %fd2;": "subnormals",
    "cvt.rn.sat.f32.f64 %f1, %fd2;": "not on the list",
    "dfma.rn.f64 %fd1, %fd2, %fd3, %fd4;": "not on the list",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1}, {%fd2}, {%fd3}, {%fd4};": "matrix",
    "atom.global.add.f64 %fd1, [%rd1], %fd2;": "atomic",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f2};": "matrix",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1}, {%r1}, {%r2}, {%f2};": "matrix",
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1}, %rd1, %rd2, 1, 1, 1;": "matrix",
    "atom.global.add.f32 %f1, [%rd1], %f2;": "atomic",
    "red.global.add.f32 [%rd1], %f2;": "atomic",
    "atom.global.cas.b32 %r1, [%rd1], %r2, %r3;": "atomic",
    "cvt.rn.f16.f32 %h1, %f2;": "half precision",
    "fma.rn.f16x2 %r1, %r2, %r3, %r4;": "half precision",
    "min.NaN.f32 %f1, %f2, %f3;": "not on the list",
    "tanh.approx.f32 %f1, %f2;": "approximation",
    "fma.rn.f32x2 %rd1, %rd2, %rd3, %rd4;": "not on the list",
    "cvt.rni.sat.f32.f32 %f1, %f2;": "not on the list",
    "cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2;": "half precision or less",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;": "atomic",
    "multimem.red.global.add.u32 [%rd1], %r1;": "atomic",
    "mad.f32 %f1, %f2, %f3, %f4;": "not on the list",
}
HIDDEN = (
    "{ add.f32 %f1, %f2, %f3; }",
    "{ .reg .pred p; @p add.f32 %f1, %f2, %f3; }",
    "@!q add.f32 %f1, %f2, %f3;",
    "$L__BB0_1: add.f32 %f1, %f2, %f3;",
    "$L__BB0_1:add.f32 %f1, %f2, %f3;",
    "/* sum */ add.f32 %f1, %f2, %f3; // of two",
    "bra.uni $L__BB0_1; @%p1 add.f32 %f1, %f2, %f3;",
)


def test_the_instructions_of_ca_1_pass_and_are_counted():
    report = gate(FINE)
    assert report.violations == ()
    assert report.counts["fma.rn.f32"] == report.counts["add.rn.f32"] == report.counts["atom.global.add.u32"] == 1


@pytest.mark.parametrize("line", PLANTED)
def test_a_planted_instruction_is_found_with_its_line(line):
    report = gate(FINE.replace("\tret;", f"\t@%p1 {line}\n\tret;"))
    assert len(report.violations) == 1
    assert line.split()[0] in report.violations[0] and PLANTED[line] in report.violations[0]
    assert f"line {FINE[: FINE.index(chr(9) + 'ret;')].count(chr(10)) + 1}" in report.violations[0]


@pytest.mark.parametrize("line", HIDDEN)
def test_an_instruction_is_found_behind_braces_labels_names_and_comments(line):
    report = gate(FINE.replace("\tret;", f"\t{line}\n\tret;"))
    assert len(report.violations) == 1 and report.violations[0].startswith("add.f32 in line ")


def test_what_stands_in_a_comment_is_no_instruction():
    report = gate(FINE + "// add.f32 %f1, %f2, %f3;\n/* div.full.f32\nmul.f32 %f1; */\n")
    assert report == gate(FINE)
