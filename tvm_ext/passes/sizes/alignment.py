"""One model at several sizes, read side by side: what its dimensions are as functions of the symbols.

    at N = 8, S = 512      y[8, 512, 384]  = fused_matmul_add(x, w, b)
    at N = 3, S = 37       y[3, 37, 384]   = fused_matmul_add(x, w, b)
    at N = 5, S = 100      y[5, 100, 384]  = fused_matmul_add(x, w, b)        ->    y[N, S, 384]

No converter and no pass knows of symbols: a model is imported and simplified at its bounds and at a few other sizes,
with numbers. The programs must be the same, binding by binding, but for sizes; constants of the bounds must begin with
those of other sizes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, GlobalVar, IRModule

from tvm_ext.core.graph.relax_graph import array_of, bindings_of, main_bindings, op_name
from tvm_ext.core.sizes import EXTENTS, evaluate

from .compute_constants import MOST_ELEMENTS
from .generalize import ConstantsDiffer, EqualAtBounds, NotAlike
from .patterns import patterns_of
from .solver import Solver
from .windows import behind_slices, behind_windows

Extents = tuple[Any, ...]
"""The run-time extent of each dimension of a tensor: a number, or an int64 expression over symbols."""
#: Attribute of a grouped function whose operators have other attributes at other sizes: no recipe can plan it at one.
VARYING = "tvm_ext.varying"


@dataclass(frozen=True)
class Site:
    """A call of a function by `main`.

    Attributes:
        variable: that is bound to its result.
        callees: the function, in each module.
        extents: of its operands, then of its results.
        results: how many there are.
    """

    variable: str
    callees: tuple[str, ...]
    extents: tuple[Extents, ...]
    results: int = 1

    @property
    def symbolic(self) -> bool:
        """Whether a dimension of an operand or result depends on the sizes."""
        return any(not isinstance(dim, int) for extents in self.extents for dim in extents)


class Alignment:
    """The `main` of one model at several sizes.

    Args:
        modules: at the bounds first, then at the other sizes, in the order of the solver's probes.
        solver: finds extents.
        values: whether constants are compared: not where they have none, being packed at the bounds only.

    Attributes:
        extents: name of a variable of `main` -> its extents; a tuple of those, of a tuple of tensors.
        sites: calls of functions of the module, by `relax.call_tir` too.
        varying: (variable, number of an operand of its value) of constants that differ, and are small or follow a
            rule -> whether they are small at all sizes.
        growing: the same of constants of which a smaller one is the beginning of a larger one.
        windows: extents behind convolutions and pools, which have no result where these are less than 1.

    Raises:
        NotAlike: the programs differ in more than sizes.
    """

    def __init__(self, modules: Sequence[IRModule], solver: Solver, values: bool = True) -> None:
        self._modules, self._solver, self._values = modules, solver, values
        self._likely: tuple[tuple[int, Any], ...] = ()
        self._bound: tuple[Sequence[Any], Sequence[relax.Function]] = ((), ())
        self.extents: dict[str, Any] = {}
        self.sites: list[Site] = []
        self.varying: dict[tuple[str, int], bool] = {}
        self.growing: set[tuple[str, int]] = set()
        self.windows: list[Any] = []
        for params in zip(*(mod["main"].params for mod in modules), strict=True):
            self._note(params)
        bodies = [main_bindings(mod) for mod in modules]
        if len({len(body) for body in bodies}) > 1:
            raise self._differ(bodies)
        for bindings in zip(*bodies, strict=True):
            self._binding(bindings)

    def _differ(self, bodies: Sequence[Sequence[relax.VarBinding]]) -> NotAlike:
        for bindings in zip(*bodies, strict=False):
            if len({_what(b.value) for b in bindings}) > 1:
                kinds = ", ".join(dict.fromkeys(_what(b.value) for b in bindings))
                return NotAlike(f"{kinds} stand here at different sizes", bindings[0].var.name)
        return NotAlike("there are more operators at some sizes than at others")

    def _binding(self, bindings: Sequence[relax.VarBinding]) -> None:
        values = [b.value for b in bindings]
        if len(kinds := {_what(value) for value in values}) > 1:
            raise NotAlike(f"{' and '.join(sorted(kinds))} stand here at different sizes", bindings[0].var.name)
        name, callees = bindings[0].var.name, _callees(values)
        rows = [_operands(value) for value in values]
        if len({len(row) for row in rows}) > 1:
            raise NotAlike(f"{_what(values[0])} has more operands at some sizes than at others", name)
        aligned = enumerate(zip(*rows, strict=True))
        operands = [self._operand(operand, name, number) for number, operand in aligned]
        functions = [mod[callee] for mod, callee in zip(self._modules, callees, strict=False)]
        groups = [function for function in functions if isinstance(function, relax.Function)]
        before = [dim for extents in operands for dim in extents]
        self._likely = tuple(behind_windows(values, groups, before, self._solver))
        self._bound = (values, groups)
        self._note([b.var for b in bindings])
        if self._likely and isinstance(own := self.extents[name], tuple):
            self.windows += [dim for dim in own if not isinstance(dim, int)]
        if op_name(values[0]) == "relax.image.resize2d" and values[0].attrs.method == "nearest_neighbor":
            self._check_repeats(operands[0], name)
        if callees:
            own = self.extents[name]
            results = own if isinstance(own, list) else [own]
            self.sites.append(Site(name, callees, (*operands, *results), len(results)))

    def _check_repeats(self, before: Extents, name: str) -> None:
        """TVM's kernel for nearest elements repeats each as often as the others.

        Raises:
            NotAlike: at a size it would not.
        """
        for sizes in self._solver.samples:
            for dim, out in zip(before, self.extents[name], strict=True):
                if evaluate(out, sizes) % max(evaluate(dim, sizes), 1):
                    raise NotAlike(f"elements are repeated by no whole number at {dict(sizes)}", name)

    @property
    def results(self) -> list[Extents]:
        """The extents of the outputs of `main`."""
        bodies = [mod["main"].body.body for mod in self._modules]
        if isinstance(bodies[0], relax.Var) and isinstance(own := self.extents[bodies[0].name], list):
            return own
        rows = [list(body.fields) if isinstance(body, relax.Tuple) else [body] for body in bodies]
        return [self._result(fields) for fields in zip(*rows, strict=True)]

    def _result(self, values: Sequence[Any]) -> Extents:
        if isinstance(values[0], relax.Var):
            return cast("Extents", self.extents[values[0].name])
        return self._operand(values, "an output", 0)

    def operand(self, value: Any) -> Extents:
        """The extents of a variable, or of a constant that is the same at all sizes."""
        return self.extents[value.name] if isinstance(value, relax.Var) else _dims(value.ty)

    def _note(self, variables: Sequence[relax.Var]) -> None:
        types = [var.ty for var in variables]
        name = str(variables[0].name)
        if isinstance(types[0], relax.TupleType):
            self.extents[name] = [self._shape(fields, name) for fields in zip(*(t.fields for t in types), strict=True)]
        elif isinstance(types[0], relax.TensorType):
            self.extents[name] = self._shape(types, name)

    def _shape(self, types: Sequence[Any], variable: str) -> Extents:
        shapes = [_dims(ty) for ty in types]
        if len({len(shape) for shape in shapes}) > 1:
            raise NotAlike("it has another number of dimensions at other sizes", variable)
        return tuple(self._extent(values, axis, variable) for axis, values in enumerate(zip(*shapes, strict=True)))

    def _extent(self, values: Sequence[int], axis: int, variable: str) -> Any:
        stated = (extent for place, extent in self._likely if place == axis)
        likely = (extent for extent in stated if self._solver.at_probes(extent) == tuple(values))
        extent = values[0] if len(set(values)) == 1 else next(likely, None)
        if extent is None:
            extent = self._solver.solve(values)
        if extent is None:
            extent = behind_slices(*self._bound, axis, values, self._solver)
        if extent is None:
            raise NotAlike(f"a dimension of {list(values)} at the sizes tried is no function of them that is known",
                           variable)  # fmt: skip
        if not isinstance(extent, int):
            self._solver.learn(extent, values)
        return extent

    @property
    def following(self) -> dict[tuple[str, int], bool]:
        """Constants as :attr:`varying` has them, of which the elements may follow a rule."""
        return {place: False for place in (*self.varying, *self.growing) if not self.varying.get(place)}

    def _operand(self, values: Sequence[Any], variable: str, number: int) -> Extents:
        """The extents of an operand of each program."""
        if not isinstance(values[0], GenericConst):
            known = self.extents.get(values[0].name)
            return known if isinstance(known, tuple) else ()
        extents = self._shape([value.ty for value in values], variable)
        if self._values and not begins_alike(values):
            small = all(isinstance(dim, int) for dim in extents) and math.prod(extents) <= MOST_ELEMENTS
            if not small and patterns_of([array_of(value) for value in values]) is None:
                raise ConstantsDiffer("a constant has other values at other sizes", variable)
            self.varying[variable, number] = small
        elif not all(isinstance(dim, int) for dim in extents):
            self.growing.add((variable, number))
        return extents


def begins_alike(constants: Sequence[GenericConst]) -> bool:
    """Whether arrays have the same values where the first and another one both have any."""
    whole, first = array_of(constants[0]), constants[0]
    for part in (array_of(constant) for constant in constants[1:] if not constant.same_as(first)):
        common = tuple(slice(0, min(sizes)) for sizes in zip(whole.shape, part.shape, strict=True))
        if not np.array_equal(_bits(whole[common]), _bits(part[common])):
            return False
    return True


def constants_of(value: Any) -> list[GenericConst]:
    """The constants among the operands of a value, in order."""
    return [operand for operand in _operands(value) if isinstance(operand, GenericConst)]


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _dims(ty: Any) -> tuple[int, ...]:
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return ()
    return tuple([int(d) for d in ty.shape.values[:]])


def _what(value: Any) -> str:
    """An operator, or what a value is."""
    if isinstance(value, Call) and isinstance(value.op, GlobalVar):
        return "a group"
    return op_name(value).removeprefix("relax.") or type(value).__name__


def _callees(values: Sequence[Any]) -> tuple[str, ...]:
    """The function that each value is a call of; none if they are something else."""
    if isinstance(values[0], Call) and isinstance(values[0].op, GlobalVar):
        return tuple(value.op.name_hint for value in values)
    if op_name(values[0]) == "relax.call_tir":
        return tuple(value.args[0].name_hint for value in values)
    return ()


def _operands(value: Any) -> list[Any]:
    """Tensors that a value is computed of, those in tuples too; of a call of a function, its arguments."""
    if not isinstance(value, Call):
        return []
    if op_name(value) == "relax.call_tir":
        return list(value.args[1].fields)
    operands = [tensor for operand in value.args[:] for tensor in getattr(operand, "fields", [operand])]
    return [tensor for tensor in operands if isinstance(tensor, relax.Var | GenericConst)]


def annotated(alignment: Alignment, modules: Sequence[IRModule]) -> IRModule:
    """The module of the bounds, whose groups say which of their dimensions are symbolic.

    Raises:
        NotAlike: a group of the bounds is several at other sizes.
    """
    mod = modules[0]
    out = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for name, site in by_callee(alignment.sites).items():
        gvar = mod.get_global_var(name)
        functions = [m[callee] for m, callee in zip(modules, site.callees, strict=True)]
        if not isinstance(functions[0], relax.Function):
            continue
        function = functions[0]
        if site.symbolic:
            function = function.with_attr(EXTENTS, [[_expr(dim) for dim in extents] for extents in site.extents])
        if why := _varying(functions):
            function = function.with_attr(VARYING, why)
        out.update_func(gvar, function)
    return out


def by_callee(sites: Sequence[Site]) -> dict[str, Site]:
    """Function of the bounds -> a call of it.

    Raises:
        EqualAtBounds: another call of it has other extents, or calls another function at another size.
    """
    first: dict[str, Site] = {}
    for site in sites:
        before = first.setdefault(site.callees[0], site)
        if before.callees != site.callees or not _equal(before.extents, site.extents):
            raise EqualAtBounds("two dimensions that are equal at the bounds differ at other sizes", site.variable)
    return first


def _equal(first: Sequence[Extents], other: Sequence[Extents]) -> bool:
    return all(
        len(a) == len(b) and all(tvm_ffi.structural_equal(_expr(x), _expr(y)) for x, y in zip(a, b, strict=True))
        for a, b in zip(first, other, strict=True)
    )


def _expr(dim: Any) -> Any:
    return tirx.IntImm("int64", dim) if isinstance(dim, int) else dim


def _varying(functions: Sequence[relax.Function]) -> str:
    """How the operators of a grouped function differ at different sizes; "" if they do not.

    Raises:
        NotAlike: they are not even the same operators.
    """
    bodies = [bindings_of(function) for function in functions]
    if len({tuple(op_name(b.value) for b in body) for body in bodies}) > 1:
        raise NotAlike("a group has other operators at other sizes")
    for bindings in zip(*bodies, strict=True):
        calls = [b.value for b in bindings]
        if not all(tvm_ffi.structural_equal(call.attrs, calls[0].attrs) for call in calls):
            return f"{op_name(calls[0]).removeprefix('relax.')} has attributes that depend on sizes"
        for operands in zip(*(_plain_operands(call) for call in calls), strict=True):
            if isinstance(operands[0], GenericConst) and not begins_alike(operands):
                raise NotAlike("a constant has other values at other sizes")
            if isinstance(operands[0], relax.ShapeExpr | tirx.IntImm) and not all(
                tvm_ffi.structural_equal(operand, operands[0]) for operand in operands
            ):
                return f"{op_name(calls[0]).removeprefix('relax.')} has operands that depend on sizes"
    return ""


def _plain_operands(call: Any) -> list[Any]:
    return [part for operand in call.args for part in getattr(operand, "fields", [operand])]


def is_view(solver: Solver, before: Extents, after: Extents, held: Sequence[int], shown: Sequence[int]) -> bool:
    """Whether a reshape shows the same memory where both tensors lie in arrays of the bounds.

    Args:
        before, after: extents of the two tensors.
        held, shown: their shapes at the bounds.
    """
    return _in_use(solver, before, held) == _in_use(solver, after, shown)


def _in_use(solver: Solver, extents: Extents, shape: Sequence[int]) -> list[tuple[tuple[int, ...], int]]:
    """For each symbolic dimension how many elements of memory are in use, at each probe, of how many: within each other
    from the outermost dimension to the innermost."""
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return [
        (tuple(value * step for value in solver.at_probes(extent)), size * step)
        for extent, size, step in zip(extents, shape, steps, strict=True)
        if not isinstance(extent, int)
    ]
