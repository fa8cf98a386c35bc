"""Tasks for tests of measuring: what measurers see of a task, and nothing else."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, te
from tvm.ir import GlobalVar, IRModule
from tvm.s_tir import Schedule

from tests.schedules.kernels import make_group
from tvm_ext.core.group import Group
from tvm_ext.core.machine import Machine

PLUGIN = "tests.tuning.measure.misbehaving"
#: Takes times from here: number of the candidate, of each four -> seconds of a call in its first round, its second, ...
TOLD = "tests.tuning.measure.told_times"
SECONDS, CALLS = {0: (1.0, 1.0, 1.0), 1: (2.0, 1.05, 1.05), 2: (1.0,), 3: (1.3,)}, 10


class GroupTask:
    """A group with a recipe, as `RecipeTask` describes it to workers."""

    def __init__(self, group: Group, recipe: str, machine: Machine) -> None:
        self.name = recipe
        module = IRModule({GlobalVar(group.name): group.function})
        self._what = {
            "kind": "group", "module": str(tvm.ir.save_json(module)), "group": group.name, "recipe": recipe,
            "machine": machine.as_dict(),
        }  # fmt: skip

    def describe(self) -> dict[str, Any]:
        return self._what

    def candidate(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"config": dict(config)}


def relu_group(*shape: int, dtype: str = "float32") -> Group:
    def body(x: relax.Var) -> Any:
        yield relax.op.nn.relu(x)

    return make_group("elementwise", [shape], body, dtype=dtype)


def misbehaving(machine: Machine) -> GroupTask:
    return GroupTask(relu_group(3, 37), "misbehaving", machine)


class MatmulTask:
    """A matmul of the user's own; the configuration says how it is scheduled."""

    name = "matmul"

    def describe(self) -> dict[str, Any]:
        return {"kind": "module", "reference": _json(IRModule({"main": _matmul(7, 13, 5)}))}

    def candidate(self, config: Mapping[str, Any]) -> dict[str, Any]:
        if config["how"] == "refuse":
            raise ValueError("no such tile")
        function = _matmul(7, 13, 5, start=1 if config["how"] == "wrong" else 0)
        if config["how"] == "other shape":
            function = _matmul(7, 13, 6)
        sch = Schedule(function)
        i, j, k = sch.get_loops(sch.get_sblock("c"))
        sch.reorder(i, k, j)
        return {"module": _json(sch.mod)}


def _matmul(n: int, m: int, k: int, start: int = 0) -> Any:
    """c = a b; with `start` > 0 the sum leaves out its first terms."""
    a, b = te.placeholder((n, k), "float32", "a"), te.placeholder((k, m), "float32", "b")
    r = te.reduce_axis((start, k), "r")
    return te.create_prim_func([a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], r), "c")])


def _json(mod: IRModule) -> str:
    return str(tvm.ir.save_json(mod))


def children(parent: int = 0) -> list[int]:
    """Processes that a process, or this one, started and that are not collected yet."""
    numbers = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = status.read_text().rpartition(")")[2].split()
            numbers += [int(status.parent.name)] * (int(fields[1]) == (parent or os.getpid()))
    return numbers
