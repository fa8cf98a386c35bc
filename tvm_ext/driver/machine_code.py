"""The machine code of kernels as text: LLVM IR and assembly of exactly the kernels that a compile makes.

    {"conv2d_add": <TIR>}   ->   {"conv2d_add": "conv2d_add_compute_:\\n\\tpushq\\t%rbp ..."}

Each kernel is compiled by :func:`.build.compile_kernels`, as a build does it, in a module of its own, so that its text
stands alone. Left out is what every module of TVM's has (an entry point, conversions of float16, pointers to its
runtime), and what only debuggers and unwinders read. The instructions are those of the model's library.
"""

import concurrent.futures
import re
from collections.abc import Mapping
from dataclasses import replace

from tvm import tirx

from ..core.errors import check_choice
from ..core.graph.nodes import kernels_of
from ..core.machine import Machine, available_cores
from ..passes.pipeline import PLACING
from ..passes.tir.shares import is_scheduled
from .build import compile_kernels
from .lower import Lowered

#: What may be asked for, and TVM's name of it.
KINDS = {"llvm": "ll", "asm": "asm"}

#: Functions that TVM adds to every module.
_ADDED = frozenset({"__tvm_ffi_main", "__truncsfhf2", "__extendhfsf2"})
_SYMBOL = re.compile(r"^\t\.type\t([\w.$]+),[@%]function\n", re.MULTILINE)
_DEFINED = re.compile(r"^define .*?@([\w.$]+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"^@.* constant .*\n", re.MULTILINE)
#: Directives and labels of assembly that no instruction needs; labels that code jumps to stay.
_ASM_NOISE = re.compile(
    r"^(?:\t\.(?:cfi_|(?:loc|file|size|globl|p2align)\t).*|\t\.text|\.L(?:tmp|func_begin|func_end)\d+:.*|\s*)\n",
    re.MULTILINE,
)
#: Debug records and references to metadata in LLVM IR.
_LLVM_NOISE = re.compile(r"^ +(?:#dbg_|tail call .*\(metadata).*\n|(?:,? ![\w.]+ !\d+)+(?=$| \{$)", re.MULTILINE)


def machine_code(lowered: Lowered, kind: str) -> dict[str, str]:
    """The code of every kernel of a lowered model.

    Args:
        lowered: what :func:`.programs.lower` returns.
        kind: "llvm" (LLVM IR after its optimizations) or "asm" (assembly).

    Returns:
        Name of the kernel -> text: its entry `__tvm_ffi_NAME`, the function of its body, and the bodies of its
        parallel loops; :func:`functions_of` takes assembly apart.

    Raises:
        OptionError: another kind.
    """
    apart = replace(lowered.ctx, reports=[], facts={}, instruments=replace(lowered.ctx.instruments, watch=None))
    return code_of(kernels_of(PLACING.run(lowered.mod, apart)), apart.machine, kind)


def code_of(kernels: Mapping[str, tirx.PrimFunc], machine: Machine, kind: str) -> dict[str, str]:
    """:func:`machine_code` of scheduled kernels, by name.

    Raises:
        OptionError: another kind.
    """
    check_choice("kind", kind, KINDS)

    def text(name: str) -> str:
        module = compile_kernels({name: kernels[name]}, machine, scheduled=is_scheduled(kernels[name]))
        source = str(module.inspect_source(KINDS[kind]))
        return own_assembly(source) if kind == "asm" else _own_llvm(source)

    with concurrent.futures.ThreadPoolExecutor(available_cores()) as pool:
        return dict(zip(kernels, pool.map(text, kernels), strict=True))


def functions_of(assembly: str) -> dict[str, str]:
    """Symbol -> its lines, the constants that it reads before them; of text that :func:`machine_code` gave."""
    return {match[1]: part.rstrip("\n") + "\n" for part in assembly.split("\n\n") if (match := _SYMBOL.search(part))}


def own_assembly(module: str) -> str:
    """The kernel's functions, a blank line between them, of the assembly of its module."""
    parts = [(_SYMBOL.search(part), part) for part in module.split("\t.cfi_endproc\n")]
    return "\n".join(_ASM_NOISE.sub("", part) for symbol, part in parts if symbol and symbol[1] not in _ADDED)


def _own_llvm(module: str) -> str:
    """The kernel's functions and constants of the LLVM IR of its module."""
    text = _LLVM_NOISE.sub("", module)
    functions = [match[0] for match in _DEFINED.finditer(text) if match[1] not in _ADDED]
    constants = "".join(_CONSTANT.findall(text))
    return "\n".join([*([constants] if constants else []), *functions])
