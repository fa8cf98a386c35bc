"""Where loads and stores lie: buffers and indices of one number each.

y[Ramp(i, 1, 8)]                            y at i + lane, a variable from 0 to 7
flat[i] of flat = y's memory, y: (4, 24)    y at (i // 24, i % 24)
t[a * 24 + b], b < 24, of the kernel's t    t at (a, b), and whatever else is read or written of it likewise
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad

from ....schedules.blocked.problem import NUMBERED
from .affine import Affine, Arithmetic


@dataclass(frozen=True)
class Numbering:
    """What :data:`...schedules.blocked.problem.NUMBERED` says: names of buffers, and what there is at the bound."""

    source: str
    result: str
    rows: int
    columns: int


class Views:
    """Accesses of a body, whose loops' ranges are known.

    Attributes:
        unknown: buffers that share memory with others in ways that are not known.
        lanes: variable that stands for the lanes of a vector -> the last of them.
        numbering: of elements of the kernel's own buffers, if it says so; their rows are no dimensions.
    """

    def __init__(self, body: Any, arithmetic: Arithmetic) -> None:
        self._arithmetic = arithmetic
        self._flat: dict[Any, Any] = {}
        self.unknown: set[Any] = set()
        self.lanes: dict[Any, Any] = {}
        self._divisors: dict[tuple[Any, int], list[int]] = {}
        own: set[Any] = set()
        loads: list[Any] = []
        self.numbering: Numbering | None = None
        walked = [(tirx.DeclBuffer, self._declare), (tirx.AllocBuffer, lambda stmt: own.add(stmt.buffer)),
                  (TensorLoad, loads.append), (tirx.For, self._number)]  # fmt: skip
        tvm_ffi.structural_walk(body, walked)
        whole = (self.numbering.source, self.numbering.result) if self.numbering else ()
        self._divide([load for load in loads if load.source in own and load.source.name not in whole])

    def _number(self, loop: tirx.For) -> None:
        if NUMBERED in loop.annotations:
            source, result, rows, columns = loop.annotations[NUMBERED]
            self.numbering = Numbering(str(source), str(result), int(rows), int(columns))

    def _divide(self, loads: Sequence[Any]) -> None:
        """Find the rows of which dimensions of the kernel's own buffers consist, where all loads are of such rows."""
        forms: dict[tuple[Any, int], list[Affine]] = {}
        for load in loads:
            for d, index in enumerate(load.indices):
                forms.setdefault((load.source, d), []).append(Affine.of(self._scalar(index)))
        for place, sums in forms.items():
            chain: list[int] = []
            for row in sorted({k for form in sums for k in form.terms.values() if k > 1}):
                whole = all(self._in_rows(form, row) for form in sums) and any(
                    row in form.terms.values() for form in sums
                )
                if whole and (not chain or row % chain[-1] == 0):
                    chain.append(row)
            if chain:
                self._divisors[place] = chain

    def _in_rows(self, form: Affine, row: int) -> bool:
        if any(var not in self._arithmetic.extents for var in form.terms):
            return False
        below = Affine({var: k for var, k in form.terms.items() if k % row}, form.rest, form.constant)
        ends = self._arithmetic.range(below)
        return ends is not None and ends[0] >= 0 and ends[1] < row

    def _declare(self, stmt: tirx.DeclBuffer) -> None:
        data = stmt.data
        whole = data.args[0] if isinstance(data, Call) and getattr(data.op, "name", "") == "tirx.buffer_data" else None
        if whole is not None and _is_flat(stmt.buffer, whole):
            self._flat[stmt.buffer] = whole
            return
        self.unknown.add(stmt.buffer)
        if whole is not None:
            self.unknown.add(whole)

    def buffer(self, buffer: Any) -> Any:
        """Whose memory a buffer is."""
        return self._flat.get(buffer, buffer)

    def of(self, node: Any) -> tuple[Any, Sequence[Any]]:
        """The buffer of a load or store, and its indices."""
        buffer = node.buffer if isinstance(node, tirx.BufferStore) else node.source
        indices = [self._scalar(index) for index in node.indices]
        if buffer not in self._flat:
            return buffer, [part for d, index in enumerate(indices) for part in self._parts(buffer, d, index)]
        whole, (index,) = self._flat[buffer], indices
        sizes, out = [int(size) for size in whole.ty.shape], []
        for place, size in enumerate(sizes):
            step = math.prod(sizes[place + 1 :])
            part = tirx.floordiv(index, step) if step > 1 else index
            part = self._arithmetic.simplify(tirx.floormod(part, size) if place else part)
            out.append(_quotient_first(part))
        return whole, out

    def _parts(self, buffer: Any, d: int, index: Any) -> list[Any]:
        out, rest = [], index
        for row in reversed(self._divisors.get((buffer, d), ())):
            out.append(self._arithmetic.simplify(tirx.floordiv(rest, row)))
            rest = self._arithmetic.simplify(tirx.floormod(rest, row))
        return [*out, rest]

    def _scalar(self, index: Any) -> Any:
        if isinstance(index, tirx.Ramp) and isinstance(index.lanes, int | tirx.IntImm):
            lane = tirx.Var("lane", index.base.ty.dtype)
            self._arithmetic.bind(lane, int(index.lanes))
            self.lanes[lane] = tirx.const(int(index.lanes) - 1, lane.ty.dtype)
            return index.base + lane * index.stride
        return _quotient_first(index)


def _quotient_first(index: Any) -> Any:
    """x % 48 // 8 as x // 8 % 6."""
    if not isinstance(index, tirx.FloorDiv) or not isinstance(index.a, tirx.FloorMod):
        return index
    inner, outer = index.a.b, index.b
    if not isinstance(inner, tirx.IntImm) or not isinstance(outer, tirx.IntImm) or int(inner) % int(outer):
        return index
    size = tirx.const(int(inner) // int(outer), outer.ty.dtype)
    return tirx.FloorMod(tirx.FloorDiv(index.a.a, outer), size)


def _is_flat(buffer: Any, whole: Any) -> bool:
    """Whether a buffer is another one's memory, element by element."""
    bits = [tvm.DataType(str(b.ty.dtype)).bits for b in (buffer, whole)]
    if not all(isinstance(size, tirx.IntImm) for size in (*buffer.ty.shape, *whole.ty.shape)) or bits[0] != bits[1]:
        return False
    sizes = [math.prod(int(size) for size in b.ty.shape) for b in (buffer, whole)]
    plain = len(buffer.ty.shape) == 1 and not len(whole.ty.strides) and int(buffer.ty.elem_offset) == 0
    return plain and sizes[0] == sizes[1]
