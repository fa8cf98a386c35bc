"""Small kernels of every blocked recipe, for tests: odd numbers of channels, pixels and rows."""

from typing import Any

from tvm import relax, te

from tests.schedules.kernels import make_group, matched
from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Recipe
from tvm_ext.schedules.recipes.batch_matmul import BatchMatmul
from tvm_ext.schedules.recipes.convolution.conv2d_grouped import Conv2dGrouped
from tvm_ext.schedules.recipes.convolution.conv2d_nchwc import Conv2dNCHWc
from tvm_ext.schedules.recipes.convolution.conv2d_winograd import Conv2dWinograd
from tvm_ext.schedules.recipes.dense import Dense
from tvm_ext.tuning.metaschedule import Workload


def conv_group(ci: int, co: int, size: int, groups: int = 1, bias: bool = True) -> Group:
    """3x3 convolution + bias + relu."""

    def body(x: Any, w: Any, b: Any) -> Any:
        y = yield relax.op.nn.conv2d(x, w, padding=1, groups=groups)
        y = yield relax.op.add(y, b)
        yield relax.op.nn.relu(y)

    shapes = [(1, ci, size, size), (co, ci // groups, 3, 3), (1, co, 1, 1)]
    return make_group("relax.nn.conv2d", shapes, body, [1, 2])


def _matmul_group(a: tuple[int, ...], b: tuple[int, ...], constants: list[int]) -> Group:
    def body(x: Any, w: Any) -> Any:
        yield relax.op.matmul(x, w)

    return make_group("relax.matmul", [a, b], body, constants)


#: name -> (recipe, group)
BLOCKED: dict[str, tuple[Recipe, Group]] = {
    "conv2d_nchwc": (Conv2dNCHWc(), conv_group(16, 40, 9)),
    "one chunk": (Conv2dNCHWc(), conv_group(3, 33, 8)),
    "conv2d_winograd": (Conv2dWinograd(), conv_group(32, 40, 13)),
    "conv2d_grouped": (Conv2dGrouped(), conv_group(24, 36, 7, groups=3)),
    "dense": (Dense(), _matmul_group((37, 51), (51, 70), [1])),
    "batch_matmul": (BatchMatmul(), _matmul_group((3, 19, 24), (3, 24, 40), [])),
}


def blocked_workload(name: str, machine: Machine) -> Workload:
    """One of :data:`BLOCKED`."""
    recipe, group = BLOCKED[name]
    return Workload.of(recipe, matched(recipe, group, machine), machine)


def matmul(n: int, k: int, m: int) -> Any:
    """A user's own kernel."""
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    r = te.reduce_axis((0, k), name="r")
    return te.create_prim_func([a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")])
