"""The operators of weights in blocks: types, text and JSON, and which axes they mix."""

import numpy as np
import pytest
from tvm import relax

from tests.ops.calls import assert_survives
from tests.schedules.block_weights import BlockCase
from tvm_ext.ops.block_weights import NAME, TAKE
from tvm_ext.ops.row_rules import Rows, Site
from tvm_ext.ops.table import of


def test_types_and_text_and_json() -> None:
    case = BlockCase(np.random.default_rng(0), 20, 50, points="integers", digits=2)
    for kind, data, shape in (("float32", (2, 3, 50), (2, 3, 20)), ("int64", (4,), (4, 50))):
        group = case.group(data, kind=kind)
        assert (group.shape, group.dtype) == (shape, "float32")
        assert_survives(group, case.says)


def test_rows_are_those_of_the_first_operand() -> None:
    for name in (NAME, TAKE):
        rule = of(name).row_rule
        assert rule is not None
        rows = Rows(1, 1, (2, 7, 64))
        assert rule(Site(None, (rows, None, None), rows)) is None
        assert rule(Site(None, (rows, Rows(0, 1, (20, 2, 16)), None), rows)) is not None
    summed = of(NAME).row_rule
    assert summed is not None and summed(Site(None, (Rows(2, 1, (2, 7, 64)), None, None), None)) is not None


ROWS = [(0, (2, 49)), (0, (50,))]
WEIGHTS = [(1, (20, 2, 8)), (1, (19, 2, 16)), (1, (20, 1, 16)), (2, (20, 3)), (3, (1, 2))]


@pytest.mark.parametrize(
    ("take", "operand", "shape"), [*((False, *change) for change in ROWS + WEIGHTS), *((True, *c) for c in WEIGHTS)]
)
def test_shapes_that_a_call_does_not_say_have_no_type(take: bool, operand: int, shape: tuple[int, ...]) -> None:
    case = BlockCase(np.random.default_rng(0), 20, 50, points="integers")
    shapes = [(2, 50), *(array.shape for array in case.operands)]
    shapes[operand] = shape
    dtypes = ["int64" if take else "float32", "uint8", "float16", "uint8"]
    operands = [relax.Var(f"v{i}", relax.TensorType(*v)) for i, v in enumerate(zip(shapes, dtypes, strict=True))]
    with pytest.raises(ValueError):
        relax.BlockBuilder().normalize((case.says.take if take else case.says.matmul)(*operands))
