"""Proves that a model works on each row of its batch by itself, so that any batch can be computed piece by piece.

    main(x[N, 3, 8, 8]) = softmax(conv(x, w))        row-wise
    main(x[N, 3, 8, 8]) = x - mean(x, axis=0)        not: 'mean' works over the axis on which the rows lie

The model is imported for two sizes of the batch, and both programs are read side by side. What differs between them
must be sizes of the batch and nothing else: no other attribute, no constant. The axis whose size differs is where
the rows of a value lie; `ops/row_rules.py` says for each operator which axes it mixes. What cannot be seen so is a
constant that the model computes from its batch size and that is the same for both sizes: they are primes of some size
for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, GlobalVar, IRModule, TupleGetItem

from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.graph.relax_graph import bindings_of, op_name, shape_of

from ...core.graph.nodes import nodes_of
from ...ops.row_rules import Cut, Rows, Site
from ...ops.table import of

_ELEMENTWISE = 0  # of TVM's operator patterns


class NotRowWise(Exception):
    """Why a value is not computed row by row."""


@dataclass(frozen=True)
class Pair:
    """The same model for two sizes of its batch."""

    modules: tuple[IRModule, IRModule]
    sizes: tuple[int, int]


def check_row_wise(pair: Pair, provenance: Provenance, model: str, fix: str) -> None:
    """Check that each row of the outputs depends on the same row of the inputs only.

    Args:
        pair: simplified as far as constants that follow from shapes are folded.
        provenance: of the first module.
        model: its name, for errors.
        fix: what to do about an error.

    Raises:
        UnsupportedError: it does not; names the node, its operator and the reason.
    """
    first, other = (bindings_of(mod["main"]) for mod in pair.modules)
    checker = _Checker(pair)
    for a, b in zip(first, other, strict=False):
        try:
            checker.binding(a, b)
        except NotRowWise as reason:
            node = f"node {', '.join(provenance.of(a.var.name)) or a.var.name!r} ({_what(a.value)})"
            raise UnsupportedError(f"{model}: {node} does not compute each row by itself: {reason}", fix=fix) from None
    if len(first) != len(other):
        raise UnsupportedError(f"{model}: it has other operators for another size of its batch", fix=fix)


def _what(value: Any) -> str:
    return op_name(value).removeprefix("relax.") or type(value).__name__


class _Checker:
    """Reads the bindings of both modules side by side."""

    def __init__(self, pair: Pair) -> None:
        self._modules, self._sizes = pair.modules, pair.sizes

    def binding(self, first: Any, other: Any) -> None:
        """Check one binding.

        Raises:
            NotRowWise: with the reason.
        """
        a, b = first.value, other.value
        if _what(a) != _what(b):
            raise NotRowWise(f"{_what(a)} stands here for {self._sizes[0]} rows, {_what(b)} for {self._sizes[1]}")
        if isinstance(a, relax.Var | GenericConst | relax.Tuple | TupleGetItem):
            self._results(a, b)
        elif isinstance(a, Call) and op_name(a):
            self._call(a, b)
        else:
            raise NotRowWise("no rule says which axes it mixes")

    def _call(self, a: Call, b: Call) -> None:
        row = of(op_name(a))
        if (rule := row.row_rule) is None:
            raise NotRowWise("no rule says which axes it mixes")
        operands = tuple(self._operands(a, b))
        if not row.sized:
            self._same_attributes(a, b)
        if op_name(a) == "relax.call_tir":
            self._same_kernel(a.args[0], b.args[0])
        results = self._results(a, b)
        if row.first_result:
            results = results[:1]
        cut = [r for r in results if r is not None]
        if not any(operands):
            if cut and not row.uniform:
                raise NotRowWise("its result depends on the number of rows")
            return
        if len(cut) != len(results):
            raise NotRowWise(f"it mixes the rows: its result has none, its operand {self._text(operands)}")
        if reason := rule(Site(a, operands, results[0])):
            raise NotRowWise(reason)

    def _operands(self, a: Call, b: Call) -> list[Cut]:
        """How the tensors among the arguments are cut; numbers and sizes among them must be equal."""
        cuts: list[Cut] = []
        for x, y in zip(a.args, b.args, strict=True):
            xs, ys = ((v.fields if isinstance(v, relax.Tuple) else [v]) for v in (x, y))
            if len(xs) != len(ys):
                raise NotRowWise("the number of its arguments depends on the number of rows")
            for field, twin in zip(xs, ys, strict=True):
                if isinstance(getattr(field, "ty", None), relax.TensorType):
                    cuts.append(self._cut(field, twin))
        return cuts

    def _same_attributes(self, a: Call, b: Call) -> None:
        plain = [[v for v in call.args if not _holds_tensors(v)] for call in (a, b)]
        pairs = [(a.attrs, b.attrs), *zip(*plain, strict=True)]
        if not all(tvm_ffi.structural_equal(x, y) for x, y in pairs):
            raise NotRowWise("its attributes depend on the number of rows")

    def _same_kernel(self, a: GlobalVar, b: GlobalVar) -> None:
        """A kernel of TVM's: each element depends on those of the same index, in both in the same way."""
        kernels = [mod[gvar] for mod, gvar in zip(self._modules, (a, b), strict=True)]
        patterns = [int(k.attrs["op_pattern"]) if "op_pattern" in k.attrs else None for k in kernels]
        if patterns != [_ELEMENTWISE] * 2 or _stored(kernels[0]) != _stored(kernels[1]):
            raise NotRowWise("it is a kernel that mixes elements")

    def _results(self, a: Any, b: Any) -> list[Cut]:
        """How each tensor of a result is cut."""
        if isinstance(a.ty, relax.TensorType):
            return [self._cut(a, b)]
        types = [list(getattr(v.ty, "fields", ())) for v in (a, b)]
        if not types[0] or not all(isinstance(t, relax.TensorType) for t in types[0]):
            raise NotRowWise("its result is no tensor")
        return [self._between(_sizes(s), _sizes(t)) for s, t in zip(*types, strict=True)]

    def _cut(self, a: Any, b: Any) -> Cut:
        cut = self._between(shape_of(a), shape_of(b))
        if isinstance(a, GenericConst) and isinstance(b, GenericConst):
            values = [_row(v.value.numpy(), cut) for v in (a, b)]
            if any(value is None for value in values) or not _identical(*values):
                raise NotRowWise("it reads a constant that depends on the number of rows")
        return cut

    def _between(self, first: Sequence[int] | None, other: Sequence[int] | None) -> Cut:
        if first is None or other is None or len(first) != len(other):
            raise NotRowWise("its number of dimensions is not known, or depends on the number of rows")
        differ = [axis for axis, (x, y) in enumerate(zip(first, other, strict=True)) if x != y]
        if not differ:
            return None
        each = [divmod(shape[differ[0]], n) for shape, n in zip((first, other), self._sizes, strict=True)]
        if len(differ) > 1 or each[0] != each[1] or each[0][1]:
            sizes = " and ".join(f"{list(s)} for {n} rows" for s, n in zip((first, other), self._sizes, strict=True))
            raise NotRowWise(f"its shape is no multiple of the rows: {sizes}")
        return Rows(differ[0], each[0][0], tuple(first))

    @staticmethod
    def _text(operands: Sequence[Cut]) -> str:
        rows = next(cut for cut in operands if cut is not None)
        return f"{list(rows.shape)}, on axis {rows.axis}"


def _holds_tensors(value: Any) -> bool:
    return isinstance(getattr(value, "ty", None), relax.TensorType) or isinstance(value, GlobalVar) or (
        isinstance(value, relax.Tuple) and any(_holds_tensors(field) for field in value.fields)
    )  # fmt: skip


def _sizes(ty: relax.TensorType) -> tuple[int, ...] | None:
    return shape_of(relax.Var("t", ty))


def _stored(kernel: tirx.PrimFunc) -> list[str]:
    """What a kernel stores, as text."""
    return [str(store.value) for store in nodes_of(kernel.body, tirx.BufferStore)]


def _row(value: np.ndarray, cut: Cut) -> np.ndarray | None:
    """The one row of a constant; the whole constant if it has none; None if its rows differ."""
    if cut is None:
        return value
    shape = value.shape
    rows = value.reshape(*shape[: cut.axis], -1, cut.each, *shape[cut.axis + 1 :])
    first = rows.take([0], cut.axis)
    return first if _identical(np.broadcast_to(first, rows.shape), rows) else None


def _identical(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    assert a is not None and b is not None
    return bool(a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
