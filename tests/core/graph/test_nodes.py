"""Nodes of a type below an expression or statement, and the kernels of a module."""

import pytest
from tvm import IRModule, relax, tirx

from tvm_ext.core.graph.nodes import kernels_of, mentions, nodes_by_kind, nodes_of


@pytest.fixture
def var() -> tirx.Var:
    return tirx.Var("i", "int32")


def test_a_node_stands_after_its_operands_and_as_often_as_it_occurs(var: tirx.Var) -> None:
    inner = var + 1
    outer = inner * var
    assert [type(node) for node in nodes_of(outer, (tirx.Add, tirx.Mul))] == [tirx.Add, tirx.Mul]
    assert len(nodes_of(outer, tirx.Var)) == 2
    assert nodes_of(var, tirx.Add) == []


def test_each_kind_has_its_list(var: tirx.Var) -> None:
    sums, variables, products = nodes_by_kind(tirx.Evaluate(var + 1), tirx.Add, tirx.Var, tirx.Mul)
    assert len(sums) == 1 and sums[0].a.same_as(var)
    assert len(variables) == 1 and variables[0].same_as(var)
    assert products == []


def test_a_variable_is_itself_and_none_of_its_name(var: tirx.Var) -> None:
    assert mentions(var + 1, var)
    assert not mentions(tirx.Var("i", "int32") + 1, var)


def test_functions_of_relax_are_no_kernels() -> None:
    kernel = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("global_symbol", "k")
    x = relax.Var("x", relax.TensorType([2], "float32"))
    mod = IRModule({"k": kernel, "main": relax.Function([x], x, x.ty)})
    assert list(kernels_of(mod)) == ["k"] and kernels_of(mod)["k"].same_as(mod["k"])
