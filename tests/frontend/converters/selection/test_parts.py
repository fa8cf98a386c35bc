"""What does more than hand on what there is of a tensor whose size values decide, against onnxruntime."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_ext
from tests.frontend.graphs import imported, run_onnxruntime
from tests.onnx_graphs import model, node, value
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.runtime.model import CompiledModel

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
#: z of (2, count), of which t is the transpose, f and g are the same in float32, and c are columns of a table.
BEFORE = [
    node("NonZero", "x", "z"), node("Transpose", "z", "t"), node("Cast", "z", "f", to=F32),
    node("Cast", "t", "g", to=F32), node("Compress", "table keep", "c", axis=1),
]  # fmt: skip
WEIGHTS: dict[str, Any] = {
    "table": np.arange(24, dtype=np.float32).reshape(2, 4, 3) - 7, "one": np.array([1]), "zero": np.array([0]),
    "last": np.array([-1]), "flat": np.array([-1]), "rows": np.array([-1, 1]), "pairs": np.array([2, -1]),
    "swapped": np.array([3, -1]), "two": np.array([2]), "far": np.array([2**62]),
    "back": np.array([-2**62]), "minus": np.array([-1]), "third": np.array([-3]), "more": np.ones((2, 3), np.int64),
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
}  # fmt: skip
NODES = {
    "shape": node("Shape", "z", "shape"), "shape_c": node("Shape", "c", "shape_c"), "size": node("Size", "c", "size"),
    "sum": node("ReduceSum", "f one", "sum", keepdims=0), "sum_all": node("ReduceSum", "c", "sum_all"),
    "sum_rows": node("ReduceSum", "f zero", "sum_rows"), "integers": node("ReduceSum", "z last", "integers"),
    "least": node("ReduceMin", "c", "least", axes=[1]), "largest": node("ReduceMax", "f", "largest", axes=[-1]),
    "norm": node("ReduceL2", "g", "norm", axes=[0]), "squares": node("ReduceSumSquare", "c", "squares", axes=[1, 2]),
    "log": node("ReduceLogSumExp", "f", "log", axes=[1]), "product": node("ReduceProd", "g", "product", axes=[0]),
    "twice": node("Concat", "z z", "twice", axis=1), "joined": node("Concat", "z more z", "joined", axis=-1),
    "beside": node("Concat", "t t", "beside", axis=1), "flat_z": node("Reshape", "z flat", "flat_z"),
    "flat_c": node("Reshape", "c flat", "flat_c"), "rows_t": node("Reshape", "t rows", "rows_t"),
    "pairs_c": node("Reshape", "c pairs", "pairs_c"), "swapped_c": node("Reshape", "c swapped", "swapped_c"),
    "flattened": node("Flatten", "c", "flattened"),
    "flattened_t": node("Flatten", "t", "flattened_t", axis=0),
    "first": node("Slice", "z zero two one", "first"), "rest": node("Slice", "z one far one", "rest"),
    "end": node("Slice", "t third far zero", "end"), "backwards": node("Slice", "c last back one minus", "backwards"),
    "but_last": node("Slice", "z zero last one two", "but_last"), "columns": node("Slice", "t one far one", "columns"),
    "matmul": node("MatMul", "g weight", "matmul"),
}  # fmt: skip
OF_INT64 = {"shape", "shape_c", "size", "integers", "twice", "joined", "beside", "flat_z", "rows_t", 
            "flattened_t", "first", "rest", "end", "but_last", "columns"}  # fmt: skip


@pytest.fixture(scope="module")
def program() -> tuple[onnx.ModelProto, CompiledModel]:
    """A model with every node of NODES, compiled."""
    outputs = [value(name, None, I64 if name in OF_INT64 else F32) for name in NODES]
    inputs = [value("x", [2, 4]), value("keep", [4], TensorProto.BOOL)]
    proto = model([*BEFORE, *NODES.values()], inputs, outputs, WEIGHTS)
    return proto, tvm_ext.compile(proto, cache=False, threads=1)


@pytest.mark.parametrize("ones", range(9))
def test_they_make_what_onnxruntime_makes(ones: int, program: Any) -> None:
    proto, compiled = program
    rng = np.random.default_rng(ones)
    x = rng.permutation(np.arange(8) < ones).astype(np.float32).reshape(2, 4)
    feeds = {"x": x, "keep": rng.permutation(np.arange(4) < ones // 2)}
    for (name, mine), reference in zip(compiled.run(feeds).items(), run_onnxruntime(proto, feeds), strict=True):
        assert (mine.shape, mine.dtype) == (reference.shape, reference.dtype), name
        np.testing.assert_allclose(mine, reference, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_a_mean_is_of_what_there_is(dtype: int) -> None:
    nodes = [node("Compress", "x keep", "c", axis=0), node("ReduceMean", "c", "m", axes=[0, 1], keepdims=0)]
    inputs = [value("x", [5, 3], dtype), value("keep", [5], TensorProto.BOOL)]
    proto = model(nodes, inputs, [value("m", [], dtype)])
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(onnx.helper.tensor_dtype_to_np_dtype(dtype))
    keep = np.array([True, False, True, True, False])
    (mine,) = tvm_ext.compile(proto, cache=False, threads=1).run({"x": x, "keep": keep}).values()
    np.testing.assert_allclose(mine, x[keep].astype(np.float64).mean(), rtol=1e-3 if dtype == 10 else 1e-6)


@pytest.mark.parametrize(
    "last",
    [
        node("Reshape", "t rows", "y"), node("Reshape", "c rows", "y"), node("Slice", "z zero two computed", "y"),
        node("Concat", "z z2", "y", axis=0),
    ],
    ids=lambda last: f"{last.op_type} {last.input[0]}",
)  # fmt: skip
def test_what_has_no_such_form_is_refused(last: onnx.NodeProto) -> None:
    inputs = [value("x", [2, 5]), value("keep", [4], TensorProto.BOOL), value("computed", [1], I64)]
    inputs.append(value("other", [2, 5]))
    nodes = [*BEFORE, node("NonZero", "other", "z2"), last]
    weights = {**WEIGHTS, "rows": np.array([-1, 7])}
    with pytest.raises(UnsupportedError, match=rf"'{last.name}'"):
        imported(model(nodes, inputs, [value("y", None, F32 if last.input[0] == "c" else I64)], weights))
