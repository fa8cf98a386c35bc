"""Facts counted in assembly: AT&T's and Intel's syntax, and a kernel that is compiled here."""

import pytest
from tvm.script import tirx as T

from tvm_ext.core.machine import Machine
from tvm_ext.driver.machine_code import code_of
from tvm_ext.inspection.profile.code_facts import CodeFacts, facts_of, facts_of_kernels, instructions_of

ATT = """\
\t.type\tkernel,@function
kernel:                                 # @kernel
\tpushq\t%rbx
\tsubq\t$128, %rsp
\tvmovups\t(%rdi,%rax,4), %zmm0          # a load
.LBB0_1:
\tvfmadd231ps\t(%rsi){1to16}, %zmm1, %zmm0 # zmm0 = (zmm1 * mem) + zmm0
\tvfmadd231ps\t%zmm2, %zmm1, %zmm0
\tvmovaps\t%zmm0, 64(%rsp)               # a spill
\tvaddps\t64(%rsp), %zmm3, %zmm4        # a reload within
\tvmovups\t%zmm0, (%rsp,%rax,4)          # an array on the stack, no slot
\tvmovups\t%zmm0, (%rdx) {%k1}
\tleaq\t8(%rsp), %rcx
\tprefetcht0\t(%rdi)
\tcmpl\t$3, (%rdi)
\taddl\t$1, (%rdi)
\tmovq\t%rax, 8(%rsp)                   # no vector
\tvmovss\t(%rdi), %xmm5
\tjne\t.LBB0_1
\tretq
"""
INTEL = """\
\t.type\tkernel,@function
kernel:
\tpush\trbx
\tsub\trsp, 128
\tvmovups\tzmm0, zmmword ptr [rdi + 4*rax]
.LBB0_1:
\tvfmadd231ps\tzmm0, zmm1, dword ptr [rsi]{1to16}
\tvfmadd231ps\tzmm0, zmm1, zmm2
\tvmovaps\tzmmword ptr [rsp + 64], zmm0
\tvaddps\tzmm4, zmm3, zmmword ptr [rsp + 64]
\tvmovups\tzmmword ptr [rsp + 4*rax], zmm0
\tvmovups\tzmmword ptr [rdx] {k1}, zmm0
\tlea\trcx, [rsp + 8]
\tprefetcht0\tbyte ptr [rdi]
\tcmp\tdword ptr [rdi], 3
\tadd\tdword ptr [rdi], 1
\tmov\tqword ptr [rsp + 8], rax
\tvmovss\txmm5, dword ptr [rdi]
\tjne\t.LBB0_1
\tret
"""


@pytest.mark.parametrize("text", [ATT, INTEL], ids=["AT&T", "Intel"])
def test_both_syntaxes_give_the_same_facts(text):
    # loads: vmovups, fma, vaddps, cmp, add, vmovss; stores: spill, array, masked, add, mov
    assert facts_of(text) == CodeFacts(512, fma=2, loads=6, stores=5, spills=1, reloads=1, instructions=17)


def test_the_frame_pointer_counts_where_it_is_one():
    store = "\tvmovaps\t%ymm0, -32(%rbp)\n"
    frame = "\tpushq\t%rbp\n\tmovq\t%rsp, %rbp\n"
    assert facts_of(store).spills == 0  # there %rbp is a register like others
    assert facts_of(frame + store).spills == 1


def test_width_is_that_of_the_multiply_adds_else_of_what_is_packed():
    wide_copy = "\tvmovups\t(%rdi), %zmm0\n"
    assert facts_of(wide_copy + "\tvfmadd213ps\t%ymm2, %ymm1, %ymm0\n").vector_bits == 256
    assert facts_of(wide_copy).vector_bits == 512
    assert facts_of("\tvaddss\t%xmm2, %xmm1, %xmm0\n").vector_bits == 0
    assert str(facts_of("\tvaddss\t%xmm2, %xmm1, %xmm0\n")).startswith("scalar")
    assert facts_of("\tvpdpbusd\t(%rdi), %zmm1, %zmm0\n").fma == 1


def test_the_entry_that_unpacks_arguments_is_left_out():
    entry = "\t.type\t__tvm_ffi_kernel,@function\n__tvm_ffi_kernel:\n\tmovq\t(%rdi), %rax\n\n"
    assert facts_of(entry + ATT) == facts_of(ATT)
    assert facts_of(entry).instructions == 1  # it is all there is


def test_operands_keep_their_brackets_and_lose_comments():
    (instructions,) = instructions_of("\tvfmadd231ps\t8(%rsi,%rax,4){1to16}, %zmm1, %zmm0  # x, y\n")
    assert instructions.operands == ("8(%rsi,%rax,4){1to16}", "%zmm1", "%zmm0")
    assert list(instructions_of("\t.section\t.rodata\n.L1:\n# vaddps\n\n")) == []


@T.prim_func(s_tir=True)
def axpy(x: T.Buffer((64, 16), "float32"), y: T.Buffer((64, 16), "float32"), out: T.Buffer((64, 16), "float32")):
    for i in T.serial(64):
        for v in T.vectorized(16):
            out[i, v] = x[i, v] * T.float32(3) + y[i, v]


@pytest.mark.parametrize(("mcpu", "bits"), [("skylake-avx512", 512), ("haswell", 256)])
def test_a_compiled_kernel_has_the_width_of_its_machine(mcpu, bits):
    machine = Machine.detect(mcpu, 1)
    facts, why = facts_of_kernels(code_of({"axpy": axpy}, machine, "asm"), machine.triple, machine.isa)
    assert why == "" and facts["axpy"].vector_bits == bits
    assert facts["axpy"].fma >= 1 and facts["axpy"].loads >= 2 and facts["axpy"].stores >= 1


def test_machine_code_of_arm_is_not_parsed():
    facts, why = facts_of_kernels({"a": "\tfmla\tv0.4s, v1.4s, v2.4s\n"}, "aarch64-linux-gnu", "neon")
    assert facts == {} and "not parsed" in why
