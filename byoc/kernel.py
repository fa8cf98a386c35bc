"""The kernel of a region: a function of TIR that hands its arguments to the back end's driver.

region(program, inputs ..., outputs ...):  call_packed("tvm_ext.offload", number of inputs, program, ...)
"""

from collections.abc import Sequence

from tvm import tirx

from ..core.group import OPAQUE
from ..runtime.drivers import TRAMPOLINE
from .region import Region, Value


def kernel_of(region: Region, program_bytes: int) -> tirx.PrimFunc:
    """The kernel; equal for all regions whose tensors have the same shapes and dtypes and whose programs are as long.

    Args:
        region: whose inputs and outputs it takes.
        program_bytes: length of the program, uint8, its first argument.
    """
    program = tirx.decl_buffer([program_bytes], "uint8", "program")
    inputs, outputs = _buffers(region.inputs, "x"), _buffers(region.outputs, "y")
    call = tirx.call_packed(TRAMPOLINE, len(inputs), program, *inputs, *outputs)
    function = tirx.PrimFunc([program, *inputs, *outputs], tirx.Evaluate(call))
    return function.with_attr({"op_pattern": OPAQUE, "tirx.noalias": True})


def _buffers(values: Sequence[Value], letter: str) -> list[tirx.Buffer]:
    return [tirx.decl_buffer(list(v.shape), v.dtype, f"{letter}{i}") for i, v in enumerate(values)]
