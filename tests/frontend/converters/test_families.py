"""Converters of the smaller families, each against onnxruntime on random inputs and odd shapes."""

import numpy as np
import pytest
from onnx import TensorProto, helper, shape_inference

import tvm_ext

from ..graphs import check_numbers, imported, model, node, run_tvm, value

RNG = np.random.default_rng(8)
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def check(op_type, feeds, initializers=None, opset=17, outputs=1, **attributes):
    """One node over inputs in the order of their names, `initializers` among them."""
    initializers = {k: np.asarray(v) for k, v in (initializers or {}).items()}
    kind = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in feeds.items()}
    names = sorted([*feeds, *initializers])
    inputs = [value(name, feeds[name].shape, kind[name]) for name in sorted(feeds)]
    labels = [f"y{i}" for i in range(outputs)]
    untyped = [helper.make_tensor_value_info(name, 0, None) for name in labels]
    proto = model([node(op_type, names, labels, **attributes)], inputs, untyped, initializers, opset)
    inferred = {v.name: v for v in shape_inference.infer_shapes(proto).graph.output}
    for output in proto.graph.output:
        output.CopyFrom(inferred[output.name])
    return check_numbers(proto, feeds)


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress(axis):
    condition = np.array([False, True, True, False, True][: 3 if axis == 0 else 5])
    check("Compress", {"a": floats(3, 5)}, {"b": condition}, **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis):
    indices, values = np.array([[0, -1, 9], [4, -5, 2]]), np.float32([-1, 3])
    check("OneHot", {"a": indices, "c": values}, {"b": np.int64(5)}, axis=axis)


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
def test_reverse_sequence(time, batch):
    x = floats(4, 3, 2) if time == 0 else floats(3, 4, 2)
    check("ReverseSequence", {"a": x, "b": np.array([4, 1, 3])}, time_axis=time, batch_axis=batch)


@pytest.mark.parametrize(("dtype", "k"), [(FLOAT, 0), (TensorProto.INT32, -1), (INT64, 2)])
def test_eye_like(dtype, k):
    check("EyeLike", {"a": floats(3, 5)}, dtype=dtype, k=k)


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
def test_extremes_of_infinities_and_of_any_dtype(op_type, dtype):
    x = (10 * RNG.standard_normal((4, 17))).astype(dtype)
    if "float" in dtype:
        x[1] = -np.inf
        x[2] = np.inf
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    proto = model([node(op_type, ["a", "b"], ["y"], keepdims=0)], [value("a", x.shape, kind)], [value("y", [4], kind)],
                  {"b": np.array([1])}, opset=18)  # fmt: skip
    result = tvm_ext.compile(proto, cache=False, threads=1).run({"a": x})["y"]  # stock lowering starts elsewhere
    np.testing.assert_array_equal(result, x.max(1) if op_type == "ReduceMax" else x.min(1))


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_extremes_of_nothing_and_of_booleans(op_type):
    proto = model([node(op_type, ["a", "b"], ["y"], keepdims=1)], [value("a", [2, 0])], [value("y", [2, 1])],
                  {"b": np.array([1])}, opset=20)  # fmt: skip
    output = run_tvm(imported(proto), {"a": np.zeros((2, 0), np.float32)})[0]
    assert (output == (-np.inf if op_type == "ReduceMax" else np.inf)).all()
    flags = np.array([[True, False], [False, False], [True, True]])
    proto = model([node(op_type, ["a", "b"], ["y"], keepdims=0)], [value("a", [3, 2], BOOL)], [value("y", [3], BOOL)],
                  {"b": np.array([1])}, opset=20)  # fmt: skip
    expected = flags.any(1) if op_type == "ReduceMax" else flags.all(1)
    np.testing.assert_array_equal(run_tvm(imported(proto), {"a": flags})[0], expected)


def test_col2im():
    x, sizes = floats(2, 3 * 2 * 3, 12), {"b": np.array([5, 7]), "c": np.array([2, 3])}
    check("Col2Im", {"a": x}, sizes, opset=18, strides=[2, 2], pads=[1, 1, 1, 1])
    check(
        "Col2Im", {"a": floats(1, 12, 12)}, {"b": np.array([5, 5]), "c": np.array([2, 3])}, opset=18, dilations=[1, 1]
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_deform_conv(groups):
    x, w = floats(2, 4, 5, 7), floats(6, 4 // groups, 3, 3)
    offset, mask = floats(2, 2 * 9 * 2, 3, 4), floats(2, 9 * 2, 3, 4)
    feeds = {"a": x, "b": w, "c": offset, "d": floats(6), "e": mask}
    check("DeformConv", feeds, opset=19, group=groups, offset_group=2, strides=[2, 2], pads=[1, 1, 1, 1])


@pytest.mark.parametrize("order", [0, 1])
def test_indices_of_the_largest(order):
    check("MaxPool", {"a": floats(2, 3, 5, 7)}, outputs=2, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0],
          storage_order=order)  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 1), (3, 2, 2), (2, 3, 3), (4, 4), (2, 3, 5, 5), (17, 17)])
def test_det(shape):
    check("Det", {"a": floats(*shape)})


def test_det_of_singular_matrices():
    x = floats(3, 5, 5)
    x[0, 3], x[1], x[2] = x[0, 1], np.eye(5)[::-1], 0
    check("Det", {"a": x})


def test_gemm_does_not_read_what_beta_0_multiplies():
    check("Gemm", {"a": floats(3, 4), "b": floats(4, 2), "c": np.float32([np.inf, np.nan])}, beta=0.0)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_tfidf(mode):
    pool = {
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
    }
    x = RNG.integers(2, 9, (3, 11))
    check("TfIdfVectorizer", {"a": x}, opset=9, mode=mode, min_gram_length=1, max_gram_length=2, max_skip_count=3,
          weights=[1.0, 2, 3, 4, 5, 6, 7], **pool)  # fmt: skip


def test_pad_by_a_computed_value():
    check("Pad", {"a": floats(3, 4), "c": np.asarray(2.5, np.float32)}, {"b": np.array([1, 0, 2, -1])}, opset=18)


def test_split_with_empty_pieces():
    check("Split", {"a": floats(4, 5)}, {"b": np.array([0, 3, 0, 2])}, outputs=4, axis=1)


def test_a_transposed_convolution_of_a_stated_shape():
    for size, pad in (([10, 8], "NOTSET"), ([7, 6], "NOTSET"), ([8, 7], "SAME_UPPER")):
        check("ConvTranspose", {"a": floats(1, 2, 3, 3)}, {"b": floats(2, 3, 3, 3), "c": floats(3)}, strides=[3, 2],
              output_shape=size, auto_pad=pad)  # fmt: skip


@pytest.mark.parametrize(("order", "axis"), [(1, 0), (2, -1)])
def test_lp_normalization(order, axis):
    check("LpNormalization", {"a": floats(3, 5) + 1}, p=order, axis=axis)


def test_a_batch_norm_that_trains():
    feeds = {"a": floats(2, 3, 4), "b": floats(3), "c": floats(3), "d": floats(3), "e": np.abs(floats(3))}
    check("BatchNormalization", feeds, outputs=3, training_mode=1, momentum=0.75)
