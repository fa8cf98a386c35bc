"""Plans of the kernels in a stage file: recipes and configurations stand in the text, as attributes that may be edited.

T.func_attr({"tvm_ext.recipe": "dense", "tvm_ext.config": "{'tile_o': 2, ...}"})   ->   Plan(dense, match, {...}, cost)
"""

import ast
import functools
import math
from collections.abc import Mapping
from typing import Any

from tvm import relax, tirx

from ...core.errors import choose_of
from ...core.graph.nodes import kernels_of
from ...core.group import CONFIG, RECIPE, Group
from ...core.passes import CompileContext
from ...core.plan import Kernel, Plan
from ...core.recipe import Config, Match, Miss, Recipe
from ...schedules import generic, recipes
from ...schedules.recipes import layout_transform
from .file import StageFile


def attach_plans(base: StageFile, ctx: CompileContext, *, scheduled: bool) -> None:
    """Give every kernel of the file its entry in `ctx.kernels`, with its plan, and its schedule unless it has one.

    Raises:
        StageError: an unknown recipe, one that does not take the kernel's group, or a configuration that it has not.
    """
    assert base.mod is not None
    states = base.manifest.context["kernels"]
    for name, function in kernels_of(base.mod).items():
        kernel = ctx.kernels.get(name)
        if kernel is None:
            if not scheduled and RECIPE not in (function.attrs or {}):
                continue  # written by hand: the generic way schedules it
            kernel = ctx.kernels[name] = Kernel(name, generic.NAME, reason=f"written by hand in {base.path.name}")
        _attach(kernel, function, states.get(name, {}).get("group", ""), base, ctx, scheduled)


def _attach(
    kernel: Kernel, function: tirx.PrimFunc, group: str, base: StageFile, ctx: CompileContext, scheduled: bool
) -> None:
    attrs = function.attrs or {}
    if RECIPE not in attrs:
        return
    kernel.recipe = str(attrs[RECIPE])
    if kernel.recipe == layout_transform.NAME:
        kernel.schedule = None if scheduled else layout_transform.schedule
        return
    recipe = _recipe(kernel, base)
    match = _match(kernel, recipe, group, base, ctx)
    kernel.config = _config(kernel, recipe, match, str(attrs.get(CONFIG, "{}")), base, ctx)
    kernel.plan = Plan(recipe, match, kernel.config, kernel.estimate)
    if not scheduled:
        kernel.schedule = functools.partial(recipe.schedule, match=match, config=kernel.config, machine=ctx.machine)


def _recipe(kernel: Kernel, base: StageFile) -> Recipe:
    known = {recipe.name: recipe for recipe in recipes()}
    if kernel.recipe not in known:
        fix = choose_of(kernel.recipe, "recipes", known)
        raise base.error(kernel.name, f"kernel {kernel.name!r}: there is no recipe {kernel.recipe!r}", fix)
    return known[kernel.recipe]


def _match(kernel: Kernel, recipe: Recipe, group: str, base: StageFile, ctx: CompileContext) -> Match:
    functions: Mapping[str, relax.Function] = {}
    if base.groups is not None:
        functions = {gvar.name_hint: function for gvar, function in base.groups.functions_items()}
    if group not in functions:
        wrong = f"kernel {kernel.name!r}: what recipe {kernel.recipe!r} made it of is not in the file"
        fix = "keep its name and the class Groups; or leave the attribute tvm_ext.recipe out, for the generic schedule"
        raise base.error(kernel.name, wrong, fix)
    read = Group(group, functions[group])
    match = recipe.match(read, ctx.machine) if read.anchor in recipe.anchors else Miss(f"it is {read.anchor}")
    if not isinstance(match, Match):
        wrong = f"kernel {kernel.name!r}: recipe {recipe.name!r} does not take {group}: {match.reason}"
        raise base.error(kernel.name, wrong, f"keep its attribute tvm_ext.recipe, and {group} as it was")
    return match


def _config(kernel: Kernel, recipe: Recipe, match: Match, text: str, base: StageFile, ctx: CompileContext) -> Config:
    """The configuration that the attribute states, checked."""
    space = recipe.space(match, ctx.machine)
    choices = "; ".join(f"{knob}: {', '.join(map(repr, values))}" for knob, values in space.items())
    try:
        config: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        config = None
    if not isinstance(config, dict) or set(config) != set(space):
        wrong = f"kernel {kernel.name!r}: tvm_ext.config {text} is no configuration of {recipe.name!r}"
        raise base.error(kernel.name, wrong, f"its knobs and choices: {choices}")
    known = config == kernel.config
    bad = [k for k, v in config.items() if not known and v not in space[k] and v != kernel.config.get(k)]
    if bad or (not known and math.isinf(recipe.cost(match, config, ctx.machine))):
        wrong = f"{bad[0]}={config[bad[0]]!r}" if bad else "together they are not legal here"
        wrong = f"kernel {kernel.name!r}: tvm_ext.config {text}: {wrong}"
        raise base.error(kernel.name, wrong, f"choices of {recipe.name!r}: {choices}")
    return config
