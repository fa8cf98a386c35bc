"""Which operations are decodes."""

from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.passes.helpers import build
from tvm_ext.core.graph.relax_graph import main_bindings, op_name
from tvm_ext.core.numbers.storage import Growth, chain_of


def const(value: Any, dtype: str) -> Any:
    return relax.const(np.array(value, dtype))


def chains(body: Any, dtype: str) -> list[list[str]]:
    """The decodes that end with each operation of a function."""
    steps: dict[Any, tuple[Any, ...]] = {}
    for binding in main_bindings(build(body, (2, 3), dtype=dtype)):
        if (chain := chain_of(binding.value, steps)) is not None:
            steps[binding.var] = chain
    return [[op_name(call).removeprefix("relax.") for call in chain] for chain in steps.values()]


def test_a_bfloat16_is_widened() -> None:
    assert chains(lambda emit, x: emit(relax.op.astype(x, "float32")), "bfloat16") == [["astype"]]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_8_bits_are_dequantized_or_shifted(dtype: str) -> None:
    def dequantized(emit: Any, x: Any) -> Any:
        return emit(relax.op.dequantize(x, const(0.5, "float32"), const(3, dtype), axis=0, out_dtype="float32"))

    def shifted(emit: Any, x: Any) -> Any:
        return emit(relax.op.subtract(emit(relax.op.astype(x, "int32")), const(3, "int32")))

    assert chains(dequantized, dtype) == [["dequantize"]]
    assert chains(shifted, dtype) == [["astype"], ["astype", "subtract"]]


def test_what_is_computed_of_numbers_is_none() -> None:
    assert chains(lambda emit, x: emit(relax.op.astype(x, "int32")), "float32") == []
    assert chains(lambda emit, x: emit(relax.op.subtract(x, const(3, "int32"))), "int32") == []
    shift = [relax.op.astype, relax.op.subtract]
    assert chains(lambda emit, x: emit(shift[1](emit(shift[0](x, "int32")), const([1, 2, 3], "int32"))), "int8") == [
        ["astype"]
    ]


def test_a_program_is_alone_until_the_first_one_decides_otherwise() -> None:
    first = Growth()
    assert first.decided("a", True) and not first.whole("b", False) and first.alone
    alike, other, sliced = first.again(), first.again(), first.again()
    assert alike.decided("a", True) and not alike.whole("c", False) and alike.alone
    assert other.decided("a", False) and not other.alone
    assert not sliced.whole("b", True) and not sliced.alone
