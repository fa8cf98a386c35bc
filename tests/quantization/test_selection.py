"""Which nodes are quantized, and the reasons of the others."""

import onnx
import pytest

from tests import onnx_graphs as graphs
from tests.quantization.models import mlp, residual
from tvm_ext.core.errors import OptionError
from tvm_ext.quantization.preparation import prepare
from tvm_ext.quantization.selection import select
from tvm_ext.quantization.settings import QuantizeSettings


def reasons(model: onnx.ModelProto, **options: object) -> dict[str, str]:
    return select(prepare(model).model, QuantizeSettings(**options))


def test_convolutions_and_what_stands_between() -> None:
    refusals = reasons(residual())
    assert [name for name, why in refusals.items() if why] == ["soft"]
    assert "8 bits are too coarse" in refusals["soft"]


def test_the_bias_of_a_matmul_stays_with_its_float_result() -> None:
    refusals = reasons(mlp())
    assert refusals["up"] == refusals["down"] == ""
    assert refusals["bias"] == refusals["relu"] == "what it reads is float32, and rounding it here would save nothing"


def test_options_say_more() -> None:
    assert reasons(residual(), exclude=["second"])["second"] == "exclude= names it"
    assert reasons(residual(), exclude=["second"])["sum"].startswith("what it reads is float32")
    refusals = reasons(residual(), exclude=["first"])  # what `second` reads has 8 bits all the same, for `sum` too
    assert [name for name, why in refusals.items() if why] == ["first", "relu1", "soft"]
    refusals = reasons(residual(), operators=["Gemm", "Softmax"])
    assert [name for name, why in refusals.items() if not why] == ["dense", "soft"]
    assert refusals["first"] == "operators= does not name it"
    with pytest.raises(OptionError, match="no node 'secnd'") as caught:
        reasons(residual(), exclude=["secnd"])
    assert "second" in caught.value.fix


def test_a_computed_weight_and_other_types_stay() -> None:
    shape = (3, 3)
    ends = [graphs.value("a", shape), graphs.value("b", shape)], [graphs.value("y", shape)]
    refusals = reasons(graphs.model([graphs.node("MatMul", "a b", "y", "product")], *ends))
    assert refusals == {"product": "its second operand is computed, no constant weight"}
    half = graphs.value("a", shape, onnx.TensorProto.FLOAT16), graphs.value("y", shape, onnx.TensorProto.FLOAT16)
    model = graphs.model(
        [graphs.node("MatMul", "a w", "y", "product")], [half[0]], [half[1]], {"w": graphs.random(3, 3).astype("f2")}
    )
    assert reasons(model) == {"product": "its values are float16, not float32"}


def test_nodes_that_make_no_floats_are_no_layers() -> None:
    nodes = [graphs.node("Shape", "x", "s"), graphs.node("Reshape", "x s", "y", "same")]
    model = graphs.model(nodes, [graphs.value("x", (2, 3))], [graphs.value("y", (2, 3))])
    assert list(reasons(model)) == ["same"]
