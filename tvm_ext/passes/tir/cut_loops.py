"""Kernels that are scheduled at the bound do what a call needs: loops over symbolic dimensions end at the extents.

    for t in range(64): for i in unroll(8): y[t * 8 + i] = ...      ->   for t in range(ceildiv(N, 8)): ...

Buffers keep the strides of the bound, and memory beyond the extents is there, so that the last tile is computed whole:
what it reads and writes beyond them is nobody's. Loops that threads share are shared out anew (:mod:`.cutting.shares`).
A loop of which it is not known what is needed runs to the bound, which is slower and right.
"""

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from ...core.sizes import BORDER, EXTENTS, SIZES, SYMBOLS, extents_of
from ...schedules.blocked.problem import PIXELS
from ..steps.kernel_sizes import reading
from .cutting.affine import Arithmetic, in_type
from .cutting.bases import Base, based
from .cutting.border import borders
from .cutting.crossings import Crossed, cross
from .cutting.guards import guarded
from .cutting.inside import inside
from .cutting.needs import Needs
from .cutting.normal import merged, normal, shareable
from .cutting.numbering import renumbered
from .cutting.pixels import Pixels
from .cutting.scratch import sunk
from .cutting.shares import SHARED, THREADS, Digit, plain, shared, veiled
from .cutting.statements import PARALLEL, chain_of, descend, in_chain, is_kind, sequence
from .cutting.views import Views

#: Type of loop variables: run-time extents are computed in it.
_INDEX = "int32"


def cut_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel without blocks, cut; one without :data:`...core.sizes.EXTENTS` is left as it is."""
    return function if extents_of(function) is None else _Cut(function).function()


class _Cut:
    """One kernel.

    Attributes:
        symbols: variable of a symbol -> the one of the type of loops.
        extents: of the parameters.
    """

    def __init__(self, function: tirx.PrimFunc) -> None:
        self._function, self._arithmetic = function, Arithmetic()
        self.symbols = {var: tirx.Var(var.name, _INDEX) for var, _ in function.attrs[SYMBOLS]}
        self._params = params = [param for param in function.params if param.name != SIZES]
        stated = extents_of(function) or ()
        for param, shape in zip(params, stated, strict=True):
            self._bind_symbols(param, shape)
        self.extents: dict[Any, Sequence[Any]] = {
            param: [self._extent(e, d) for e, d in zip(shape, param.ty.shape, strict=True)]
            for param, shape in zip(params, stated, strict=True)
        }

    def _bind_symbols(self, param: Any, shape: Any) -> None:
        for extent, bound in zip(shape, param.ty.shape, strict=True):
            var = self.symbols.get(extent) if isinstance(extent, tirx.Var) else None
            if var is not None and var not in self._arithmetic.extents:
                self._arithmetic.bind(var, int(bound), 1)

    def _extent(self, extent: Any, bound: Any) -> Any:
        if isinstance(extent, tirx.IntImm) and int(extent) == int(bound):
            return None
        return self._arithmetic.simplify(in_type(extent, _INDEX, self.symbols))

    def function(self) -> tirx.PrimFunc:
        """The kernel, cut."""
        function = self._function
        body = self._with_symbols(function.body)
        pixels = Pixels.of(self._params[-1], self.extents, self._arithmetic) if PIXELS in function.attrs else None
        if pixels is not None:
            body = pixels.gathered(body, self.symbols)
            self.extents[pixels.buffer] = pixels.extents
        body = inside(body, self.extents)
        body = normal(sunk(body), self._arithmetic, self.extents)
        body = guarded(body, self.extents, self._arithmetic)
        views = Views(body, self._arithmetic)
        body, crossed = cross(body, self.extents, views, self._arithmetic)
        views = Views(body, self._arithmetic) if crossed.tops else views
        body, bases = based(body, self.extents, views, self._arithmetic)
        views = Views(body, self._arithmetic) if bases else views
        body, counts = self._analyzed(body, views, crossed, bases)
        (sizes,) = (param for param in function.params if param.name == SIZES)
        binds = reading(sizes, function.attrs[SYMBOLS])
        binds += [tirx.Bind(narrow, tirx.Cast(_INDEX, wide)) for wide, narrow in self.symbols.items()]
        numbers = {self._params[int(at)]: float(number) for at, number in function.attrs.get(BORDER, {}).items()}
        edges = borders(numbers, self.extents, self._needs, self._arithmetic)
        body = self._flat(body)
        body = sequence(*binds, *counts, *edges, body if pixels is None else pixels.scattered(body))
        attrs = {k: v for k, v in function.attrs.items() if k not in (EXTENTS, SYMBOLS, BORDER, PIXELS)}
        return tirx.PrimFunc(function.params, body, function.ret_type, tvm.ir.make_node("ir.DictAttrs", **attrs))

    def _analyzed(self, body: Any, views: Views, crossed: Crossed, bases: dict[Any, Base]) -> tuple[Any, list[Any]]:
        """The body in the numbering of a call, and what binds its counts; what is needed of its loops is known then."""
        self._views, counts = views, {**crossed.counts}
        nests: dict[Any, set[Any]] = {}
        self._find_nests(body, nests)
        known = {*self.symbols, *self.symbols.values()}
        self._needs = Needs(body, self.extents, self._arithmetic, nests, crossed, views, known, bases)
        new = views.numbering and renumbered(body, views.numbering, self._needs, nests, known, self._arithmetic)
        if not new:
            return body, []
        self._views, known = Views(new.body, self._arithmetic), {*known, *new.names}
        crossed = Crossed({**counts, **new.counts}, crossed.tops)
        self._needs = Needs(new.body, self.extents, self._arithmetic, nests, crossed, self._views, known, bases)
        return new.body, [*new.binds]

    def _flat(self, body: Any) -> Any:
        return veiled(merged(self._visit(body), self._arithmetic), self._arithmetic.extents)

    def _with_symbols(self, body: Any) -> Any:
        """The body with variables in the place of loads of sizes."""
        wide = [*self.symbols]

        def load(expr: TensorLoad) -> Any:
            return wide[int(expr.indices[0])] if getattr(expr.source, "name", "") == SIZES else expr

        return tvm_ffi.structural_map(body, (TensorLoad, load))

    def _find_nests(self, stmt: Any, nests: dict[Any, set[Any]]) -> None:
        if is_kind(stmt, PARALLEL):
            digits = {loop.loop_var for loop in self._nest(stmt)[0]}
            nests.update({var: digits - {var} for var in digits})

        def visit(inner: Any) -> Any:
            self._find_nests(inner, nests)
            return inner

        descend(stmt, visit)

    def _nest(self, loop: tirx.For) -> tuple[list[tirx.For], Any]:
        """The loops that threads share, and what stands in them."""
        loops, inner = chain_of(loop)
        nest = shareable(loops, inner, self._views, self._arithmetic)
        return nest, in_chain(loops[len(nest) :], inner)

    def _visit(self, stmt: Any) -> Any:
        if is_kind(stmt, PARALLEL) and isinstance(stmt.extent, tirx.IntImm):
            loops, inner = self._nest(stmt)
            digits = [Digit(loop, self._whole(self._needs.count(loop.loop_var))) for loop in loops]
            if THREADS in stmt.annotations or any(_is_share(d.loop) and d.count is not None for d in digits):
                return shared(digits, int(stmt.annotations.get(THREADS, stmt.extent)), self._visit(inner))
        if isinstance(stmt, tirx.For):
            count = self._needs.count(stmt.loop_var) if not is_kind(stmt, PARALLEL) else None
            return plain(stmt, self._visit(stmt.body), **({} if count is None else {"extent": count}))
        return descend(stmt, self._visit)

    def _whole(self, count: Any) -> Any:
        return None if count is None else self._arithmetic.simplify(tirx.max(count, 0))


def _is_share(loop: tirx.For) -> bool:
    return is_kind(loop, PARALLEL) or bool(loop.annotations.get(SHARED))
