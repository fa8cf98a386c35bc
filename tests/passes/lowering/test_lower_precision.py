"""Lower precision: what is rounded and for whom, what keeps float32 and why, and the numbers against float64."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule

import tvm_ext
from tests.onnx_graphs import model, node, value
from tests.onnx_graphs import random as weights
from tests.passes.helpers import build, const, execute, ops, random
from tvm_ext.core.errors import OptionError
from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.graph.relax_graph import dtype_of, main_bindings, op_name
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.passes import CompileContext, PassResult
from tvm_ext.passes.conditions import unique_names, well_formed
from tvm_ext.passes.lowering.lower_precision import LowerPrecision

op = relax.op


def context(nodes: dict[str, tuple[str, ...]] | None = None, **options: Any) -> CompileContext:
    chosen = CompileOptions(**{"precision": "bf16", **options})
    return CompileContext(Machine.detect(), chosen, Provenance(nodes or {}))


def lowered(mod: IRModule, ctx: CompileContext | None = None) -> PassResult:
    result = LowerPrecision()(mod, ctx or context())
    assert well_formed(result.mod) is None and unique_names(result.mod) is None
    return result


def stored(result: PassResult) -> set[str]:
    """Names of values that are rounded; of copies of inputs and outputs, with a * before."""
    names = {b.var.name.removesuffix("_bfloat16") for b in main_bindings(result.mod) if dtype_of(b.var) == "bfloat16"}
    bound = {b.var.name for b in main_bindings(result.mod)}
    return {f"*{name}" if f"{name}_rounded" in bound else name for name in names}


def reasons(result: PassResult) -> str:
    return "; ".join(event.detail for event in result.skipped)


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).astype(np.float64)


# ------------------------------------------------------------ what is written
def test_float32_is_left_alone() -> None:
    mod = build(lambda emit, x: emit(op.matmul(x, const(random(5, 3)))), (2, 5))
    result = LowerPrecision()(mod, CompileContext(Machine.detect()))
    assert result.mod.same_as(mod) and not result.modified and not result.skipped


def test_what_is_written_out() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        y = emit(op.nn.relu(emit(op.add(emit(op.nn.conv2d(x, const(random(7, 3, 3, 3)))), const(random(7, 1, 1))))))
        return emit(op.nn.conv2d(y, const(random(5, 7, 1, 1))))

    result = lowered(build(body, (1, 3, 9, 11)))
    assert ops(result.mod) == [
        "astype", "astype", "astype", "conv2d", "add", "relu", "astype", "astype", "astype", "conv2d",
    ]  # fmt: skip
    constants = [str(a.ty.dtype) for b in main_bindings(result.mod) for a in b.value.args if hasattr(a, "value")]
    assert sorted(constants) == ["bfloat16", "bfloat16", "float32"], "weights are rounded, the bias is not"
    assert stored(result) == {"*x0", "lv2"}
    assert all(dtype_of(b.var) == "float32" for b in main_bindings(result.mod) if op_name(b.value) != "relax.astype")


def test_a_value_is_rounded_once_for_all_its_readers() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        a = emit(op.nn.relu(emit(op.matmul(x, const(random(8, 8))))))
        b = emit(op.matmul(a, const(random(8, 8, seed=1))))
        return emit(op.matmul(emit(op.add(b, a)), const(random(8, 2))))

    result = lowered(build(body, (3, 8)))
    assert stored(result) == {"*x0", "lv1", "lv3"}
    residual = next(b for b in main_bindings(result.mod) if op_name(b.value) == "relax.add")
    assert [a.name for a in residual.value.args] == ["lv2", "lv1"], "the residual is what the product read"


def test_a_residual_before_a_normalization_stays_float32() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        def norm(value: Any) -> Any:
            return emit(op.nn.layer_norm(value, const(np.ones(8)), const(np.zeros(8)), [-1]))

        a = norm(emit(op.matmul(x, const(random(8, 8)))))
        b = emit(op.nn.gelu(emit(op.matmul(a, const(random(8, 16))))))
        c = norm(emit(op.add(emit(op.matmul(b, const(random(16, 8)))), a)))
        return emit(op.matmul(c, const(random(8, 3)))), emit(op.matmul(c, const(random(8, 5))))

    result = lowered(build(body, (3, 8)))
    assert stored(result) == {"*x0", "*lv1", "lv3", "lv6"}
    added = next(b.value for b in main_bindings(result.mod) if op_name(b.value) == "relax.add")
    assert "lv1" in {a.name for a in added.args}, "the sum reads the value itself, the product a copy"


def test_inputs_and_outputs_stay_float32() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        a = emit(op.matmul(x, const(random(8, 8))))
        b = emit(op.matmul(a, const(random(8, 8, seed=1))))
        return emit(op.add(b, x)), emit(op.reshape(a, (2, 12)))

    mod = build(body, (3, 8))
    result = lowered(mod)
    assert stored(result) == {"*x0", "*lv"}, "products read rounded copies"
    x = random(3, 8)
    got, want = execute(result.mod, x)[1], execute(mod, x)[1]
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()
    assert np.any(got != got.astype(ml_dtypes.bfloat16).astype(np.float32)), "the output itself is not rounded"


def test_one_copy_serves_all_products_of_an_input() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        return tuple(emit(op.matmul(x, const(random(8, n)))) for n in (3, 5, 7))

    assert ops(lowered(build(body, (3, 8))).mod).count("astype") == 2 + 3


def test_rounding_stands_before_data_movement() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        a = emit(op.nn.relu(emit(op.nn.conv2d(x, const(random(6, 3, 1, 1))))))
        b = emit(op.nn.max_pool2d(a, (2, 2), (2, 2)))
        c = emit(op.concat([b, emit(op.nn.max_pool2d(a, (2, 2), (2, 2), ceil_mode=True))], axis=1))
        d = emit(op.permute_dims(emit(op.reshape(c, (1, 12, 9))), (0, 2, 1)))
        return emit(op.matmul(d, const(random(12, 5))))

    assert stored(lowered(build(body, (1, 3, 6, 6)))) == {"*x0", "lv1"}


def test_what_split_and_slice_take_is_rounded_where_it_is_made() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        a = emit(op.matmul(x, const(random(8, 12))))
        parts = emit(op.split(a, 2, axis=1))
        one, other = emit(relax.TupleGetItem(parts, 0)), emit(relax.TupleGetItem(parts, 1))
        return emit(op.matmul(one, emit(op.permute_dims(other))))

    assert stored(lowered(build(body, (3, 8)))) == {"*x0", "lv"}


def test_what_split_takes_of_an_input_is_of_a_copy() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        parts = emit(op.split(x, 2, axis=0))
        return emit(op.matmul(*(emit(relax.TupleGetItem(parts, i)) for i in (0, 1))))

    mod = build(body, (10, 5))
    result, x = lowered(mod), random(10, 5)
    assert stored(result) == {"*x0"}
    want = rounded(x[:5]) @ rounded(x[5:])
    assert np.abs(execute(result.mod, x)[0] - want).max() < 1e-5 * np.abs(want).max()


def test_what_a_product_makes_is_stored_if_readers_are_gentle() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        a = emit(op.nn.conv2d(x, const(random(6, 3, 3, 3))))
        b = emit(op.nn.conv2d(x, const(random(6, 3, 1, 1)), padding=0))
        c = emit(op.strided_slice(b, axes=[2, 3], begin=[1, 1], end=[6, 6]))
        total = emit(op.nn.relu(emit(op.add(a, c))))
        return emit(op.mean(total, [2, 3]))

    assert stored(lowered(build(body, (1, 3, 7, 7)))) == {"*x0", "lv1", "lv4"}


@pytest.mark.parametrize("reader", ["softmax", "layer_norm", "exp", "divide"])
def test_what_sensitive_readers_take_stays_float32(reader: str) -> None:
    def read(emit: Callable[..., Any], a: Any) -> Any:
        if reader == "softmax":
            return emit(op.nn.softmax(a))
        if reader == "layer_norm":
            return emit(op.nn.layer_norm(a, const(np.ones(8)), const(np.zeros(8)), [-1]))
        return emit(op.exp(a)) if reader == "exp" else emit(op.divide(const(random(3, 8)), a))

    def body(emit: Callable[..., Any], x: Any) -> Any:
        a = emit(op.matmul(x, const(random(8, 8))))
        b = emit(op.reshape(a, (3, 8)))
        return emit(op.sum(read(emit, emit(op.nn.relu(b)) if reader == "exp" else b), [1])), emit(op.mean(a, [0]))

    result = lowered(build(body, (3, 8)))
    assert stored(result) == {"*x0"} and f"{reader} reads it" in reasons(result)


def test_attention_takes_rounded_operands_and_a_float32_mask() -> None:
    def body(emit: Callable[..., Any], x: Any, mask: Any) -> Any:
        heads = [emit(op.reshape(emit(op.matmul(x, const(random(8, 8, seed=n)))), (1, 5, 2, 4))) for n in range(3)]
        return emit(op.nn.attention(*heads, emit(op.add(mask, mask))))

    result = lowered(build(body, (1, 5, 8), (1, 2, 5, 5)))
    assert stored(result) == {"*x0", "lv", "lv2", "lv4"}


# ------------------------------------------------------------ what keeps float32
def two_layers(emit: Callable[..., Any], x: Any) -> Any:
    a = emit(op.nn.relu(emit(op.matmul(x, const(random(8, 8))))))
    return emit(op.matmul(a, const(random(8, 4))))


NODES = {"lv": ("fc1",), "lv1": ("relu",), "gv": ("fc2",)}


def test_float16_is_written_out_the_same_way() -> None:
    wide = {b.var.name: dtype_of(b.var) for b in main_bindings(lowered(build(two_layers, (3, 8))).mod)}
    half = lowered(build(two_layers, (3, 8)), ctx := context(precision="fp16"))
    narrow = {b.var.name: dtype_of(b.var) for b in main_bindings(half.mod)}
    assert narrow == {
        name.replace("bfloat16", "float16"): kind.replace("bfloat16", "float16") for name, kind in wide.items()
    }
    assert ctx.precision is not None and {layer.precision for layer in ctx.precision.layers} == {"fp16"}
    x = random(3, 8)
    (got,) = execute(half.mod, x)
    round_ = lambda array: array.astype(np.float16).astype(np.float64)  # noqa: E731
    want = round_(np.maximum(round_(x) @ round_(random(8, 8)), 0)) @ round_(random(8, 4))
    assert np.abs(got - want).max() <= 2.0**-10 * np.abs(want).max()


@pytest.mark.parametrize(
    ("precision", "value_", "fits"),
    [("fp16", 65520.0, False), ("fp16", np.inf, False), ("fp16", 65519.0, True), ("fp16", 1e-9, True),
     ("bf16", 3.4e38, False), ("bf16", np.inf, False), ("bf16", 3.38e38, True)],
)  # fmt: skip
def test_weights_that_a_narrow_float_has_no_values_for(precision: str, value_: float, fits: bool) -> None:
    weight = random(8, 3)
    weight[2, 1] = value_
    mod = build(lambda emit, x: emit(op.matmul(x, const(weight))), (3, 8))
    result = lowered(mod, context(precision=precision))
    assert bool(result.modified) == fits and ("does not have" in reasons(result)) != fits


def test_layers_that_are_named_keep_float32() -> None:
    ctx = context(NODES, keep_float32={"fc2": "as I say"})
    result = lowered(build(two_layers, (3, 8)), ctx)
    assert stored(result) == {"*x0"} and "matmul stays float32: as I say" in reasons(result)
    assert ctx.precision is not None and ctx.precision.kept == {"fc2": "as I say"} and ctx.precision.depth == 1
    assert [(layer.nodes, layer.precision) for layer in ctx.precision.layers] == [
        (("fc1",), "bf16"),
        (("fc2",), "float32"),
    ]
    ctx = context(NODES, keep_float32=["fc1", "fc2"])
    result = lowered(build(two_layers, (3, 8)), ctx)
    assert not result.modified and ctx.precision is not None and ctx.precision.tolerance is None
    assert set(ctx.precision.kept.values()) == {"kept by hand"}


def test_a_name_that_is_no_node_is_refused() -> None:
    with pytest.raises(OptionError, match="no node 'fc22'") as error:
        lowered(build(two_layers, (3, 8)), context(NODES, keep_float32=["fc22"]))
    assert "'fc2'" in error.value.fix


def test_an_outer_product_keeps_float32() -> None:
    """Positions times frequencies: there is nothing to sum, and 8 bits do not hold a position."""
    mod = build(lambda emit, x, y: emit(op.matmul(x, y)), (7, 1), (1, 5))
    assert "outer product" in reasons(lowered(mod))


@pytest.mark.parametrize("jump", [op.floor, op.sin, lambda x: op.astype(x, "int64")])
def test_what_becomes_a_place_or_an_angle_keeps_float32(jump: Callable[..., Any]) -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        return emit(jump(emit(op.add(emit(op.matmul(x, const(random(8, 8)))), const(3.0)))))

    result = lowered(build(body, (3, 8)))
    assert not stored(result) and "place or an angle" in reasons(result)


def _quantized(emit: Callable[..., Any], x: Any, dtype: str = "int8") -> Any:
    q = emit(op.quantize(x, const(0.1), const(0, dtype), axis=1, out_dtype=dtype))
    return emit(op.dequantize(q, const(0.1), const(0, dtype), axis=1))


def test_products_of_quantized_weights_are_left_to_integers() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        w = emit(op.dequantize(const(np.arange(32).reshape(8, 4), "int8"), const(0.1), const(0, "int8"), axis=1))
        return emit(op.matmul(_quantized(emit, x), w))

    result = lowered(build(body, (3, 8)))
    assert not stored(result) and "quantized already" in reasons(result)


def test_quantized_data_are_rounded_for_a_weight_of_floats_and_stay_integers_for_others() -> None:
    def body(emit: Callable[..., Any], x: Any) -> Any:
        pooled = emit(op.nn.max_pool2d(_quantized(emit, x), (2, 2)))
        return emit(op.add(emit(op.matmul(pooled, const(random(7, 7)))), pooled))

    result = lowered(build(body, (1, 3, 8, 8)))
    assert stored(result) == {"*lv2"} and ops(result.mod)[:3] == ["quantize", "dequantize", "max_pool2d"]


@pytest.mark.parametrize(("dtype", "rounded"), [("int8", "lv1"), ("uint8", "lv1"), ("int16", "*lv1")])
def test_quantization_to_8_bits_does_not_mind_a_rounding(dtype: str, rounded: str) -> None:
    """Of a result that is quantized, and read by a product of floats besides, there is one tensor."""

    def body(emit: Callable[..., Any], x: Any) -> Any:
        y = emit(op.nn.relu(emit(op.matmul(x, const(random(8, 8))))))
        z = emit(op.matmul(y, const(random(8, 8))))
        return emit(op.add(_quantized(emit, emit(op.add(y, y)), dtype), z))

    assert stored(lowered(build(body, (3, 8)))) == {"*x0", rounded}


def test_other_types_are_no_business_of_it() -> None:
    mod = build(
        lambda emit, x: emit(op.matmul(x, const(random(8, 4, dtype="float64"), "float64"))), (3, 8), dtype="float64"
    )
    assert not lowered(mod).modified


# ------------------------------------------------------------ numbers
@pytest.mark.parametrize("rows, inner", [(1, 1), (3, 7), (5, 33)])
def test_numbers_are_those_of_rounded_operands(rows: int, inner: int) -> None:
    first, bias, second = random(17, inner), random(inner, seed=1), random(inner, 13, seed=2)

    def body(emit: Callable[..., Any], x: Any) -> Any:
        a = emit(op.nn.relu(emit(op.add(emit(op.matmul(x, const(first))), const(bias)))))
        return emit(op.matmul(a, const(second)))

    x = random(rows, 17, seed=3)
    (got,) = execute(lowered(build(body, (rows, 17))).mod, x)
    hidden = np.maximum(rounded(x) @ rounded(first) + bias, 0)
    hidden = rounded(hidden.astype(np.float32)) if inner > 1 else hidden  # of one, the second product sums nothing
    want = hidden @ (rounded(second) if inner > 1 else second)
    # a sum in float32 may tip one rounding of a hidden value
    assert np.abs(got - want).max() <= 2.0**-7 * np.abs(hidden).max(initial=1e-3) * np.abs(second).max()
    assert np.median(np.abs(got - want)) <= 1e-5 * np.abs(want).max()


def test_rounding_is_to_the_nearest_and_of_ties_to_even() -> None:
    """A copy of an input, times one: the numbers that a product reads."""
    values = np.array([1.0, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, 1.0 + 2.0**-8 + 2.0**-20, -3.0e38, 1e-40, 0.0, -0.0])
    x = values.astype(np.float32).reshape(4, 2)
    mod = build(lambda emit, x: emit(op.matmul(x, const(np.eye(2)))), (4, 2))
    (got,) = execute(lowered(mod).mod, x)
    np.testing.assert_array_equal(got, x.astype(ml_dtypes.bfloat16).astype(np.float32))


# ------------------------------------------------------------ whole models
def small_model() -> Any:
    nodes = [
        node("Conv", "x w1 b1", "a", "conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Relu", "a", "b", "relu1"),
        node("Conv", "b w2", "c", "conv2", kernel_shape=[1, 1]), node("Add", "c b", "d", "add"),
        node("GlobalAveragePool", "d", "e", "pool"), node("Flatten", "e", "f", "flatten"),
        node("Gemm", "f w3 b3", "y", "fc", transB=1),
    ]  # fmt: skip
    constants = {
        "w1": weights(17, 3, 3, 3), "b1": weights(17), "w2": weights(17, 17, 1, 1), "w3": weights(5, 17),
        "b3": weights(5),
    }  # fmt: skip
    return model(nodes, [value("x", (1, 3, 9, 7))], [value("y", (1, 5))], constants)


def test_every_node_has_an_owner_and_the_report_says_what_was_decided() -> None:
    compiled = tvm_ext.compile(small_model(), precision="bf16", keep_float32=["conv2"], cache=False, threads=1)
    plan = compiled.report["precision"]
    assert [(row["nodes"][0], row["precision"]) for row in plan["layers"]] == [
        ("conv1", "bf16"), ("conv2", "float32"), ("fc", "bf16"),
    ]  # fmt: skip
    assert plan["kept"] == {"conv2": "kept by hand"} and plan["depth"] == 2
    assert not [name for name, row in compiled.report["nodes"].items() if not row["owners"]]
    assert all(len(k["nodes"]) < 5 for k in compiled.report["kernels"]), "decodes do not carry other nodes along"
    steps = compiled.report["nodes"]["conv1"]["passes"]
    assert any(name == "lower-precision" for name, _ in steps)


def test_a_second_compile_can_take_what_the_report_says() -> None:
    first = tvm_ext.compile(small_model(), precision="bf16", max_error=4e-3, cache=False, threads=1)
    again = tvm_ext.compile(small_model(), precision="bf16", keep_float32=first.report["precision"]["kept"],
                            cache=False, threads=1)  # fmt: skip
    assert first.report["precision"]["kept"] == again.report["precision"]["kept"]
    x = {"x": random(1, 3, 9, 7)}
    np.testing.assert_array_equal(first.run(x)["y"], again.run(x)["y"])


@pytest.mark.parametrize(("precision", "dtype", "unit"), [("bf16", "bfloat16", 2.0**-8), ("fp16", "float16", 2.0**-11)])
def test_verify_knows_how_far_a_narrow_float_may_be_off(precision: str, dtype: str, unit: float) -> None:
    compiled = tvm_ext.compile(small_model(), precision=precision, cache=False, threads=1)
    report = tvm_ext.verify(compiled, small_model())
    assert report.ok and report.outputs[0].of_range > unit / 40
    assert report.outputs[0].tolerance == pytest.approx(unit * 3**0.5)
    assert not tvm_ext.verify(compiled, small_model(), tolerance=1e-5).ok
    layers = tvm_ext.verify(compiled, small_model(), layers=True)
    assert layers.ok, str(layers)
    assert not layers.not_compared and any(f"rounded to {dtype}" in row.tolerance_text for row in layers.rows)
