"""Runs a recipe's kernel of a group with run-time extents: in buffers of the bounds, garbage behind the extents."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Recipe
from tvm_ext.core.sizes import EXTENTS, Sizes, Symbol
from tvm_ext.driver.build import compile_kernels
from tvm_ext.passes.steps.kernel_sizes import with_sizes
from tvm_ext.schedules.steps.sizes import symbols_of

from .kernels import _poison, _poisoned, matched, scheduled


def symbols(names: str) -> list[Any]:
    """Sizes that are known at run time, a letter each."""
    return [tirx.Var(name, "int64") for name in names]


def with_extents(group: Group, *extents: Sequence[Any]) -> Group:
    """A group with run-time extents, of each parameter and of the result."""
    shapes = [[tirx.const(e, "int64") if isinstance(e, int) else e for e in shape] for shape in extents]
    return Group(group.name, group.function.with_attr({EXTENTS: shapes}))


def each_size(**sizes: Iterable[int]) -> list[dict[str, int]]:
    """All combinations of sizes."""
    return [dict(zip(sizes, values, strict=True)) for values in itertools.product(*map(sorted, sizes.values()))]


class AnySize:
    """A kernel of any size, compiled once as those of models are: planned at the bounds, its loops cut.

    Attributes:
        kernel: before its loops are cut.
    """

    def __init__(
        self, recipe: Recipe, group: Group, machine: Machine, config: Config | None = None,
        offered: Sequence[Layout] | None = None,
    ) -> None:  # fmt: skip
        match = matched(recipe, group, machine)
        self._group, self._border, self._symbols = group, recipe.border(match), symbols_of(group)
        self._layouts, mod = scheduled(recipe, match, config or recipe.default(match, machine), machine, offered)
        layouts = (*self._layouts.params, self._layouts.output)
        shapes = (*(p.shape for p in group.params), group.shape)
        assert group.extents is not None
        extents = [_physical(*each) for each in zip(layouts, shapes, group.extents, strict=True)]
        pairs = zip(itertools.chain(*group.extents), itertools.chain(*shapes), strict=True)
        bounds = {extent: int(size) for extent, size in pairs if isinstance(extent, tirx.Var)}
        sizes = Sizes(tuple(Symbol(var.name, 1, bounds[var]) for var in self._symbols), tuple(self._symbols))
        self.kernel = kernel = with_sizes(mod["main"], extents, sizes, border=self._border)
        self._run = compile_kernels({"main": kernel}, machine)["main"]

    def __call__(self, sizes: Mapping[str, int], shape: Sequence[int], *arrays: np.ndarray) -> np.ndarray:
        """The logical result up to `shape`, of logical arrays of what is in use."""
        layouts, params = self._layouts, self._group.params
        whole = [_within(p.shape, a) for p, a in zip(params, arrays, strict=True)]
        packed = [_poisoned(layout, a) for layout, a in zip(layouts.params, whole, strict=True)]
        physical = layouts.output.physical_shape(self._group.shape)
        out = tvm.runtime.tensor(np.full(physical, _poison(np.dtype(self._group.dtype)), self._group.dtype))
        known = np.array([sizes[var.name] for var in self._symbols], "int64")
        self._run(*map(tvm.runtime.tensor, (*packed, known)), out)
        return layouts.output.unpack(out.numpy(), self._group.shape)[tuple(map(slice, shape))]


def _physical(layout: Layout, shape: Sequence[int], extents: Sequence[Any]) -> Sequence[Any]:
    """Extents of the dimensions in memory."""
    if all(isinstance(e, tirx.IntImm) for e in extents):
        return layout.physical_shape(shape)
    return layout.physical_shape(extents)


def _within(shape: Sequence[int], array: np.ndarray) -> np.ndarray:
    whole = np.full(shape, _poison(array.dtype), array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    return whole
