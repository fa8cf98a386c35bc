"""Lower precision: products of narrow floats, summed in float32, and tensors of narrow floats between kernels."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from ...core.errors import OptionError
from ...core.graph.nodes import nodes_of
from ...core.graph.relax_graph import Rewriter, array_of, main_bindings, uses_of
from ...core.numbers.precision import STORED_IN, Layer, PrecisionPlan, rounded
from ...core.passes import CompileContext, Pass, PassResult
from ..steps.constants import constant
from ..steps.products import Product, products_of
from ..steps.rounded_values import Roundings, roundings_of


class LowerPrecision(Pass):
    """Write out what precision="bf16" or "fp16" rounds. Everything stays float32 but what is stored.

    Before -> after::

        y = relu(conv2d(x, W))            y' = relu(conv2d(x, astype(W16, float32)))
        z = conv2d(y, V)           ->     n  = astype(y', bfloat16); y = astype(n, float32)
                                          z  = conv2d(y, astype(V16, float32))

    Constants of products become bfloat16. A value is rounded if a product reads it, or if one makes it and its readers
    pass a rounding on as it is; then for all its readers. Inputs and outputs of the model stay float32, and so does
    what is added before a normalization: products read a rounded copy of it. Products that `keep_float32` names are
    left as they are, and so are those whose result is a place or an angle, outer products, and products of quantized
    values. Rounding is to the nearest, ties to even.

    A value that the model itself has in float16 or bfloat16 is rounded to it where it lies in memory between kernels,
    with any `precision`; within a kernel it is not.
    """

    name = "lower-precision"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        lowers = ctx.options.precision != "float32"
        if not lowers and not any(ctx.provenance.narrow(b.var.name) for b in main_bindings(mod)):
            return PassResult(mod)
        _check_names(mod, ctx)
        products = products_of(mod["main"], ctx) if lowers else ()
        result = _Rounding(Rewriter(mod, ctx), products, roundings_of(mod, ctx, products)).run()
        if lowers:
            ctx.precision = precision_plan(products, mod, ctx)
        return result


class _Rounding:
    def __init__(self, rewriter: Rewriter, products: tuple[Product, ...], roundings: Roundings) -> None:
        self._rw, self._found = rewriter, roundings
        self._dtype = STORED_IN.get(rewriter.ctx.options.precision, "")
        self._products = {product.var: product for product in products}
        self._copies: dict[relax.Var, relax.Var] = {}

    def run(self) -> PassResult:
        return self._rw.rewrite(self._visit)

    def _visit(self, binding: relax.VarBinding, rw: Rewriter) -> Any:
        var, value = binding.var, self._with_copies(binding)
        product = self._products.get(var)
        if product is not None and product.kept:
            rw.skip(f"{product.name} stays float32: {product.kept}")
        elif product is not None:
            value = self._with_weights(product, value)
        elif (narrow := self._found.weights.get(var)) is not None:
            value = self._with_same_weight(value, narrow)
        if reason := self._found.left.get(var):
            rw.skip(f"stays float32 in memory: {reason}")
        dtype, why = self._found.stated.get(var, ""), "as the model has it"
        if var in self._found.values:
            dtype, why = self._dtype, self._found.values[var]
        if not dtype:
            return None if value is binding.value else value
        rw.fire(f"rounded to {dtype}: {why}")
        return self._rounded(var, rw.emit(value, f"{var.name}_float32"), dtype)

    def _rounded(self, var: relax.Var, raw: relax.Var, dtype: str) -> Call:
        """The variable as what its readers compute with: the stored tensor, widened."""
        stored = self._rw.emit(relax.op.astype(raw, dtype), f"{var.name}_{dtype}")
        self._rw.ctx.provenance.clear_nodes(var.name)
        return relax.op.astype(stored, "float32")

    def _with_copies(self, binding: relax.VarBinding) -> Any:
        """A binding's value, with rounded copies of inputs and outputs of the model where it wants them."""
        wanted = [v for v, readers in self._found.copies.items() if binding.var in readers]
        for var in wanted:
            if var not in self._copies:
                self._copies[var] = self._copy(var)
        value = binding.value
        return _substituted(value, {var: self._copies[var] for var in wanted}) if wanted else value

    def _copy(self, var: relax.Var) -> relax.Var:
        provenance = self._rw.ctx.provenance
        stored = self._rw.emit(relax.op.astype(var, self._dtype), f"{var.name}_{self._dtype}")
        provenance.add_held(stored.name, provenance.held(var.name))
        copy = self._rw.emit(relax.op.astype(stored, "float32"), f"{var.name}_rounded")
        provenance.clear_nodes(copy.name)
        why = f"a copy rounded to {self._dtype} for products: the value itself stays float32 for others"
        self._rw.fire(why, stored)
        return copy

    def _with_weights(self, product: Product, value: Call) -> Call:
        """A product with narrow constants."""
        factors, rest = value.args[: len(product.operands)], value.args[len(product.operands) :]
        args = [*(self._weight(a, self._dtype) if isinstance(a, GenericConst) else a for a in factors), *rest]
        weights = sum(isinstance(a, GenericConst) for a in product.operands)
        self._rw.fire(f"{product.name} of {self._dtype} operands{', its weight rounded' if weights else ''}")
        return Call(value.op, args, value.attrs, value.ty_args)

    def _with_same_weight(self, value: Call, narrow: str) -> Call:
        """A matmul whose constant is stored in the type that the model has it in; no number is another one."""
        self._rw.fire(f"its weight is stored in {narrow}, which has all its numbers")
        return Call(value.op, [value.args[0], self._weight(value.args[1], narrow)], value.attrs, value.ty_args)

    def _weight(self, weight: GenericConst, dtype: str) -> relax.Var:
        stored = constant(rounded(array_of(weight), dtype))
        decoded = self._rw.emit(relax.op.astype(stored, "float32"), f"{self._rw.current}_weight")
        self._rw.ctx.provenance.clear_nodes(decoded.name)
        return decoded


def _substituted(value: Any, by: Mapping[relax.Var, relax.Var]) -> Any:
    """A call whose operands are replaced, those of a tuple too."""

    def one(operand: Any) -> Any:
        if isinstance(operand, relax.Tuple):
            return relax.Tuple([one(field) for field in operand.fields])
        return by.get(operand, operand) if isinstance(operand, relax.Var) else operand

    return Call(value.op, [one(operand) for operand in value.args], value.attrs, value.ty_args)


# ------------------------------------------------------------ names and the report
def _check_names(mod: IRModule, ctx: CompileContext) -> None:
    """Whether `keep_float32` names nodes of the model.

    Raises:
        OptionError: a name is none.
    """
    live = {node for b in main_bindings(mod) for node in ctx.provenance.of(b.var.name)}
    known = [*ctx.ownership.types, *sorted(live - set(ctx.ownership.types))]
    for name, _ in ctx.options.keep_float32:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"nodes: {', '.join(known[:5])} ..."
            raise OptionError(f"keep_float32: the model has no node {name!r}", fix=hint)


def precision_plan(
    products: Sequence[Product], mod: IRModule, ctx: CompileContext, taken: Collection[str] | None = None
) -> PrecisionPlan:
    """The plan so far, of layers that a back end rounds, and these products.

    Args:
        products: all of `mod`, which `depth` counts.
        taken: ONNX nodes of those that become layers of it; None: all.
    """
    outputs = {var for var, readers in uses_of(mod["main"]).items() if None in readers}
    layers = [_layer(p, p.var in outputs, ctx) for p in products if taken is None or not {*taken}.isdisjoint(p.nodes)]
    before, depth = ctx.precision, _depth(mod, products)
    if before is not None:
        layers, depth = [*before.layers, *layers], max(before.depth, depth)
    return PrecisionPlan(ctx.options.precision, tuple(layers), depth, ctx.options.max_error, ctx.together)


def _layer(product: Product, is_output: bool, ctx: CompileContext) -> Layer:
    errors = [ctx.alone[node] for node in product.nodes if node in ctx.alone]
    error = max(errors, default=None)
    if product.kept:
        return Layer(product.nodes, product.name, "float32", product.kept, error)
    why = "its operands are rounded, it sums in float32"
    cost = "" if error is None else f"; alone it costs {100 * error:.2g} % of the range"
    why = f"{why}{', its result is an output' * is_output}{cost}"
    return Layer(product.nodes, product.name, ctx.options.precision, why, error)


def _depth(mod: IRModule, products: Sequence[Product]) -> int:
    """The most lowered products on a way through the model."""
    lowered = {product.var for product in products if not product.kept}
    depth: dict[relax.Var, int] = {}
    for binding in main_bindings(mod):
        before = max((depth.get(var, 0) for var in nodes_of(binding.value, relax.Var)), default=0)
        depth[binding.var] = before + (binding.var in lowered)
    return max(depth.values(), default=0)
