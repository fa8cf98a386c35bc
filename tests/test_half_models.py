"""Models whose tensors are float16 or bfloat16: on the recipes, stored as they are, computed in float32."""

from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.numbers.accuracy import largest_error
from tvm_ext.core.sample_inputs import seeded_inputs
from tvm_ext.frontend.zoo import bert

from .inspection import stage_models
from .onnx_graphs import model, node, random, value
from .oracles.float64 import float64_outputs, in_floats
from .property.cases import plain

KINDS = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def inverted_residual() -> onnx.ModelProto:
    """As in MobileNetV2: 1x1, depthwise and 1x1 convolutions, with a residual."""
    nodes = [
        node("Conv", "x w1 b1", "a"), node("Clip", "a lo hi", "ar"), node("Conv", "ar w2", "b", group=67, pads=[1] * 4),
        node("Clip", "b lo hi", "br"), node("Conv", "br w3", "c"), node("Add", "c x", "d"),
        node("GlobalAveragePool", "d", "y"),
    ]  # fmt: skip
    weights = {"w1": random(67, 17, 1, 1), "b1": random(67), "w2": random(67, 1, 3, 3), "w3": random(17, 67, 1, 1),
               "lo": np.float32(0), "hi": np.float32(6)}  # fmt: skip
    return model(nodes, [value("x", (1, 17, 29, 31))], [value("y", (1, 17, 1, 1))], weights)


MODELS = {
    "inverted residual": inverted_residual,
    "convolutions": stage_models.convolutions, "recurrent": stage_models.recurrent, "tiny": stage_models.tiny,
    "bert": lambda: bert(sequence=17, hidden=39, heads=3, intermediate=97),
}  # fmt: skip


def recipes(compiled: Any) -> Counter[str]:
    return Counter(kernel["recipe"] for kernel in compiled.report["kernels"])


def as_float32(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: a if a.dtype.kind in "biu" else a.astype(np.float32) for name, a in arrays.items()}


def in_the_same_numbers(proto: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """The float32 model whose weights are those of the narrow one."""
    rounded = in_floats(proto, kind)
    for old, new in zip(proto.graph.initializer, rounded.graph.initializer, strict=True):
        if old.data_type == TensorProto.FLOAT:
            new.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(new).astype(np.float32), new.name))
    same = onnx.ModelProto()
    same.CopyFrom(proto)
    del same.graph.initializer[:]
    same.graph.initializer.extend(rounded.graph.initializer)
    return same


def check(proto: onnx.ModelProto, dtype: str, threads: int = 2) -> Any:
    """Compile a model in a narrow type, and compare it with float64.

    Each operator of the model may round its result once, by a unit roundoff of it: behind one another roundings add up
    as the root of their number; values between may be larger than outputs by a factor of a few.
    """
    half = in_floats(proto, KINDS[dtype])
    compiled = tvm_ext.compile(half, cache=False, threads=threads)
    inputs = seeded_inputs(compiled.inputs, 3)
    got = compiled.run(inputs)
    want = float64_outputs(in_the_same_numbers(proto, KINDS[dtype]).SerializeToString(), as_float32(inputs))
    assert {name: a.dtype.name for name, a in got.items()} == {spec.name: spec.dtype for spec in compiled.outputs}
    error = largest_error(as_float32(got), want)
    assert error <= 4 * UNIT[dtype] * len(proto.graph.node) ** 0.5
    return compiled


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float16") for name in MODELS), ("tiny", "bfloat16"), ("bert", "bfloat16")]
)
def test_agrees_with_float64_on_the_recipes_of_float32(name: str, dtype: str) -> None:
    compiled = check(MODELS[name](), dtype)
    plain = tvm_ext.compile(MODELS[name](), cache=False, threads=2)
    assert recipes(compiled)["generic"] <= recipes(plain)["generic"]
    # what the generic schedule makes may be converted by a kernel of its own
    assert recipes(compiled).total() <= recipes(plain).total() + recipes(compiled)["generic"]
    assert not [node for node, row in compiled.report["nodes"].items() if not row["owners"]]


@pytest.mark.parametrize("name", ["convolutions", "bert"])
def test_tensors_between_kernels_are_stored_as_the_model_has_them(name: str) -> None:
    compiled = tvm_ext.compile(in_floats(MODELS[name](), KINDS["float16"]), cache=False, threads=1)
    written = [w for k in compiled.report["kernels"] for site in k["sites"] for w in site["writes"]]
    assert len(written) > 4 and {w["dtype"] for w in written} == {"float16"}
    report = tvm_ext.verify(compiled, in_floats(MODELS[name](), KINDS["float16"]), layers=True)
    assert report.ok and not report.not_compared, str(report)


def test_random_models_agree_with_onnxruntime() -> None:
    for number, case in enumerate(plain(0, 16, without={"CumSum", "QuantizeLinear"})):  # which take no float16
        proto = in_floats(onnx.ModelProto.FromString(case.model), KINDS["float16"])
        report = tvm_ext.verify(tvm_ext.compile(proto, cache=False, threads=1 + number % 3), proto, seed=number)
        assert report.ok, f"{case.name}\n{report}"


def test_without_the_instruction() -> None:
    """No F16C: the same numbers by functions."""
    half = in_floats(MODELS["convolutions"](), KINDS["float16"])
    slow, fast = (tvm_ext.compile(half, cache=False, threads=1, target=target) for target in ("x86-64-v2", None))
    inputs = seeded_inputs(fast.inputs, 0)
    assert largest_error(as_float32(slow.run(inputs)), as_float32(fast.run(inputs))) <= 4 * UNIT["float16"]


def test_an_export_a_batch_of_any_size_and_stages(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "a"), node("Gelu", "a", "b"), node("MatMul", "b v", "y")]
    proto = model(nodes, [value("x", ("N", 37))], [value("y", ("N", 5))], {"w": random(37, 41), "v": random(41, 5)})
    proto.opset_import[0].version = 20
    half = in_floats(proto, KINDS["float16"])
    compiled = tvm_ext.compile(half, shapes={"x": ("N", 37)}, cache=False, threads=1)
    compiled.export(tmp_path / "model.so")
    x = random(7, 37).astype(np.float16)
    (got,) = compiled.run({"x": x}).values()
    assert np.array_equal(got, tvm_ext.load(tmp_path / "model.so").run({"x": x})["y"])
    one = tvm_ext.compile(half, shapes={"x": (7, 37)}, cache=False, threads=1)
    assert largest_error(as_float32(one.run({"x": x})), {"y": got.astype(np.float32)}) <= 4 * UNIT["float16"]
    tvm_ext.inspect(half, shapes={"x": (7, 37)}, threads=1).dump(tmp_path / "stages")
    for file in ("02_relax.py", "04_layout.py"):
        assert np.array_equal(tvm_ext.resume(tmp_path / "stages" / file).run({"x": x})["y"], one.run({"x": x})["y"])


# ------------------------------------------------------------ what rounds, and when
def outputs(nodes: list[onnx.NodeProto], x: np.ndarray, kind: int, **kinds: int) -> dict[str, np.ndarray]:
    ends = [value(name, x.shape, elem_type) for name, elem_type in kinds.items()]
    proto = model(nodes, [value("x", x.shape, kind)], ends)
    proto.opset_import[0].version = 20
    return dict(tvm_ext.compile(proto, cache=False, threads=1).run({"x": x}))


def test_a_cast_of_the_model_rounds() -> None:
    """Also in the middle of a kernel: overflow to infinity, ties to even, subnormal numbers, NaN."""
    x = np.float32([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519, 65520, -1e6, 2.0**-24, 2.0**-25, -3e-6, np.nan, 0.1, -0.0])
    nodes = [node("Neg", "x", "n"), node("Cast", "n", "h", to=10), node("Cast", "h", "f", to=1), node("Neg", "f", "y")]
    with np.errstate(over="ignore"):
        want = x.astype(np.float16).astype(np.float32)
    got = outputs(nodes, x, TensorProto.FLOAT, y=TensorProto.FLOAT)["y"]
    np.testing.assert_array_equal(got, want)
    assert np.array_equal(np.signbit(got), np.signbit(want) ^ np.isnan(want) & (np.signbit(got) != np.signbit(want)))


@pytest.mark.parametrize("op", ["IsInf", "IsNaN", "Floor", "Round", "Ceil"])
def test_what_reads_a_step_off_a_number_reads_the_one_that_the_model_has(op: str) -> None:
    """Three times 40000 is infinite in float16, and three times 1023.5 is 3070."""
    x = np.float16([40000, 1023.5, 511.75, -3, np.nan, 2047, 0.33325195])
    kind = TensorProto.BOOL if op.startswith("Is") else TensorProto.FLOAT16
    nodes = [node("Add", "x x", "s"), node("Add", "s x", "t"), node(op, "t", "y")]
    with np.errstate(over="ignore"):
        t = (x.astype(np.float32) * 3).astype(np.float16)
    want = {"IsInf": np.isinf, "IsNaN": np.isnan, "Floor": np.floor, "Round": np.rint, "Ceil": np.ceil}[op](t)
    np.testing.assert_array_equal(outputs(nodes, x, TensorProto.FLOAT16, y=kind)["y"], want)


def test_an_output_between_is_rounded_too() -> None:
    nodes = [node("Mul", "x x", "s"), node("Sqrt", "s", "y")]
    x = random(3, 17).astype(np.float16)
    got = outputs(nodes, x, TensorProto.FLOAT16, s=TensorProto.FLOAT16, y=TensorProto.FLOAT16)
    assert np.array_equal(got["s"], x * x)
    assert np.allclose(got["y"].astype(np.float64), np.abs(x.astype(np.float64)), rtol=2.0**-10, atol=0)


def test_results_of_another_type_stay_what_they_are() -> None:
    """Means of a layer normalization are float32, places int64; elements that only move keep their bits."""
    x, scale = random(5, 33).astype(np.float16), random(33, seed=1).astype(np.float16)
    nodes = [node("LayerNormalization", "x w", "n mean inv", axis=-1), node("TopK", "x k", "top at", axis=1),
             node("Transpose", "x", "moved", perm=[1, 0])]  # fmt: skip
    ends = {"n": ((5, 33), 10), "mean": ((5, 1), 1), "inv": ((5, 1), 1), "top": ((5, 3), 10), "at": ((5, 3), 7),
            "moved": ((33, 5), 10)}  # fmt: skip
    proto = model(nodes, [value("x", (5, 33), 10)], [value(n, *end) for n, end in ends.items()],
                  {"w": scale, "k": np.array([3])})  # fmt: skip
    got = tvm_ext.compile(proto, cache=False, threads=1).run({"x": x})
    assert [a.dtype.name for a in got.values()] == ["float16", "float32", "float32", "float16", "int64", "float16"]
    np.testing.assert_allclose(got["mean"], x.astype(np.float64).mean(1, keepdims=True), atol=1e-6)
    assert np.array_equal(got["moved"], x.T) and np.array_equal(np.take_along_axis(x, got["at"], 1), got["top"])
    want = onnxruntime_outputs(proto, {"x": x})["n"].astype(np.float32)
    assert largest_error(as_float32({"n": got["n"]}), {"n": want}) <= 2.0**-9


def test_a_table_of_rows_stays_narrow() -> None:
    """Rows are taken of it as it is: a table of float32 would be twice as large."""
    nodes = [node("Gather", "table x", "e"), node("MatMul", "e w", "y")]
    table, w = random(1000, 48).astype(ml_dtypes.bfloat16).astype(np.float16), random(48, 7).astype(np.float16)
    proto = model(nodes, [value("x", (2, 5), 7)], [value("y", (2, 5, 7), 10)], {"table": table, "w": w})
    compiled = tvm_ext.compile(proto, cache=False, threads=1)
    assert compiled.report["weight_bytes"] < table.nbytes + 4 * 48 * 64
    x = np.random.default_rng(0).integers(0, 1000, (2, 5))
    want = table[x].astype(np.float64) @ w.astype(np.float64)
    assert largest_error(as_float32(dict(compiled.run({"x": x}))), {"y": want}) <= 2 * UNIT["float16"]
