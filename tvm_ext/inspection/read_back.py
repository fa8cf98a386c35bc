"""Reads a stage file that was just written, and says where it is not what it was written from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

from ..core.errors import StageError
from ..core.graph.relax_graph import bindings_of
from ..driver.stages.file import read_stage


@dataclass(frozen=True)
class ReadBack:
    """What reading a stage file back showed.

    Attributes:
        gaps: function -> what is another; empty if all is as it was.
        renamed: variable of `main` -> its name in the text, where that is another.
        broken: why the file cannot be read at all; "" if it can.
    """

    gaps: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    broken: str = ""


def read_back(path: Path, mod: IRModule) -> ReadBack:
    """Compare what a file makes with the module it was written from, function by function.

    Args:
        path: of the text; its manifest and its tensors are beside it.
        mod: in the form of :func:`.script.canonical`.
    """
    try:
        module = read_stage(path).mod
    except StageError as error:
        if error.message.startswith(f"{path.with_suffix('.json')}: no compile"):
            return ReadBack()  # said already
        return ReadBack({"Module": error.message}, broken=f"its text does not read back: {error.message}")
    assert module is not None
    read = {gvar.name_hint: function for gvar, function in module.functions_items()}
    gaps = {}
    for gvar, function in mod.functions_items():
        if why := _difference(function, read.get(gvar.name_hint)):
            gaps[gvar.name_hint] = why
    main = {gvar.name_hint: function for gvar, function in mod.functions_items()}.get("main")
    return ReadBack(gaps, _renamed(main, read["main"]) if main is not None and "main" in read else {})


def _difference(function: Any, other: Any) -> str:
    """Where two functions differ; "" if they are equal but for names."""
    if other is None:
        return "it is missing"
    mismatch = tvm_ffi.get_first_structural_mismatch(function, other, map_free_vars=True)
    return "" if mismatch is None else f"another value at {mismatch[0]}"


def _renamed(function: relax.Function, other: relax.Function) -> dict[str, str]:
    """Variable -> its name in the other function, which is equal but for names."""
    before = [*function.params, *(binding.var for binding in bindings_of(function))]
    after = [*other.params, *(binding.var for binding in bindings_of(other))]
    return {a.name: b.name for a, b in zip(before, after, strict=False) if a.name != b.name}
