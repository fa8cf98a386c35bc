"""Groups on narrow numbers, and their kernels compiled as models are: instructions and plain twins."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Recipe
from tvm_ext.driver.build import compile_kernels
from tvm_ext.schedules.dots import operands as dot_operands
from tvm_ext.schedules.dots.instructions import Dot, dot_of

from .kernels import _poison, _poisoned, make_group, matched, scheduled

_BFLOAT16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Narrow:
    """How the operands of an anchor are stored and decoded.

    Attributes:
        data, weight: dtypes.
        kind: "dequantize", "shift" or "widen".
        zero_point: of the data; uint8 weights have 128.
        per_output: whether each output has a weight scale of its own.
    """

    data: str
    weight: str
    kind: str = "dequantize"
    zero_point: int = 0
    per_output: bool = True

    @property
    def weight_zero(self) -> int:
        return 128 if self.weight == "uint8" else 0

    def arrays(self, rng: np.random.Generator, x: Sequence[int], w: Sequence[int]) -> list[np.ndarray]:
        """Random data and weight that use the whole range of their types."""
        if self.kind == "widen":
            return [rng.standard_normal(shape).astype(_BFLOAT16) for shape in (x, w)]
        of = ((self.data, x), (self.weight, w))
        limits = [(np.iinfo(d).min, np.iinfo(d).max + 1) for d, _ in of]
        return [rng.integers(*lim, shape).astype(d) for lim, (d, shape) in zip(limits, of, strict=True)]

    def whole(self, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Exactly what is multiplied, in float64, without scales."""
        if self.kind == "widen":
            return x.astype("float64"), w.astype("float64")
        return x.astype("float64") - self.zero_point, w.astype("float64") - self.weight_zero

    def result(
        self, rng: np.random.Generator, arrays: list[np.ndarray], exact: Any, shape: Sequence[int]
    ) -> np.ndarray:
        """What scale, bias and relu, all in float32, make of exact sums; the scale and the bias join the arrays.

        Args:
            shape: of the bias.
        """
        if self.kind == "shift":
            return np.asarray(exact)
        scale = np.full(shape, 0.01, "float32")
        if self.kind == "dequantize" and self.per_output:
            scale = rng.uniform(0.001, 0.02, shape).astype("float32")
            arrays.append(scale.reshape(-1))
        if self.kind == "dequantize":
            exact = exact.astype("float32") * (np.float32(DATA_SCALE) * scale)
        arrays.append(rng.standard_normal(shape).astype("float32"))
        return np.asarray(np.maximum(exact + arrays[-1], 0))


TYPES = {
    "uint8": Narrow("uint8", "int8", zero_point=113),
    "uint8 around 0": Narrow("uint8", "int8", per_output=False),
    "int8": Narrow("int8", "int8", zero_point=-7),
    "int8 around 0": Narrow("int8", "int8"),
    "int8 from -128": Narrow("int8", "int8", zero_point=-128),
    "uint8 weights": Narrow("uint8", "uint8", zero_point=128),
    "integers": Narrow("int8", "int8", "shift", zero_point=5),
    "unsigned integers": Narrow("uint8", "uint8", "shift", zero_point=3),
}
BF16 = Narrow("bfloat16", "bfloat16", "widen")
#: Scale of the data; that of weights is 0.01 where each output has none of its own.
DATA_SCALE = 0.03
_MACHINE = Machine.detect()
#: Marks of tests that run instructions which not every CPU has.
needs = {
    name: pytest.mark.skipif(bool(dot is None or dot.missing(_MACHINE)), reason=f"no dot product of {name}")
    for name, dot in (
        ("int8", dot_of("uint8", "int8", _MACHINE)), ("bf16", dot_of("bfloat16", "bfloat16", _MACHINE))
    )
}  # fmt: skip


def twin(recipe: Recipe) -> Recipe:
    """The recipe, whose kernels compute the same sums without the instruction."""

    def plain(data: str, weight: str, machine: Machine) -> Dot | None:
        dot = dot_of(data, weight, machine)
        return dot and replace(dot, feature="")

    recipe.match = mock.patch.object(dot_operands, "dot_of", plain)(recipe.match)  # type: ignore[method-assign]
    return recipe


def decoded(narrow: Narrow, x: Any, w: Any, scale: Any, axis: int) -> Any:
    """Yields the decodes of two operands; returns what the anchor reads. `axis` of the weight is that of outputs."""
    if narrow.kind == "widen":
        a = yield relax.op.astype(x, "float32")
        b = yield relax.op.astype(w, "float32")
        return a, b
    zero, weight_zero = relax.const(narrow.zero_point, narrow.data), relax.const(narrow.weight_zero, narrow.weight)
    if narrow.kind == "dequantize":
        a = yield relax.op.dequantize(x, relax.const(DATA_SCALE, "float32"), zero, axis=1)
        b = yield relax.op.dequantize(w, scale, weight_zero, axis=axis)
        return a, b
    a = yield relax.op.astype(x, "int32")
    a = yield relax.op.subtract(a, relax.const(narrow.zero_point, "int32"))
    b = yield relax.op.astype(w, "int32")
    if narrow.weight_zero:
        b = yield relax.op.subtract(b, relax.const(narrow.weight_zero, "int32"))
    return a, b


def narrow_group(
    anchor: Any, narrow: Narrow, x: Sequence[int], w: Sequence[int], outputs: int, axis: int, bias: Sequence[int]
) -> Group:
    """anchor(decode(x), decode(w)); with a bias and relu behind floats."""
    operator = anchor(*(relax.Var("v", relax.TensorType(shape, "float32")) for shape in (x, w))).op.name

    def body(x: Any, w: Any, *rest: Any) -> Any:
        scale = rest[0] if narrow.per_output and narrow.kind == "dequantize" else relax.const(0.01, "float32")
        a, b = yield from decoded(narrow, x, w, scale, axis)
        if narrow.kind == "shift":
            yield anchor(a, b, out_dtype="int32")
            return
        y = yield anchor(a, b)
        y = yield relax.op.add(y, rest[-1])
        yield relax.op.nn.relu(y)

    shapes, types = [tuple(x), tuple(w)], [narrow.data, narrow.weight]
    if narrow.kind != "shift":
        vectors = [(outputs,)] if narrow.per_output and narrow.kind == "dequantize" else []
        shapes += [*vectors, tuple(bias)]
        types += ["float32"] * (len(vectors) + 1)
    return make_group(operator, shapes, body, range(1, len(shapes)), types)


def run_narrow(
    recipe: Recipe, group: Group, arrays: Sequence[np.ndarray], machine: Machine, config: Config | None = None,
    offered: Sequence[Layout] | None = None,
) -> np.ndarray:  # fmt: skip
    """The logical result of a kernel, compiled as those of models are; lanes without a value are poisoned."""
    match = matched(recipe, group, machine)
    layouts, mod = scheduled(recipe, match, config or recipe.default(match, machine), machine, offered)
    function = compile_kernels({"main": mod["main"]}, machine)["main"]
    packed = [_poisoned(layout, a) for layout, a in zip(layouts.params, arrays, strict=True)]
    out = np.full(layouts.output.physical_shape(group.shape), _poison(np.dtype(group.dtype)), group.dtype)
    result = _tensor(out)
    function(*(_tensor(p) for p in packed), result)
    return layouts.output.unpack(result.numpy(), group.shape)


def _tensor(array: np.ndarray) -> Any:
    tensor = tvm.runtime.empty(array.shape, str(array.dtype))
    tensor.copyfrom(array)
    return tensor


def assert_exact(narrow: Narrow, got: np.ndarray, expected: np.ndarray, bias: np.ndarray) -> None:
    """Sums of integers plus a bias are equal; where they are scaled, but for one rounding of float32.

    A product and a sum may be one instruction, which rounds once: of a wrong sum the error is many times larger.
    """
    if narrow.kind == "shift":
        np.testing.assert_array_equal(got, expected)
        return
    assert np.all(np.abs(got - expected) <= 2.0**-23 * (expected + 2 * abs(bias)))
