"""Residence: the weights of a whole model decide where each kernel finds its own."""

import dataclasses

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule

from tvm_ext.core.cost.residence import level_of_expanded, weights_level, with_residence
from tvm_ext.core.graph.relax_graph import main_bindings
from tvm_ext.core.group import CONSTANTS, GROUP, WEIGHTS_BYTES, WEIGHTS_IN, Group
from tvm_ext.core.machine import Machine

ZEN4, CLUSTER = Machine.described("zen4"), Machine.described("cluster64-xeon")
#: A virtual machine that reports the L3 of a whole processor.
XEON = Machine.described("xeon-amx")


@pytest.mark.parametrize(
    ("machine", "nbytes", "level"),
    [
        (ZEN4, 0, "l2"), (ZEN4, 600_000, "l2"), (ZEN4, 700_000, "l3"), (ZEN4, 16 << 20, "l3"),
        (ZEN4, (16 << 20) + 1, "memory"), (XEON, 32 << 20, "l3"), (XEON, (32 << 20) + 1, "memory"),
        (XEON.with_threads(1), 16 << 20, "l3"), (XEON.with_threads(1), (16 << 20) + 1, "memory"),
        (CLUSTER, 160 << 20, "l3"), (CLUSTER, (160 << 20) + 1, "memory"),
    ],
)  # fmt: skip
def test_levels(machine: Machine, nbytes: int, level: str) -> None:
    """Half of L3 at most, and no more than a thread may count on; L1 is never told from L2."""
    assert weights_level(nbytes, machine) == level


def two_matmuls(size: int, columns: int, shared: bool = False) -> IRModule:
    """x W0 W1, as grouped functions with weights (size, size) and (size, columns); `shared` has W0 for both."""
    builder, shapes, calls = relax.BlockBuilder(), [(size, size), (size, columns)], []
    for number, shape in enumerate(shapes):
        x, w = (relax.Var(name, relax.TensorType(of, "float32")) for name, of in (("x", (1, size)), ("w", shape)))
        with builder.function(f"matmul{number}", [x, w]):
            with builder.dataflow():
                out = builder.emit_output(relax.op.matmul(x, w))
            calls.append(builder.emit_func_output(out))
        function = builder.get()[calls[-1]]
        builder.update_func(calls[-1], function.with_attr({GROUP: "relax.matmul", CONSTANTS: [1]}))
    weights = [relax.const(np.zeros(shape, "float32")) for shape in shapes]
    x = relax.Var("x", relax.TensorType((1, size), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.Call(calls[0], [x, weights[0]]))
            out = builder.emit_output(relax.Call(calls[1], [hidden, weights[0 if shared else 1]]))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize(("size", "level"), [(64, "l2"), (512, "l3"), (2048, "memory")])
def test_all_groups_are_told_where_weights_lie(size: int, level: str) -> None:
    """2 x 512 x 512 floats are more than 0.6 of an L2 of 1 MiB, 2 x 2048 x 2048 more than half an L3 of 32."""
    mod = two_matmuls(size, size + (level == "memory"))
    out = with_residence(mod, ZEN4)
    assert [Group(name, out[name]).weights_in for name in ("matmul0", "matmul1")] == [level] * 2
    assert not out["main"].attrs or WEIGHTS_IN not in out["main"].attrs
    assert len(main_bindings(out)) == len(main_bindings(mod))
    assert Group("matmul0", mod["matmul0"]).weights_in == "memory"  # the module that was given is left alone


def test_a_constant_that_two_kernels_read_counts_once() -> None:
    """720 kB of two weights, 360 of one."""
    levels = [with_residence(two_matmuls(300, 300, shared), ZEN4)["matmul1"] for shared in (False, True)]
    assert [Group("matmul1", function).weights_in for function in levels] == ["l3", "l2"]


def test_a_smaller_cache_keeps_less() -> None:
    small = dataclasses.replace(ZEN4, l2=64 << 10, l3=128 << 10)
    assert Group("matmul1", with_residence(two_matmuls(128, 128), small)["matmul1"]).weights_in == "memory"


@pytest.mark.parametrize(
    ("size", "levels"), [(300, ["l3", "l3", "l3"]), (1024, ["l3", "l3", "memory"]), (2048, ["memory"] * 3)]
)
def test_weights_that_packing_makes_larger(size: int, levels: list[str]) -> None:
    """2 x 1024 x 1024 floats are 8 MiB of an L3 of 32: 1.78 times as many lie in half of it, 4 times as many do not."""
    function = with_residence(two_matmuls(size, size + 1), ZEN4)["matmul1"]
    group = Group("matmul1", function)
    assert group.weights_bytes == (0 if size == 2048 else 4 * size * (2 * size + 1))
    assert [level_of_expanded(group, expansion, ZEN4) for expansion in (1.0, 16 / 9, 4.0)] == levels


def test_a_group_without_a_model_has_its_weights_in_memory() -> None:
    group = Group("matmul1", two_matmuls(64, 64)["matmul1"])
    assert WEIGHTS_BYTES not in group.function.attrs
    assert level_of_expanded(group, 4.0, ZEN4) == "memory"
