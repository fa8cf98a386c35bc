"""Roundings to bfloat16 in machine code, and several kernels that round in one module."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from tests.schedules.kernels import make_group, matched, random, scheduled
from tvm_ext.core.group import RECIPE
from tvm_ext.core.machine import Machine
from tvm_ext.driver.build import compile_kernels
from tvm_ext.driver.machine_code import code_of
from tvm_ext.runtime.cpu import why_not_here
from tvm_ext.schedules.recipes.elementwise import Elementwise


def _kernel(machine: Machine, shape: tuple[int, ...], op: Any) -> tirx.PrimFunc:
    """op(x), rounded."""

    def body(x: Any) -> Any:
        value = yield op(x)
        yield relax.op.astype(value, "bfloat16")

    match = matched(Elementwise(), make_group("elementwise", [shape], body), machine)
    _, mod = scheduled(Elementwise(), match, Elementwise().default(match, machine), machine, None)
    return mod["main"].with_attr(RECIPE, "elementwise")


@pytest.mark.parametrize(("target", "instruction"), [("znver4", True), ("skylake-avx512", False), ("haswell", False)])
def test_rounds_in_one_instruction_where_there_is_one(target: str, instruction: bool) -> None:
    machine = Machine.detect(target, 1)
    text = code_of({"k": _kernel(machine, (4, 64), relax.op.nn.relu)}, machine, "asm")["k"]
    assert ("vcvtneps2bf16" in text) == instruction
    assert "tvm_ext_vcvtneps2bf16" not in text and "vmovss" not in text


@pytest.mark.parametrize("target", [None, "haswell"])
def test_several_kernels_on_threads(target: str | None) -> None:
    machine = Machine.detect(target, 2)
    if why := why_not_here(machine.as_dict()):
        pytest.skip(why)
    shape, ops = (64, 4096), {"a": relax.op.nn.relu, "b": relax.op.negative}
    kernels = {name: _kernel(machine, shape, op) for name, op in ops.items()}
    library, x = compile_kernels(kernels, machine), random(np.random.default_rng(3), *shape)
    for name, exact in (("a", np.maximum(x, 0)), ("b", -x)):
        out = tvm.runtime.empty(shape, "bfloat16")
        library[name](tvm.runtime.tensor(x), out)
        assert np.array_equal(out.numpy(), exact.astype(ml_dtypes.bfloat16))
