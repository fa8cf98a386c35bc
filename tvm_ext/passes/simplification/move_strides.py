"""Strides of 1x1 convolutions move up to where their pixels are computed.

    y = relu(add(conv(x, w), r)); a = conv1x1(y, stride 2); b = conv1x1(y, stride 2)
    ->   y = relu(add(conv(x, w, stride 2), r[::2, ::2])); a = conv1x1(y); b = conv1x1(y)

A 1x1 convolution of stride 2 reads a quarter of the pixels. Where nothing reads the others, they need not be computed:
in residual networks with the stride in the 1x1 convolution, the whole end of the stage before. OpenVINO has the same
under the name StridesOptimization.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from ...core.graph.relax_graph import DROP, Rewriter, attrs_of, dtype_of, numpy_of, op_name, shape_of, static_tensor
from ...core.passes import CompileContext, Pass, PassResult
from ...ops.table import of

_CONV = "relax.nn.conv2d"
_ATTRIBUTES = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout", "out_dtype")
_ALL = (1, 1)

Step = tuple[int, int]
"""Every how manyth row and column of an image."""


class MoveStrides(Pass):
    """Images are computed at the pixels that are read."""

    name = "move-strides"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        rewriter = Rewriter(mod, ctx)
        return rewriter.rewrite(_Mover(rewriter, steps_read(rewriter)).visit)


def steps_read(rw: Rewriter) -> dict[relax.Var, Step]:
    """Variable -> every how manyth of its pixels anything reads, for those that can be computed at these only."""
    whole = (var for var, readers in rw.uses.items() if any(r is None or not _is_image(r) for r in readers))
    read: dict[relax.Var, Step] = dict.fromkeys(whole, _ALL)
    bindings = [(var, value) for var, value in rw.defs.items() if _is_image(var)]
    for var, value in reversed(bindings):
        wanted = read.get(var, _ALL)
        for operand in {a for a in getattr(value, "args", ()) if isinstance(a, relax.Var)}:
            step = _read_of(value, operand, wanted)
            read[operand] = step if operand not in read else tuple(map(math.gcd, read[operand], step))  # type: ignore[assignment]
    steps: dict[relax.Var, Step] = {}
    for var, value in bindings:
        if read.get(var, _ALL) != _ALL and _saves(value, steps):
            steps[var] = read[var]
    return steps


def _read_of(value: Any, operand: relax.Var, wanted: Step) -> Step:
    """Every how manyth pixel of an operand a value reads, of which itself every `wanted`th is."""
    if _is_pointwise(value) and value.args[0].same_as(operand):
        strides = attrs_of(value, ["strides"])["strides"]
        return strides[0] * wanted[0], strides[1] * wanted[1]
    return wanted if _is_elementwise(value) and _is_image(operand) else _ALL


def _saves(value: Any, steps: Mapping[relax.Var, Step]) -> bool:
    """Whether less is computed of a value at fewer pixels: of a convolution, and of what is elementwise behind one."""
    if op_name(value) == _CONV:
        return _layouts_are_plain(value)
    return _is_elementwise(value) and any(a in steps for a in value.args if isinstance(a, relax.Var))


class _Mover:
    def __init__(self, rewriter: Rewriter, steps: Mapping[relax.Var, Step]) -> None:
        self._rw, self._steps = rewriter, steps
        self._sparse: dict[relax.Var, relax.Var] = {}
        self._picked: dict[tuple[relax.Var, Step], relax.Var] = {}

    def visit(self, binding: relax.VarBinding, rw: Rewriter) -> Any:
        """Bind what is read of a value, in its place; or let a convolution read what is left of its operand."""
        var, value = binding.var, binding.value
        step = self._steps.get(var, _ALL)
        if step == _ALL:
            data = value.args[0] if _is_pointwise(value) else None
            return self._convolution(value, _ALL) if data in self._sparse else None
        new = self._convolution(value, step) if op_name(value) == _CONV else self._elementwise(value, step)
        self._sparse[var] = rw.emit(new)
        rw.ctx.provenance.forget_held(self._sparse[var].name)
        rw.fire(f"computed at every {step[0]} x {step[1]} pixels, which are all that is read")
        return DROP

    def _convolution(self, call: Call, step: Step) -> Call:
        """At every `step`th pixel of its result, of an operand of which some pixels may be left out."""
        data = call.args[0]
        left = self._steps.get(data, _ALL) if data in self._sparse else _ALL
        a = dict(attrs_of(call, _ATTRIBUTES))
        strides = tuple(s * k // d for s, k, d in zip(a.pop("strides"), step, left, strict=True))
        data = self._sparse.get(data, data)
        return relax.op.nn.conv2d(data, call.args[1], strides=strides, **a)

    def _elementwise(self, call: Call, step: Step) -> Call:
        images = call.args[:1] if of(op_name(call)).per_axis else call.args
        operands = [self._at(a, call, step) for a in images]
        return Call(call.op, [*operands, *call.args[len(images) :]], call.attrs, call.ty_args)

    def _at(self, operand: Any, call: Call, step: Step) -> Any:
        """An operand at every `step`th row and column of the result, of those axes along which it has pixels."""
        shape = shape_of(operand) if isinstance(operand, relax.Var | GenericConst) else None
        if not shape or len(shape) < 1:
            return operand
        left = self._steps.get(operand, _ALL) if operand in self._sparse else _ALL
        size = (shape_of(call) or ())[-2:]
        own = (0, *shape)[-2:]  # no rows of a vector
        more = [step[axis] // left[axis] if own[axis] == size[axis] else 1 for axis in (0, 1)]
        operand = self._sparse.get(operand, operand) if isinstance(operand, relax.Var) else operand
        return operand if more == [1, 1] else self._every(operand, (more[0], more[1]))

    def _every(self, operand: Any, step: Step) -> Any:
        """Every `step`th row and column of a tensor."""
        if (array := numpy_of(operand)) is not None:
            rows = (slice(None, None, step[0]),) if array.ndim > 1 else ()
            return relax.const(array[(..., *rows, slice(None, None, step[1]))].copy(), dtype_of(operand))
        if (operand, step) not in self._picked:
            rank = len(shape_of(operand) or ())
            axes = [rank - 2, rank - 1] if rank > 1 else [0]
            ends = [(shape_of(operand) or ())[axis] for axis in axes]
            sliced = relax.op.strided_slice(operand, axes, [0] * len(axes), ends, list(step[-len(axes) :]))
            self._picked[operand, step] = self._rw.emit(sliced)
        return self._picked[operand, step]


def _is_image(var: relax.Var) -> bool:
    return static_tensor(var) and len(shape_of(var) or ()) == 4


def _is_elementwise(value: Any) -> bool:
    return of(op_name(value)).is_elementwise and not any(isinstance(a, relax.Tuple) for a in value.args)


def _layouts_are_plain(call: Call) -> bool:
    layouts: Sequence[str] = [attrs_of(call, _ATTRIBUTES)[name] for name in _ATTRIBUTES[4:7]]
    return tuple(layouts) == ("NCHW", "OIHW", "NCHW") and static_tensor(call.args[0]) and static_tensor(call.args[1])


def _is_pointwise(value: Any) -> bool:
    """Whether a value is a 1x1 convolution that reads pixels of its operand, and no border."""
    if op_name(value) != _CONV or not _layouts_are_plain(value):
        return False
    kernel = (shape_of(value.args[1]) or ())[2:]
    return kernel == (1, 1) and not any(attrs_of(value, ["padding"])["padding"])
