"""How many iterations of each loop a kernel needs at run time.

An iteration is needed if it stores what is inside the extents of a parameter, or what a needed iteration reads of a
buffer of the kernel. What is called needed may be more than is, and never less.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Var
from tvm.ir.expr import TensorLoad

from .affine import Affine, Arithmetic, Extents, UnboundedError, ceildiv, least_of, variables_of
from .bases import TILE, Base
from .crossings import Crossed
from .statements import SERIAL, children, is_kind
from .views import Views

#: Calls that change nothing by themselves.
_HARMLESS = ("tirx.prefetch",)


@dataclass(frozen=True)
class Access:
    """A load or a store.

    Attributes:
        buffer, indices: of it.
        loops: variables of the loops around it, outermost first.
        into: (buffer, indices) that the statement of a load stores to; None if it stores nothing.
    """

    buffer: Any
    indices: Sequence[Any]
    loops: tuple[Any, ...]
    into: tuple[Any, Sequence[Any]] | None = None

    @functools.cached_property
    def variables(self) -> set[Any]:
        """Those in its indices."""
        return {var for index in self.indices for var in variables_of(index)}


class Needs:
    """What is needed of a kernel's loops.

    Args:
        body: of the kernel, its loops normal.
        extents: of its parameters.
        arithmetic: knows the ranges of its variables.
        nests: variable -> variables of the loops that are shared out together with its own: what is needed of one
            must not depend on the others.
        crossed: of tiles that cross rows.
        views: of the body.
        symbols: variables that are known everywhere.
        bases: variable of a loop over threads -> what its body calls the share of a thread.

    Attributes:
        loops: variable -> (loop, variables of the loops around it).
        loads, stores: of the body.
        opaque: buffers that may be read and written at any index.
    """

    def __init__(
        self, body: Any, extents: Extents, arithmetic: Arithmetic, nests: dict[Any, set[Any]], crossed: Crossed,
        views: Views, symbols: set[Any], bases: dict[Any, Base],
    ) -> None:  # fmt: skip
        self._extents, self._arithmetic, self._nests = extents, arithmetic, nests
        self.loops: dict[Any, tuple[tirx.For, tuple[Any, ...]]] = {}
        self.loads: list[Access] = []
        self.stores: list[Access] = []
        self._tops, self.counts, self._bases = crossed.tops, crossed.counts, bases
        self._shares = {var: base for base in bases.values() for var in (base.first, base.end)}
        self._required: dict[tuple[Any, int], Any] = {}
        self._allocated: dict[Any, tuple[Any, ...]] = {}
        self._effects: list[tuple[Any, ...]] = []
        self.opaque, self._views, self._symbols = set(views.unknown), views, symbols
        self._collect(body, ())

    def _collect(self, stmt: Any, loops: tuple[Any, ...]) -> None:
        if isinstance(stmt, tirx.AllocBuffer):
            self._allocated[stmt.buffer] = loops
        elif isinstance(stmt, tirx.DeclBuffer):
            return
        elif isinstance(stmt, tirx.BufferStore):
            into = self._views.of(stmt)
            self.stores.append(Access(*into, loops))
            self._collect_loads([stmt.value], loops, into)
            self._collect_loads(stmt.indices, loops, None)
        elif isinstance(stmt, tirx.For):
            self.loops[stmt.loop_var] = (stmt, loops)
            self._collect_loads([stmt.extent], loops, None)
            loops = (*loops, stmt.loop_var)
            if stmt.loop_var in self._bases:
                loops = (*loops, self._bases[stmt.loop_var].first)
        else:
            names = ("value", "condition")
            self._collect_loads([e for n in names if (e := getattr(stmt, n, None)) is not None], loops, None)
            if isinstance(stmt, tirx.Evaluate) and _changes(stmt.value):
                self._effects.append(loops)
        for each in children(stmt):
            self._collect(each, loops)

    def _collect_loads(self, exprs: Sequence[Any], loops: tuple[Any, ...], into: Any) -> None:
        def load(expr: TensorLoad) -> None:
            self.loads.append(Access(*self._views.of(expr), loops, into))

        def call(expr: Call) -> None:
            """A buffer whose address is taken may be read and written anywhere."""
            self.opaque.update(a.source for a in expr.args if isinstance(a, TensorLoad) and not _is_value(expr))
            self.opaque.update(a for a in expr.args if isinstance(a, Var))

        for expr in exprs:
            tvm_ffi.structural_walk(expr, [(TensorLoad, load), (Call, call)])

    def count(self, var: Any) -> Any:
        """Iterations that are needed of a loop, as an expression of symbols and of the variables of loops around it;
        None if all are."""
        if var not in self.counts:
            self.counts[var] = None  # while it is asked for: all
            loop, _ = self.loops[var]
            free = is_kind(loop, SERIAL) or var in self._nests
            if free and isinstance(loop.extent, tirx.IntImm) and int(loop.extent) > 1:
                needed = self._needed(var)
                if needed is not None and not isinstance(needed, tirx.IntImm):
                    count = self._arithmetic.simplify(tirx.min(loop.extent, needed))
                    same = str(count.ty.dtype) == str(var.ty.dtype)
                    self.counts[var] = count if same else tirx.Cast(var.ty.dtype, count)
        return self.counts[var]

    def _needed(self, var: Any) -> Any:
        if any(var in loops for loops in self._effects):
            return None
        stores = [s for s in self.stores if var in s.loops and var not in self._allocated.get(s.buffer, ())]
        used = {v for s in stores for v in s.variables}
        if not stores:
            return None
        if var not in used:
            return self._needed_for_loads(var, used)
        return self._largest([self._needed_for(store, var) for store in stores])

    def _largest(self, needs: list[Any]) -> Any:
        out: list[Any] = []
        for need in needs:
            if need is None:
                return None
            if not any(tvm_ffi.structural_equal(need, other) for other in out):
                out.append(need)
        largest = out[0] if out else None
        for need in out[1:]:
            largest = tirx.max(largest, need)
        return largest

    def _needed_for(self, store: Access, var: Any) -> Any:
        """Iterations after which no store is inside the extents in some dimension."""
        ends = []
        for d, index in enumerate(store.indices):
            extent = self._extent(store.buffer, d)
            while extent is not None and isinstance(index, tirx.FloorDiv) and isinstance(index.b, tirx.IntImm):
                index, extent = index.a, extent * int(index.b)
            form = Affine.of(index)
            for share in () if extent is None else self._bases.values():
                if (k := form.terms.get(share.first, 0)) > 0:
                    extent = tirx.min(extent, share.end * k)
            if extent is None or form.terms.get(var, 0) <= 0 or self._is_tile(form, var):
                continue
            if (end := self._end(index, form, var, extent, store.loops)) is not None:
                ends.append(end)
        if not ends:
            return None
        smallest = ends[0]
        for end in ends[1:]:
            smallest = tirx.min(smallest, end)
        return smallest

    def _is_tile(self, form: Affine, var: Any) -> bool:
        """Whether a loop is over few neighbours, inside another one over the same dimension and around no other one."""
        around = {*self.loops[var][1], *self._tops}
        outer = any(k > form.terms[var] for v, k in form.terms.items() if v in around)
        few = outer and self._arithmetic.extents[var] * form.terms[var] <= TILE
        return few and not any(var in loops and is_kind(loop, SERIAL) for loop, loops in self.loops.values())

    def _end(self, index: Any, form: Affine, var: Any, extent: Any, loops: Sequence[Any]) -> Any:
        """The first value of a variable with which an index is beyond an extent, whatever inner variables are."""
        if any(var in variables_of(e) for e, _ in form.rest):
            return None
        rest = tvm_ffi.structural_map(index, (Var, lambda v: tirx.const(0, v.ty.dtype) if v.same_as(var) else v))
        gone = {*loops[loops.index(var) + 1 :], *self._nests.get(var, ())}
        try:
            rest = self._arithmetic.extreme(rest, False, self._limit(gone))
        except UnboundedError:
            return None
        return ceildiv(extent - rest, form.terms[var])

    def _extent(self, buffer: Any, d: int) -> Any:
        if buffer in self.opaque:
            return None
        return self._extents[buffer][d] if buffer in self._extents else self._needed_of(buffer, d)

    def _needed_of(self, buffer: Any, d: int) -> Any:
        """How far a dimension of the kernel's own buffer is needed: an expression of what is known where it is
        allocated; None if it is to its end."""
        if (buffer, d) not in self._required:
            self._required[buffer, d] = None
            if buffer in self._allocated and buffer not in self.opaque:
                self._required[buffer, d] = self._read_of(buffer, d)
        return self._required[buffer, d]

    def _read_of(self, buffer: Any, d: int) -> Any:
        around, tops = self._allocated[buffer], []
        for load in self.loads:
            if load.buffer.same_as(buffer) and not _updates(load):
                try:
                    tops.append(self.top(load.indices[d], load.loops[len(around) :]) + 1)
                except UnboundedError:
                    return None
        largest = self._largest([self._arithmetic.simplify(top) for top in tops])
        return None if largest is None or isinstance(largest, tirx.IntImm) else largest

    def top(self, index: Any, loops: Sequence[Any]) -> Any:
        """The largest value of an index in the needed iterations of loops.

        Raises:
            UnboundedError: the index is read from memory.
        """
        gone = set(loops)
        firsts = {base.first for base in self._bases.values()} & gone
        top = self._arithmetic.extreme(index, True, self._limit(gone - firsts))
        if firsts:  # of a share and what is in it, together
            parts = [self._arithmetic.simplify(part) for part in least_of(top)]
            parts = [self._arithmetic.extreme(part, True, self._limit(firsts)) for part in parts]
            top = functools.reduce(tirx.min, parts)
        return top

    def _limit(self, gone: set[Any]) -> Any:
        def limit(var: Any, largest: bool) -> Any:
            if var in self._shares:
                if self._shares[var].first not in gone:
                    return None
                return self._shares[var].total if largest else tirx.const(0, var.ty.dtype)
            if var in self._views.lanes:
                return self._views.lanes[var] if largest else tirx.const(0, var.ty.dtype)
            if var in self._tops:
                return (
                    self._arithmetic.extreme(self._tops[var], True, limit) if largest else tirx.const(0, var.ty.dtype)
                )
            if var not in gone:
                if var in self.loops or var in self._symbols:
                    return None
                raise UnboundedError
            if not largest:
                return tirx.const(0, var.ty.dtype)
            count = self.count(var)
            count = self.loops[var][0].extent if count is None else count
            return self._arithmetic.extreme(count - 1, True, limit)

        return limit

    def _needed_for_loads(self, var: Any, spatial: set[Any]) -> Any:
        """Iterations of a reduction in which some parameter is read inside its extents."""
        ends = []
        for load in self.loads:
            for d, index in enumerate(load.indices if load.buffer in self._extents and var in load.loops else ()):
                names, form, extent = variables_of(index), Affine.of(index), self._extents[load.buffer][d]
                if var in names and extent is not None and not names & spatial:
                    whole = form.terms.get(var, 0) <= 0 or self._is_tile(form, var)
                    ends.append(None if whole else self._end(index, form, var, extent, load.loops))
        return self._largest(ends)


def _updates(load: Access) -> bool:
    """Whether a load is of the element that its statement stores: needed if the statement is."""
    if load.into is None or not load.into[0].same_as(load.buffer):
        return False
    return all(tvm_ffi.structural_equal(a, b) for a, b in zip(load.indices, load.into[1], strict=True))


def _is_value(call: Call) -> bool:
    """Whether a call reads the numbers of its operands, and not where they lie."""
    return getattr(call.op, "name", "") not in ("tirx.address_of", "tirx.tvm_access_ptr")


def _changes(value: Any) -> bool:
    return isinstance(value, Call) and getattr(value.op, "name", "") not in _HARMLESS
