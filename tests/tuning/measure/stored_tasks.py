"""Small tasks of every dtype that tensors are stored in, for each recipe that has an instruction for it."""

from dataclasses import dataclass

from tests.emulation.execution import MACHINE
from tests.schedules.amx_cases import conv_group, dense_group
from tests.schedules.kernels import matched
from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Recipe
from tvm_ext.schedules.recipes.convolution.conv2d_amx import Conv2dAmx
from tvm_ext.schedules.recipes.convolution.conv2d_dot import Conv2dDot
from tvm_ext.schedules.recipes.dense_amx import DenseAmx
from tvm_ext.schedules.recipes.dense_dot import DenseDot

from .tasks import GroupTask

#: dtypes of data and weights, and the zero point of the data.
TYPES = {"bf16": (("bfloat16", "bfloat16"), 0), "u8": (("uint8", "int8"), 121), "s8": (("int8", "int8"), -7)}
TILES: tuple[Recipe, ...] = (Conv2dAmx(), DenseAmx())
DOTS: tuple[Recipe, ...] = (Conv2dDot(), DenseDot())
#: What each of them executes.
INSTRUCTIONS = {"bf16": "tdpbf16ps", "u8": "tdpbusd", "s8": "tdpbssd"}


@dataclass(frozen=True)
class Stored:
    """A task, the machine it is for, and some configurations."""

    task: GroupTask
    machine: Machine
    configs: list[Config]


def stored(recipe: Recipe, kind: str, threads: int = 1, count: int = 3) -> Stored:
    """A convolution or matmul of a kind, with a residual, odd in every dimension."""
    machine = (MACHINE if recipe in TILES else Machine.detect()).with_threads(threads)
    group = _group(recipe, kind)
    match = matched(recipe, group, machine)
    legal = [dict(config) for config in recipe.points(match, machine)]
    return Stored(GroupTask(group, recipe.name, machine), machine, legal[:: max(1, len(legal) // count)][:count])


def _group(recipe: Recipe, kind: str) -> Group:
    dtypes, zero = TYPES[kind]
    if "relax.matmul" in recipe.anchors:
        return dense_group((13, 70), (70, 37), dtypes, zero, True)
    return conv_group((1, 37, 7, 5), (33, 37, 3, 3), dtypes, zero, True, padding=(1, 1, 1, 1))
