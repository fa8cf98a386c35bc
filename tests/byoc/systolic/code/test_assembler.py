"""Assembler text: round trip, a program written by hand, and lines that are none."""

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.assembler import assemble, disassemble
from tvm_ext.byoc.systolic.code.layer import Step
from tvm_ext.byoc.systolic.code.program import program_from_bytes
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.core.errors import ProgramError

from ..cases import SMALL_FLOAT, SMALL_INT8, dense
from .test_program import small_program

BY_HAND = """
; y = x x, one tile
.accelerator rows=2 cols=2 dtype=int8 energy.dram_byte=1.5
.tensor x input int8 [2, 2]
.tensor y output int32 [2, 2]

LOAD operand=a tensor=x dst=0 rows=2 cols=2 offset=0 row_stride=2 col_stride=1 push.next  ; both operands
GEMM dataflow=os accumulate=0 a=0 b=0 c=0 m=2 k=2 n=2 pop.prev push.next
VECTOR op=relu c=0 rows=2 cols=2 dtype=int32  push.next
STORE tensor=1 c=0 rows=2 cols=2 offset=0 row_stride=2 col_stride=1 pop.prev
FINISH
"""


@pytest.mark.parametrize("make", [small_program, lambda: dense(SMALL_INT8, (33, 65, 17))], ids=["conv", "dense"])
def test_round_trip(make: type) -> None:
    program = make()
    assert assemble(disassemble(program)).to_bytes() == program.to_bytes()


def test_round_trip_without_the_constants() -> None:
    rng = np.random.default_rng(0)
    w, row = rng.standard_normal((70, 19), dtype=np.float32), rng.standard_normal(19, dtype=np.float32)
    program = dense(SMALL_FLOAT, (5, 70, 19), w, [Step("add", row=row), Step("multiply", scale=0.1)])
    text = disassemble(program, data=False)
    assert len(text) < len(disassemble(program)) - 4 * w.size
    assert assemble(text, program.constants[::-1]).to_bytes() == program.to_bytes()
    with pytest.raises(ProgramError, match="not among the constants given"):
        assemble(text)


def test_numbers_are_those_of_the_bytes() -> None:
    program = assemble(disassemble(small_program()).replace("low=1.5", "low=0.1"))
    assert program_from_bytes(program.to_bytes()).instructions == program.instructions


def test_text_is_for_people() -> None:
    text = disassemble(small_program())
    assert "\n; first\nLOAD.WINDOWS tensor=x dst=0 rows=" in text
    assert text.splitlines()[-1].startswith("FINISH  ; ")


def test_by_hand() -> None:
    program = assemble(BY_HAND)
    assert program.accelerator.energy.dram_byte == 1.5 and program.accelerator.vector_lanes == 16
    x = np.array([[1, -2], [3, 4]], np.int8)
    expected = np.maximum(x.astype(np.int32) @ x, 0)
    np.testing.assert_array_equal(run(program, {"x": x})["y"], expected)
    assert assemble(disassemble(program)).to_bytes() == program.to_bytes()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GEMM", "GEMV", r"line 8 \(GEMV .*\): no instruction 'GEMV'"),
        ("dataflow=os", "dataflow=rs", "line 8 .*dataflow=rs: choose of ws, os, is"),
        ("m=2 k=2", "m=2", "line 8 .*GEMM needs k="),
        ("m=2 k=2", "m=two k=2", "line 8 .*m=two: a whole number is needed"),
        ("m=2 k=2", "m=2.5 k=2", "line 8 .*m=2.5: a whole number is needed"),
        ("m=2 k=2", "m=true k=2", "line 8 .*m=true: a whole number is needed"),
        ("m=2 k=2", "m=2 k=2 q=1", "line 8 .*GEMM has no field 'q'"),
        ("pop.prev push.next\nV", "pop.last\nV", "line 8 .*'pop.last' is neither"),
        ("tensor=x", "tensor=z", "line 7 .*tensor=z: a whole number is needed"),
        ("rows=2 cols=2 offset", "rows=9 cols=2 offset", r"instruction 0 \(LOAD .*reaches element 17 of tensor x"),
        ("int8 [2, 2]", "int8 [2, ", "line 4 "),
        ("int8 [2, 2]", "int8", "line 4 "),
        ("rows=2 cols=2 dtype", "rows=0 cols=2 dtype", "line 3 .*rows=0"),
        ("op=relu", "op=clip scale=1e40", "line 9 .*scale=1e40: a number of float32 is needed"),
        ("\nFINISH", "", "the last instruction of a program is FINISH"),
        ("op=relu", "op=relu pop.prev", "deadlock"),
        ("\nFINISH", "\n.constant int8 [3] base64:AAEC!\nFINISH", "line 11"),
        ("\nFINISH", "\n.constant int8 [4] base64:AAEC\nFINISH", r"3 values for the shape \[4\]"),
        ("\nFINISH", "\n.constant float64 [4] base64:AAEC\nFINISH", "a constant is of int8"),
        ("\nFINISH", '\n.layer {"nam": 1}\nFINISH', "line 11"),
    ],
)
def test_lines_that_are_none(old: str, new: str, message: str) -> None:
    assert old in BY_HAND
    with pytest.raises(ProgramError, match=message):
        run(assemble(BY_HAND.replace(old, new, 1)), {"x": np.ones((2, 2), np.int8)})
