"""A task in a worker: its arguments, its unscheduled function, and the kernel of a candidate.

{"kind": "group", ...}   a group's Relax function and a recipe; a candidate is a configuration, of another recipe too
{"kind": "module", ...}  an unscheduled TIR function; a candidate is that function scheduled
"""

import abc
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.s_tir import Schedule

from ...core.graph.nodes import kernels_of, nodes_of
from ...core.graph.relax_graph import op_name
from ...core.group import Group
from ...core.layout import Layout
from ...core.machine import Machine
from ...core.recipe import Match, Miss, Recipe
from ...core.sizes import EXTENTS
from ...driver.build import compile_kernels
from ...ops.recurrence import NAME as RECURRENCE
from ...runtime.cpu import why_not_here
from ...schedules.registry import recipes
from .check import accumulated_length

#: Standard deviation of bytes of which all are as likely.
_DEVIATION = 256 / math.sqrt(12)


@dataclass(frozen=True)
class Argument:
    """One argument of a task's function.

    Attributes:
        shape: logical.
        constant: in the model.
        written: by the function.
        scale: a typical value of a scale or recurrent weight, which is positive; 0 of any other argument.
    """

    shape: tuple[int, ...]
    dtype: str
    constant: bool = False
    written: bool = False
    scale: float = 0.0


@dataclass(frozen=True)
class Kernel:
    """A candidate before it is compiled: how each of its arguments lies in memory, and whether it sums the products
    that the unscheduled function states (:attr:`tvm_ext.core.recipe.Recipe.exact`)."""

    function: tirx.PrimFunc
    layouts: tuple[Layout, ...]
    exact: bool = True


class Program(abc.ABC):
    """What a worker does for a task.

    Attributes:
        arguments: in the order in which kernels take them.
        unscheduled: TIR functions of the unscheduled function, for the lengths of their sums.
    """

    arguments: tuple[Argument, ...]
    unscheduled: IRModule

    @abc.abstractmethod
    def kernel(self, candidate: Mapping[str, Any]) -> Kernel:
        """The scheduled kernel of a candidate."""

    @abc.abstractmethod
    def reference(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Results of the unscheduled function: of each written argument, in order."""


def program_of(task: Mapping[str, Any], machine: Machine) -> Program:
    """The program of what `Task.describe` gave."""
    return GroupProgram(task) if task["kind"] == "group" else ModuleProgram(task, machine)


class GroupProgram(Program):
    """A group of a model with a recipe that takes it; the unscheduled function is TVM's own lowering of it."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        self._machine = Machine.of(task["machine"])
        function = tvm.ir.load_json(task["module"])[task["group"]]
        self._group = Group(task["group"], function.without_attr(EXTENTS))  # measured at the bounds
        self._matches: dict[str, tuple[Recipe, Match]] = {}
        self._default, _ = self._taken_by(task["recipe"])
        main = IRModule({"main": function.without_attr("tvm_ext.group").with_attr("global_symbol", "main")})
        with self._machine.target():
            self.unscheduled = relax.transform.LegalizeOps()(main)
        self._main = main
        scales = scales_of(self._group, accumulated_length(self.unscheduled))
        self.arguments = (
            *(Argument(p.shape, p.dtype, p.constant, scale=scales.get(p.var, 0.0)) for p in self._group.params),
            Argument(self._group.shape, self._group.dtype, written=True),
        )

    def kernel(self, candidate: Mapping[str, Any]) -> Kernel:
        recipe, match = self._taken_by(candidate.get("recipe", self._default.name))
        offered = [Layout.plain(len(p.shape)) for p in self._group.params]
        config = candidate["config"]
        layouts = recipe.layouts(match, config, offered)
        sch = Schedule(recipe.compute(match, config, layouts))
        recipe.schedule(sch, match, config, self._machine)
        return Kernel(sch.mod["main"], (*layouts.params, layouts.output), recipe.exact)

    def _taken_by(self, name: str) -> tuple[Recipe, Match]:
        """A recipe, and what it reads of the group.

        Raises:
            ValueError: there is no such recipe, or it does not take the group.
        """
        if name not in self._matches:
            recipe = _recipe(name)
            match = recipe.match(self._group, self._machine)
            if isinstance(match, Miss):
                raise ValueError(f"recipe {name!r} does not take group {self._group.name!r}: {match.reason}")
            self._matches[name] = recipe, match
        return self._matches[name]

    def reference(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        program = tvm.compile(self._main, target=_here(self._machine).target(scheduled=False))
        vm = relax.VirtualMachine(program, tvm.cpu())
        return [vm["main"](*(tvm.runtime.tensor(x) for x in inputs)).numpy()]


def scales_of(group: Group, length: int) -> dict[relax.Var, float]:
    """Parameter -> a typical value, of scales of bytes and of recurrent weights.

    Any bytes (whose standard deviation is 74) become numbers of about 1. Of a weight, which sums multiply, so small
    ones that sums are about 1 too, as trained ones do: else nearly all quantized results are the largest or the least.
    A recurrent weight is such that an error does not grow from step to step.

    Args:
        length: of the group's sums.
    """
    scales: dict[relax.Var, float] = {}
    for binding in group.bindings:
        if op_name(binding.value) in ("relax.dequantize", "relax.quantize"):
            data, scale = binding.value.args[:2]
            owner = group.param(data)
            summed = length if owner is not None and owner.constant else 1
            scales[scale] = 1 / (_DEVIATION * math.sqrt(max(summed, 1)))
        elif op_name(binding.value) == RECURRENCE:
            weight = binding.value.args[1]
            scales[weight] = 1 / int(weight.ty.shape.values[2])
    return {p.var: scales[p.var] for p in group.params if p.var in scales}


class ModuleProgram(Program):
    """A TIR function and schedules of it. It writes its results completely, whatever was in their memory."""

    def __init__(self, task: Mapping[str, Any], machine: Machine) -> None:
        self._machine = machine
        self.unscheduled = tvm.ir.load_json(task["reference"])
        self._function = _only_function(self.unscheduled)
        self.arguments = tuple(_arguments(self._function))

    def kernel(self, candidate: Mapping[str, Any]) -> Kernel:
        function = _only_function(tvm.ir.load_json(candidate["module"]))
        expected, actual = ([(a.shape, a.dtype) for a in _arguments(f)] for f in (self._function, function))
        sizes = ([(math.prod(shape), dtype) for shape, dtype in pairs] for pairs in (expected, actual))
        if not all(a == b for a, b in itertools.zip_longest(*sizes)):  # `transform_layout` may give other dimensions
            raise ValueError(f"the schedule changed the function's arguments: {actual}, expected {expected}")
        return Kernel(function, tuple(Layout.plain(len(a.shape)) for a in self.arguments))

    def reference(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        values = iter(inputs)
        tensors = [
            tvm.runtime.empty(a.shape, a.dtype) if a.written else tvm.runtime.tensor(next(values))
            for a in self.arguments
        ]
        compile_kernels({"main": self._function}, _here(self._machine), scheduled=False)["main"](*tensors)
        return [t.numpy() for t, a in zip(tensors, self.arguments, strict=True) if a.written]


def _here(machine: Machine) -> Machine:
    """The machine, or this one where code for it does not run here: candidates may be measured elsewhere, while the
    unscheduled function runs in the worker."""
    return Machine.detect(None, machine.threads) if why_not_here(machine.as_dict()) else machine


_added: list[Recipe] = []


def add_recipes(more: Iterable[Recipe]) -> None:
    """Recipes that are not registered, for this process."""
    _added.extend(more)


def _recipe(name: str) -> Recipe:
    known = {recipe.name: recipe for recipe in (*recipes(), *_added)}
    if name not in known:
        raise ValueError(f"no recipe {name!r}: there are {', '.join(known)}")
    return known[name]


def _only_function(mod: IRModule) -> tirx.PrimFunc:
    functions = list(kernels_of(mod).values())
    if len(functions) != 1:
        raise ValueError(f"a module with one TIR function is needed, this one has {len(functions)}")
    return functions[0]


def _arguments(function: tirx.PrimFunc) -> list[Argument]:
    """Arguments of a TIR function; those it stores to are written."""
    written = [store.buffer for store in nodes_of(function.body, tirx.BufferStore)]
    return [
        Argument(
            tuple(int(d) for d in p.ty.shape), str(p.ty.dtype), written=any(p.same_as(buffer) for buffer in written)
        )
        for p in function.params
    ]
