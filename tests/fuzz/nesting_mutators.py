"""Mutations that make much of little: deep graphs, loops, functions that call each other. Each changes a ModelProto."""

from random import Random

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .graph_mutators import Mutator, NothingToChange, graphs, nodes, some


def deep_ifs(model: onnx.ModelProto, rng: Random) -> None:
    """The graph's nodes stand in an If in an If in an If ..."""
    graph = model.graph
    if not (graph.output and graph.input) or graph.output[0].name in {v.name for v in graph.input}:
        raise NothingToChange
    constant = rng.random() < 0.5
    inner, result = list(graph.node), graph.output[0]
    for depth in range(rng.choice((1, 2, 3, 12, 25))):
        branch = helper.make_graph(inner, f"deep{depth}", [], [result])
        short = [helper.make_node("Neg", [graph.input[0].name], [result.name])]
        other = helper.make_graph(inner if rng.random() < 0.2 and depth < 3 else short, "other", [], [result])
        built = f"{result.name}.{depth}"
        branches = {"then_branch": branch, "else_branch": other}
        inner = [helper.make_node("If", ["deep condition"], [built], f"if{depth}", **branches)]
        renamed = onnx.ValueInfoProto()
        renamed.CopyFrom(result)
        renamed.name, result = built, renamed
    del graph.node[:], graph.output[:]
    graph.node.extend(inner)
    graph.output.append(result)
    if constant:
        graph.initializer.append(numpy_helper.from_array(np.array(True), "deep condition"))
    else:
        graph.input.append(helper.make_tensor_value_info("deep condition", onnx.TensorProto.BOOL, []))


def loops(model: onnx.ModelProto, rng: Random) -> None:
    """A loop, or loops within loops, of many steps around a value: ten thousand in all, or more than any run takes."""
    graph = model.graph
    value = some(rng, [v for v in graph.input if v.type.HasField("tensor_type")])
    count, depth = rng.choice((0, -1, 3, 100, 10_000, 1 << 31, (1 << 63) - 1)), rng.choice((1, 1, 2, 3, 6))
    depth = depth if abs(count) ** depth <= 10_000 or count > 10_000 else 1
    body = [helper.make_node("Neg", ["in0"], ["out0"])]
    for level in range(depth):
        inputs = [helper.make_tensor_value_info(f"n{level}", 7, []), helper.make_tensor_value_info(f"c{level}", 9, []),
                  _named(value, f"in{level}")]  # fmt: skip
        outputs = [helper.make_tensor_value_info(f"k{level}", 9, []), _named(value, f"out{level}")]
        goes_on = helper.make_node("Identity", [f"c{level}"], [f"k{level}"])
        steps = helper.make_graph([goes_on, *body], "b", inputs, outputs)
        source = value.name if level == depth - 1 else f"in{level + 1}"
        body = [helper.make_node("Loop", ["many", "", source], [f"out{level + 1}"], f"loop{level}", body=steps)]
    graph.initializer.append(numpy_helper.from_array(np.array(count), "many"))
    graph.node.extend(body)
    graph.output.append(_named(value, f"out{depth}"))


def _named(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    new = onnx.ValueInfoProto()
    new.CopyFrom(value)
    new.name = name
    return new


def calls(model: onnx.ModelProto, rng: Random) -> None:
    """Functions that call themselves, each other in a circle, or each other ever more often."""
    kind, count = rng.choice(("self", "circle", "doubling", "long")), rng.choice((2, 5, 12, 30))
    bodies = {
        "self": [["f0"]], "circle": [[f"f{(i + 1) % count}"] for i in range(count)],
        "doubling": [[f"f{i + 1}"] * 2 for i in range(count)] + [["Neg"]],
        "long": [[f"f{i + 1}"] for i in range(count)] + [["Neg"]],
    }[kind]  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("deep", 1)]
    for number, called in enumerate(bodies):
        functions = [
            helper.make_node(name, [f"v{i}"], [f"v{i + 1}"], domain="" if name == "Neg" else "deep")
            for i, name in enumerate(called)
        ]
        model.functions.append(
            helper.make_function("deep", f"f{number}", ["v0"], [f"v{len(called)}"], functions, opsets)
        )
    node = some(rng, [n for n in nodes(model) if n.input and n.input[0]])
    graph = next((g for g in graphs(model) if any(n is node for n in g.node)), model.graph)
    graph.node.insert(0, helper.make_node("f0", [node.input[0]], ["called deep"], domain="deep"))
    node.input[0] = "called deep"
    model.opset_import.append(helper.make_opsetid("deep", 1))


def own_function(model: onnx.ModelProto, rng: Random) -> None:
    """A function of the model lacks inputs, outputs, attributes, nodes or versions, or hides a standard operator."""
    function = some(rng, model.functions)
    how = rng.randrange(6)
    if how == 0 and function.input:
        function.input.pop()
    elif how == 1 and function.output:
        function.output[0] = rng.choice(("nothing", "a", ""))
    elif how == 2:
        del function.opset_import[:]
    elif how == 3:
        function.name, function.domain = "Sigmoid", ""
    elif how == 4:
        del function.attribute[:]
        del function.node[rng.randrange(len(function.node)) :]
    else:
        model.functions.append(function)


def powers(model: onnx.ModelProto, rng: Random) -> None:
    """A value combined with itself again and again: as a tree it has 2^n leaves."""
    value = some(rng, [v for v in model.graph.input if v.type.HasField("tensor_type")])
    name, operators = value.name, rng.choice((("Add",), ("Mul", "Add"), ("Concat",), ("Where",), ("Max", "Sub")))
    for step in range(rng.choice((4, 20, 40))):
        op_type, power = operators[step % len(operators)], f"power{step}"
        inputs = [name, name] if op_type != "Where" else ["some condition", name, name]
        attributes = {"axis": 0} if op_type == "Concat" else {}
        model.graph.node.append(helper.make_node(op_type, inputs, [power], **attributes))
        name = power
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "some condition"))
    model.graph.output.append(helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, None))


def grown(model: onnx.ModelProto, rng: Random) -> None:
    """A value of a few bytes becomes huge on the way: Expand, Tile, ConstantOfShape, Pad, Resize, Range, OneHot."""
    value = some(rng, [v for v in model.graph.input if v.type.HasField("tensor_type")])
    rank = len(value.type.tensor_type.shape.dim)
    size = rng.choice((1, 3, 1000, 1 << 20, 1 << 31, 1 << 40, 1 << 62))
    kind = rng.choice(("Expand", "Tile", "ConstantOfShape", "Pad", "Range", "OneHot", "EyeLike"))
    number = {
        "Expand": [size] * (rank + 1), "Tile": [size] * rank, "ConstantOfShape": [size, size], "Pad": [size] * 2 * rank,
    }.get(kind, size)  # fmt: skip
    tensors = {"grown": np.array(number), "zero": np.array(0), "one": np.array(1), "pair": np.array([0.0, 1.0])}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    inputs = {
        "ConstantOfShape": ["grown"], "Range": ["zero", "grown", "one"], "OneHot": ["zero", "grown", "pair"],
        "EyeLike": ["flat"],
    }.get(kind, [value.name, "grown"])  # fmt: skip
    if kind == "EyeLike":
        model.graph.node.append(helper.make_node("ConstantOfShape", ["square"], ["flat"]))
        model.graph.initializer.append(numpy_helper.from_array(np.array([size, size]), "square"))
    model.graph.node.append(helper.make_node(kind, inputs, ["big"], "grow"))
    model.graph.node.append(helper.make_node("ReduceMax", ["big"], ["least"], keepdims=0))
    model.graph.output.append(helper.make_tensor_value_info("least", 1 if kind != "Range" else 7, []))


MUTATORS: tuple[Mutator, ...] = (deep_ifs, loops, calls, own_function, powers, grown)
