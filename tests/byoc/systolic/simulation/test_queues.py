"""Order of execution by tokens, deadlocks with their cause, and races."""

import dataclasses

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.codegen import lower
from tvm_ext.byoc.systolic.code.isa import (
    POP_NEXT,
    POP_PREV,
    PUSH_NEXT,
    PUSH_PREV,
    Finish,
    Gemm,
    Load,
    LoadConstant,
    Sync,
)
from tvm_ext.byoc.systolic.code.layer import ConvGeometry, Matrix, Step, conv2d, filter_matrices, nchw
from tvm_ext.byoc.systolic.code.program import Program, Tensor
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.queues import execution_order
from tvm_ext.core.errors import ProgramError

from ..cases import SIZES, SMALL_FLOAT, SMALL_INT8, dense
from ..races import find_races

X = Tensor("x", "input", (4, 4), "int8")
LOAD = Load("a", 0, 0, 4, 4, 0, 4, 1)
GEMM = Gemm("ws", 0, 0, 64, 0, 4, 4, 4)


def with_tokens(instruction: Load | Gemm, tokens: int) -> Load | Gemm:
    return dataclasses.replace(instruction, tokens=tokens)


def test_tokens_turn_the_order_of_the_text() -> None:
    """A GEMM written before the load that it waits for runs behind it."""
    code = (with_tokens(GEMM, POP_PREV), with_tokens(LOAD, PUSH_NEXT), Finish())
    assert execution_order(code) == [1, 0, 2]


def test_sync_holds_all_queues() -> None:
    assert execution_order((LOAD, GEMM, Sync(), LOAD, Finish())) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "code",
    [
        (with_tokens(GEMM, POP_PREV), Finish()),
        (with_tokens(LOAD, PUSH_NEXT), with_tokens(GEMM, POP_PREV | POP_NEXT), Finish()),
        (Sync(), with_tokens(LOAD, POP_NEXT), Sync(), with_tokens(GEMM, PUSH_PREV), Finish()),
    ],
)
def test_deadlock(code: tuple) -> None:
    program = Program(SMALL_INT8, (X,), (), code)
    with pytest.raises(
        ProgramError, match=r"instruction \d \((GEMM|LOAD) .*\): deadlock: it waits for a token from the"
    ):
        run(program, {"x": np.ones((4, 4), np.int8)})


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dataflow", ["ws", "os"])
def test_code_has_no_races(sizes: tuple[int, int, int], dataflow: str) -> None:
    m, k, n = sizes
    steps = [
        Step("add", row=np.ones(n, np.float32)),
        Step("add", tile=Matrix("r", n)),
        Step("multiply", row=np.ones(n, np.float32)),
    ]
    more = [Tensor("r", "input", (m, n), "float32")]
    assert find_races(dense(SMALL_FLOAT, sizes, np.ones((k, n), np.float32), steps, more=more, dataflow=dataflow)) == []


def test_code_of_layers_in_a_row_has_no_races() -> None:
    geometry = ConvGeometry(3, (9, 9), (3, 3), padding=(1, 1, 1, 1))
    filters = filter_matrices(np.ones((3, 3, 3, 3), np.float32))
    steps = (Step("add", tile=nchw("x", 3, (9, 9), 2)),)
    layers = [
        conv2d("first", "x", filters, "h", geometry, images=2),
        conv2d("second", "h", filters, "y", geometry, images=2, steps=steps),
    ]
    roles = (("x", "input"), ("h", "scratch"), ("y", "output"))
    tensors = [Tensor(name, role, (2, 3, 9, 9), "float32") for name, role in roles]
    program = lower(layers, tensors, SMALL_FLOAT)
    assert find_races(program) == []
    without = tuple(i for i in program.instructions if not isinstance(i, Sync))
    assert find_races(dataclasses.replace(program, instructions=without, layers=()))


def test_a_token_left_out_is_a_race_or_a_deadlock() -> None:
    """Every token that codegen sets is needed: without any single wait the program has a race."""
    program = dense(SMALL_INT8, (45, 65, 17), np.ones((65, 17), np.int8))
    waits = 0
    for index, instruction in enumerate(program.instructions):
        for bit in (POP_PREV, POP_NEXT):
            if instruction.tokens & bit:
                waits += 1
                changed = list(program.instructions)
                changed[index] = dataclasses.replace(instruction, tokens=instruction.tokens & ~bit)
                assert find_races(dataclasses.replace(program, instructions=tuple(changed)))
    assert waits > 50


def test_a_race_is_named() -> None:
    """The second load writes what the GEMM may still read."""
    code = (with_tokens(LOAD, PUSH_NEXT), with_tokens(GEMM, POP_PREV), LOAD, Finish())
    assert find_races(Program(SMALL_INT8, (X,), (), code)) == [(1, 2, "scratchpad")]
    constant = LoadConstant("b", 0, 64, 4, 4, 0)
    code = (with_tokens(LOAD, PUSH_NEXT), with_tokens(GEMM, POP_PREV), constant, Finish())
    assert find_races(Program(SMALL_INT8, (X,), (np.ones(16, np.int8),), code)) == [(1, 2, "scratchpad")]
