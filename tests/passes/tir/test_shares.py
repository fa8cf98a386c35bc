"""Kernels in shares: each in one of them, and how many there are."""

from types import SimpleNamespace
from typing import Any

import pytest
from tvm import te
from tvm.ir import IRModule

from tvm_ext.core.group import RECIPE
from tvm_ext.passes.tir import shares
from tvm_ext.passes.tir.shares import on_all_cores


def kernel(scheduled: bool) -> Any:
    x = te.placeholder((8,), name="x")
    function = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1)])
    return function.with_attr(RECIPE, "some") if scheduled else function


def known(anchor: str) -> Any:
    return SimpleNamespace(plan=SimpleNamespace(match=SimpleNamespace(group=SimpleNamespace(anchor=anchor))))


@pytest.mark.parametrize(
    ("anchors", "generic", "counts"),
    [
        (["elementwise"] * 8, 0, (1, 0)),
        (["elementwise"] * 7 + ["relax.mean"] * 2, 0, (2, 0)),
        (["relax.matmul"], 0, (1, 0)), (["relax.matmul", "elementwise"], 0, (2, 0)),
        (["relax.nn.conv2d"] * 7, 0, (3, 0)), ([], 8, (0, 1)), (["elementwise"], 17, (1, 3)), ([], 60, (0, 3)),
    ],
)  # fmt: skip
def test_small_kernels_share_a_module(
    anchors: list[str], generic: int, counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`counts`: of shares that recipes scheduled, and of the others, on three cores."""
    monkeypatch.setattr(shares, "available_cores", lambda: 3)
    kernels = {f"k{n}": kernel(True) for n in range(len(anchors))} | {f"g{n}": kernel(False) for n in range(generic)}
    plans = {f"k{n}": known(anchor) for n, anchor in enumerate(anchors)}
    parts = on_all_cores(IRModule(kernels), lambda share, scheduled, index: (index, scheduled, [*share]), plans)
    assert [index for index, _, _ in parts] == [*range(sum(counts))]
    assert tuple(sum(kind == scheduled for _, scheduled, _ in parts) for kind in (True, False)) == counts
    assert all(name.startswith("k") == scheduled for _, scheduled, names in parts for name in names)
    assert sorted(name for _, _, names in parts for name in names) == sorted(kernels)
    sizes = [len(names) for _, scheduled, names in parts if scheduled]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
