"""A recipe for relu whose configuration says how it misbehaves; workers import it as a plugin."""

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config, Layouts, Match, Recipe

#: Far longer than any time-out of a test.
_LONG = 1000.0
#: Variable of the environment that names a file: it appears when a kernel hangs.
HANGS = "TVM_EXT_TEST_HANGS"


def _hang() -> None:
    if path := os.environ.get(HANGS):
        Path(path).touch()
    time.sleep(_LONG)


_CALLS = {
    "hang in run": _hang,
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(7),
    "nothing": lambda: None,
}


class Misbehaving(Recipe):
    """relu, or what "how" names."""

    name = "misbehaving"
    anchors = frozenset({"elementwise"})

    def match(self, group: Group, machine: Machine) -> Match:
        return Match(group)

    def space(self, match: Match, machine: Machine) -> Mapping[str, Sequence[Any]]:
        return {"how": ["right", "wrong", "slow", "hang in build", "bad schedule", *_CALLS], "n": range(100)}

    def cost(self, match: Match, config: Config, machine: Machine) -> float:
        return 1.0

    def layouts(self, match: Match, config: Config, offered: Sequence[Layout]) -> Layouts:
        return Layouts(tuple(offered), offered[0])

    def compute(self, match: Match, config: Config, layouts: Layouts) -> tirx.PrimFunc:
        x, how = te.placeholder(match.group.shape, match.group.dtype, "x"), config["how"]
        if how in _CALLS:
            call = tirx.call_packed(f"tvm_ext_test.{how}")
            y = te.extern([x.shape], [x], lambda ins, outs: tirx.Evaluate(call), name="y", dtype=[x.dtype])
            return te.create_prim_func([x, y])
        y = te.compute(x.shape, lambda *i: x(*i) if how == "wrong" else te.max(x(*i), tirx.const(0, x.dtype)), "y")
        return te.create_prim_func([x, y])

    def schedule(self, sch: Schedule, match: Match, config: Config, machine: Machine) -> None:
        if config["how"] == "hang in build":
            time.sleep(_LONG)
        if config["how"] == "bad schedule":
            raise ValueError("this loop cannot be split")


for _how, _function in _CALLS.items():
    tvm_ffi.register_global_func(f"tvm_ext_test.{_how}", _function, override=True)

RECIPES = (Misbehaving(),)
