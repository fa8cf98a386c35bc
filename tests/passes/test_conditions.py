"""Conditions: each is None for a good module and says what is wrong with a bad one."""

from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op as R

from tests.passes.helpers import build, const
from tvm_ext.core.errors import PassError
from tvm_ext.core.passes import CompileContext, has_main
from tvm_ext.passes.conditions import no_dead_bindings, no_inference_batch_norm, unique_names, well_formed
from tvm_ext.passes.simplification.fold_constants import FoldConstants

GOOD = build(lambda emit, x: emit(R.nn.relu(x)), (3, 5))


@pytest.mark.parametrize("condition", [has_main, well_formed, unique_names, no_dead_bindings, no_inference_batch_norm])
def test_good_module(condition: Any) -> None:
    assert condition(GOOD) is None


def test_no_main(context: CompileContext) -> None:
    other = IRModule({"other": GOOD["main"].without_attr("global_symbol")})
    assert has_main(other) == "the module's functions are ['other']"
    with pytest.raises(PassError, match="'fold-constants' needs: has_main, but the module's functions are"):
        FoldConstants()(other, context)


def test_variable_read_before_it_is_defined() -> None:
    x = GOOD["main"].params[0]
    stray = relax.Var("stray", x.ty)
    body = relax.SeqExpr([], stray)
    assert well_formed(IRModule({"main": relax.Function([x], body, x.ty)})) is not None


def test_two_variables_of_one_name() -> None:
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    y = relax.Var("x", relax.TensorType((3,), "float32"))
    block = relax.BindingBlock([relax.VarBinding(y, relax.BlockBuilder().normalize(R.nn.relu(x)))])
    mod = IRModule({"main": relax.Function([x], relax.SeqExpr([block], y), x.ty)})
    assert unique_names(mod) == "two variables are called 'x'"


def test_batch_norm_is_found() -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(emit(R.nn.batch_norm(x, *[const(np.ones(5))] * 4, axis=1, training=False))[0])

    assert no_inference_batch_norm(build(body, (3, 5))) == "lv is one"
