"""The kernel of a region: a function of TIR that hands its arguments to the back end's driver.

region(program, inputs ..., outputs ...):  call_packed("tvm_ext.offload", number of inputs, program, ...)

Of an asynchronous region "tvm_ext.offload_queued": its first call launches, and its second one waits.
"""

from collections.abc import Sequence

from tvm import tirx

from ..core.group import OPAQUE
from ..runtime.drivers import QUEUED, TRAMPOLINE
from .region import Region, Value


def kernel_of(region: Region, program_bytes: int, asynchronous: bool = False) -> tirx.PrimFunc:
    """The kernel; equal for all regions whose tensors have the same shapes and dtypes and whose programs are as long.

    Args:
        region: whose inputs and outputs it takes.
        program_bytes: length of the program, uint8, its first argument.
        asynchronous: whether its calls come in pairs, of which it has the attribute :data:`..runtime.drivers.QUEUED`.
    """
    program = tirx.decl_buffer([program_bytes], "uint8", "program")
    inputs, outputs = _buffers(region.inputs, "x"), _buffers(region.outputs, "y")
    call = tirx.call_packed(QUEUED if asynchronous else TRAMPOLINE, len(inputs), program, *inputs, *outputs)
    function = tirx.PrimFunc([program, *inputs, *outputs], tirx.Evaluate(call))
    attrs = {"op_pattern": OPAQUE, "tirx.noalias": True}
    return function.with_attr({**attrs, QUEUED: True} if asynchronous else attrs)


def _buffers(values: Sequence[Value], letter: str) -> list[tirx.Buffer]:
    return [tirx.decl_buffer(list(v.shape), v.dtype, f"{letter}{i}") for i, v in enumerate(values)]
