"""Every ONNX node of a compiled model has an owner: a kernel, a region, memory, or a pass with its reason."""

import json

import numpy as np
import pytest
from onnx import helper

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.instruments import Instruments
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.programs import lower
from tvm_ext.frontend.zoo import MODELS
from tvm_ext.inspection.ownership import Owners, owners_of


@pytest.fixture(scope="module")
def owners() -> Owners:
    nodes = [
        helper.make_node("Constant", [], ["two"], "constant_two", value_float=2.0),
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("BatchNormalization", "c scale shift mean var", "n"),
        node("Identity", "n", "i"), node("Relu", "i", "r"), node("Reshape", "r flat", "f"),
        node("MatMul", "f v", "m"), node("MatMul", "f v", "m2"), node("Add", "m m2", "s"), node("Mul", "s two", "p"),
        node("CumSum", "p axis", "y"), node("Exp", "p", "dead"), node("Transpose", "v", "vt", perm=[1, 0]),
        node("Transpose", "vt", "z", perm=[1, 0]), node("MatMul", "f z", "y2"),
    ]  # fmt: skip
    weights = {
        "w": random(4, 3, 3, 3), "scale": random(4), "shift": random(4), "mean": random(4),
        "var": np.ones(4, np.float32), "flat": np.array([1, -1]), "v": random(4 * 25, 6), "axis": np.array(1),
    }  # fmt: skip
    outputs = [value("y", (1, 6)), value("y2", (1, 6))]
    return owners_of(tvm_ext.compile(model(nodes, [value("x", (1, 3, 5, 5))], outputs, weights), cache=False))


def test_every_node_has_the_owner_it_should_have(owners: Owners) -> None:
    kinds = {row.node: row.kind for row in owners.rows}
    assert owners.unowned == ()
    assert [name for name, kind in kinds.items() if kind == "fold"] == [
        "constant_two", "exp_dead", "transpose_vt", "transpose_z",
    ]  # fmt: skip
    assert kinds["reshape_f"] == "memory"
    assert {kinds[name] for name in ("conv_c", "batchnormalization_n", "relu_r", "matmul_m", "cumsum_y")} == {"kernel"}


def test_owners_say_how_and_what_passes_did(owners: Owners) -> None:
    rows = {row.node: row for row in owners.rows}
    assert rows["conv_c"].how == rows["relu_r"].how and rows["conv_c"].how.startswith("conv2d")
    assert rows["conv_c"].owners == rows["batchnormalization_n"].owners == rows["relu_r"].owners
    assert any(step == "fold-batch-norm" for step, _ in rows["batchnormalization_n"].passes)
    assert any(step == "eliminate-common-subexpressions" for step, _ in rows["matmul_m2"].passes)
    assert rows["matmul_m2"].owners == rows["matmul_m"].owners
    assert "nothing needs" in rows["exp_dead"].how
    assert rows["constant_two"].how == "a constant of the model"
    assert rows["cumsum_y"].how.startswith("generic: ")


def test_views_of_owners(owners: Owners) -> None:
    assert json.loads(json.dumps(owners.as_dict()))["kinds"]["fold"] == 4
    assert "15 nodes" in str(owners)
    assert "tvm-ext" in owners._repr_html_()


def test_an_offloaded_node_is_owned_by_its_region_and_others_say_why_they_are_not() -> None:
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Softmax", "r", "y")]
    proto = model(nodes, [value("x", (16, 32))], [value("y", (16, 16))], {"w": random(32, 16)})
    compiled = tvm_ext.compile(proto, offload="systolic", offload_options={"when": "always"}, cache=False)
    rows = {row.node: row for row in owners_of(compiled).rows}
    assert rows["matmul_m"].kind == rows["relu_r"].kind == "region"
    assert rows["softmax_y"].kind == "kernel" and "not offloaded: " in rows["softmax_y"].how
    places = {row.node: row for row in compiled.offload_report().ops}
    assert places["softmax_y"].reason in rows["softmax_y"].how


def test_a_symbolic_batch_names_kernels_of_the_largest_program() -> None:
    proto = model([node("MatMul", "x w", "y")], [value("x", ("n", 5))], [value("y", ("n", 3))], {"w": random(5, 3)})
    compiled = tvm_ext.compile(proto, shapes={"x": ("N", 5)}, specialize={"N": (1, 2)}, cache=False)
    (row,) = owners_of(compiled).rows
    assert row.owners[0].endswith("_n2 call 0") and row.how == "dense"


def unowned(name: str, **options: object) -> list[str]:
    lowered = lower(MODELS[name](), CompileOptions.of(**options), Machine.detect(), instruments=Instruments())
    owners = lowered.ctx.ownership.owners(lowered.ctx.kernels)
    assert set(owners) == set(lowered.ctx.ownership.types)
    return [node for node, kernels in owners.items() if not kernels]


@pytest.mark.parametrize("name", ["mlp", "bert"])
def test_no_node_of_a_small_model_is_left_without_owner(name: str) -> None:
    assert unowned(name) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "offload"), [("mobilenet_v2", None), ("bert", "systolic"), ("mobilenet_v2", "systolic")]
)
def test_no_node_of_the_zoo_is_left_without_owner(name: str, offload: str | None) -> None:
    assert unowned(name, offload=offload) == []
