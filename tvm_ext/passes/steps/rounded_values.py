"""Which values lie in memory as narrow floats, once it is known which products read narrow operands.

    x -> conv -> relu -> conv -> add(x) -> relu -> conv            rounded: x, both relu
    x -> matmul -> gelu -> matmul -> add(x) -> layer_norm          rounded: gelu, and a copy of x

A value is rounded for all its readers, so that it is one tensor in memory, unless a rounding would reach what is
sensitive to it without a product between, in whose sum roundings cancel: then products read a copy. A value that the
model itself has in a narrow type is stored in it, whoever reads it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule, TupleGetItem

from tvm_ext.schedules.blocked.matmul import streamed_rows

from ...core.graph.provenance import Provenance
from ...core.graph.relax_graph import bindings_of, dtype_of, iter_groups, main_bindings, op_name, shape_of, uses_of
from ...core.group import GROUP
from ...core.numbers.precision import NARROW_FLOATS, rounded
from ...core.numbers.storage import STORED
from ...core.passes import CompileContext
from ...ops.table import of
from ..lowering.fuse_expansions import ANCHOR as EXPANSION
from ..lowering.fuse_expansions import FuseExpansions
from ..lowering.group_operations import GroupOperations
from .constants import view_of
from .movement import is_movement, moved
from .products import Product


@dataclass
class Roundings:
    """What is rounded.

    Attributes:
        values: computed values -> why; every reader reads the rounded one.
        copies: values that stay float32, such as inputs and outputs of the model -> readers of a rounded copy.
        left: values between kernels that a product makes and that stay float32 -> why.
        stated: other values between kernels -> the narrow type that the model has them in.
        weights: matmuls of few rows -> the narrow type that has all numbers of their constant.
    """

    values: dict[relax.Var, str] = field(default_factory=dict)
    copies: dict[relax.Var, set[relax.Var]] = field(default_factory=dict)
    left: dict[relax.Var, str] = field(default_factory=dict)
    stated: dict[relax.Var, str] = field(default_factory=dict)
    weights: dict[relax.Var, str] = field(default_factory=dict)


def roundings_of(mod: IRModule, ctx: CompileContext, products: Sequence[Product]) -> Roundings:
    """The values to round, for products of which some are lowered."""
    graph, roundings = _Graph(mod["main"]), Roundings(weights=_narrow_weights(mod["main"], ctx))
    lowered = [product for product in products if not product.kept]
    for product in lowered:
        for operand in product.operands:
            if isinstance(operand, relax.Var):
                _round_operand(operand, product.var, f"an operand of {product.name}", graph, roundings)
    by_name = {product.var.name: product for product in lowered}
    for var in list(roundings.values):
        if not ctx.provenance.narrow(var.name) and graph.sensitive_reader(var, by_name, roundings.values):
            del roundings.values[var]
            roundings.copies[var] = graph.takers[var]
    for var, members, among_kernels in _in_memory(mod, ctx):
        maker = next((by_name[name] for name in members if name in by_name), None)
        if var in roundings.values or dtype_of(var) != "float32" or var in graph.outputs:
            continue
        if among_kernels and (narrow := ctx.provenance.narrow(var.name)) and not graph.is_decode(var):
            roundings.stated[var] = narrow
            continue
        if maker is None:
            continue
        reason = graph.sensitive_reader(var, by_name, roundings.values)
        if reason:
            roundings.left[var] = reason
        else:
            roundings.values[var] = f"{maker.name} makes it, and all that read it pass a rounding on as it is"
    return roundings


def _narrow_weights(function: relax.Function, ctx: CompileContext) -> dict[relax.Var, str]:
    """Matmuls that stream their constant -> the narrow type that the model has it in."""
    dtypes: dict[relax.Var, str] = {}
    kinds = sorted({ctx.provenance.narrow(b.var.name) for b in bindings_of(function)} - {""})
    for binding in bindings_of(function) if kinds else ():
        value, rows = binding.value, math.prod((shape_of(binding.var) or (0,))[:-1])
        if op_name(value) != "relax.matmul" or not 0 < rows <= streamed_rows(ctx.machine):
            continue
        weight = view_of(value.args[1])
        if weight is None or weight.ndim != 2 or weight.dtype != np.float32:
            continue
        exact = [kind for kind in kinds if np.array_equal(rounded(weight, kind).astype(np.float32), weight)]
        if exact:
            dtypes[binding.var] = exact[0]
    return dtypes


def _round_operand(var: relax.Var, reader: relax.Var, why: str, graph: _Graph, roundings: Roundings) -> None:
    """Round the values that an operand's elements are of, where they are computed; a copy of what lies in memory as
    integers, behind the movements between."""
    if var in graph.inputs or var in graph.outputs or var in graph.dequantized:
        roundings.copies.setdefault(var, set()).add(reader)
        return
    if (var, reader) in graph.walked:
        return
    graph.walked.add((var, reader))
    mover, sources = graph.sources(var)
    for source in sources:
        _round_operand(source, mover, why, graph, roundings)
    if not sources:
        roundings.values.setdefault(var, why)
        graph.takers.setdefault(var, set()).add(reader)


def _in_memory(mod: IRModule, ctx: CompileContext) -> Iterator[tuple[relax.Var, tuple[str, ...], bool]]:
    """Variables that the results of kernels would be, with the variables that each kernel computes, and whether groups
    make and read it, by a dry run."""
    own = Provenance({b.var.name: (b.var.name,) for b in main_bindings(mod)})
    options = ctx.options if ctx.options.fusion != "none" else replace(ctx.options, fusion="default")
    scratch = CompileContext(ctx.machine, options, own, instruments=ctx.instruments)
    grouped = FuseExpansions().run(GroupOperations().run(mod, scratch).mod, scratch).mod
    variables = {b.var.name: b.var for b in main_bindings(mod)}
    among = _among_groups(grouped)
    for binding in main_bindings(grouped):
        if binding.var.name in variables:
            yield variables[binding.var.name], own.of(binding.var.name), binding.var in among


def _among_groups(mod: IRModule) -> set[relax.Var]:
    """Results of groups that groups read, or movements of elements for groups; not around an expansion, whose kernel
    reads and writes float32: it saves more traffic than narrow tensors do."""
    values, uses = {b.var: b.value for b in main_bindings(mod)}, uses_of(mod["main"])
    groups = {gvar for gvar, function in iter_groups(mod) if function.attrs[GROUP] != EXPANSION}
    grouped = {var for var, value in values.items() if isinstance(value, Call) and value.op in groups}
    moves = {var for var, value in values.items() if is_movement(value) or isinstance(value, relax.Tuple)}
    read: set[relax.Var] = set()
    for var in reversed(list(values)):
        if all(reader in grouped or (reader in read and reader in moves) for reader in uses.get(var, ())):
            read.add(var)
    return read & grouped


class _Graph:
    """Definitions and readers of the variables of `main`.

    Attributes:
        inputs: of the model.
        outputs: of the model, and values whose elements one takes.
        dequantized: values that are read from integers, or take elements of such.
        walked: values that some operand takes its elements of, with their readers on the way there.
        takers: of those that are rounded: these readers.
    """

    def __init__(self, function: relax.Function) -> None:
        self.inputs = set(function.params)
        self._defs: Mapping[relax.Var, Any] = {b.var: b.value for b in bindings_of(function)}
        self._uses = uses_of(function)
        self.walked: set[tuple[relax.Var, relax.Var]] = set()
        self.takers: dict[relax.Var, set[relax.Var]] = {}
        self.dequantized: set[relax.Var] = set()
        for var, value in self._defs.items():
            if op_name(value) == "relax.dequantize" or not self.dequantized.isdisjoint(self.sources(var)[1]):
                self.dequantized.add(var)
        self.outputs: set[relax.Var] = set()
        for var in reversed(list(self._defs)):
            if any(r is None or (r in self.outputs and is_movement(self._defs[r])) for r in self._uses.get(var, ())):
                self.outputs.add(var)

    def is_decode(self, var: relax.Var) -> bool:
        """Whether a value is stored narrow already."""
        value = self._defs[var]
        return op_name(value) == "relax.astype" and dtype_of(value.args[0]) in NARROW_FLOATS

    def sources(self, var: relax.Var) -> tuple[relax.Var, tuple[relax.Var, ...]]:
        """What moves the elements of a value, and where from; from nowhere if a source is no plain value.

        An item of a tuple is moved by what makes the tuple.
        """
        value = self._defs[var]
        mover = value.tuple_value if isinstance(value, TupleGetItem) else var
        value = self._defs.get(mover)
        if not is_movement(value) or isinstance(value, TupleGetItem):
            return var, ()
        operands = moved(value)
        return mover, operands if all(isinstance(operand, relax.Var) for operand in operands) else ()

    def sensitive_reader(self, var: relax.Var, lowered: Mapping[str, Product], rounded: Container[relax.Var]) -> str:
        """A reader for which the value must stay float32, through what is elementwise; "" if there is none."""
        level, seen = [var], {var}
        while level:
            operand = level.pop()
            for reader in self._uses.get(operand, ()):
                if reader is None or reader in seen:
                    continue
                value = self._defs[reader]
                moves = is_movement(value)
                if of(op_name(value)).jump == "quantized" and dtype_of(reader) in STORED:
                    continue  # it rounds to fewer numbers than a narrow float has
                if not moves and not self._passes_on(value, reader, operand, lowered):
                    return f"{op_name(value).removeprefix('relax.') or 'an expression'} reads it"
                if moves or (of(op_name(value)).is_elementwise and reader not in rounded):
                    seen.add(reader)
                    level.append(reader)
        return ""

    @staticmethod
    def _passes_on(value: Any, reader: Any, var: relax.Var, lowered: Mapping[str, Product]) -> bool:
        name = op_name(value)
        if (product := lowered.get(reader.name)) is not None:
            return any(var.same_as(operand) for operand in product.operands)
        if name == "relax.divide":
            return isinstance(value.args[1], GenericConst)
        # A batch norm that was not folded may divide by a small deviation.
        return of(name).passes_rounding and name != "relax.nn.batch_norm"
