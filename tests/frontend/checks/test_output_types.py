"""Types of what a node makes: by ONNX where it knows, by onnxruntime where it alone does, and no guess of others."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tvm_ext.frontend.checks.inference import dims_known
from tvm_ext.frontend.checks.output_types import output_types

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
OPSETS = {"": 17, "com.microsoft": 1, "ai.onnx.ml": 3}


def types(node: onnx.NodeProto, known: dict[str, Any] | None = None, **kinds: Any) -> dict[str, onnx.TypeProto]:
    protos = {name: helper.make_tensor_type_proto(code, dims) for name, (code, dims) in kinds.items()}
    return output_types(node, OPSETS, 8, protos, known or {})


@pytest.mark.parametrize(
    ("op", "domain", "attributes", "dims", "wanted"),
    [
        ("Relu", "", {}, [3, None], (3, None)),
        ("NonZero", "", {}, [3, 4], (2, None)),
        ("Inverse", "com.microsoft", {}, [4, 4], (4, 4)),
        ("Normalizer", "ai.onnx.ml", {"norm": "L2"}, [3, 6], (3, 6)),  # only two runs of onnxruntime tell
        ("Normalizer", "ai.onnx.ml", {"norm": "L2"}, [None, 6], None),
    ],
)
def test_one_input(op: str, domain: str, attributes: dict[str, Any], dims: list[Any], wanted: Any) -> None:
    inferred = types(helper.make_node(op, ["x"], ["y"], domain=domain, **attributes), x=(F32, dims))
    assert dims_known(inferred["y"]) == wanted


def test_a_top_k_makes_k_of_however_many() -> None:
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=0)
    inferred = types(node, {"k": np.array([3])}, x=(F32, [None, 5]), k=(I64, [1]))
    assert {name: dims_known(kind) for name, kind in inferred.items()} == {"v": (3, 5), "i": (3, 5)}
    assert None in (dims_known(types(node, x=(F32, [None, 5]), k=(I64, [1]))["v"]) or [None])


@pytest.mark.parametrize(("op", "wanted"), [("Relu", (2, 3)), ("Concat", None)])
def test_a_loop_keeps_a_shape_that_its_step_keeps(op: str, wanted: Any) -> None:
    step = helper.make_node(op, ["a"] if op == "Relu" else ["a", "a"], ["b"], **({} if op == "Relu" else {"axis": 0}))
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [step, helper.make_node("Identity", ["go"], ["on"])], "body",
        [value("i", I64, []), value("go", TensorProto.BOOL, []), value("a", F32, None)],
        [value("on", TensorProto.BOOL, []), value("b", F32, None)],
    )  # fmt: skip
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    assert dims_known(types(node, n=(I64, []), x=(F32, [2, 3]))["y"]) == wanted


def test_what_nobody_knows_has_no_type() -> None:
    assert types(helper.make_node("Nonsense", ["x"], ["y"], domain="nowhere"), x=(F32, [2])) == {}
    assert (
        types(helper.make_node("TopK", [], ["y"])) == types(helper.make_node("Loop", ["n"], ["y"]), n=(I64, [])) == {}
    )
