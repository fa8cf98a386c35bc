"""Kernels of a recipe whose sizes arrive at run time: built at the bound, cut, and run with memory beyond the sizes
poisoned."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm

from tests.schedules.kernels import matched, scheduled
from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.core.sizes import Sizes, Symbol
from tvm_ext.driver.build import compile_kernels
from tvm_ext.passes.steps.kernel_sizes import with_sizes

Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Sized:
    """A kernel with symbols.

    Attributes:
        recipe: that schedules it.
        group: of the shapes of its parameters, the group.
        shapes: of the symbols, as keywords (numbers or expressions), the shapes of parameters and result.
        bounds: of the symbols.
        exact: of operands, the result in float64.
        config, offered, border: if not what is usual.
        dtypes: of the parameters.
    """

    recipe: Recipe
    group: Callable[[Sequence[Shape]], Group]
    shapes: Callable[..., Sequence[Shape]]
    bounds: Mapping[str, int]
    exact: Callable[..., np.ndarray]
    config: Mapping[str, Any] | None = None
    offered: Sequence[Layout] | None = None
    border: Mapping[int, float] | None = None
    operands: Mapping[int, Callable[[np.random.Generator, Shape], np.ndarray]] = field(default_factory=dict)


def planned(name: str, threads: int) -> Machine:
    """A described machine, for whose registers kernels are planned, with the instructions of the CPU at hand, which
    runs them."""
    here = Machine.detect()
    described = Machine.described(name, threads)
    return replace(described, mcpu=here.mcpu, triple=here.triple, features=here.features)


class Built:
    """A kernel, compiled at the bound.

    Attributes:
        kernel: before it is lowered.
        group, layouts: of it.
    """

    def __init__(self, case: Sized, machine: Machine) -> None:
        self._case = case
        bound = case.shapes(**case.bounds)
        self.group = case.group(bound[:-1])
        match = matched(case.recipe, self.group, machine)
        config = {**case.recipe.default(match, machine), **(case.config or {})}
        self.layouts, mod = scheduled(case.recipe, match, config, machine, case.offered)
        self._layouts = [*self.layouts.params, self.layouts.output]
        sizes = Sizes.of([Symbol(name, 1, high) for name, high in case.bounds.items()])
        symbolic = case.shapes(**dict(zip(case.bounds, sizes.vars, strict=True)))
        extents = [
            physical(layout, shape, high) for layout, shape, high in zip(self._layouts, symbolic, bound, strict=True)
        ]
        self.kernel = with_sizes(mod["main"], extents, sizes, border=case.border)
        self._function = compile_kernels({"main": self.kernel}, machine)["main"]

    def run(self, arrays: Sequence[np.ndarray], sizes: Mapping[str, int], beyond: Any = None) -> np.ndarray:
        """The result at the bound, poisoned where nothing is written.

        Args:
            beyond: what operands hold beyond the sizes; None is poison.
        """
        tensors = []
        shapes = self._case.shapes(**self._case.bounds)
        for layout, shape, array in zip(self.layouts.params, shapes, arrays, strict=False):
            whole = np.full(shape, poison(array.dtype) if beyond is None else beyond, array.dtype)
            whole[tuple(map(slice, array.shape))] = array
            tensors.append(tvm.runtime.tensor(layout.pack(whole)))
        out_shape = self.layouts.output.physical_shape(shapes[-1])
        out = tvm.runtime.tensor(np.full(out_shape, poison(np.dtype(self.group.dtype)), self.group.dtype))
        self._function(*tensors, tvm.runtime.tensor(np.array([*sizes.values()], "int64")), out)
        return self.layouts.output.unpack(out.numpy(), shapes[-1])


def physical(layout: Layout, shape: Shape, bound: Sequence[int]) -> list[Any]:
    """Extents in a layout, whose blocks are of a dimension of constant size."""
    stored = layout.physical_shape(tuple(bound))
    if not any(isinstance(d, tvm.ir.Expr) for d in shape):
        return list(stored)
    out: list[Any] = []
    for place, size in enumerate(stored):
        extent = shape[layout.order[place]] if place < len(layout.order) else size
        out.append(extent if isinstance(extent, tvm.ir.Expr) else size)
    return out


def poison(dtype: np.dtype[Any]) -> Any:
    """A value that no kernel of a test computes; as an index it is no row of any table."""
    return np.nan if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max - 1


def operands_of(case: Sized, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Arrays of a kernel's operands, the same each time."""
    rng = np.random.default_rng(7)
    return [
        case.operands[i](rng, shape) if i in case.operands else rng.standard_normal(shape).astype("float32")
        for i, shape in enumerate(case.shapes(**sizes)[:-1])
    ]


def assert_agrees(case: Sized, built: Built, sizes: Mapping[str, int], rate: float) -> None:
    """Assert that a kernel computes what it should, up to `rate` of the result's largest number."""
    arrays = operands_of(case, sizes)
    got = built.run(arrays, sizes)[tuple(map(slice, case.shapes(**sizes)[-1]))]
    exact = case.exact(*(a.astype("float64") if a.dtype.kind == "f" else a for a in arrays))
    assert exact.shape == got.shape
    error = np.abs(got - exact).max()
    assert error <= rate * max(1.0, np.abs(exact).max()), (sizes, error)


def computed(case: Sized, built: Built, sizes: Mapping[str, int]) -> float:
    """Elements that a kernel stores, for one that a call asks for."""
    whole = built.run(operands_of(case, sizes), sizes, beyond=1)
    none = np.isnan(whole) if whole.dtype.kind == "f" else whole == poison(whole.dtype)
    return float((~none).sum() / math.prod(case.shapes(**sizes)[-1]))
