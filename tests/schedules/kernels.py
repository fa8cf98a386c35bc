"""Runs a recipe's kernel on one group, outputs poisoned, and gives the logical result."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule

from tvm_ext.core.group import CONSTANTS, GROUP, Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Match, Recipe
from tvm_ext.schedules.steps.sizes import apply_schedule

#: Unit roundoff of float32: products and sums of n terms err by at most about n times this, of the sum of magnitudes.
ROUNDOFF = 2.0**-24


def make_group(
    anchor: str,
    shapes: Sequence[Sequence[int]],
    body: Callable[..., Sequence[Any]],
    constants: Sequence[int] = (),
    dtype: str | Sequence[str] = "float32",
) -> Group:
    """A group as grouping writes it: `body` gets the parameters and yields the operator calls in order.

    `dtype` is that of all parameters, or one for each.

    Each call is bound to a variable; `body` is a generator that is sent the variable of the call it yielded.
    """
    dtypes = [dtype] * len(shapes) if isinstance(dtype, str) else dtype
    params = [
        relax.Var(f"p{i}", relax.TensorType(tuple(s), d)) for i, (s, d) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    builder = relax.BlockBuilder()
    with builder.function("g", params):
        with builder.dataflow():
            steps, calls = body(*params), []
            value = next(steps)
            while True:
                var = builder.emit(value)
                calls.append(var)
                try:
                    value = steps.send(var)
                except StopIteration:
                    break
            result = builder.emit_output(calls[-1])
        builder.emit_func_output(result)
    mod = relax.transform.CanonicalizeBindings()(builder.get())
    return Group("g", mod["g"].with_attr({GROUP: anchor, CONSTANTS: list(constants)}))


def matched(recipe: Recipe, group: Group, machine: Machine) -> Match:
    match = recipe.match(group, machine)
    assert isinstance(match, Match), match
    return match


def drawn_points(
    recipe: Recipe, group: Group, machine: Machine, rng: np.random.Generator, count: int
) -> list[Config]:  # fmt: skip
    """Some configurations of finite cost."""
    match = matched(recipe, group, machine)
    points = [p for p in recipe.points(match, machine) if np.isfinite(recipe.cost(match, p, machine))]
    return [points[i] for i in rng.choice(len(points), size=count, replace=False)]


def scheduled(
    recipe: Recipe, match: Match, config: Config, machine: Machine, offered: Sequence[Layout] | None
) -> tuple[Any, Any]:
    """(layouts, scheduled module) of a match."""
    offered = offered or [Layout.plain(len(p.shape)) for p in match.group.params]
    layouts = recipe.layouts(match, config, offered)
    function = recipe.compute(match, config, layouts)
    kernel = apply_schedule(function, match.group, lambda sch: recipe.schedule(sch, match, config, machine))
    return layouts, IRModule({"main": kernel.with_attr("global_symbol", "main")})


def run_kernel(
    recipe: Recipe,
    group: Group,
    arrays: Sequence[np.ndarray],
    machine: Machine,
    config: Config | None = None,
    offered: Sequence[Layout] | None = None,
) -> np.ndarray:
    """The logical result of the kernel on logical arrays; every lane without a value, and the output, are poisoned."""
    match = matched(recipe, group, machine)
    config = config or recipe.default(match, machine)
    layouts, mod = scheduled(recipe, match, config, machine, offered)
    function = tvm.compile(mod, target=machine.target()).jit()["main"]
    packed = [_poisoned(layout, a) for layout, a in zip(layouts.params, arrays, strict=True)]
    poison = _poison(np.dtype(group.dtype))
    out = np.full(layouts.output.physical_shape(group.shape), poison, group.dtype)
    result = tvm.runtime.tensor(out)
    function(*(tvm.runtime.tensor(p) for p in packed), result)
    return layouts.output.unpack(result.numpy(), group.shape)


def _poison(dtype: np.dtype[Any]) -> Any:
    """A value that no kernel of a test computes."""
    if dtype.kind in "fV":  # V: bfloat16
        return np.nan
    return True if dtype.kind == "b" else np.iinfo(dtype).max - 1


def _poisoned(layout: Layout, array: np.ndarray) -> np.ndarray:
    """Pack; lanes beyond the last channel hold NaN or a large number, which must reach no result."""
    packed = layout.pack(array)
    if layout.block and array.shape[layout.block[0]] % layout.block[1]:
        mask = layout.pack(np.ones(array.shape, bool))
        packed = np.where(mask, packed, np.array(_poison(array.dtype), array.dtype))
    return packed


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("float32")
