"""Operations are counted in TIR, of values that are bound by a `let` too."""

from typing import Any

import pytest
from tvm import tirx
from tvm.script import tirx as T

from tvm_ext.driver.figures import executed_flops


def kernel(value: Any) -> tirx.PrimFunc:
    """out[i] = value(a[i]) for 16 elements."""
    a, out = (tirx.decl_buffer([16], "float32", name) for name in ("a", "out"))
    i = tirx.Var("i", "int32")
    store = tirx.BufferStore(out, value(tirx.BufferLoad(a, [i])), [i])
    return tirx.PrimFunc([a, out], tirx.For(i, 0, 16, tirx.ForKind.SERIAL, store))


def let(dtype: str, bound: Any, use: Any) -> tirx.Let:
    t = tirx.Var("t", dtype)
    return tirx.Let(t, bound, use(t))


@pytest.mark.parametrize(
    ("value", "operations"),
    [
        (lambda a: a * T.float32(2) + T.float32(1), 2),
        (lambda a: let("float32", a + T.float32(1), lambda t: t * t), 2),
        (lambda a: let("uint32", T.reinterpret("uint32", a), lambda t: T.reinterpret("float32", t) * T.float32(2)), 1),
    ],
    ids=["plain", "let", "let of another type"],
)
def test_operations_of_a_kernel(value: Any, operations: int) -> None:
    assert executed_flops(kernel(value)) == 16 * operations
