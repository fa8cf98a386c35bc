"""Call sites of lowered programs: order, what is read, which ONNX values are written, in which layout."""

import numpy as np
import onnx

from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import stage
from tvm_ext.core.graph.call_site import CallSite
from tvm_ext.core.graph.provenance import Held
from tvm_ext.passes.lowering.lift_weights import LiftWeights


def sites(proto: onnx.ModelProto, **options: object) -> list[CallSite]:
    kernels = stage(proto, LiftWeights, threads=1, **options).ctx.kernels.values()
    return sorted((site for kernel in kernels for site in kernel.sites), key=lambda site: site.order)


def held(site: CallSite) -> list[str]:
    return [holding.value for written in site.writes for holding in written.held]


def test_a_convolution_in_blocks_then_a_mean() -> None:
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "r"), node("GlobalAveragePool", "r", "y")]
    calls = sites(model(nodes, [value("x", (1, 3, 9, 7))], [value("y", (1, 8, 1, 1))], {"w": random(8, 3, 3, 3)}))
    assert [held(site) for site in calls] == [["r"], ["y"]]
    (written,) = calls[0].writes
    assert written.layout is not None and written.shape == (1, 8, 7, 5) and calls[1].writes[0].layout is None
    assert [site.reads for site in calls] == [(), (0,)] and [site.order for site in calls] == [0, 1]
    assert set(calls[0].nodes) == {"conv_c", "relu_r"}


def test_a_layout_transform_holds_the_value_it_moves() -> None:
    nodes = [node("Conv", "x w", "c"), node("Softmax", "c", "y", axis=1)]
    calls = sites(model(nodes, [value("x", (1, 3, 5, 5))], [value("y", (1, 8, 5, 5))], {"w": random(8, 3, 1, 1)}))
    assert all(held(site) in (["c"], ["y"]) for site in calls) and held(calls[-1]) == ["y"]


def test_attention_holds_the_transposed_product() -> None:
    nodes = [node("MatMul", "q k", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p v", "y")]
    inputs = [value("q", (1, 2, 5, 3)), value("k", (1, 2, 3, 7)), value("v", (1, 2, 7, 4))]
    calls = sites(model(nodes, inputs, [value("y", (1, 2, 5, 4))]))
    written = next(w for site in calls for w in site.writes if w.held and w.shape == (1, 5, 2, 4))
    assert written.held[0] == Held("y", (("transpose", (0, 2, 1, 3)),))


def test_what_a_fold_scaled_holds_nothing() -> None:
    weights = {"w": random(4, 3, 1, 1), "g": random(4), "b": random(4), "m": random(4), "v": np.abs(random(4)) + 1}
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c g b m v", "y")]
    proto = model(nodes, [value("x", (1, 3, 5, 7))], [value("y", (1, 4, 5, 7))], weights)
    calls = sites(proto, fusion="none")
    assert held(next(site for site in calls if site.nodes)) == [] and held(calls[-1]) == ["y"]


def test_a_kernel_of_several_results() -> None:
    nodes = [node("TopK", "x k", "v i", axis=1), node("Neg", "v", "y")]
    outputs = [value("y", (3, 2)), value("i", (3, 2), onnx.TensorProto.INT64)]
    calls = sites(model(nodes, [value("x", (3, 7))], outputs, {"k": np.array([2], np.int64)}))
    everything = {name for site in calls for name in held(site)}
    assert "y" in everything and all(len(site.writes) in (1, 2) for site in calls)
