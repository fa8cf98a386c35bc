"""group-operations: what is fused behind which anchor, that numbers stay, and what must not be fused."""

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import Stage, agrees, stage
from tvm_ext.core.fusion import DEEPEST_EXPRESSION, LARGEST_EXPRESSION, FusionCandidate
from tvm_ext.core.graph.relax_graph import iter_groups
from tvm_ext.core.group import Group
from tvm_ext.passes.lowering.group_operations import GroupOperations

IMAGE = (1, 6, 5, 7)


def grouped(proto: onnx.ModelProto, **options: Any) -> Stage:
    return stage(proto, GroupOperations, **options)


def conv(x: str, y: str, weight: str = "w", **attributes: Any) -> onnx.NodeProto:
    """Keeps height and width under a 3x3 weight."""
    return node("Conv", f"{x} {weight}", y, pads=[1, 1, 1, 1], **attributes)


def weights(**more: Any) -> dict[str, np.ndarray]:
    return {"w": random(6, 6, 3, 3, scale=0.15), **more}


def on_image(
    nodes: list[onnx.NodeProto], *outputs: str, inputs: str = "x", shape: tuple[int, ...] = IMAGE, **more: Any
) -> onnx.ModelProto:
    ends = [[value(name, size) for name in names] for names, size in ((inputs, IMAGE), (outputs or ("y",), shape))]
    return model(nodes, *ends, weights(**more))


def hard_swish(x: str, y: str) -> list[onnx.NodeProto]:
    return [
        node("Add", f"{x} three", f"{y}_a"), node("Clip", f"{y}_a zero six", f"{y}_b"),
        node("Mul", f"{x} {y}_b", f"{y}_c"), node("Div", f"{y}_c six", y),
    ]  # fmt: skip


SCALARS = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)}
OTHER = random(6, 6, 3, 3, scale=0.15, seed=5)
#: What is said of it -> model, groups.
GROUPED = {
    "an operand that makes the result larger is not fused": (
        on_image([node("GlobalAveragePool", "x", "p"), node("Add", "p b", "y")], b=random(1, 6, 5, 7)),
        ["mean", "add"]),
    "the same operand twice": (on_image([conv("x", "c"), node("Add", "c c", "y")]), ["conv2d add"]),
    "its square": (on_image([conv("x", "c"), node("Mul", "c c", "y")]), ["conv2d multiply"]),
    "a chain on every kind of anchor": (
        on_image([
            node("MaxPool", "x", "p", kernel_shape=[2, 2]), node("Tanh", "p", "t"), node("Softmax", "t", "s"),
            node("Mul", "s k", "m"), node("ReduceMax", "m", "r", axes=[1], keepdims=0), node("Exp", "r", "e"),
            node("MatMul", "e v", "h"), node("Sigmoid", "h", "y"),
        ], shape=(1, 4, 3), k=random(), v=random(6, 3)),
        ["max_pool2d tanh", "softmax multiply", "max exp", "matmul sigmoid"]),
    "a value that two operations read ends its group": (
        on_image([conv("x", "c"), node("Relu", "c", "r"), node("Tanh", "r", "t"), node("Sigmoid", "r", "s")], "t", "s"),
        ["conv2d relu", "tanh", "sigmoid"]),
    "so does one that is the first output": (
        on_image([conv("x", "c"), node("Relu", "c", "y")], "c", "y"), ["conv2d", "relu"]),
    "and one that is the last": (on_image([conv("x", "c"), node("Relu", "c", "y")], "y", "c"), ["conv2d", "relu"]),
    "an operand that depends on the anchor by another way makes no cycle": (
        on_image([conv("x", "c"), node("GlobalAveragePool", "c", "g"), node("Add", "c g", "a"),
                  node("Relu", "a", "y")]),
        ["conv2d", "mean", "add relu"]),
    "an epilogue may wait for an operand that is computed later": (
        on_image([conv("x", "c"), node("Exp", "z", "e"), node("Softmax", "e", "s"), node("Add", "c s", "a"),
                  node("Relu", "a", "y")], inputs="xz"),
        ["exp", "softmax", "conv2d add relu"]),
    "two chains behind one anchor": (
        on_image([conv("x", "c"), node("Neg", "x", "t"), node("Exp", "t", "e"), node("Add", "c e", "y")]),
        ["conv2d negative exp add"]),
    "a value that branches and meets again stays in its kernel": (
        on_image([conv("x", "c"), *hard_swish("c", "y")], **SCALARS), ["conv2d add clip multiply multiply"]),
    "one branching value behind another": (
        on_image([conv("x", "c"), *hard_swish("c", "h"), node("Abs", "h", "t"), node("Mul", "h t", "y")], **SCALARS),
        ["conv2d add clip multiply multiply abs multiply"]),
    "a branch takes a chain that comes from outside": (
        on_image([conv("x", "c"), node("Tanh", "z", "t"), node("Add", "c t", "a"), node("Mul", "c a", "y")],
                 inputs="xz"),
        ["conv2d tanh add multiply"]),
    "of two anchors that meet twice only one takes what is behind": (
        on_image([conv("x", "a"), conv("x", "b", "v"), node("Add", "a b", "s"), node("Mul", "a b", "m"),
                  node("Sub", "s m", "y")], v=OTHER),
        ["conv2d", "conv2d add multiply subtract"]),
    "a comparison is not fused behind an anchor": (
        on_image([conv("x", "c"), node("Greater", "c b", "g"), node("Where", "g c b", "y")], b=random(6, 1, 1)),
        ["conv2d", "greater where"]),
}  # fmt: skip


@pytest.mark.parametrize("said", GROUPED)
def test_what_is_one_kernel(said: str) -> None:
    proto, groups = GROUPED[said]
    assert grouped(proto).groups == groups
    agrees(proto)


# ------------------------------------------------------------------------------------------------------- epilogues
@pytest.mark.parametrize(
    "shape", [(6, 1, 1), (1, 6, 1, 1), (), (1,), (7,), (5, 1), (1, 6, 5, 7), (1, 1, 5, 7)], ids=str
)
def test_an_operand_that_broadcasts_to_the_anchor_is_fused(shape: tuple[int, ...]) -> None:
    proto = on_image([conv("x", "c"), node("Add", "c b", "a"), node("Relu", "a", "y")], b=random(*shape))
    assert grouped(proto).groups == ["conv2d add relu"]
    agrees(proto)


def test_every_node_is_named_once_by_its_group() -> None:
    grouping = grouped(on_image([conv("x", "c"), node("Add", "c b", "a"), node("Relu", "a", "y")], b=random(6, 1, 1)))
    assert grouping.fired == {"relu_y": "fused_conv2d_add_relu: 3 operations in one kernel"}
    assert set(grouping.ctx.provenance.of("y")) == {"conv_c", "add_a", "relu_y"}


# -------------------------------------------------------------------------------------- two anchors, shared values
def residual(swapped: bool, kernel: int) -> onnx.ModelProto:
    """relu(conv3x3(x) + conv of another kernel size(x))."""
    operands = "d c" if swapped else "c d"
    second = node("Conv", "x v", "d", pads=[kernel // 2] * 4)
    nodes = [conv("x", "c"), second, node("Add", operands, "a"), node("Relu", "a", "y")]
    return on_image(nodes, v=random(6, 6, kernel, kernel, scale=0.2))


@pytest.mark.parametrize("swapped", [False, True])
def test_the_larger_convolution_takes_the_residual_add(swapped: bool) -> None:
    assert grouped(residual(swapped, kernel=1)).groups == ["conv2d", "conv2d add relu"]
    grouping = grouped(residual(swapped, kernel=5))
    assert grouping.groups == ["conv2d", "conv2d add relu"]
    anchors = {g.name_hint: Group(g.name_hint, f) for g, f in iter_groups(grouping.mod)}
    large = next(g for g in anchors.values() if "relu" in g.epilogue)
    assert large.operand(1).shape == (6, 6, 5, 5)
    agrees(residual(swapped, kernel=1))


# ----------------------------------------------------------------------------------------------------- elementwise
def test_chains_and_graphs_of_elementwise_operations_become_one_kernel() -> None:
    nodes = [
        node("Neg", "x", "a"), node("Abs", "x", "b"), node("Exp", "a", "c"), node("Mul", "b k", "d"),
        node("Add", "c d", "e"), node("Sub", "e x", "y"),
    ]  # fmt: skip
    proto = on_image(nodes, k=random(6, 1, 1))
    grouping = grouped(proto)
    assert grouping.groups == ["negative abs exp multiply add subtract"]
    ((_, function),) = iter_groups(grouping.mod)
    assert [p.shape for p in Group("g", function).params] == [IMAGE, (6, 1, 1)], "x is one parameter"
    assert agrees(proto).report["launches"] == 1


def test_equal_groups_are_one_function() -> None:
    nodes = [conv("x", "c"), node("Relu", "c", "r"), conv("r", "d", "v"), node("Relu", "d", "s"), conv("s", "y")]
    proto = on_image(nodes, v=OTHER)
    grouping = grouped(proto)
    assert grouping.calls == ["fused_conv2d_relu", "fused_conv2d_relu", "fused_conv2d"]
    assert len(list(iter_groups(grouping.mod))) == 2
    agrees(proto)


def test_groups_that_differ_in_a_scalar_are_not_one_function() -> None:
    nodes = [node("Mul", "x h", "a"), node("Softmax", "a", "s"), node("Mul", "x q", "b"), node("Add", "s b", "y")]
    proto = on_image(nodes, h=np.float32(0.5), q=np.float32(0.3))
    grouping = grouped(proto)
    assert grouping.groups == ["multiply", "softmax multiply add"]
    agrees(proto)
    twice = on_image([node("Mul", "x h", "a"), node("Mul", "x q", "b")], "a", "b", h=np.float32(0.5), q=np.float32(0.3))
    assert len(list(iter_groups(grouped(twice).mod))) == 2
    agrees(twice)


@pytest.mark.parametrize("way", ["output", "anchor", "reduction"])
def test_a_value_that_is_also_read_elsewhere_ends_its_group(way: str) -> None:
    nodes = [conv("x", "c"), node("Sigmoid", "c", "s"), node("Mul", "c s", "y")]
    more = {"output": [], "anchor": [conv("c", "d")], "reduction": [node("GlobalAveragePool", "s", "d")]}[way]
    shapes = {"output": [value("c", IMAGE)], "anchor": [value("d", IMAGE)], "reduction": [value("d", (1, 6, 1, 1))]}
    proto = model([*nodes, *more], [value("x", IMAGE)], [value("y", IMAGE), *shapes[way]], weights())
    grouping = grouped(proto).groups
    assert "conv2d" in grouping and len(grouping) >= (3 if way != "output" else 2)
    agrees(proto)


# ----------------------------------------------------------------------------------------------- the fusion model
def test_a_function_decides_each_step() -> None:
    asked: list[FusionCandidate] = []

    def only_bias(candidate: FusionCandidate) -> bool:
        asked.append(candidate)
        return candidate.operations == ("relax.add",)

    proto = on_image([conv("x", "c"), node("Add", "c b", "a"), node("Relu", "a", "y")], b=random(6, 1, 1))
    assert grouped(proto, fusion=only_bias).groups == ["conv2d add", "relu"]
    first, second = asked
    assert (first.anchor, first.group, first.expression) == ("relax.nn.conv2d", ("relax.nn.conv2d",), 3)
    assert first.saved_bytes == 2 * 4 * 6 * 5 * 7 and first.shape == IMAGE
    assert second.group == ("relax.nn.conv2d", "relax.add") and second.operations == ("relax.nn.relu",)
    agrees(proto, fusion=only_bias)


# ----------------------------------------------------------------------------------------------- what is left alone
def test_without_fusion_every_operation_is_a_group() -> None:
    nodes = [conv("x", "c"), node("Add", "c b", "a"), node("Add", "a a", "d"), node("Relu", "d", "y")]
    proto = on_image(nodes, b=random(6, 1, 1))
    assert grouped(proto, fusion="none").groups == ["conv2d", "add", "add", "relu"]
    kernels = agrees(proto, fusion="none").report["kernels"]
    assert sum(k["calls"] for k in kernels if k["recipe"] != "layout_transform") == 4


INTEGERS = {
    "int32": (TensorProto.INT32, "Add", "add"),
    "int64": (TensorProto.INT64, "Mul", "multiply"),
    "bool": (TensorProto.BOOL, "And", "logical_and"),
}


def on_integers(kind: int, operator: str, result: int | None = None) -> onnx.ModelProto:
    inputs = [value("x", (3, 5), kind), value("z", (3, 5), kind)]
    return model([node(operator, "x z", "y", "op")], inputs, [value("y", (3, 5), result or kind)])


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_and_booleans_are_elementwise_too(kind: str) -> None:
    dtype, operator, name = INTEGERS[kind]
    proto = on_integers(dtype, operator)
    assert grouped(proto).groups == [name]
    agrees(proto)


def test_the_guarded_division_of_integers_is_a_kernel_of_its_own() -> None:
    grouping = grouped(on_integers(TensorProto.INT32, "Div"))
    assert grouping.groups == []
    assert grouping.skipped == {"op": "relax.call_tir is neither an anchor nor elementwise"}


def test_operations_nothing_takes_are_left_alone_with_the_reason() -> None:
    nodes = [conv("x", "c"), node("Tile", "c n", "d"), node("Relu", "d", "y")]
    proto = on_image(nodes, shape=(1, 12, 5, 7), n=np.int64([1, 2, 1, 1]))
    grouping = grouped(proto)
    assert grouping.groups == ["conv2d", "relu"]
    assert grouping.skipped["tile_d"] == "relax.reshape is neither an anchor nor elementwise"
    agrees(proto)


# ------------------------------------------------------------------------------------------------ bounded expressions
def squares(count: int) -> onnx.ModelProto:
    """tanh(x), squared, again and again: each step reads its operand more than once."""
    names = ["x", *(f"s{i}" for i in range(1, count)), "y"]
    nodes = [
        n for i in range(count)
        for n in (node("Tanh", names[i], f"t{i}"), node("Mul", f"t{i} t{i}", names[i + 1]))
    ]  # fmt: skip
    return on_image(nodes)


def test_an_expression_that_would_grow_without_bound_is_cut() -> None:
    proto = squares(12)
    grouping = grouped(proto)
    assert grouping.groups == ["tanh multiply"] * 12
    reasons = [e.detail for e in grouping.report.skipped if "fused" in e.detail]
    assert len(reasons) == 11 and all("its expression would have" in r for r in reasons)
    agrees(proto)


def test_a_long_chain_that_reads_each_operand_once_is_one_kernel() -> None:
    names = ["x", *(f"s{i}" for i in range(1, 60)), "y"]
    proto = on_image([node("Abs" if i % 2 else "Neg", a, b) for i, (a, b) in enumerate(itertools.pairwise(names))])
    assert [len(g.split()) for g in grouped(proto).groups] == [60]
    agrees(proto)


@pytest.mark.parametrize(
    ("operator", "operands", "length"),
    [("Sub", "{0} x", 500),
     *itertools.product(("Add", "Max", "Min"), ("{0} x", "x {0}"), (150,)), ("Sub", "x {0}", 150)],
)  # fmt: skip
def test_a_chain_of_any_length_is_kernels_of_bounded_depth(operator: str, operands: str, length: int) -> None:
    names = ["x", *(f"s{i}" for i in range(1, length)), "y"]
    proto = on_image([node(operator, operands.format(a), b) for a, b in itertools.pairwise(names)])
    whole, rest = divmod(length, DEEPEST_EXPRESSION)
    assert [len(g.split()) for g in grouped(proto).groups] == [*[DEEPEST_EXPRESSION] * whole, rest]
    agrees(proto)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("operators", [("Add", "Sub"), ("Mul", "Add"), ("Neg", "Add")])
def test_a_chain_of_integers_is_kernels_of_bounded_expressions(operators: tuple[str, str], dtype: str) -> None:
    """TVM's analyzer looks at operands of sums of integers twice: thirty within each other never ended."""
    names, kind = ["x", *(f"s{i}" for i in range(1, 30)), "y"], onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    steps = [(operators[i % 2], a, b) for i, (a, b) in enumerate(itertools.pairwise(names))]
    nodes = [node(operator, a if operator == "Neg" else f"{a} w", b) for operator, a, b in steps]
    weight = {"w": np.arange(1, 20, dtype=dtype)}
    proto = model(nodes, [value("x", (2, 19), kind)], [value("y", (2, 19), kind)], weight)
    assert 1 < len(grouped(proto).groups) < 15
    agrees(proto)


def test_a_chain_of_quantized_steps_is_kernels_of_bounded_expressions() -> None:
    names = ["x", *(f"s{i}" for i in range(1, 30)), "y"]
    nodes = [
        n for i, (a, b) in enumerate(itertools.pairwise(names))
        for n in (
            node("QuantizeLinear", f"{a} s z", f"q{i}"), node("DequantizeLinear", f"q{i} s z", f"d{i}"),
            node("Neg" if i % 3 == 0 else "Relu", f"d{i}", b),
        )
    ]  # fmt: skip
    agrees(on_image(nodes, s=np.float32(0.02), z=np.int8(3)))


@pytest.mark.parametrize("operator", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [9, 11, 70])
def test_operators_of_many_operands_are_as_large_as_their_operands(operator: str, count: int) -> None:
    names = [f"x{i}" for i in range(count)]
    inputs = [value(name, (2, 19)) for name in names]
    proto = model([node(operator, " ".join(names), "y")], inputs, [value("y", (2, 19))])
    steps = count - 1 + (operator == "Mean")
    assert [len(g.split()) for g in grouped(proto).groups] == ([steps] if steps <= 64 else [64, steps - 64])
    agrees(proto)


def nested(kind: str, count: int) -> onnx.ModelProto:
    """Selections and the like within the conditions, bounds or operands of others."""
    nodes, at = [], "x"
    for i in range(count):
        out = "y" if i == count - 1 else f"t{i}"
        nodes += {
            "conditions": [node("Less", f"{at} b", f"c{i}"), node("Where", f"c{i} x b", out)],
            "either": [
                node("Less", f"{at} b", f"c{i}"), node("Greater", f"{at} x", f"d{i}"),
                node("Or", f"c{i} d{i}", f"e{i}"), node("Where", f"e{i} b x", out),
            ],
            "squares": [node("Mul", f"{at} {at}", f"s{i}"), node("Add", f"s{i} {at}", f"a{i}"),
                        node("Clip", f"a{i} low high", out)],
            "leaky": [node("LeakyRelu", at, out)],
            "exponentials": [node("Sigmoid", at, out)],
        }[kind]  # fmt: skip
        at = out
    bounds = {"low": np.float32(-1), "high": np.float32(1)} if kind == "squares" else {}
    return on_image(nodes, **({"b": random(6, 1, 1)} if kind in ("conditions", "either") else {}), **bounds)


@pytest.mark.parametrize("kind", ["conditions", "either", "squares", "leaky", "exponentials"])
def test_what_reads_its_operands_again_and_again_is_cut(kind: str) -> None:
    grouping = grouped(nested(kind, 40))
    assert 1 < len(grouping.groups) <= 40
    for candidate in (e.detail for e in grouping.report.skipped if "its expression would have" in e.detail):
        assert int(candidate.split("would have ")[1].split()[0]) > LARGEST_EXPRESSION
    agrees(nested(kind, 40))
