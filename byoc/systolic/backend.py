"""The manifest of the systolic array: matmuls, convolutions and pooling, float32 or integer, with what follows them."""

from __future__ import annotations

from ..backend import Backend, Limits, Pattern
from .code.assembler import assemble, disassemble
from .code.check import MAX_MEMORY_BYTES
from .code.program import program_from_bytes
from .config import SystolicOptions
from .driver import driver
from .lowering.epilogue import WRITERS
from .lowering.operands import READERS
from .lowering.pooling import POOLINGS
from .lowering.regions import check_composite, lower_region, seconds_of


def _text(program: bytes) -> str:
    """Assembler text; constants only by their SHA-256."""
    return disassemble(program_from_bytes(program), data=False)


def _program(text: str, old: bytes) -> bytes:
    """The program of assembler text; constants of which it only has the SHA-256 are those of the old program."""
    return assemble(text, program_from_bytes(old).constants).to_bytes()


BACKEND = Backend(
    name="systolic",
    patterns=(
        Pattern("matmul", ("relax.matmul",), READERS, WRITERS, check_composite),
        Pattern("conv2d", ("relax.nn.conv2d",), READERS, WRITERS, check_composite),
        Pattern("vector", (*POOLINGS, "relax.add", "relax.quantize"), READERS, WRITERS, check_composite),
    ),
    lower=lower_region,
    driver=driver,
    options=SystolicOptions,
    cost=seconds_of,
    precision=lambda options: "bf16" if options.dtype == "bfloat16" else "float32",
    # int64 is a new shape, the second operand of a reshape.
    limits=Limits(dtypes=("float32", "int8", "uint8", "int32", "int64"), tensor_bytes=MAX_MEMORY_BYTES),
    disassemble=_text,
    assemble=_program,
)
