"""Runs a recipe's kernel of a group with run-time extents: in buffers of the bounds, garbage behind the extents."""

from __future__ import annotations

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
from tvm_ext.core.sizes import EXTENTS
from tvm_ext.driver.build import compile_kernels
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
    """A kernel compiled once, whose last parameters are the sizes; no loop is cut."""

    def __init__(
        self, recipe: Recipe, group: Group, machine: Machine, config: Config | None = None,
        offered: Sequence[Layout] | None = None,
    ) -> None:  # fmt: skip
        match = matched(recipe, group, machine)
        self._group, self._border, self._sizes = group, recipe.border(match), symbols_of(group)
        self._layouts, mod = scheduled(recipe, match, config or recipe.default(match, machine), machine, offered)
        kernel = mod["main"]
        whole = tirx.PrimFunc([*kernel.params, *self._sizes], kernel.body, kernel.ret_type, kernel.attrs)
        self._run = compile_kernels({"main": whole}, machine)["main"]

    def __call__(self, sizes: Mapping[str, int], shape: Sequence[int], *arrays: np.ndarray) -> np.ndarray:
        """The logical result up to `shape`, of logical arrays of what is in use."""
        layouts, params = self._layouts, self._group.params
        beyond = [self._border.get(i, _poison(a.dtype)) for i, a in enumerate(arrays)]
        whole = [_within(p.shape, a, b) for p, a, b in zip(params, arrays, beyond, strict=True)]
        packed = [_poisoned(layout, a) for layout, a in zip(layouts.params, whole, strict=True)]
        physical = layouts.output.physical_shape(self._group.shape)
        out = tvm.runtime.tensor(np.full(physical, _poison(np.dtype(self._group.dtype)), self._group.dtype))
        self._run(*map(tvm.runtime.tensor, packed), out, *(sizes[var.name] for var in self._sizes))
        return layouts.output.unpack(out.numpy(), self._group.shape)[tuple(map(slice, shape))]


def _within(shape: Sequence[int], array: np.ndarray, beyond: Any) -> np.ndarray:
    whole = np.full(shape, beyond, array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    return whole
