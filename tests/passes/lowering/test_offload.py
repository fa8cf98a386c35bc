"""offload: regions become calls of a driver; numbers stay, and every node has a place and a reason."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.byoc.interpreter import Settings, make
from tests.onnx_graphs import model, node, random, value
from tests.passes.helpers import apply, build, const, ops
from tvm_ext.byoc import register
from tvm_ext.byoc.settings import Offloading
from tvm_ext.core.graph.relax_graph import main_bindings
from tvm_ext.passes.lowering.offload import Offload
from tvm_ext.runtime.model import CompiledModel

NAME = "pass_test"


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    register(make(NAME))
    yield


def offload(proto: onnx.ModelProto, **changes: Any) -> CompiledModel:
    """The model compiled, its outputs compared with onnxruntime's, and every node with a place and a reason."""
    compiled = tvm_ext.compile(proto, offload=NAME, offload_options=changes, cache=False)
    report = tvm_ext.verify(compiled, proto)
    assert report.ok, str(report)
    rows = compiled.offload_report().ops
    assert [row.node for row in rows] == [n.name for n in proto.graph.node]
    assert all(row.place and row.reason for row in rows), rows
    return compiled


def dense(x: str, w: str, y: str, name: str) -> list[onnx.NodeProto]:
    return [node("MatMul", f"{x} {w}", y, name)]


def weights(*names: str, size: int = 6) -> dict[str, np.ndarray]:
    return {name: random(size, size, seed=i) for i, name in enumerate(names)}


def test_before_and_after() -> None:
    from tvm.relax import op as R

    def body(emit: Any, x: Any) -> Any:
        return emit(R.tanh(emit(R.nn.relu(emit(R.matmul(x, const(random(5, 7))))))))

    mod = build(body, (3, 5))
    step = Offload(Offloading(make(NAME), Settings()))
    result = apply(step, mod)
    assert ops(mod) == ["matmul", "relu", "tanh"]
    assert ops(result.mod) == ["call_tir", "tanh"]
    call = main_bindings(result.mod)[0].value
    assert call.args[0].name_hint == f"{NAME}_region_0"
    assert str(call.args[1].fields[0].ty.dtype) == "uint8"
    assert any("1 of pass_test's patterns (dense) in one" in event.detail for event in result.fired)


def test_a_graph_without_work_for_it_stays() -> None:
    proto = model([node("Tanh", "x", "y")], [value("x", [3])], [value("y", [3])])
    compiled = offload(proto)
    assert compiled.offload_report().regions == ()
    assert "no pattern for tanh" in compiled.offload_report().ops[0].reason


def test_a_graph_wholly_offloaded() -> None:
    nodes = [*dense("x", "a", "t", "one"), *dense("t", "b", "y", "two")]
    compiled = offload(model(nodes, [value("x", [4, 6])], [value("y", [4, 6])], weights("a", "b")))
    (region,) = compiled.offload_report().regions
    assert (region.nodes, len(region.composites)) == (("one", "two"), 2)
    assert [k["recipe"] for k in compiled.report["kernels"]] == [f"offload:{NAME}"]


def test_two_equal_layers_have_programs_of_their_own() -> None:
    nodes = [*dense("x", "a", "t", "one"), node("Tanh", "t", "u"), *dense("u", "b", "y", "two")]
    compiled = offload(model(nodes, [value("x", [4, 6])], [value("y", [4, 6])], weights("a", "b")))
    assert len(set(compiled.offload_programs().values())) == 2
    assert compiled.report["launches"] == 3


@pytest.mark.parametrize("rows", [1, 7])
def test_a_product_with_itself(rows: int) -> None:
    offload(model([node("MatMul", "x x", "y")], [value("x", [rows, rows])], [value("y", [rows, rows])]))


def test_a_node_that_is_several_operations_is_known_by_its_own_name() -> None:
    """Nobody converts Celu: ONNX's definition of it stands for it, and its first operation joins the region."""
    nodes = [*dense("x", "a", "t", "one"), node("Celu", "t", "y", "celu")]
    rows = offload(model(nodes, [value("x", [4, 6])], [value("y", [4, 6])], weights("a"))).offload_report().ops
    assert [row.place for row in rows] == [f"{NAME}_region_0"] * 2


def test_a_leaking_value_is_an_output_of_its_region() -> None:
    nodes = [*dense("x", "a", "t", "one"), node("Tanh", "t", "u"), *dense("t", "b", "y", "two")]
    proto = model(nodes, [value("x", [4, 6])], [value("y", [4, 6]), value("u", [4, 6])], weights("a", "b"))
    (region,) = offload(proto).offload_report().regions
    assert region.nodes == ("one", "two")


def test_a_value_between_that_the_model_returns() -> None:
    nodes = [*dense("x", "a", "t", "one"), *dense("t", "b", "y", "two")]
    proto = model(nodes, [value("x", [4, 6])], [value("t", [4, 6]), value("y", [4, 6])], weights("a", "b"))
    assert len(offload(proto).offload_report().regions) == 1


def test_a_residual_that_looks_like_a_bias() -> None:
    nodes = [*dense("x", "a", "t", "one"), node("Add", "t r", "y", "sum")]
    inputs = [value("x", [4, 6]), value("r", [4, 6])]
    compiled = offload(model(nodes, inputs, [value("y", [4, 6])], weights("a")))
    assert {row.node: row.place for row in compiled.offload_report().ops} == {"one": f"{NAME}_region_0", "sum": "cpu"}
    assert "that is no row" in compiled.offload_report().ops[1].reason


def test_a_split_is_a_tuple() -> None:
    nodes = [node("Split", "x", "p q", axis=1), *dense("p", "a", "t", "one"), node("Add", "t q", "y", "sum")]
    proto = model(nodes, [value("x", [4, 12])], [value("y", [4, 6])], weights("a"))
    proto.opset_import[0].version = 12
    assert len(offload(proto).offload_report().regions) == 1


def test_branches_around_the_cpu() -> None:
    nodes = [*dense("x", "a", "t", "one"), node("Tanh", "t", "u"), node("MatMul", "t u", "y", "two")]
    compiled = offload(model(nodes, [value("x", [6, 6])], [value("y", [6, 6])], weights("a")))
    assert len(compiled.offload_report().regions) == 2


def chain() -> onnx.ModelProto:
    nodes = list(itertools.chain(*(dense(f"t{i}", f"w{i}", f"t{i + 1}", f"fc{i}") for i in range(4))))
    return model(nodes, [value("t0", [4, 6])], [value("t4", [4, 6])], weights("w0", "w1", "w2", "w3"))


@pytest.mark.parametrize("skipped", ["fc1", "MatMul", "matmul", "relax.matmul"])
def test_skipping(skipped: str) -> None:
    report = offload(chain(), skip=(skipped,)).offload_report()
    on_cpu = [row.node for row in report.ops if row.place == "cpu"]
    assert on_cpu == (["fc1"] if skipped == "fc1" else ["fc0", "fc1", "fc2", "fc3"])
    assert f"skip has {skipped!r}" in report.ops[1].reason


def test_a_minimum_of_work() -> None:
    report = offload(chain(), minimum_work=1000).offload_report()
    assert not report.regions
    assert "144 multiply-adds; minimum_work is 1000" in report.ops[0].reason


def test_what_does_not_pay_stays_unless_it_is_asked_for() -> None:
    cheap, dear = offload(chain()), offload(chain(), seconds=1.0)
    assert len(cheap.offload_report().regions) == 1
    assert not dear.offload_report().regions
    assert "it does not pay: 1000000.0 us there" in dear.offload_report().ops[0].reason
    assert len(offload(chain(), seconds=1.0, when="always").offload_report().regions) == 1


def test_a_launch_is_paid_once_by_a_merged_region() -> None:
    """Alone none of them pays for its launch; the four together do."""
    alone = offload(chain()).offload_report().regions[0].host_seconds / 4
    assert len(offload(chain(), launch=2 * alone).offload_report().regions) == 1
    assert not offload(chain(), launch=5 * alone).offload_report().regions


def test_what_cannot_be_lowered_stays_with_the_reason() -> None:
    none = offload(chain(), refuse=0).offload_report()
    assert not none.regions
    assert "it cannot be lowered: 1 composites; 0 are possible" in none.ops[0].reason
    assert [len(r.composites) for r in offload(chain(), refuse=1).offload_report().regions] == [1] * 4


def test_options_are_checked_before_anything_is_done() -> None:
    for options, message in (
        ({"when": "never"}, "choose 'pays' or 'always'"),
        ({"skip": 3}, "skip=3"),
        ({"skip": [3]}, "a name or several are needed"),
        ({"minimum_work": -1}, "minimum_work=-1"),
        ({"rows": 3}, "has no option 'rows'"),
    ):
        with pytest.raises(tvm_ext.errors.OptionError) as caught:
            offload(chain(), **options)
        assert message in str(caught.value)
    with pytest.raises(tvm_ext.errors.OptionError, match="without offload"):
        tvm_ext.compile(chain(), offload_options={"rows": 3})
    with pytest.raises(tvm_ext.errors.OptionError, match="the name of a back end is needed"):
        tvm_ext.compile(chain(), offload=3)
