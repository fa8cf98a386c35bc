"""TVMScript of a module that reads as it was: constants by name, and what the printer loses put in another form first.

y = R.add(x, metadata["ir.GenericConst"][3])   ->   y = R.add(x, W.y)
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.ir import GenericConst, IRModule

from ..core.graph.nodes import nodes_of
from ..core.graph.relax_graph import bindings_of, with_body

#: What stands for a constant while TVM prints; it declares such free variables at the top of a function.
_PLACE = "tvm_ext_constant_"
_DECLARED = re.compile(rf"^ +{_PLACE}\d+: .*\n", re.MULTILINE)
_PLACED = re.compile(rf"\b{_PLACE}(\d+)\b")

_TYPED_LET = re.compile(r"\bT\.let\[T\.\w+x\d+\]")
_TYPED_VAR = re.compile(r"\b(\w+) = T\.(\w+x\d+)\(\)")

Naming = Callable[[GenericConst, str], str]
"""(constant, variable that is bound to what reads it) -> the text that stands for it."""


def script(mod: IRModule, naming: Naming) -> str:
    """The module as the text of a class `Module`, without imports.

    Args:
        mod: any; one that :func:`canonical` made reads back as it was.
        naming: texts for constants.
    """
    constants: list[tuple[GenericConst, str]] = []
    functions = {gvar: _with_places(gvar.name_hint, f, constants) for gvar, f in mod.functions_items()}
    text = _DECLARED.sub("", IRModule(functions, attrs=mod.attrs).script())
    text = _PLACED.sub(lambda place: naming(*constants[int(place[1])]), text)
    return _readable_types(re.sub(r"\A(?:#.*\n|\n)*", "", text))


def _readable_types(text: str) -> str:
    """The text with other words for types of vectors: of most lengths TVM's parser has no name for them, or no maker.

    v: T.let[T.float32x6] = ...   ->   v: T.let = ...
    v = T.float32x6()             ->   v = T.Var("v", "float32x6")
    """
    return _TYPED_VAR.sub(r'\1 = T.Var("\1", "\2")', _TYPED_LET.sub("T.let", text))


def _with_places(name: str, function: Any, constants: list[tuple[GenericConst, str]]) -> Any:
    """The function with a variable for each of its constants, which are added to the list."""
    if not isinstance(function, relax.Function):
        return function
    readers = dict(_readers(name, function))
    places: dict[GenericConst, relax.Var] = {}

    def place(constant: GenericConst) -> relax.Var:
        if constant not in places:
            places[constant] = relax.Var(f"{_PLACE}{len(constants)}", constant.ty)
            constants.append((constant, readers.get(constant, name)))
        return places[constant]

    return with_body(function, tvm_ffi.structural_map(function.body, (GenericConst, place)))


def _readers(name: str, function: relax.Function) -> Iterator[tuple[GenericConst, str]]:
    """Each constant with the variable of its first reader; in reverse, so that the first is kept."""
    prefix = "" if name == "main" else f"{name}_"
    for binding in reversed(bindings_of(function)):
        for constant in reversed(nodes_of(binding.value, GenericConst)):
            yield constant, f"{prefix}{binding.var.name}"


def canonical(mod: IRModule) -> IRModule:
    """The module with kernels in the form that TVM's printer and parser keep; the same machine code comes of them.

    Each variable is bound once (a build does that too), and buffers that lie row by row do not say so.
    """
    functions = {}
    for gvar, function in mod.functions_items():
        functions[gvar] = _canonical(function) if isinstance(function, tirx.PrimFunc) else function
    return IRModule(functions, attrs=mod.attrs)


def _canonical(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    plain = _without_default_layouts(kernel)
    if s_tir.analysis.verify_well_formed(plain, assert_mode=False):
        return plain
    single = tirx.transform.ConvertSSA()(IRModule({"main": plain}))["main"]
    body = tvm_ffi.structural_map(single.body, (s_tir.SBlock, _with_own_variables))
    return tirx.PrimFunc(single.params, body, single.ret_type, kernel.attrs)


def _with_own_variables(block: s_tir.SBlock) -> s_tir.SBlock:
    """The block with new variables: a loop that was cut in parts has the block of its body several times."""
    new = {axis.var: tvm.ir.Var(axis.var.name, axis.var.ty) for axis in block.iter_vars}
    own = [tirx.IterVar(axis.dom, new[axis.var], axis.iter_type, axis.thread_tag) for axis in block.iter_vars]

    def mine(part: Any) -> Any:
        return tvm_ffi.structural_map(part, (tvm.ir.Var, lambda var: new.get(var, var)))

    init = None if block.init is None else mine(block.init)
    return s_tir.SBlock(
        own, mine(block.reads), mine(block.writes), block.name_hint, mine(block.body), init, block.alloc_buffers,
        mine(block.match_buffers), block.annotations,
    )  # fmt: skip


def _without_default_layouts(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel whose parameters have no layout where it is that of rows one after another."""
    scheduled_dialect = bool(kernel.attrs and kernel.attrs.get("s_tir", False))  # only there the parser gives none
    new = {var: _plain(var) for var in kernel.params if scheduled_dialect and _says_default(var)}
    if not new:
        return kernel
    body = tvm_ffi.structural_map(kernel.body, (tvm.ir.Var, lambda var: new.get(var, var)))
    return tirx.PrimFunc([new.get(v, v) for v in kernel.params], body, kernel.ret_type, kernel.attrs)


def _says_default(var: Any) -> bool:
    layout = getattr(var.ty, "layout", None)
    if layout is None:
        return False
    usual = tirx.decl_buffer(list(var.ty.shape), var.ty.dtype, var.name, layout="default").ty.layout
    return bool(tvm_ffi.structural_equal(layout, usual))


def _plain(var: Any) -> Any:
    ty = var.ty
    return tirx.decl_buffer(
        ty.shape, ty.dtype, var.name, strides=list(ty.strides), elem_offset=ty.elem_offset, layout=None,
        data_alignment=ty.data_alignment, offset_factor=ty.offset_factor,
    )  # fmt: skip
