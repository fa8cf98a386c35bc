"""What the model itself has in a narrow float: which values and weights are stored so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.passes.helpers import build, const, random
from tvm_ext.core.graph.provenance import Held, Provenance
from tvm_ext.core.graph.relax_graph import dtype_of, main_bindings
from tvm_ext.core.passes import PassResult

from ..lowering.test_lower_precision import context, lowered

op = relax.op


def stated(body: Callable[..., Any], *shapes: tuple[int, ...], values: dict[str, str], **options: Any) -> PassResult:
    """The pass on a module that some values of the model are narrow in."""
    ctx = context(**{"precision": "float32", **options})
    held = {name: [Held(name)] for name in values}
    ctx.provenance = Provenance({}, held, values)
    return lowered(build(body, *shapes), ctx)


def test_what_the_model_has_narrow_is_stored_so_between_kernels() -> None:
    """lv is within a kernel, lv1 and lv2 between two; a normalization may read what the model has narrow."""

    def body(emit: Callable[..., Any], x: Any) -> Any:
        a = emit(op.nn.relu(emit(op.matmul(x, const(random(8, 8))))))
        b = emit(op.nn.layer_norm(a, const(random(8)), const(random(8)), axes=[-1]))
        return emit(op.matmul(b, const(random(8, 4))))

    kinds = dict.fromkeys(("lv", "lv1", "lv2", "gv"), "float16")
    result = stated(body, (3, 8), values=kinds)
    dtypes = {b.var.name: dtype_of(b.var) for b in main_bindings(result.mod)}
    assert {name for name, kind in dtypes.items() if kind == "float16"} == {"lv1_float16", "lv2_float16"}
    assert not any(
        hasattr(a, "value") and dtype_of(a) == "float16" for b in main_bindings(result.mod) for a in b.value.args
    )
    assert not stated(body, (3, 8), values={}).modified
    mixed = stated(body, (3, 8), values=kinds, precision="bf16")
    dtypes = {b.var.name: dtype_of(b.var) for b in main_bindings(mixed.mod)}
    assert {dtypes["lv2_bfloat16"], dtypes["lv1_float16"]} == {"bfloat16", "float16"}, (
        "what a product reads is rounded to bf16"
    )


def test_what_only_the_generic_schedule_reads_is_not_stored_narrow() -> None:
    """A kernel of its own would decode it."""

    def body(emit: Callable[..., Any], x: Any) -> Any:
        return emit(op.cumsum(emit(op.matmul(x, const(random(8, 8)))), axis=1))

    assert not stated(body, (3, 8), values={"lv": "float16"}).modified


@pytest.mark.parametrize(("rows", "exact"), [(1, True), (1, False), (64, True)])
def test_a_weight_that_few_rows_read_is_stored_narrow_if_no_number_changes(rows: int, exact: bool) -> None:
    weight = random(37, 11).astype(np.float16).astype(np.float32) * (1 if exact else np.float32(1 / 3))
    result = stated(lambda emit, x: emit(op.matmul(x, const(weight))), (rows, 37), values={"gv": "float16"})
    constants = {dtype_of(a) for b in main_bindings(result.mod) for a in b.value.args if hasattr(a, "value")}
    assert constants == {"float16" if rows == 1 and exact else "float32"}
