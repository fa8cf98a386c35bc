"""Dot-product instructions: what they are asked for, and their products element by element."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import TensorIntrin

from tvm_ext.core.machine import Machine
from tvm_ext.schedules.dots import instructions as dots
from tvm_ext.schedules.dots.instructions import Dot, dot_of

INTEGERS = [(x, w) for x in ("int8", "uint8") for w in ("int8", "uint8")]


def test_which_types_have_an_instruction() -> None:
    zen4, skylake, zen3 = (Machine.described(name) for name in ("zen4", "xeon-skylake", "zen3-avx2"))
    for data, weight in INTEGERS:
        assert dot_of(data, weight, zen4) == Dot(data, weight, "avx512vnni", 16)
        assert dot_of(data, weight, skylake) == Dot(data, weight, "avx512bw", 16)
        assert dot_of(data, weight, zen3) == Dot(data, weight, "avx2", 8)
    assert dot_of("bfloat16", "bfloat16", zen3) == Dot("bfloat16", "bfloat16", "avx512bf16")
    assert dot_of("bfloat16", "int8", zen4) is None
    assert dot_of("float32", "float32", zen4) is None


def test_a_word_has_32_bits() -> None:
    assert [Dot(d, w, "").group for d, w in (("int8", "int8"), ("uint16", "bfloat16"))] == [4, 2]


def test_what_a_machine_lacks() -> None:
    dot = Dot("int8", "int8", "avx512vnni")
    assert "avx512vnni" in dot.missing(Machine.detect("haswell"))
    assert dot.missing(Machine.detect("cascadelake")) == ""
    assert "avx512bf16" in Dot("bfloat16", "bfloat16", "avx512bf16").missing(Machine.detect("cascadelake"))
    assert replace(dot, feature="").missing(Machine.detect("haswell")) == ""


@pytest.mark.parametrize(("data", "weight"), INTEGERS)
def test_products_of_every_pair_of_bytes(data: str, weight: str) -> None:
    """Inputs are read larger by `raised`; uint8 weights are the bits of signed ones."""
    dot = Dot(data, weight, "")
    x, w = te.placeholder((256,), data), te.placeholder((256,), weight)
    table = te.compute((256, 256), lambda i, j: dot.product(x[i], w[j]))
    function = tvm.compile(te.create_prim_func([x, w, table]), target="llvm").jit()["main"]
    every = np.arange(256).astype("uint8")
    out = tvm.runtime.tensor(np.zeros((256, 256), "int32"))
    function(tvm.runtime.tensor(every.view(data)), tvm.runtime.tensor(every.view(weight)), out)
    expected = np.outer(every.view(data).astype(int) + dot.raised, every.view("int8").astype(int))
    np.testing.assert_array_equal(out.numpy(), expected)


DOTS = [
    Dot("int8", "int8", "avx512vnni"), Dot("uint8", "uint8", "avx512vnni"), Dot("int16", "int8", "avx2", 8),
    Dot("int16", "uint8", "avx512bw"), Dot("bfloat16", "bfloat16", "avx512bf16"),
    Dot("uint16", "bfloat16", "avx512bf16"),
]  # fmt: skip


@pytest.mark.parametrize("dot", DOTS, ids=str)
def test_an_intrinsic_is_registered_once(dot: Dot) -> None:
    name = dots._registered(dot)
    assert dots._registered(dot) == name
    assert TensorIntrin.get(name) is not None
