"""The rewriter: emit, absorb, drop, provenance, functions."""

from typing import Any

import pytest
from tvm import relax
from tvm.ir import IRModule

from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.graph.relax_graph import (
    DROP,
    Rewriter,
    main_bindings,
    numpy_of,
    op_name,
    scalar_of,
    shape_of,
    static_tensor,
    uses_of,
    with_body,
    with_functions,
)
from tvm_ext.core.machine import Machine
from tvm_ext.core.passes import CompileContext


@pytest.fixture
def mod() -> IRModule:
    """a = relu(x); b = exp(a); c = add(b, a)"""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.nn.relu(x), name_hint="a")
            b = builder.emit(relax.op.exp(a), name_hint="b")
            c = builder.emit_output(relax.op.add(b, a), name_hint="c")
        builder.emit_func_output(c)
    return builder.get()


@pytest.fixture
def ctx() -> CompileContext:
    return CompileContext(Machine.detect(None, 1), provenance=Provenance({"a": ["A"], "b": ["B"], "c": ["C"]}))


def test_uses(mod: IRModule) -> None:
    uses = uses_of(mod["main"])
    names = {v.name: [u.name if u is not None else None for u in readers] for v, readers in uses.items()}
    assert names == {"x": ["a"], "a": ["b", "c"], "b": ["c"], "c": [None]}


def test_a_function_with_another_body_keeps_the_rest(mod: IRModule) -> None:
    main, x = mod["main"].with_attr("k", 1), relax.Var("x", relax.TensorType((5,), "int32"))
    shorter = with_body(main, relax.SeqExpr(main.body.blocks, main.params[0]))
    assert shorter.body.body.same_as(main.params[0]) and shorter.ret_ty.same_as(main.ret_ty) and shorter.attrs["k"] == 1
    other = with_body(main, relax.SeqExpr([], x), [x], x.ty)
    assert list(other.params) == [x] and other.ret_ty.same_as(x.ty)
    changed = with_functions(mod, {"main": shorter})
    assert changed["main"].same_as(shorter) and not mod["main"].same_as(shorter)


def test_nothing_fired_is_the_same_module(mod: IRModule, ctx: CompileContext) -> None:
    result = Rewriter(mod, ctx).rewrite(lambda binding, rw: rw.skip("not today"))
    assert result.mod.same_as(mod) and not result.modified and len(result.skipped) == 3


def test_a_new_binding_has_the_origin_of_the_current_one(mod: IRModule, ctx: CompileContext) -> None:
    def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
        if op_name(binding.value) != "relax.exp":
            return None
        rw.fire("exp(x) -> exp(2 x / 2)")
        doubled = rw.emit(relax.op.add(binding.value.args[0], binding.value.args[0]))
        return relax.op.exp(relax.op.multiply(doubled, relax.const(0.5, "float32")))

    result = Rewriter(mod, ctx).rewrite(visit)
    names = [b.var.name for b in main_bindings(result.mod)]
    assert names == ["a", "b_1", "b_2", "b", "c"]
    assert ctx.provenance.of("b_1") == ctx.provenance.of("b_2") == ("B",)


def test_absorbed_values_are_in_the_provenance(mod: IRModule, ctx: CompileContext) -> None:
    def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
        if binding.var.name != "c":
            return None
        rw.fire("c does b's work")
        rw.absorb(*binding.value.args)
        return relax.op.add(relax.op.exp(binding.value.args[1]), binding.value.args[1])

    Rewriter(mod, ctx).rewrite(visit)
    assert ctx.provenance.of("c") == ("C", "B", "A")


def test_a_type_may_not_change(mod: IRModule, ctx: CompileContext) -> None:
    with pytest.raises(TypeError, match=r"b: .* would become"):
        Rewriter(mod, ctx).rewrite(lambda b, rw: relax.op.sum(b.value.args[0]) if b.var.name == "b" else None)


def test_drop_removes_a_binding(mod: IRModule, ctx: CompileContext) -> None:
    def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
        if binding.var.name == "b":
            rw.fire("b is not needed")
            return DROP
        return relax.op.nn.relu(binding.value.args[1]) if binding.var.name == "c" else None

    assert [b.var.name for b in main_bindings(Rewriter(mod, ctx).rewrite(visit).mod)] == ["a", "c"]


def test_equal_functions_are_added_once(mod: IRModule, ctx: CompileContext) -> None:
    rewriter = Rewriter(mod, ctx)
    assert rewriter.add_function(mod["main"], "f").same_as(rewriter.add_function(mod["main"], "f"))


def test_a_function_takes_no_name_of_the_module(mod: IRModule, ctx: CompileContext) -> None:
    """Of two passes, each with functions of its own, and of one that adds two."""
    other, third = (relax.Function([], relax.const(n), relax.TensorType((), "int32")) for n in (1, 2))
    for wanted in (["f", "f1"], ["f2", "f3"]):
        rewriter = Rewriter(mod, ctx)
        assert [rewriter.add_function(function, "f").name_hint for function in (other, third)] == wanted
        mod = rewriter.rewrite(lambda b, rw: relax.op.exp(b.value.args[0]) if b.var.name == "c" else None).mod
    assert {g.name_hint for g in mod.get_global_vars()} >= {"main", "f", "f1", "f2", "f3"}


def test_reading_expressions() -> None:
    scalar, matrix = relax.const(2.5, "float32"), relax.const([[1, 2]], "int32")
    assert scalar_of(scalar) == 2.5 and scalar_of(matrix) is None
    array = numpy_of(matrix)
    assert array is not None and array.tolist() == [[1, 2]] and shape_of(matrix) == (1, 2)
    symbolic = relax.Var("s", relax.TensorType(ndim=2, dtype="float32"))
    assert shape_of(symbolic) is None and not static_tensor(symbolic) and static_tensor(matrix)
