"""fuse-products: norms and products of few rows become one kernel where that pays, and only there."""

from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import agrees, stage
from tvm_ext.core.fusion import no_fusion
from tvm_ext.frontend.zoo.language.weights import in_blocks
from tvm_ext.passes.lowering import merging
from tvm_ext.passes.lowering.fuse_products import FuseProducts

HIDDEN, WIDE = 64, 96


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the estimates say depends on the machine."""
    monkeypatch.setattr(merging, "WORTH", 1e9)


def gated(rows: int = 1, bits: int = 4, other: int = 0, read: str = "", level: int = 0) -> onnx.ModelProto:
    """x + (silu(h gate) * (h up)) down, h being the RMS norm of x.

    Args:
        other: bits of `up`; 0 for those of the others.
        read: a value within that is an output too.
        level: accuracy level of the products.
    """
    weights: dict[str, np.ndarray] = {"g": random(HIDDEN, scale=0.2) + 1}

    def product(x: str, name: str, outputs: int, depth: int, bits: int) -> onnx.NodeProto:
        matrix = in_blocks(random(outputs, depth, scale=0.3, seed=len(weights)), bits, 32)
        weights.update({f"{name}.codes": matrix.codes, f"{name}.scales": matrix.scales})
        return node("MatMulNBits", f"{x} {name}.codes {name}.scales", name, domain="com.microsoft", K=depth, N=outputs,
                    bits=bits, block_size=32, accuracy_level=level)  # fmt: skip

    nodes = [
        node("SimplifiedLayerNormalization", "x g", "h", axis=-1, epsilon=1e-5),
        product("h", "gate", WIDE, HIDDEN, bits), product("h", "up", WIDE, HIDDEN, other or bits),
        node("Sigmoid", "gate", "s"), node("Mul", "gate s", "silu"), node("Mul", "silu up", "m"),
        product("m", "down", HIDDEN, WIDE, bits), node("Add", "x down", "y"),
    ]  # fmt: skip
    shapes = {"h": HIDDEN, "up": WIDE, "gate": WIDE}
    outputs = [value("y", (1, rows, HIDDEN)), *([value(read, (1, rows, shapes[read]))] if read else [])]
    return model(nodes, [value("x", (1, rows, HIDDEN))], outputs, weights)


ONE = ["rms_norm matmul_blocks matmul_blocks silu multiply", "matmul_blocks add"]


@pytest.mark.parametrize("rows", [1, 4])
def test_a_norm_and_two_products_become_one_group(rows: int) -> None:
    staged = stage(gated(rows), FuseProducts)
    assert staged.groups == ONE and len(staged.report.fired) == 2


def test_the_kernel_agrees_with_onnxruntime_and_knows_its_nodes() -> None:
    compiled = agrees(gated())
    assert tvm_ext.verify(compiled, gated(), layers=True).ok
    assert len(compiled.report["kernels"]) == 2
    kernel = max(compiled.report["kernels"], key=lambda k: len(k["nodes"]))
    assert kernel["recipe"] == "matmul_blocks" and len(kernel["nodes"]) == 6
    assert kernel["flops"] >= 2 * 2 * HIDDEN * WIDE


def test_products_that_meet_are_those_of_two_kernels_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the norm as an output, so that it stays a kernel."""
    proto, x = gated(read="h", level=4), {"x": random(1, 1, HIDDEN, seed=9)}
    fused = tvm_ext.compile(proto, cache=False, threads=2)
    monkeypatch.setattr(merging, "WORTH", 0.0)
    apart = tvm_ext.compile(proto, cache=False, threads=2)
    assert len(fused.report["kernels"]) == len(apart.report["kernels"]) - 1
    np.testing.assert_array_equal(fused.run(x)["y"], apart.run(x)["y"])


LEFT: dict[str, Any] = {
    "many rows": (gated(64), {}),
    "no fusion": (gated(), {"fusion": "none"}),
    "a model that refuses": (gated(), {"fusion": no_fusion}),
}


@pytest.mark.parametrize("case", LEFT)
def test_leaves_alone(case: str) -> None:
    proto, options = LEFT[case]
    staged = stage(proto, FuseProducts, **options)
    assert staged.report.fired == () and not any("rms_norm matmul" in group for group in staged.groups)


@pytest.mark.parametrize(
    ("read", "other", "groups"),
    [
        ("h", 0, ["rms_norm", "matmul_blocks matmul_blocks silu multiply", "matmul_blocks add"]),
        ("up", 0, ["rms_norm", "matmul_blocks", "matmul_blocks silu multiply", "matmul_blocks add"]),
        ("", 8, ["rms_norm", "matmul_blocks silu", "matmul_blocks multiply", "matmul_blocks add"]),
    ],
    ids=["the norm is read", "a product is read", "other bits"],
)
def test_says_what_is_in_the_way(read: str, other: int, groups: list[str]) -> None:
    staged = stage(gated(read=read, other=other), FuseProducts)
    assert staged.groups == groups and staged.report.skipped


def test_says_what_it_expected_where_it_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "WORTH", 0.0)
    staged = stage(gated(), FuseProducts)
    assert len(staged.groups) == 4 and staged.report.skipped
