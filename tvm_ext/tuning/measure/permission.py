"""A kernel that asks Linux for tile registers in the process that runs it: a server that has TVM, and not this library.

out[0] = syscall(arch_prctl, ARCH_REQ_XCOMP_PERM, tile data)      0, or minus the number of the error
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import StringImm
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...runtime.tiles import REQUEST

#: Name of the kernel in a module.
ASK = "tvm_ext_ask_for_tiles"
_SYSTEM_CALL = "tvm_ext_system_call"
#: System calls of x86-64: arguments and result are in these registers.
_SOURCE = f"""
define i64 @{_SYSTEM_CALL}(i64 %number, i64 %first, i64 %second) noinline nounwind {{
  %r = call i64 asm sideeffect "syscall", "={{rax}},{{rax}},{{rdi}},{{rsi}},~{{rcx}},~{{r11}},~{{memory}}"(
    i64 %number, i64 %first, i64 %second)
  ret i64 %r
}}
"""


def asking_kernel() -> tirx.PrimFunc:
    """The kernel, of a buffer of one int64."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(ASK)
        T.func_attr({"tirx.noalias": True})
        out = T.arg("out", T.buffer((1,), "int64"))
        numbers = (tirx.const(number, "int64") for number in REQUEST)
        T.buffer_store(out, tirx.call_extern("int64", _SYSTEM_CALL, *numbers), [0])
    function = builder.get()
    source = tirx.AttrStmt(tirx.const(0), "pragma_import_llvm", StringImm(_SOURCE), function.body)
    return function.with_body(source)


def request_of(module: Any, device: Any) -> Callable[[], int]:
    """Asks as :func:`tvm_ext.runtime.tiles.request` does, wherever a module with the kernel was loaded."""

    def request() -> int:
        out = tvm.runtime.tensor(np.zeros(1, np.int64), device)
        module[ASK](out)
        return -int(out.numpy()[0])

    return request
