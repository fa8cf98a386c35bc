"""Figures of kernels in the report: what is stated, what is executed, and the bytes of both."""

import pytest

from tests.onnx_graphs import model as make_model
from tests.onnx_graphs import node, random, value
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.figures import kernel_figures
from tvm_ext.driver.programs import lower


def figures(nodes, inputs, outputs, weights, **options):
    """recipe -> figures of its kernel, of a model without records."""
    proto = make_model(nodes, inputs, outputs, weights)
    machine = Machine.detect(options.get("target"), 1)
    lowered = lower(proto, CompileOptions.of(records=None, threads=1, **options), machine)
    return {lowered.ctx.kernels[name].recipe: row for name, row in kernel_figures(lowered).items()}


def test_winograd_executes_less_than_the_convolution_states():
    weights = {"w": random(32, 32, 3, 3)}
    conv = [node("Conv", "x w", "y", pads=[1, 1, 1, 1])]
    shape = [1, 32, 28, 28]
    stated = 2 * 32 * 28 * 28 * 32 * 9
    kernel = figures(conv, [value("x", shape)], [value("y", shape)], weights)["conv2d_winograd"]
    assert kernel["flops"] == stated and 0.2 * stated < kernel["executed"] < 0.8 * stated
    assert kernel["arguments"] == 3
    exact = figures(conv, [value("x", shape)], [value("y", shape)], weights, accuracy="exact")["conv2d_nchwc"]
    assert exact["flops"] == stated and exact["executed"] == pytest.approx(stated, rel=0.2)


@pytest.mark.parametrize(
    ("target", "recipe", "instruction"),
    [("cooperlake", "dense_dot", "vdpbf16ps"), ("sapphirerapids", "dense_amx", "tdpbf16ps"), ("haswell", "dense", "")],
)
def test_the_instruction_of_the_products_is_named(target, recipe, instruction):
    ends = [value("x", [256, 512])], [value("y", [256, 512])]
    options = {"precision": "bf16", "target": target}
    by_recipe = figures([node("MatMul", "x w", "y")], *ends, {"w": random(512, 512)}, **options)
    assert by_recipe.pop(recipe)["instruction"] == instruction
    assert not any(row["instruction"] for row in by_recipe.values())


def test_of_a_table_only_the_rows_that_are_read_count():
    table = {"w": random(1000, 24)}
    taken = figures([node("Gather", "w i", "y")], [value("i", [5], 7)], [value("y", [5, 24])], table)["take"]
    assert taken["bytes"] == 4 * 5 * 24 + 8 * 5 + 4 * 5 * 24 and taken["flops"] == 0


def test_generic_kernels_are_counted_in_their_tir():
    by_recipe = figures([node("CumSum", "x a", "y")], [value("x", [3, 7])], [value("y", [3, 7])], {"a": 1})
    assert set(by_recipe) == {"generic"} and by_recipe["generic"]["bytes"] >= 2 * 4 * 21


def test_a_region_states_two_operations_a_multiply_add():
    kernel = figures(
        [node("MatMul", "x w", "m"), node("Relu", "m", "y")], [value("x", [3, 7])], [value("y", [3, 5])],
        {"w": random(7, 5)}, offload="systolic", offload_options={"when": "always"},
    )["offload:systolic"]  # fmt: skip
    assert kernel["flops"] == kernel["executed"] == 2 * 3 * 7 * 5 and kernel["arguments"] == 3


def test_a_kernel_is_counted_once_whatever_calls_it(monkeypatch):
    """Eight layers that are equal: TVM counts a kernel as long as a pass takes."""
    nodes, last = [], "x"
    for number in range(8):
        nodes += [node("MatMul", f"{last} w{number}", f"m{number}"), node("Softmax", f"m{number}", f"s{number}")]
        last = f"s{number}"
    weights = {f"w{number}": random(16, 16) for number in range(8)}
    proto = make_model(nodes, [value("x", [16, 16])], [value(last, [16, 16])], weights)
    lowered = lower(proto, CompileOptions.of(records=None, threads=1), Machine.detect(None, 1))
    calls = sum(len(kernel.calls) for kernel in lowered.ctx.kernels.values())
    counted: list[str] = []
    monkeypatch.setattr("tvm_ext.driver.figures.executed_flops", counted.append)
    assert len(kernel_figures(lowered)) == len(counted) <= 3 < 8 <= calls
