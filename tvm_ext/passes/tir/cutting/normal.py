"""Loops so that each index has one of each dimension: fused loops are split, those of threads join what they share.

    for f in range(24): y[f // 8, f % 8 * 4 + i]        ->   for a in range(3): for b in range(8): y[a, b * 4 + i]
    parallel t in range(2): for n: for q: y[t * 6 + q]  ->   parallel (of 2) n: for m in range(12): y[m]

The second is shared out anew when it is known how much of m is needed (:mod:`.shares`).
"""

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Var
from tvm.ir.expr import TensorLoad

from ....core.graph.nodes import nodes_by_kind, nodes_of
from ....schedules.blocked.prefetch import SHARED_BY
from .affine import Affine, Arithmetic, Extents, sums_of, unwrapped, variables_of
from .shares import SHARED, THREADS
from .statements import (
    COMPARISONS,
    PARALLEL,
    SERIAL,
    chain_of,
    descend,
    in_chain,
    is_kind,
    loop_like,
    reads,
    replaced,
    sequence,
    with_indices,
)
from .views import Views

#: Rounds of splitting and joining; each is due to the one before.
_ROUNDS = 4
_ACCESSES = (TensorLoad, tirx.BufferStore)
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


def normal(body: Any, arithmetic: Arithmetic, extents: Extents) -> Any:
    """A kernel's body with its loops normal, those that run over symbolic dimensions; the ranges of their variables are
    bound."""
    bind_loops(body, arithmetic)
    body = _inlined(body, arithmetic)
    for _ in range(_ROUNDS):
        before, views = body, Views(body, arithmetic)
        symbolic = symbolic_variables(body, extents, views)
        body = _split(body, views, arithmetic, symbolic)
        if not body.same_as(before):
            views = Views(body, arithmetic)
            symbolic = symbolic_variables(body, extents, views)
        body = _joined(body, views, arithmetic, symbolic)
        if body.same_as(before):
            break
    if not (flat := merged(body, arithmetic)).same_as(body):
        views = Views(flat, arithmetic)
        body = _split(flat, views, arithmetic, symbolic_variables(flat, extents, views))
    return body


def merged(body: Any, arithmetic: Arithmetic) -> Any:
    """A body with serial loops that only count one another's iterations as one: what LLVM takes grows with the depth of
    a nest.

    for a in range(A): for b in range(4): y[8 * a + 2 * b]     ->   for b in range(A * 4): y[2 * b]
    """

    def visit(stmt: Any) -> Any:
        stmt = descend(stmt, visit)
        inner: Any = getattr(stmt, "body", None)
        if not (_is_plain(stmt, arithmetic) and _is_plain(inner, arithmetic) and isinstance(inner.extent, tirx.IntImm)):
            return stmt
        first, second, size = stmt.loop_var, inner.loop_var, int(inner.extent)
        if str(first.ty.dtype) != str(second.ty.dtype):
            return stmt
        counts = False
        for form in _sums(inner.body):
            outer, own = form.terms.get(first, 0), form.terms.get(second, 0)
            if outer != size * own:
                return stmt
            counts = counts or own != 0
        if not counts:
            return stmt
        var = tirx.Var(second.name, second.ty.dtype)
        arithmetic.bind(var, arithmetic.extents[first] * size)
        flat = replaced(inner.body, {first: tirx.const(0, var.ty.dtype), second: var}, arithmetic)
        return loop_like(inner, flat, loop_var=var, extent=stmt.extent * size)

    return visit(body)


def _is_plain(stmt: Any, arithmetic: Arithmetic) -> bool:
    """Whether a statement is a serial loop from 0 on that nothing is said of."""
    if not is_kind(stmt, SERIAL) or len(stmt.annotations) or stmt.loop_var not in arithmetic.extents:
        return False
    return isinstance(stmt.min, tirx.IntImm) and int(stmt.min) == 0


def _inlined(body: Any, arithmetic: Arithmetic) -> Any:
    """A body with integers that are bound to expressions of loop variables in the place of their names."""
    values: dict[Any, Any] = {}

    def bind(stmt: tirx.Bind) -> None:
        if str(stmt.var.ty.dtype) in ("int32", "int64") and not reads(stmt.value):
            earlier = lambda v: values.get(v, v)  # noqa: E731
            values[stmt.var] = tvm_ffi.structural_map(stmt.value, (Var, earlier))

    def visit(stmt: Any) -> Any:
        if isinstance(stmt, tirx.SeqStmt):
            return sequence(*[visit(s) for s in stmt.seq if not isinstance(s, tirx.Bind) or s.var not in values])
        return descend(stmt, visit)

    tvm_ffi.structural_walk(body, (tirx.Bind, bind), order="pre")
    return replaced(visit(body), values, arithmetic) if values else body


def symbolic_variables(body: Any, extents: Extents, views: Views) -> set[Any]:
    """The variables in indices of symbolic dimensions, and of those of other buffers that they index too."""
    accesses = map(views.of, nodes_of(body, _ACCESSES))
    places = [((buffer, d), variables_of(index)) for buffer, indices in accesses for d, index in enumerate(indices)]
    dims = {(buffer, d) for buffer, shape in extents.items() for d, extent in enumerate(shape) if extent is not None}
    variables: set[Any] = set()
    while True:
        new = {var for place, names in places if place in dims for var in names}
        if new <= variables:
            return variables
        variables |= new
        dims |= {place for place, names in places if place[0] not in extents and names & variables}


def bind_loops(body: Any, arithmetic: Arithmetic) -> None:
    """Bind the ranges of all loops of constant extent."""
    for loop in nodes_of(body, tirx.For):
        if isinstance(loop.extent, tirx.IntImm) and loop.loop_var not in arithmetic.extents:
            arithmetic.bind(loop.loop_var, int(loop.extent))


def _split(body: Any, views: Views, arithmetic: Arithmetic, symbolic: set[Any]) -> Any:
    """The body with each fused loop as nested ones, by the divisors of its variable."""
    divisors = {var: chain for var, chain in _divisors(body, views, arithmetic).items() if var in symbolic}
    values: dict[Any, Any] = {}

    def visit(stmt: Any) -> Any:
        if not is_kind(stmt, SERIAL, PARALLEL) or stmt.loop_var not in divisors:
            return descend(stmt, visit)
        (_, *below), last = chain_of(stmt)
        digits, values[stmt.loop_var] = _digits(stmt, divisors[stmt.loop_var], arithmetic)
        if arithmetic.extents[stmt.loop_var] % divisors[stmt.loop_var][-1]:
            last = tirx.IfThenElse(stmt.loop_var < stmt.extent, last, None)
        return in_chain(digits, visit(in_chain(below, last)))

    return replaced(visit(body), values, arithmetic) if divisors else body


def _digits(loop: tirx.For, divisors: list[int], arithmetic: Arithmetic) -> tuple[list[tirx.For], Any]:
    """Nested loops (with bodies that stand for nothing) in place of one, and the value of its variable."""
    var, extent = loop.loop_var, arithmetic.extents[loop.loop_var]
    scales = [1, *divisors]
    extents = [b // a for a, b in zip(scales, divisors, strict=False)] + [-(-extent // divisors[-1])]
    digits, value = [], tirx.const(0, var.ty.dtype)
    shared = is_kind(loop, PARALLEL) or SHARED in loop.annotations
    for number, (scale, size) in enumerate(zip(scales[::-1], extents[::-1], strict=True)):
        digit = tirx.Var(f"{var.name}_{number}", var.ty.dtype)
        arithmetic.bind(digit, size)
        value = value + digit * scale
        first, last = number == 0, number == len(scales) - 1
        annotations = {k: v for k, v in loop.annotations.items() if last or k in (THREADS, SHARED, SHARED_BY)}
        if is_kind(loop, PARALLEL) and first:
            annotations[THREADS] = annotations.get(THREADS, loop.extent)
        elif not first:
            annotations.pop(THREADS, None)
        if shared:
            annotations[SHARED] = 1
        kind = loop.kind if first else SERIAL
        digits.append(tirx.For(digit, loop.min, tirx.const(size, var.ty.dtype), kind, loop.body, None, annotations))
    return digits, value


def _quotients(body: Any, views: Views) -> Iterator[tuple[Affine, int]]:
    """What is divided in a body, or whose remainder is taken, as a sum, with the divisor."""
    nodes, accesses = nodes_by_kind(body, _DIVISIONS, _ACCESSES)
    indices = [index for access in accesses for index in views.of(access)[1]]
    indices = [index for index in indices if not isinstance(index, Var | tirx.IntImm)]
    for node in (*nodes, *(node for index in indices for node in nodes_of(index, _DIVISIONS))):
        if isinstance(node.b, tirx.IntImm) and int(node.b) > 1 and "int" in str(node.a.ty.dtype):
            yield Affine.of(unwrapped(node.a)), int(node.b)


def _divisors(body: Any, views: Views, arithmetic: Arithmetic) -> dict[Any, list[int]]:
    """Of each loop's variable the numbers that quotients divide it by, each a multiple of the one before."""
    divisors: dict[Any, set[int]] = {}
    loops = {loop.loop_var for loop in nodes_of(body, tirx.For)}
    for form, divisor in _quotients(body, views):
        for var, k in form.terms.items():
            if var in loops and var in arithmetic.extents and divides(form, var, divisor, arithmetic):
                divisors.setdefault(var, set()).add(divisor // k)
    out = {}
    for var, numbers in divisors.items():
        chain: list[int] = []
        for number in sorted(numbers):
            if 1 < number < arithmetic.extents[var] and (not chain or number % chain[-1] == 0):
                chain.append(number)
        if chain:
            out[var] = chain
    return out


def divides(form: Affine, var: Any, divisor: int, arithmetic: Arithmetic) -> bool:
    """Whether the quotient of a sum depends on a quotient of a variable: divisor = k n, k var + what is below k."""
    k = form.terms[var]
    if k <= 0 or divisor % k:
        return False
    others = Affine({v: f for v, f in form.without(var).terms.items() if f % divisor}, form.rest, form.constant)
    ends = arithmetic.range(others)
    return ends is not None and ends[0] >= 0 and ends[1] < k


def _joined(body: Any, views: Views, arithmetic: Arithmetic, symbolic: set[Any]) -> Any:
    """The body with parallel loops joined with those over what a thread has its share of."""
    values: dict[Any, Any] = {}

    def visit(stmt: Any) -> Any:
        if not is_kind(stmt, PARALLEL):
            return descend(stmt, visit)
        pair = _pair(stmt, views, arithmetic, symbolic)
        if pair is None:
            return stmt
        first, second, nest = pair
        loops, inner = chain_of(nest)
        size = arithmetic.extents[first] * arithmetic.extents[second]
        var = tirx.Var(second.name, second.ty.dtype)
        arithmetic.bind(var, size)
        values.update({first: tirx.const(0, var.ty.dtype), second: var})
        changed = {"loop_var": var, "extent": tirx.const(size, var.ty.dtype), "kind": SERIAL}
        joined = [
            loop_like(loop, loop.body, annotations={**loop.annotations, SHARED: 1}, **changed)
            if loop.loop_var.same_as(second)
            else loop
            for loop in loops
        ]
        rest = [loop for loop in joined if not loop.loop_var.same_as(first)]
        head = {**rest[0].annotations, THREADS: stmt.annotations.get(THREADS, stmt.extent)}
        return in_chain([loop_like(rest[0], rest[0].body, kind=PARALLEL, annotations=head), *rest[1:]], inner)

    new = visit(body)
    return replaced(new, values, arithmetic) if values else body


def shareable(loops: list[tirx.For], inner: Any, views: Views, arithmetic: Arithmetic) -> list[tirx.For]:
    """The outermost loops of a nest whose iterations depend on no others, so that threads may share them.

    Args:
        loops: nested, around `inner`; what a recipe made parallel is independent.
    """
    allocations, stores, loads = nodes_by_kind(inner, tirx.AllocBuffer, tirx.BufferStore, TensorLoad)
    own = {allocation.buffer for allocation in allocations}
    at = [views.of(store) for store in stores if store.buffer not in own]
    stored = dict(at)
    alone = all(
        all(tvm_ffi.structural_equal(a, b) for a, b in zip(load.indices, stored[load.source], strict=True))
        for load in loads
        if load.source in stored
    ) and not any(
        views.buffer(load.source) is not load.source and views.buffer(load.source) in stored for load in loads
    )
    places = [_places(indices) for _, indices in at]
    for place, loop in enumerate(loops):
        if is_kind(loop, PARALLEL) or SHARED in loop.annotations:
            continue
        if not alone or not all(any(_apart(i, loop.loop_var, arithmetic) for i in indices) for indices in places):
            return loops[:place]
    return loops


def _places(indices: Any) -> list[Any]:
    """Indices, and what they tell by quotient and remainder: x of x // 8, x % 8; or of x // 48, x // 8 % 6, x % 8."""
    out = list(indices)

    def known(value: Any) -> bool:
        if any(tvm_ffi.structural_equal(value, index) for index in indices):
            return True
        return any(
            isinstance(index, tirx.FloorMod)
            and tvm_ffi.structural_equal(index.a, value)
            and known(_quotient(value, index.b))
            for index in indices
        )

    return [*out, *(index.a for index in out if isinstance(index, tirx.FloorMod) and known(index.a))]


def _quotient(value: Any, by: Any) -> Any:
    if isinstance(value, tirx.FloorDiv):
        return tirx.FloorDiv(value.a, value.b * by)
    return tirx.FloorDiv(value, by)


def _apart(index: Any, var: Any, arithmetic: Arithmetic) -> bool:
    """Whether an index is another one for each value of a variable, whatever smaller steps there are: k var + r, r < k;
    what has larger steps is another loop's."""
    form = Affine.of(index)
    k = form.terms.get(var, 0)
    if k <= 0:
        return False
    steps = Affine({v: f for v, f in form.without(var).terms.items() if abs(f) < k})
    ends = arithmetic.range(steps)
    return ends is not None and ends[1] - ends[0] < k and not any(var in variables_of(e) for e, _ in form.rest)


def _pair(nest: tirx.For, views: Views, arithmetic: Arithmetic, symbolic: set[Any]) -> tuple[Any, Any, Any] | None:
    """The variables of a loop over shares and of the loop over what is in one, and the nest in which all indices have
    them as k (size * first + second); None if there are none."""
    loops, _ = chain_of(nest)
    shares = [loop for loop in loops if SHARED in loop.annotations or is_kind(loop, PARALLEL)]
    shares = [loop for loop in shares if loop.loop_var in arithmetic.extents and loop.loop_var in symbolic]
    if not shares:
        return None
    divided = {var for node in nodes_of(nest, _DIVISIONS) for var in variables_of(node)}
    own = list(_sums(nest))
    for first in shares:
        for second in loops[loops.index(first) + 1 :]:
            size = arithmetic.extents.get(second.loop_var)
            if size is None:
                continue
            whole, sums = nest, own
            if second.loop_var in divided:
                whole = _whole(nest, first.loop_var, second.loop_var, size)
                sums = list(_sums(whole))
            factors = [(s.terms.get(first.loop_var, 0), s.terms.get(second.loop_var, 0)) for s in sums]
            if not any(f for f, _ in factors) or not all(f == size * s for f, s in factors):
                continue
            if any(loop.loop_var.same_as(second.loop_var) for loop in shareable(*chain_of(whole), views, arithmetic)):
                return first.loop_var, second.loop_var, whole
    return None


def _whole(nest: Any, first: Any, second: Any, size: int) -> Any:
    """Loops in which quotients of what is in a share are those of the whole, where shares are whole quotients:
    14 first + (4 second + i) // 26 of 91 tiles a share is (4 (91 first + second) + i) // 26."""

    def sums(expr: Any) -> Any:
        if second not in variables_of(expr):
            return expr
        form = Affine.of(expr)
        rest = [_of_whole(part, k, form.terms) for part, k in form.rest]
        same = all(new.same_as(part) for (new, _), (part, _) in zip(rest, form.rest, strict=True))
        return expr if same else Affine(form.terms, rest, form.constant).expr(expr.ty.dtype)

    def _of_whole(part: Any, k: int, terms: dict[Any, int]) -> tuple[Any, int]:
        if not isinstance(part, tirx.FloorDiv | tirx.FloorMod) or not isinstance(part.b, tirx.IntImm):
            return part, k
        inner, row = sums(part.a), int(part.b)
        form = Affine.of(inner)
        tile = form.terms.get(second, 0)
        step = size * tile
        over = k * (step // row) if isinstance(part, tirx.FloorDiv) else 0
        crosses = tile and row % tile and first not in form.terms  # else the loop is split by the row
        if not crosses or step % row or over not in (0, terms.get(first)):
            return part if inner.same_as(part.a) else type(part)(inner, part.b), k
        if over:
            del terms[first]  # what the quotient brings itself now
        return type(part)(inner + first * step, part.b), k

    return with_indices(nest, sums)


def _sums(body: Any) -> Iterator[Affine]:
    """All sums in the indices, conditions and other integers of a body."""
    exprs: list[Any] = []
    callbacks = [
        ((TensorLoad, tirx.BufferStore), lambda node: exprs.extend(node.indices)),
        (COMPARISONS, lambda node: exprs.extend((node.a, node.b))),
        (Call, lambda call: exprs.extend(call.args)),
        ((tirx.Cast, tirx.Bind, tirx.Let), lambda node: exprs.append(node.value)),
        (tirx.For, lambda loop: exprs.extend((loop.min, loop.extent))),
    ]
    tvm_ffi.structural_walk(body, callbacks)
    for expr in exprs:
        if "int" in str(getattr(getattr(expr, "ty", None), "dtype", "")):
            yield from sums_of(expr)
