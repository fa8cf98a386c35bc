"""lower-rest: groups with constants inside, reshapes that are outputs, threads of kernels TVM wrote by hand."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import Stage, agrees, primfuncs, stage
from tvm_ext.core.machine import Machine
from tvm_ext.driver.build import has_parallel_loops
from tvm_ext.passes.lowering.lower_rest import LowerRest
from tvm_ext.schedules import generic

HALF = np.float64(0.5)


def lowered(proto: onnx.ModelProto, **options: Any) -> Stage:
    return stage(proto, LowerRest, **options)


# ------------------------------------------------------------------------------------------ groups with constants
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_a_scalar_inside_a_group_that_no_recipe_takes(shape: tuple[int, ...]) -> None:
    nodes = [node("MatMul", "x z", "h"), node("Mul", "h half", "m"), node("Relu", "m", "y")]
    kind = TensorProto.DOUBLE  # which no recipe for a matmul takes
    inputs = [value("x", (3, 5), kind), value("z", (5, 4), kind)]
    proto = model(nodes, inputs, [value("y", (3, 4), kind)], {"half": np.full(shape, HALF)})
    assert lowered(proto).calls == ["fused_matmul_multiply_relu"]
    (kernel,) = agrees(proto).report["kernels"]
    assert kernel["recipe"] == "generic" and set(kernel["nodes"]) == {"matmul_h", "mul_m", "relu_y"}


def test_groups_that_differ_in_a_scalar_share_a_kernel() -> None:
    nodes = [
        node("MatMul", "x z", "h"), node("Mul", "h half", "a"), node("MatMul", "a z", "k"), node("Mul", "k two", "y"),
    ]  # fmt: skip
    kind = TensorProto.DOUBLE
    inputs = [value("x", (3, 5), kind), value("z", (5, 5), kind)]
    proto = model(nodes, inputs, [value("y", (3, 5), kind)], {"half": HALF, "two": np.float64(2)})
    (kernel,) = agrees(proto).report["kernels"]
    assert kernel["calls"] == 2
    assert [set(c) for c in kernel["call_sites"]] == [{"matmul_h", "mul_a"}, {"matmul_k", "mul_y"}]


def test_a_concat_with_a_constant_that_no_recipe_takes() -> None:
    kind = TensorProto.FLOAT16
    nodes = [node("Concat", "x half x", "y", axis=1)]
    proto = model(nodes, [value("x", (3, 5), kind)], [value("y", (3, 11), kind)], {"half": np.full((3, 1), 0.5, "f2")})
    agrees(proto)
    kind = TensorProto.BOOL
    proto = model([node("Concat", "x t", "y", axis=0)], [value("x", (2, 3), kind)], [value("y", (3, 3), kind)],
                  {"t": np.array([[True, False, True]])})  # fmt: skip
    agrees(proto)


# ----------------------------------------------------------------------------------------------------- reshapes
def test_a_reshape_that_is_an_output_is_no_kernel() -> None:
    nodes = [node("Tanh", "x", "a"), node("Flatten", "a", "y", "flat")]
    proto = model(nodes, [value("x", (2, 3, 4))], [value("y", (2, 12))])
    assert lowered(proto).fired == {"flat": "another shape of the same memory"}
    assert agrees(proto).report["launches"] == 1


def test_views_of_one_value_are_outputs_of_their_own() -> None:
    nodes = [
        node("Tanh", "x", "a"), node("Reshape", "a s", "r"), node("Reshape", "x s", "v"), node("Exp", "r", "e"),
        node("Sigmoid", "a", "g"),
    ]  # fmt: skip
    outputs = [value("a", (4, 6)), value("r", (3, 8)), value("v", (3, 8)), value("e", (3, 8)), value("g", (4, 6))]
    proto = model(nodes, [value("x", (4, 6))], outputs, {"s": np.array([3, 8], np.int64)})
    compiled, x = agrees(proto), random(4, 6)
    first, kept = compiled.run(x), x.copy()
    for array in first.values():
        array[...] = 7.0
    assert np.array_equal(x, kept)
    for name, array in compiled.run(x).items():
        assert not any(np.shares_memory(array, other) for other in (x, *first.values())), name
        assert not (array == 7.0).any()


# ------------------------------------------------------------------------------------------------------ threads
BY_HAND = {
    "scan": [node("CumSum", "x one", "y")],
    "scatter": [node("ScatterElements", "x index x", "y", axis=1)],
    "sort": [node("TopK", "x four", "y i", axis=1)],
}
WEIGHTS = {
    "one": np.array(1, np.int64), "four": np.array([4], np.int64),
    "index": np.tile(np.arange(40)[::-1], (30, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_that_tvm_wrote_by_hand_use_no_threads(name: str, threads: int) -> None:
    (only,) = BY_HAND[name]
    proto = model([only], [value("x", (30, 40))], [value("y", None)], {k: WEIGHTS[k] for k in only.input if k != "x"})
    compiled = agrees(proto, threads=threads)
    assert not compiled.metadata.parallel
    by_hand = [k for k in compiled.report["kernels"] if k["config"]["schedule"] != "serial"]
    assert [k["config"]["schedule"] for k in by_hand] == ["none: loops that TVM wrote by hand"]
    assert all(k["reason"] for k in compiled.report["kernels"])


@pytest.mark.parametrize("rows", [3, 3000])
def test_threads_are_woken_for_large_kernels_only(rows: int) -> None:
    kind = TensorProto.FLOAT16  # which no recipe takes
    proto = model([node("Add", "x x", "y")], [value("x", (rows, 40), kind)], [value("y", (rows, 40), kind)])
    assert not has_parallel_loops(lowered(proto, threads=1).mod)
    assert has_parallel_loops(lowered(proto, threads=2).mod) == (rows == 3000)
    agrees(proto)


def test_a_function_that_says_it_is_scheduled_is_left_alone() -> None:
    proto = model([node("Transpose", "x", "y")], [value("x", (3, 4), 6)], [value("y", (4, 3), 6)])
    function = next(iter(primfuncs(lowered(proto).mod).values())).with_attr("tirx.is_scheduled", True)
    same, how = generic.schedule(function, Machine.detect(threads=2))
    assert how == "none: already scheduled" and same.attrs["tirx.is_scheduled"]


# --------------------------------------------------------------------------------------------------- other dtypes
@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.INT8, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_chains_of_other_dtypes_are_one_kernel(kind: int) -> None:
    nodes = [node("Add", "x x", "a"), node("Mul", "a x", "b"), node("Sub", "b x", "y")]
    proto = model(nodes, [value("x", (3, 5), kind)], [value("y", (3, 5), kind)])
    (kernel,) = agrees(proto).report["kernels"]
    assert kernel["recipe"] == ("generic" if kind == TensorProto.INT8 else "elementwise")
    assert set(kernel["nodes"]) == {"add_a", "mul_b", "sub_y"}


def test_each_fused_kernel_knows_its_own_nodes() -> None:
    kind = TensorProto.INT64
    nodes = [
        node("Add", "x x", "lv"), node("Mul", "lv x", "b"), node("ArgMax", "b", "c"), node("Sub", "b x", "y"),
        node("Add", "c c", "d"), node("Split", "y", "gv s", axis=0), node("Mul", "s three", "z"),
    ]  # fmt: skip
    outputs = [value("d", (1, 5), kind), value("gv", (2, 5), kind), value("z", (2, 5), kind)]
    proto = model(nodes, [value("x", (4, 5), kind)], outputs, {"three": np.array(3, np.int64)})
    kernels = agrees(proto).report["kernels"]
    sites = [set(site) for k in kernels for site in k["call_sites"]]
    assert sorted(n for site in sites for n in site) == sorted(n.name for n in nodes), "each node is in one kernel"
    assert {"add_lv", "mul_b"} in sites


def test_an_empty_tensor_runs() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", (0, 3))], [value("y", (0, 3))])
    assert agrees(proto).report["kernels"] == []
