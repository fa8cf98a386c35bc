"""The operator of recurrences: its type, and that calls survive text and JSON."""

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tests.ops.calls import assert_survives
from tests.schedules.recurrences import Case
from tvm_ext.core.graph.relax_graph import shape_of
from tvm_ext.ops.recurrence import NAME, Recurrence
from tvm_ext.ops.row_rules import Rows, Site
from tvm_ext.ops.table import of


def case(**attributes: object) -> Case:
    backwards = (False, True)
    return Case("LSTM", (7, 2, 5), np.random.default_rng(0), "hidden lengths", backwards, **attributes)


def test_the_result_has_the_last_states_first() -> None:
    for sequence, finals, rows in ((True, 2, 9), (True, 0, 7), (False, 1, 1)):
        assert case(sequence=sequence, finals=finals).group.shape == (rows, 2, 2, 5)


def test_a_call_survives_text_and_json() -> None:
    coupled = case(limit=0.5, coupled=True)
    assert_survives(coupled.group, coupled.says)


def test_symbolic_steps_and_rows() -> None:
    steps, rows = (tvm.tirx.Var(name, "int64") for name in "SN")
    x = relax.Var("x", relax.TensorType((steps, rows, 20), "float32"))
    r = relax.Var("r", relax.TensorType((1, 20, 5), "float32"))
    activations = (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0))
    call = Recurrence("LSTM", ("input", "recurrent"), (False,), (activations,), finals=1).call(
        {"input": x, "recurrent": r}
    )
    value = relax.BlockBuilder().normalize(call)
    assert shape_of(value) is None
    assert tvm_ffi.structural_equal(list(value.ty.shape.values), list(relax.ShapeExpr([steps + 1, 1, rows, 5]).values))


def test_rows_are_those_of_the_batch() -> None:
    cuts = (Rows(1, 1, (7, 2, 40)), None, Rows(1, 1, (2, 2, 5)), Rows(0, 1, (2,)))
    rule = of(NAME).row_rule
    assert rule is not None
    assert rule(Site(case().group.call, cuts, Rows(2, 1, (9, 2, 2, 5)))) is None
    assert rule(Site(case().group.call, (Rows(0, 1, (7, 2, 40)), None, None, None), None)) is not None
    assert "range" in str(rule(Site(case(quantized=True).group.call, cuts, None)))
