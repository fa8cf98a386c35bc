"""Import: numbers, outputs of every kind, and refusals that name the ONNX node."""

import concurrent.futures
import contextlib
import io

import numpy as np
import pytest
from onnx import TensorProto, helper
from tvm import relax

from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.graph.relax_graph import main_bindings
from tvm_ext.core.options import CompileOptions
from tvm_ext.frontend import zoo
from tvm_ext.frontend.converters import CONVERTERS
from tvm_ext.frontend.importer import import_model
from tvm_ext.frontend.reading.reader import read_model

from .graphs import check_numbers, imported, linear_model, message, model, node, relu_model, run_tvm, value

X = np.array([[-1.5, 0.0, 2.5], [3.0, -4.0, 5.0]], np.float32)


def test_a_linear_layer():
    x = np.random.default_rng(0).standard_normal((2, 5)).astype(np.float32)
    translated = check_numbers(linear_model(), {"x": x})
    assert translated.warnings == ()


def test_main_takes_only_the_inputs_and_weights_are_its_constants():
    translated = imported(linear_model())
    assert [p.name for p in translated.mod["main"].params] == ["x"]
    assert translated.mod["main"].attrs["num_input"] == 1


def test_the_module_is_well_formed():
    for proto in (linear_model(), relu_model(), several_outputs()):
        relax.analysis.check_well_formed(imported(proto).mod)


def test_names_keep_their_onnx_spelling_and_order():
    inputs = [value("in.1", [2, 3]), value("0", [2, 3]), value("a/b:0", [2, 3])]
    nodes = [node("Sum", ["in.1", "0", "a/b:0"], ["out/1.y"], "sum"), node("Neg", ["out/1.y"], ["1"], "neg")]
    proto = model(nodes, inputs, [value("1", [2, 3]), value("out/1.y", [2, 3])])
    translated = check_numbers(proto, {"in.1": X, "0": X + 1, "a/b:0": X * 2})
    assert [spec.name for spec in translated.inputs] == ["in.1", "0", "a/b:0"]
    assert [spec.name for spec in translated.outputs] == ["1", "out/1.y"]


def several_outputs():
    nodes = [node("Relu", ["x"], ["r"], "relu"), node("Neg", ["r"], ["n"], "neg"), node("Exp", ["n"], ["e"], "exp")]
    return model(nodes, [value("x", [2, 3])], [value(name, [2, 3]) for name in ("e", "r", "n")])


def test_several_outputs_some_of_them_used_further_come_in_graph_order():
    translated = check_numbers(several_outputs(), {"x": X})
    assert isinstance(translated.mod["main"].body.body, relax.Tuple)
    assert [v.name for v in translated.mod["main"].body.body.fields] == ["e", "r", "n"]


def test_an_output_that_is_an_input_an_initializer_or_another_output():
    nodes = [node("Relu", ["x"], ["y"], "relu"), node("Identity", ["y"], ["same"], "same"),
             node("Identity", ["x"], ["x2"], "pass")]  # fmt: skip
    outputs = [value(name, [2, 3]) for name in ("x", "y", "same", "w", "x2")]
    proto = model(nodes, [value("x", [2, 3])], outputs, {"w": X * 7})
    translated = check_numbers(proto, {"x": X})
    assert [spec.name for spec in translated.outputs] == ["x", "y", "same", "w", "x2"]
    returned = translated.mod["main"].body.body.fields
    assert len({v.name for v in returned}) == 5 and translated.mod["main"].params[0] not in list(returned)
    assert translated.provenance.of("same") == ("relu", "same")


def test_a_model_of_nothing_but_an_initializer():
    check_numbers(model([], [], [value("w", [2, 3])], {"w": X}), {})


@pytest.mark.parametrize("dtype", ["bool", "int64", "float64", "int8"])
def test_copies_of_other_dtypes(dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = model([node("Identity", ["x"], ["y"])], [value("x", [3], kind)], [value("y", [3], kind)])
    check_numbers(proto, {"x": np.array([0, 1, 1], dtype)})


def test_one_output_listed_twice():
    proto = relu_model()
    proto.graph.output.append(proto.graph.output[0])
    translated = check_numbers(proto, {"x": X})
    assert [spec.name for spec in translated.outputs] == ["y", "y"]


def test_a_shape_as_output_is_an_int64_tensor():
    proto = model([node("Shape", ["x"], ["y"], "shape")], [value("x", [2, 3])], [value("y", [2], TensorProto.INT64)])
    translated = check_numbers(proto, {"x": X})
    assert translated.outputs[0].dtype == "int64"


def test_int64_outputs_keep_their_dtype():
    nodes = [node("ArgMax", ["x"], ["y"], "argmax", axis=1, keepdims=0)]
    check_numbers(model(nodes, [value("x", [2, 3])], [value("y", [2], TensorProto.INT64)]), {"x": X})


def test_a_shape_that_the_model_states_wrongly_is_reported():
    proto = relu_model([2, 3])
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4
    translated = imported(proto)
    assert translated.outputs[0].shape == (2, 3)
    assert translated.warnings == ("output 'y' has shape (2, 3); the model states (2, 4)",)


def test_a_converter_that_loses_dimensions_is_caught(monkeypatch):
    monkeypatch.setitem(CONVERTERS, "Relu", lambda inputs, attributes, opset: relax.op.reshape(inputs[0], (6,)))
    proto = model([node("Relu", ["x"], ["y"], "act")], [value("x", [2, 3])], [value("y", [2, 3])])
    with pytest.raises(UnsupportedError, match=r"'y' of node 'act' gets shape \(6,\).*\(2, 3\)") as error:
        imported(proto)
    assert message(error.value)


def test_a_rank_that_the_model_states_wrongly_is_no_converters_mistake():
    """As the text recognizer of ddddocr: it states (1, seqlen) for what a Reshape makes (20, 1, 8210)."""
    nodes = [node("Reshape", ["x", "to"], ["h"], "to_rows"), node("Relu", ["h"], ["y"], "act")]
    proto = model(nodes, [value("x", [2, 3])], [value("y", [1, "n"])], {"to": np.array([3, 1, 2])})
    translated = imported(proto)
    assert translated.outputs[0].shape == (3, 1, 2)
    assert translated.warnings == ("output 'y' has shape (3, 1, 2); the model states (1, n)",)


def if_model():
    """flag ? relu(x + 1) : -x, then abs."""
    then = [node("Add", ["x", "one"], ["s"], "inner_add"), node("Relu", ["s"], ["t"], "inner_relu")]
    branches = {
        "then_branch": helper.make_graph(then, "then", [], [value("t", [2, 3])]),
        "else_branch": helper.make_graph([node("Neg", ["x"], ["e"], "inner_neg")], "else", [], [value("e", [2, 3])]),
    }
    nodes = [node("If", ["flag"], ["b"], "choose", **branches), node("Abs", ["b"], ["y"], "abs")]
    inputs = [value("x", [2, 3]), value("flag", [], TensorProto.BOOL)]
    return model(nodes, inputs, [value("y", [2, 3])], {"one": np.ones(1, np.float32)})


@pytest.mark.parametrize("flag", [True, False])
def test_if_with_branches_that_read_outer_values(flag):
    translated = check_numbers(if_model(), {"x": X, "flag": np.array(flag)})
    assert translated.provenance.of("choose") == ("choose",)
    assert translated.provenance.of("y") == ("abs",)


def test_a_converter_that_refuses_names_node_operator_opset_and_reason(capfd):
    nodes = [node("Relu", ["x"], ["h"], "fine"), node("Gelu", ["h"], ["y"], "gelu", approximate="cubic")]
    proto = model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], opset=20)
    with pytest.raises(UnsupportedError) as error:
        imported(proto)
    text = message(error.value)
    assert all(word in text for word in ("small", "'gelu'", "(Gelu, opset 20)", "approximate mode"))
    assert "fine" not in text and "\n" not in error.value.message
    assert capfd.readouterr().out == ""


def test_a_converter_that_refuses_inside_a_branch_names_the_inner_node():
    proto = if_model()
    proto.opset_import[0].version = 20
    branch = next(a.g for a in proto.graph.node[0].attribute if a.name == "then_branch")
    branch.node[1].CopyFrom(node("Gelu", ["s"], ["t"], "inner_gelu", approximate="cubic"))
    with pytest.raises(UnsupportedError, match=r"'inner_gelu' \(Gelu"):
        imported(proto)


def test_who_reads_a_tensor_whose_size_values_decide_is_named_and_who_makes_it():
    nodes = [node("NonZero", ["x"], ["h"], "find"), node("Trilu", ["h"], ["y"], "upper")]
    proto = model(nodes, [value("x", [2, 3])], [value("y", [2, None], TensorProto.INT64)])
    with pytest.raises(UnsupportedError, match=r"node 'upper' \(Trilu") as error:
        imported(proto)
    assert "'find' (NonZero)" in (text := message(error.value)) and "(2, at most 6)" in text


def test_a_sequence_output_is_its_elements():
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2, 3])
    proto = model([node("SequenceConstruct", ["x", "x"], ["s"], "seq")], [value("x", [2, 3])], [sequence])
    translated = imported(proto)
    assert [(spec.name, spec.shape) for spec in translated.outputs] == [("s[0]", (2, 3)), ("s[1]", (2, 3))]
    assert [(v.name, v.kind, v.type, v.tensors) for v in translated.results] == [
        ("s", "sequence", "seq(tensor(float))", ("s[0]", "s[1]"))
    ]
    assert {*map(tuple, translated.provenance.as_dict().values())} == {("seq",)}


def test_import_prints_nothing_and_leaves_the_proto_alone():
    proto = linear_model()
    before = proto.SerializeToString()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        import_model(read_model(proto), CompileOptions())
    assert out.getvalue() == "" and proto.SerializeToString() == before


def test_threads_may_import_at_once():
    proto = zoo.mlp(hidden=(8,) * 40, inputs=8, classes=8)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        translated = list(pool.map(lambda _: imported(proto), range(12)))
    texts = {item.mod["main"].script() for item in translated}
    assert len(texts) == 1


def test_two_imports_give_the_same_names():
    first, second = imported(several_outputs()), imported(several_outputs())
    assert [b.var.name for b in main_bindings(first.mod)] == [b.var.name for b in main_bindings(second.mod)]


def test_an_input_and_an_output_of_one_identifier_stay_apart():
    proto = model([node("Relu", ["a.b"], ["a/b"], "a_b")], [value("a.b", [2, 3])], [value("a/b", [2, 3])])
    translated = check_numbers(proto, {"a.b": X})
    names = [translated.mod["main"].params[0].name, *(b.var.name for b in main_bindings(translated.mod))]
    assert len(set(names)) == len(names)
    assert run_tvm(translated, {"a.b": X})[0].min() == 0
