"""eliminate-dead-code: what goes, what stays, what it says."""

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, ops, rewritten, untouched
from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.passes import CompileContext, Event
from tvm_ext.passes.conditions import no_dead_bindings
from tvm_ext.passes.simplification.eliminate_dead_code import EliminateDeadCode


def _with_dead_chain() -> IRModule:
    def body(emit: Any, x: Any) -> Any:
        unused = emit(R.exp(x))
        emit(R.add(unused, x))
        return emit(R.nn.relu(x))

    return build(body, (3, 5))


def test_dead_chain_goes_and_the_output_stays() -> None:
    mod = _with_dead_chain()
    assert no_dead_bindings(mod) == "nothing needs lv, lv1"
    result = rewritten(EliminateDeadCode(), mod)
    assert ops(result.mod) == ["relu"]
    assert result.fired == (Event("lv", "nothing needs lv"), Event("lv1", "nothing needs lv1"))


def test_variables_of_one_node_are_one_event(context: CompileContext) -> None:
    context.provenance = Provenance({"lv": ["node_a"], "lv1": ["node_a"]})
    result = EliminateDeadCode()(_with_dead_chain(), context)
    assert result.fired == (Event("node_a", "nothing needs lv, lv1"),)


def test_unused_items_of_a_tuple_go() -> None:
    def body(emit: Any, x: Any) -> Any:
        norm = emit(R.nn.batch_norm(x, *[const(np.ones(3))] * 4, axis=1, training=False))
        result, _, _ = (emit(norm[i]) for i in range(3))
        return result

    assert ops(apply(EliminateDeadCode(), build(body, (2, 3, 5))).mod) == ["batch_norm", ""]


def test_function_that_nothing_calls_goes() -> None:
    mod = build(lambda emit, x: emit(R.nn.relu(x)), (3, 5))
    unused = build(lambda emit, x: emit(R.exp(x)), (3, 5))["main"].without_attr("global_symbol")
    mod = IRModule({**dict(mod.functions_items()), "unused": unused})
    result = apply(EliminateDeadCode(), mod)
    assert [g.name_hint for g in result.mod.get_global_vars()] == ["main"]
    assert result.fired == (Event("unused", "nothing calls this function"),)


def test_call_with_an_effect_stays() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [x], pure=False):
        builder.emit(R.print(x, format="value: {}"))
        builder.emit_func_output(builder.emit(R.nn.relu(x)))
    result = apply(EliminateDeadCode(), builder.get())
    assert result.fired == () and ops(result.mod) == ["print", "relu"]


def test_module_without_dead_code_is_returned_as_it_is() -> None:
    assert untouched(EliminateDeadCode(), build(lambda emit, x: emit(R.nn.relu(x)), (3, 5))) == []
