"""The analysis of models: work by closed forms, redundancy with what passes do, all nodes that cannot be compiled."""

import json
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.errors import ModelError, OptionError
from tvm_ext.inspection.analysis import Analysis


@pytest.fixture(scope="module")
def convolution() -> Analysis:
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1], strides=[2, 2], group=2), node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "p"), node("Flatten", "p", "f"), node("Gemm", "f v", "y"),
    ]  # fmt: skip
    weights = {"w": random(10, 3, 3, 3), "b": random(10), "v": random(10, 7)}
    return tvm_ext.analyze(model(nodes, [value("x", (2, 6, 9, 11))], [value("y", (2, 7))], weights))


@pytest.fixture(scope="module")
def redundant() -> Analysis:
    nodes = [
        node("Identity", "x", "i"), node("Transpose", "i", "t1", perm=[0, 2, 1]),
        node("Transpose", "t1", "t2", perm=[0, 2, 1]), node("Mul", "t2 one", "m"), node("Exp", "m", "e1"),
        node("Exp", "m", "e2"), node("Add", "e1 e2", "s"), node("Add", "k k", "kk"), node("Add", "s kk", "z"),
        node("Abs", "z", "dead"), node("Relu", "z", "r1"), node("Relu", "r1", "r2"), node("Reshape", "r2 same", "y"),
    ]  # fmt: skip
    weights = {"one": np.ones(1, np.float32), "k": random(5), "same": np.array([2, 3, 5]), "lost": random(4)}
    return tvm_ext.analyze(model(nodes, [value("x", (2, 3, 5))], [value("y", (2, 3, 5))], weights))


def test_work_is_that_of_the_closed_forms(convolution: Analysis) -> None:
    rows = {row.op: row for row in convolution.nodes}
    pixels = 5 * 6  # of a 9x11 image at stride 2
    assert rows["Conv"].flops == 2 * (2 * 10 * pixels) * (3 * 3 * 3) + 2 * 10 * pixels  # products, then the bias
    assert rows["Conv"].parameters == 10 * 3 * 3 * 3 + 10
    assert rows["Conv"].bytes == 4 * (2 * 6 * 9 * 11 + 280 + 2 * 10 * pixels)
    assert rows["Relu"].flops == 2 * 10 * pixels
    assert rows["Flatten"].flops == rows["Flatten"].bytes == 0
    assert rows["Gemm"].flops == 2 * 2 * 10 * 7
    assert rows["Gemm"].inputs == ((2, 10), (10, 7)) and rows["Gemm"].outputs == ((2, 7),)
    assert rows["Gemm"].intensity == pytest.approx(280 / (4 * (20 + 70 + 14)))
    assert convolution.parameters == 280 + 70
    assert convolution.flops == sum(row.flops for row in convolution.ops)
    assert convolution.ops[0].op == "Conv"


def test_nodes_say_what_takes_them(convolution: Analysis) -> None:
    becomes = {row.op: row.becomes for row in convolution.nodes}
    assert becomes["Conv"] == becomes["Relu"] == "conv2d_grouped"
    assert becomes["Flatten"] == "memory"
    assert becomes["Gemm"] == "dense"
    assert convolution.generic == () and convolution.ok


def test_redundant_nodes_are_found_with_what_the_passes_do(redundant: Analysis) -> None:
    findings = {finding.node: finding for finding in redundant.redundant}
    assert {name: finding.kind for name, finding in findings.items()} == {
        "identity_i": "identity", "transpose_t2": "cancels", "mul_m": "identity", "exp_e2": "duplicate",
        "add_kk": "constant", "abs_dead": "unused", "relu_r2": "cancels", "reshape_y": "identity", "lost": "unused",
    }  # fmt: skip
    assert findings["transpose_t2"].detail == "undoes transpose_t1"
    assert findings["exp_e2"].detail == "the same as exp_e1"
    assert "eliminate-common-subexpressions: the same as" in findings["exp_e2"].action
    assert "nothing needs" in findings["abs_dead"].action
    assert findings["identity_i"].action == "import: hands on x as it is"
    assert all(finding.action for finding in redundant.redundant)


def test_a_near_miss_is_not_redundant() -> None:
    nodes = [
        node("Transpose", "x", "t1", perm=[1, 2, 0]),
        node("Transpose", "t1", "t2", perm=[1, 2, 0]),  # together they are one other transpose
        node("Mul", "t2 twos", "m"),
        node("Sub", "zero m", "n"),  # 0 - x is not x
        node("Exp", "n", "e1"),
        node("Sin", "n", "e2"),
        node("Add", "e1 e2", "s"),
        node("Pad", "s shift", "p"),  # shifted by one
        node("Slice", "p last far axis back", "y"),  # turned round
    ]
    weights = {
        "twos": np.full(1, 2, np.float32), "zero": np.zeros(1, np.float32), "shift": np.array([1, 0, 0, -1, 0, 0]),
        "last": np.array([-1]), "far": np.array([-9]), "axis": np.array([0]), "back": np.array([-1]),
    }  # fmt: skip
    analysis = tvm_ext.analyze(model(nodes, [value("x", (2, 3, 5))], [value("y", (5, 2, 3))], weights))
    assert [(finding.node, finding.detail) for finding in analysis.redundant] == [
        ("transpose_t2", "one with transpose_t1")
    ]


@pytest.fixture(scope="module")
def unsupported() -> Analysis:
    nodes = [
        node("Relu", "x", "a"), node("Mystery", "a", "b", "first", domain="com.example"), node("Exp", "b", "c"),
        node("Multinomial", "x", "d", sample_size=3), node("Cast", "d", "e", to=TensorProto.FLOAT),
        node("NonZero", "x", "g"), node("Neg", "a", "y"),
    ]  # fmt: skip
    outputs = [value("c", None), value("e", (2, 3)), value("y", (2, 4)), value("g", None, TensorProto.INT64)]
    return tvm_ext.analyze(model(nodes, [value("x", (2, 4))], outputs, domains=["com.example"]))


def test_all_nodes_that_cannot_be_compiled_are_named(unsupported: Analysis) -> None:
    refused = {refusal.node: refusal for refusal in unsupported.unsupported}
    assert set(refused) == {"first", "multinomial_d"}
    assert "com.example" in refused["first"].reason and "is not a standard one" in refused["first"].reason
    assert "random" in refused["multinomial_d"].reason
    assert all(refusal.fix for refusal in refused.values())
    assert unsupported.unseen == ("exp_c",)  # behind an operator whose result nobody knows
    rows = {row.node: row for row in unsupported.nodes}
    assert rows["neg_y"].flops == 8
    assert rows["cast_e"].outputs == ((2, 3),)  # ONNX infers what stands before it
    assert rows["exp_c"].flops is None and rows["exp_c"].outputs == (None,)
    assert not unsupported.ok and unsupported.passes == ()
    assert str(unsupported).count("fix: export the model with standard operators") == 1  # once for all that it is for


def test_an_output_that_is_a_sequence_has_a_row_an_element() -> None:
    sequence = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    analysis = tvm_ext.analyze(model([node("SequenceConstruct", "x x", "y")], [value("x", (2, 4))], [sequence]))
    assert analysis.ok and analysis.outputs == (("y[0]", (2, 4), "float32"), ("y[1]", (2, 4), "float32"))


def test_what_no_recipe_takes_is_named_with_the_reason() -> None:
    nodes = [node("MatMul", "x w", "m"), node("CumSum", "m axis", "y")]
    weights = {"w": random(4, 3).astype(np.float64), "axis": np.array(1)}
    graph = model(nodes, [value("x", (2, 4), TensorProto.DOUBLE)], [value("y", (2, 3), TensorProto.DOUBLE)], weights)
    analysis = tvm_ext.analyze(graph)
    assert [(group.nodes, group.dtype) for group in analysis.generic] == [
        (("matmul_m",), "float64"), (("cumsum_y",), "float64"),
    ]  # fmt: skip
    assert all(group.reason for group in analysis.generic)
    assert {row.becomes for row in analysis.nodes} == {"generic"}


def test_free_dimensions_are_named_and_assumed() -> None:
    inputs = [value("x", ("batch", "length", 4)), value("m", ("batch", "length", 1))]
    outputs = [value("y", ("batch", "length", 3))]
    graph = model([node("MatMul", "x w", "p"), node("Mul", "p m", "y")], inputs, outputs, {"w": random(4, 3)})
    analysis = tvm_ext.analyze(graph)
    assert analysis.free == {"x": "(batch, length, 4)", "m": "(batch, length, 1)"}
    assert analysis.inputs == (("x", (1, 64, 4), "float32"), ("m", (1, 64, 1), "float32"))
    assert analysis.flops == 64 * (2 * 4 * 3 + 3)
    assert "(batch, length, 4)" in str(analysis)
    half = tvm_ext.analyze(graph, shapes={"x": (2, 7, 4)})  # what it names is known in the other input
    assert half.free == {} and half.flops == 2 * 7 * (2 * 4 * 3 + 3)


def test_a_symbolic_batch_is_counted_at_its_least_size() -> None:
    weights = {"w": random(4, 3)}
    graph = model([node("MatMul", "x w", "y")], [value("x", ("batch", 4))], [value("y", ("batch", 3))], weights)
    analysis = tvm_ext.analyze(graph)
    bound = tvm_ext.analyze(graph, shapes={"x": (5, 4)})
    assert bound.free == {} and bound.flops == 5 * analysis.flops
    symbolic = tvm_ext.analyze(graph, shapes={"x": ("N", 4)}, specialize={"N": (3, 7)})
    assert symbolic.flops == 3 * analysis.flops


def test_dimensions_have_the_sizes_that_options_state() -> None:
    weights = {"w": random(4, 3)}
    graph = model([node("MatMul", "x w", "y")], [value("x", ("N", "S", 4))], [value("y", None)], weights)
    for options, shape in (({"dims": {"S": (1, 9)}}, (1, 9, 4)), ({"dims": {"S": (1, 9), "N": (2, 3)}}, (3, 9, 4)),
                           ({"dims": {"S": (1, 9), "N": (2, 3)}, "specialize": {"S": (2, 5)}}, (3, 5, 4))):  # fmt: skip
        analysis = tvm_ext.analyze(graph, **options)
        assert analysis.inputs == (("x", shape, "float32"),) and not analysis.free
        assert analysis.flops == 2 * math.prod(shape) * 3
    with pytest.raises(OptionError, match="no dimension of small is 'T'"):
        tvm_ext.analyze(graph, dims={"T": (1, 9)})


def test_views_of_an_analysis(redundant: Analysis, unsupported: Analysis) -> None:
    for analysis in (redundant, unsupported):
        json.dumps(analysis.as_dict(), allow_nan=False)
        assert "tvm-ext" in analysis._repr_html_()
    assert redundant.as_dict()["nodes"][4]["op"] == "Exp"
    assert "duplicate" in str(redundant) and "eliminate-common-subexpressions" in str(redundant)
    assert len(redundant.text("node", top=2).split("\n\n")[1].splitlines()) == 3
    with pytest.raises(OptionError, match="choose 'op' or 'node'"):
        redundant.text("kind")


def test_broken_models_are_errors(tmp_path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(ModelError, match=r"broken\.onnx"):
        tvm_ext.analyze(path)
    graph = model([node("Relu", "x", "a"), node("Exp", "missing", "y")], [value("x", (2,))], [value("y", (2,))])
    with pytest.raises(ModelError, match="missing"):
        tvm_ext.analyze(graph)
    with pytest.raises(OptionError, match="shapez"):
        tvm_ext.analyze(graph, shapez={})


def test_the_model_is_left_as_it_is() -> None:
    graph = model([node("Relu", "x", "y")], [value("x", ("n", 3))], [value("y", ("n", 3))])
    before = graph.SerializeToString(deterministic=True)
    tvm_ext.analyze(graph)
    assert graph.SerializeToString(deterministic=True) == before
    assert isinstance(graph, onnx.ModelProto)
