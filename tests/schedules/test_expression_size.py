"""How often operators read their operand, against the text of what TVM makes of them."""

from __future__ import annotations

import pytest
from tvm import tirx

from tvm_ext.schedules import expression_size, scalar_ops
from tvm_ext.schedules.expression_size import operand_reads
from tvm_ext.schedules.expressions import let


def test_definitions_are_counted_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fourth_power_and_more(x: tirx.Var) -> tirx.PrimExpr:
        return let(x * x + tirx.const(1, "float32"), lambda t: let(t * t, lambda s: s + s + x))

    monkeypatch.setitem(expression_size.SCALAR_OPS, "test.op", fourth_power_and_more)
    assert operand_reads("test.op") == 2 * 2 * 2 + 1


@pytest.mark.parametrize(("name", "reads"), [("relax.add", 1), ("relax.abs", 1), ("relax.nn.relu", 2)])
def test_simple_operators(name: str, reads: int) -> None:
    assert operand_reads(name) == reads


@pytest.mark.parametrize("name", scalar_ops.SCALAR_OPS)
def test_every_operator_can_be_counted(name: str) -> None:
    assert 1 <= operand_reads(name) < 2000
