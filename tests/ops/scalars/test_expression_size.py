"""How often operators read their operand, against the text of what TVM makes of them."""

from typing import Any

import pytest
from tvm import tirx

from tvm_ext.core.fusion import LARGEST_EXPRESSION
from tvm_ext.ops import Operator, operators, registered
from tvm_ext.ops.scalars.expression_size import operand_reads
from tvm_ext.ops.scalars.expressions import let


def test_definitions_are_counted_where_they_are_read() -> None:
    def fourth_power_and_more(x: tirx.Var) -> Any:
        return let(x * x + tirx.const(1, "float32"), lambda t: let(t * t, lambda s: s + s + x))

    with registered(Operator("test.op", tir=fourth_power_and_more)):
        assert operand_reads("test.op") == (2 * 2 * 2 + 1,)


def test_each_operand_is_counted_and_conditions_weigh_more() -> None:
    first, chosen, other = operand_reads("relax.where")
    assert chosen == other == 1 < first
    assert operand_reads("relax.nn.leakyrelu")[0] > 3


@pytest.mark.parametrize(("name", "reads"), [
        ("relax.add", (1, 1)), ("relax.abs", (1,)), ("relax.nn.relu", (1,)), ("relax.clip", (1, 1, 1)),
        ("relax.maximum", (1, 1)), ("relax.minimum", (1, 1)),
    ],
)  # fmt: skip
def test_simple_operators(name: str, reads: tuple[int, ...]) -> None:
    assert operand_reads(name) == reads


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", ["relax.add", "relax.subtract", "relax.multiply", "relax.negative"])
def test_operands_of_integers_are_looked_at_more_often(name: str, dtype: str) -> None:
    assert min(operand_reads(name, dtype, dtype)) > 1 == max(operand_reads(name, "float64", "float64"))


@pytest.mark.parametrize("name", [name for row in operators() if row.is_elementwise for name in row.relax])
def test_every_operator_can_be_counted(name: str) -> None:
    assert all(1 <= reads < LARGEST_EXPRESSION / 4 for reads in operand_reads(name))
