"""machine_code: the text of kernels is that of what a build compiles, one kernel at a time."""

import re

import numpy as np
import pytest

from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.errors import OptionError
from tvm_ext.core.graph.nodes import kernels_of
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.build import compile_kernels
from tvm_ext.driver.lower import Lowered
from tvm_ext.driver.machine_code import functions_of, machine_code, own_assembly
from tvm_ext.driver.programs import lower
from tvm_ext.passes.tir.shares import is_scheduled


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    """A convolution and a softmax by recipes, and a cumulative sum that none takes."""
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Softmax", "a", "b", axis=1),
        node("CumSum", "b axis", "y"),
    ]  # fmt: skip
    weights = {"w": random(16, 3, 3, 3), "axis": np.array(1)}
    proto = model(nodes, [value("x", (1, 3, 8, 8))], [value("y", (1, 16, 8, 8))], weights)
    return lower(proto, CompileOptions(), Machine.detect("haswell", 2))


def without_numbers(assembly: str) -> str:
    """Labels are numbered by module."""
    return re.sub(r"\.L(BB|CPI|JTI)\d+_", r".L\1_", re.sub(r"__tvm_parallel_lambda(\.\d+)?", "lambda", assembly))


def test_it_is_the_code_that_a_build_makes_of_all_kernels_together(lowered: Lowered) -> None:
    kernels = kernels_of(lowered.mod)
    assert {is_scheduled(kernel) for kernel in kernels.values()} == {True, False}
    alone = [f for text in machine_code(lowered, "asm").values() for f in functions_of(text).values()]
    together = []
    for scheduled in (True, False):
        chosen = {name: kernel for name, kernel in kernels.items() if is_scheduled(kernel) == scheduled}
        module = compile_kernels(chosen, lowered.ctx.machine, scheduled=scheduled)
        together += functions_of(own_assembly(str(module.inspect_source("asm")))).values()
    assert sorted(map(without_numbers, alone)) == sorted(map(without_numbers, together))


def test_assembly_has_the_instructions_of_the_machine_and_nothing_for_debuggers(lowered: Lowered) -> None:
    text = machine_code(lowered, "asm")["conv2d"]
    assert "vfmadd" in text and "%ymm" in text and "%zmm" not in text
    assert not re.search(r"\.cfi_|\.loc\b|\.Ltmp|__truncsfhf2|debug", text)
    assert {"__tvm_ffi_conv2d", "conv2d_compute_"} <= set(functions_of(text))


def test_llvm_ir_has_functions_and_no_metadata(lowered: Lowered) -> None:
    text = machine_code(lowered, "llvm")["conv2d"]
    assert "@__tvm_ffi_conv2d(" in text and "<8 x float>" in text
    assert not re.search(r"!\w|#dbg|__truncsfhf2", text)


def test_another_kind_is_refused(lowered: Lowered) -> None:
    with pytest.raises(OptionError, match="kind='hex': choose 'llvm' or 'asm'"):
        machine_code(lowered, "hex")
