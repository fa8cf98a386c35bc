"""What variables hold: views of ONNX values, other names, layouts, and names that are used again."""

import json
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.graph.provenance import Held, Provenance
from tvm_ext.core.graph.relax_graph import Rewriter, op_name
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.passes import CompileContext
from tvm_ext.runtime.plain import read, row


def test_steps_make_the_array_and_are_json() -> None:
    held = Held("v").then(("transpose", (2, 0, 1))).then(("reshape", (4, 6)))
    array = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(held.apply(array), array.transpose(2, 0, 1).reshape(4, 6))
    assert read(Held, json.loads(json.dumps(row(held)))) == held
    with pytest.raises(ValueError):
        held.apply(np.zeros((5, 5)))


def test_a_name_that_is_used_again_holds_nothing() -> None:
    held = Provenance(held={"a": [Held("v")]})
    held.place("a", Layout.blocked(4, 8), (1, 8, 2, 2))
    held.forget_held("a")
    assert held.held("a") == () and held.placement("a") is None


def function(*lines: Any) -> Any:
    """main(x): each line makes a variable of the ones before."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            values = {"x": x}
            for name, make in lines:
                values[name] = builder.emit(make(values), name_hint=name)
            last = builder.emit_output(relax.op.negative(values[lines[-1][0]]), name_hint="last")
        builder.emit_func_output(last)
    return builder.get()


def context(**held: list[Held]) -> CompileContext:
    return CompileContext(Machine.detect(None, 1), provenance=Provenance(held=held))


def test_views_hold_what_their_source_does() -> None:
    mod = function(("a", lambda m: relax.op.exp(m["x"])), ("b", lambda m: relax.op.permute_dims(m["a"], [2, 0, 1])))
    ctx = context(a=[Held("A")])
    Rewriter(mod, ctx).rewrite(
        lambda b, rw: relax.op.permute_dims(b.value.args[0], [2, 0, 1]) if b.var.name == "b" else None
    )
    assert ctx.provenance.held("b") == (Held("A", (("transpose", (2, 0, 1)),)),)


def test_what_a_known_view_is_of_holds_it_the_other_way_round() -> None:
    """y = exp(x) becomes y = reshape(exp(reshape(x))): the new exp holds y as a matrix."""
    mod, ctx = function(("y", lambda m: relax.op.exp(m["x"]))), context(y=[Held("Y")])

    def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
        if op_name(binding.value) != "relax.exp":
            return None
        flat = rw.emit(relax.op.reshape(binding.value.args[0], (6, 4)), "flat")
        return relax.op.reshape(rw.emit(relax.op.exp(flat), "wide"), (2, 3, 4))

    Rewriter(mod, ctx).rewrite(visit)
    assert ctx.provenance.held("wide") == (Held("Y", (("reshape", (6, 4)),)),)
    assert ctx.provenance.held("flat") == (), "an input is no value that a node made"


def test_other_names_hold_both_values() -> None:
    mod = function(("a", lambda m: relax.op.exp(m["x"])), ("b", lambda m: relax.op.nn.relu(m["a"])))
    ctx = context(a=[Held("A")], b=[Held("B")])
    Rewriter(mod, ctx).rewrite(lambda b, rw: b.value.args[0] if b.var.name == "b" else None)
    assert set(ctx.provenance.held("a")) == set(ctx.provenance.held("b")) == {Held("A"), Held("B")}


def test_what_is_stored_in_bfloat16_holds_what_it_is_read_as() -> None:
    mod, ctx = function(("a", lambda m: relax.op.exp(m["x"]))), context(a=[Held("A")])

    def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
        stored = rw.emit(relax.op.astype(rw.emit(binding.value, "raw"), "bfloat16"), "stored")
        return relax.op.astype(stored, "float32")

    Rewriter(mod, ctx).rewrite(visit)
    assert ctx.provenance.held("stored") == ctx.provenance.held("a") == (Held("A"),)
    assert ctx.provenance.held("raw") == (), "it is not rounded yet"


def test_a_variable_with_another_value_holds_nothing() -> None:
    mod, ctx = function(("a", lambda m: relax.op.exp(m["x"]))), context(a=[Held("A")])

    def visit(binding: relax.VarBinding, rw: Rewriter) -> Any:
        if binding.var.name != "a":
            return None
        rw.revalue()
        return relax.op.multiply(rw.emit(binding.value), relax.const(2.0, "float32"))

    Rewriter(mod, ctx).rewrite(visit)
    assert ctx.provenance.held("a") == ()


def test_a_variable_can_do_no_nodes_work() -> None:
    known = Provenance({"a": ["A"], "b": ["B"]}, {"a": [Held("x")]})
    known.clear_nodes("a")
    known.clear_nodes("never heard of")
    assert known.of("a") == () and known.of("b") == ("B",) and known.held("a") == (Held("x"),)
