"""Groups on stored operands, as grouping makes them, and what they compute; kernels of them on tile registers."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.recipe import Config
from tvm_ext.driver.build import compile_kernels
from tvm_ext.schedules.amx.recipe import TileRecipe

from ..emulation.execution import MACHINE, Execution, tile_instructions
from .kernels import _poisoned, make_group, matched, scheduled
from .plain_tiles import plain_tiles

BF16 = ml_dtypes.bfloat16
X_SCALE, R_SCALE, Y_SCALE = 0.043, 0.051, 0.27


def conv_group(
    x: tuple[int, ...], w: tuple[int, ...], dtypes: tuple[str, str] = ("bfloat16", "bfloat16"), zero: int = 0,
    residual: bool = False, weight_zero: int = 0, **attrs: Any,
) -> Group:  # fmt: skip
    """encode(relu(conv2d(decode(x), decode(w)) + b + decode(r))); of bytes with a scale for each output."""
    probe = relax.BlockBuilder().normalize(relax.op.nn.conv2d(*_variables(x, w), **attrs))
    out = tuple(int(d) for d in probe.ty.shape)
    return _group(
        "relax.nn.conv2d", lambda a, b: relax.op.nn.conv2d(a, b, **attrs), (x, w, (1, out[1], 1, 1), out), dtypes, zero,
        residual, weight_zero, 0,
    )  # fmt: skip


def dense_group(
    x: tuple[int, ...], w: tuple[int, int], dtypes: tuple[str, str] = ("bfloat16", "bfloat16"), zero: int = 0,
    residual: bool = False, weight_zero: int = 0,
) -> Group:  # fmt: skip
    """The same of a matmul."""
    shapes = (x, w, (w[1],), (*x[:-1], w[1]))
    return _group("relax.matmul", relax.op.matmul, shapes, dtypes, zero, residual, weight_zero, 1)


def _variables(*shapes: tuple[int, ...]) -> list[relax.Var]:
    return [relax.Var(f"v{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]


def _group(
    anchor: str, operator: Any, shapes: Sequence[tuple[int, ...]], dtypes: tuple[str, str], zero: int, residual: bool,
    weight_zero: int, axis: int,
) -> Group:  # fmt: skip
    data, weight = dtypes
    narrow = data == "bfloat16"

    def decode(value: Any, scale: Any, zero_point: Any, dtype: str, axis: int = -1) -> Any:
        if narrow:
            return relax.op.astype(value, "float32")
        zero_point = relax.const(np.array(zero_point, dtype))
        scale = scale if isinstance(scale, relax.Var) else relax.const(np.float32(scale))
        return relax.op.dequantize(value, scale, zero_point, axis=axis)

    def body(x: Any, w: Any, b: Any, *rest: Any) -> Any:
        scales, r = (None, rest) if narrow else (rest[0], rest[1:])
        a = yield decode(x, X_SCALE, zero, data)
        w = yield decode(w, scales, weight_zero, weight, axis)
        y = yield operator(a, w)
        y = yield relax.op.add(y, b)
        if r:
            other = yield decode(r[0], R_SCALE, 3, data)
            y = yield relax.op.add(y, other)
        y = yield relax.op.nn.relu(y)
        if narrow:
            yield relax.op.astype(y, "bfloat16")
        else:
            yield relax.op.quantize(y, relax.const(np.float32(Y_SCALE)), relax.const(np.array(5, data)), out_dtype=data)

    x, w, b, out = shapes
    params = [(x, data), (w, weight), (b, "float32")]
    params += [] if narrow else [((w[axis],), "float32")]
    params += [(out, data)] if residual else []
    constants = (1, 2) if narrow else (1, 2, 3)
    return make_group(anchor, [s for s, _ in params], body, constants, [d for _, d in params])


def arrays_of(group: Group, rng: np.random.Generator) -> list[np.ndarray]:
    """Random operands; of bytes all values."""

    def one(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype in ("int8", "uint8"):
            return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)
        values = rng.standard_normal(shape).astype("float32")
        return values.astype(BF16) if dtype == "bfloat16" else abs(values) * 0.01 if len(shape) == 1 else values

    return [one(p.shape, p.dtype) for p in group.params]


def points(image: str, blocks: int) -> list[Config]:
    """Configurations of an image of so many blocks of channels: pixels and outputs shared, whole and in chunks."""
    values = (
        (1, 1, 1, "outputs", "neither", 1), (2, 2, blocks, "pixels", "weights", 2), (1, 3, 1, "outputs", "image", 2),
        (2, 1, blocks, "outputs", "weights", 3), (1, 3, blocks, "pixels", "neither", 3),
        (2, 2, 1, "pixels", "image", 1), (2, 4, 1, "pixels", "weights", 2), (1, 8, 1, "pixels", "neither", 2),
    )  # fmt: skip
    knobs = ("image", "pixels", "parts", "chunk", "share", "stream", "threads")
    return [dict(zip(knobs, (image, *v), strict=True)) for v in values]


def _run(
    recipe: TileRecipe, group: Group, arrays: Sequence[np.ndarray], config: Config | None,
    offered: Sequence[Layout] | None, threads: int,
) -> np.ndarray:  # fmt: skip
    """The logical result of a kernel, compiled as models are; lanes without a value, and the output, are poisoned."""
    machine = MACHINE.with_threads(threads)
    match = matched(recipe, group, machine)
    config = config or recipe.default(match, machine)
    layouts, mod = scheduled(recipe, match, config, machine, offered)
    function = compile_kernels({"main": mod["main"]}, machine)["main"]
    packed = [tvm.runtime.tensor(_poisoned(how, a)) for how, a in zip(layouts.params, arrays, strict=True)]
    result = tvm.runtime.tensor(np.full(layouts.output.physical_shape(group.shape), 77, group.dtype))
    function(*packed, result)
    return layouts.output.unpack(result.numpy(), group.shape)


def run_twin(
    recipe: type[TileRecipe], group: Group, arrays: Sequence[np.ndarray], config: Config | None = None,
    offered: Sequence[Layout] | None = None, threads: int = 1,
) -> np.ndarray:  # fmt: skip
    """The result of the plain twin."""
    with plain_tiles():
        return _run(recipe(), group, arrays, config, offered, threads)


def run_tiles(
    recipe: type[TileRecipe], group: Group, arrays: Sequence[np.ndarray], config: Config | None = None,
    offered: Sequence[Layout] | None = None, threads: int = 1,
) -> tuple[np.ndarray, Execution]:  # fmt: skip
    """The result of the machine code, and what executed it."""
    with tile_instructions() as amx:
        out = _run(recipe(), group, arrays, config, offered, threads)
    return out, amx
