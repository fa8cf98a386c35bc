"""The machine code of kernels as text: LLVM IR and assembly of exactly the kernels that a compile makes.

    {"conv2d_add": <TIR>}   ->   {"conv2d_add": "conv2d_add_compute_:\\n\\tpushq\\t%rbp ..."}

Each kernel is compiled by :func:`.build.compile_kernels`, as a build does it, in a module of its own, so that its text
stands alone. What every module of TVM's has and no kernel calls (its entry point, conversions of float16) is left out.
"""

from __future__ import annotations

import concurrent.futures
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.errors import OptionError
from ..core.machine import Machine, available_cores
from .build import compile_kernels, is_scheduled, kernels_of

if TYPE_CHECKING:
    from tvm import tirx

    from .lower import Lowered

#: What may be asked for, and TVM's name of it.
KINDS = {"llvm": "ll", "asm": "asm"}

#: Functions that TVM adds to every module.
_ADDED = frozenset({"__tvm_ffi_main", "__truncsfhf2", "__extendhfsf2"})
_FUNCTION = re.compile(r"^\t\.type\t([\w.$]+),[@%]function\n", re.MULTILINE)
#: For debuggers and unwinders; the symbol's own label stays.
_FOR_TOOLS = re.compile(
    r"^(?:\t\.(?:cfi_|loc\t|file\t|p2align\t|addrsig|ident\t|size\t|type\t).*|\.L(?:tmp|func_begin|func_end)\d+:.*)\n",
    re.MULTILINE,
)


def machine_code(lowered: Lowered, kind: str) -> dict[str, str]:
    """The code of every kernel of a lowered model.

    Args:
        lowered: what :func:`.lower.lower` made.
        kind: "llvm" (LLVM IR after its optimizations) or "asm" (assembly).

    Returns:
        Name of the kernel -> text: its entry `__tvm_ffi_NAME`, the function of its body, and the bodies of its
        parallel loops.

    Raises:
        OptionError: another kind.
    """
    return code_of(kernels_of(lowered.mod), lowered.ctx.machine, kind)


def code_of(kernels: Mapping[str, tirx.PrimFunc], machine: Machine, kind: str) -> dict[str, str]:
    """:func:`machine_code` of kernels that stand in no model.

    Raises:
        OptionError: another kind.
    """
    if kind not in KINDS:
        raise OptionError(f"machine code as {kind!r}: choose {' or '.join(map(repr, KINDS))}")

    def text(name: str) -> str:
        module = compile_kernels({name: kernels[name]}, machine, scheduled=is_scheduled(kernels[name]))
        found = str(module.inspect_source(KINDS[kind]))
        return _own_assembly(found) if kind == "asm" else _own_llvm(found)

    with concurrent.futures.ThreadPoolExecutor(available_cores()) as pool:
        return dict(zip(kernels, pool.map(text, kernels), strict=True))


def functions_of(assembly: str) -> dict[str, str]:
    """Symbol -> its lines, of assembly text that a compiler wrote; constants before a function go with it."""
    marks = list(_FUNCTION.finditer(assembly))
    starts = [_section_before(assembly, mark.start()) for mark in marks]
    ends = [*starts[1:], len(assembly)]
    return {mark[1]: assembly[a:b] for mark, a, b in zip(marks, starts, ends, strict=True)}
