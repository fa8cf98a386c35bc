"""Assembles lowered programs into one module over one set of weights, with the metadata and the report.

main of batch 1, main of batch 4      ->   main_n1, main_n4, kernels of both, equal weights once
main of any size, main of S = 32      ->   main, main_S32, ...
"""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import GlobalVar, IRModule

from ..core.cost.work import bytes_of
from ..core.graph.relax_graph import main_bindings, op_name
from ..core.layout import Layout
from ..core.machine import Machine
from ..core.passes import CompileContext
from ..core.plan import Kernel
from ..frontend.reading.reader import Source
from ..passes.memory.arena import Memory
from ..passes.memory.destinations import Destinations
from ..passes.memory.overlap_regions import queued_kernels
from ..passes.memory.placement import Placed
from ..passes.memory.updates import Updates
from ..passes.pipeline import PLACING
from ..runtime.drivers import Offload
from ..runtime.expansion import Compact, Expansion
from ..runtime.spec import Body, Metadata, Program, TensorSpec, installed_versions
from ..runtime.tiles import TILE_FEATURES
from .build import has_parallel_loops
from .figures import kernel_figures
from .lower import Clock, Lowered, Programs


@dataclass
class Assembled:
    """What is built: one module, the weights of all its programs, and what the metadata needs."""

    model: Programs
    mod: IRModule
    weights: list[np.ndarray]
    origins: dict[int, tuple[np.ndarray, Layout]]
    programs: tuple[Program, ...]
    facts: tuple[dict[str, Any], ...]
    bodies: tuple[tuple[Body, dict[str, Any]], ...]
    offloads: tuple[Offload, ...]

    @property
    def source(self) -> Source:
        return self.model.lowered[0].source

    @property
    def machine(self) -> Machine:
        return self.model.lowered[0].ctx.machine

    @property
    def clock(self) -> Clock:
        return self.model.lowered[0].clock

    @functools.cached_property
    def ctx(self) -> CompileContext:
        """Of all programs together: its kernels are those of the module, what it reports the largest program's."""
        largest = self.model.lowered[self.model.largest].ctx
        kernels = {name: kernel for program in _all(self.model) for name, kernel in _kernels(program).items()}
        return replace(largest, kernels=kernels)

    def metadata(self) -> Metadata:
        """What the artifact says of itself."""
        weights = tuple(TensorSpec(f"w{i}", w.shape, str(w.dtype)) for i, w in enumerate(self.weights))
        compact = tuple(Compact(index, stored.shape, how) for index, (stored, how) in self._compact.items())
        machine, source = self.machine, self.source
        return Metadata(
            self.model.inputs, self.model.outputs, weights, self.programs, machine.threads,
            has_parallel_loops(self.mod), self._needed_machine(), installed_versions(),
            {"name": source.name, "sha256": source.sha256}, self._report(), compact, offloads=self.offloads,
            bodies=tuple(body for body, _ in self.bodies), symbols=self.model.symbols, state=self._states(),
            arguments=source.arguments, results=self.model.lowered[0].imported.results,
        )  # fmt: skip

    def _states(self) -> tuple[tuple[str, str], ...]:
        """Names of each output that is an input of the next call, and of that input."""
        inputs, outputs, pairs = self.model.inputs, self.model.outputs, self.model.lowered[0].ctx.states
        return tuple((outputs[output].name, inputs[taken].name) for output, taken in pairs)

    def _needed_machine(self) -> dict[str, Any]:
        """The machine, without tile registers where no kernel uses them: other code of LLVM's never does."""
        kernels = [kernel for kernel in self.ctx.kernels.values() if kernel.plan]
        used = {feature for kernel in kernels if kernel.calls for feature in kernel.plan.recipe.features}  # type: ignore[union-attr]
        features = [f for f in self.machine.features if f not in TILE_FEATURES or f in used]
        return {**self.machine.as_dict(), "features": features}

    def compact(self) -> dict[int, np.ndarray]:
        """Smaller forms of the weights that have one, by their numbers."""
        return {index: stored for index, (stored, _) in self._compact.items()}

    @functools.cached_property
    def _compact(self) -> dict[int, tuple[np.ndarray, Expansion]]:
        forms = {index: layout.compact(value) for index, (value, layout) in sorted(self.origins.items())}
        return {index: form for index, form in forms.items() if form is not None}

    def _report(self) -> dict[str, Any]:
        """Facts of the largest program stand at the top; `programs` has those of each, if there are several."""
        largest = self.model.lowered[self.model.largest]
        ctx, ownership, facts_of = largest.ctx, largest.ctx.ownership, self.facts[self.model.largest]
        said = (w for item in _all(self.model) for w in (*item.imported.warnings, *_left_out(item)))
        report = {
            "kernels": [k for facts in self.facts for k in facts["kernels"]],
            **{key: value for key, value in facts_of.items() if key not in ("kernels", "batch", "sizes")},
            "nodes": ownership.as_dict(ctx.kernels, lambda name: name + largest.tag),
            "passes": [r.as_dict() for r in ctx.reports],
            "timing": dict(self.clock.seconds),
            "warnings": list(dict.fromkeys([*said, *self.model.warnings])),
        }
        if ctx.options.freeze:
            report["frozen"] = [asdict(item) for item in ctx.options.freeze]
        if (precision := ctx.precision) is not None:
            report["precision"] = precision.as_dict()
        if (plan := ctx.offload) is not None:
            gone = {node: f"{owner.name}: {owner.reason}" for node, owner in ownership.gone.items()}
            states, queued = bool(ctx.states), bool(queued_kernels(largest.mod))
            facts = plan.as_dict(ownership.types, gone, ctx.kernels.values(), states, queued and not states)
            report["offload"] = facts
        if self.bodies:
            report["bodies"] = [{"name": body.name, **facts} for body, facts in self.bodies]
        if len(self.facts) > 1:
            report["programs"] = [{k: v for k, v in facts.items() if k != "kernels"} for facts in self.facts]
        return report


def _left_out(lowered: Lowered) -> list[str]:
    """Lines of the tuning logs that were no records: the first few."""
    return [f"left out of the tuning records: {problem}" for problem in lowered.ctx.records.problems[:5]]


def _all(model: Programs) -> list[Lowered]:
    """The programs of a model, and the bodies of their loops."""
    return [program for lowered in model.lowered for program in lowered.with_bodies()]


def assemble(model: Programs) -> Assembled:
    """One module of all programs and bodies of loops, whose functions take memory for their outputs."""
    weights = _Weights(shared=len(_all(model)) > 1)
    functions: dict[GlobalVar, Any] = {}
    origins: dict[int, tuple[np.ndarray, Layout]] = {}
    programs, bodies = [], []
    offloads: dict[int, Offload] = {}  # by weight: equal programs, of several batches, are one
    for lowered in _all(model):
        entry, ctx = _entry(lowered), lowered.ctx
        functions.update(_renamed(PLACING.run(lowered.mod, ctx), lowered).functions_items())
        placed, destinations = ctx.fact(Placed), ctx.fact(Destinations).outputs
        updates = ctx.facts.get(Updates, Updates())
        cost = sum(k.estimate * len(k.calls) for k in lowered.ctx.kernels.values())
        indices = tuple(weights.add(w) for w in lowered.ctx.weights)
        origins.update({indices[i]: origin for i, origin in lowered.ctx.origins.items()})
        fixed, facts = tuple(lowered.fixed.items()), _facts(lowered, placed.memory, updates)
        memory = (placed.views, updates.pairs)
        program = Program(entry, indices, destinations, lowered.batch, cost, *memory, fixed, lowered.symbols)
        if lowered.body:
            body = Body(lowered.body, lowered.imported.inputs, lowered.imported.outputs, program)
            bodies.append((body, facts))
        else:
            programs.append((program, facts))
        live = [r for r in lowered.ctx.offload.regions if r.weight >= 0] if lowered.ctx.offload else []
        for region in live:
            name, weight = region.name + lowered.tag, indices[region.weight]
            offloads.setdefault(weight, Offload(weight, region.backend, name, region.module))
    tables, facts_of = zip(*programs, strict=True)
    return Assembled(
        model, IRModule(functions), weights.arrays, origins, tables, facts_of, tuple(bodies), tuple(offloads.values())
    )


def _kernels(lowered: Lowered) -> dict[str, Kernel]:
    """What is known of each kernel, by its name in the module of all batches."""
    return {name + lowered.tag: kernel for name, kernel in lowered.ctx.kernels.items()}


def _entry(lowered: Lowered) -> str:
    return f"main{lowered.tag}"


def _renamed(mod: IRModule, lowered: Lowered) -> IRModule:
    """The module with names that tell the batch of its program, or which body it is."""
    if not lowered.tag:
        return mod
    builder, new = relax.BlockBuilder(), {}
    for gvar, function in mod.functions_items():
        if not isinstance(function, relax.Function):
            name = gvar.name_hint + lowered.tag
            new[gvar] = builder.add_func(function.with_attr("global_symbol", name), name)
    main = tvm_ffi.structural_map(mod["main"], (GlobalVar, lambda called: new.get(called, called)))
    builder.add_func(main.with_attr("global_symbol", _entry(lowered)), _entry(lowered))
    return builder.get()


def _facts(lowered: Lowered, memory: Memory, updates: Updates) -> dict[str, Any]:
    """What a program does in one call: launches, bytes its kernels read and write, memory it takes."""
    figures, held = kernel_figures(lowered), updates.nbytes
    figures |= {name: {**figures[name], "bytes": nbytes} for name, nbytes in held.items()}
    kernels = [{**k.as_dict(), **figures[k.name]} for k in lowered.ctx.kernels.values() if k.calls]
    if lowered.tag:
        batch = {"batch": lowered.batch} if lowered.batch else {"sizes": dict(lowered.fixed)} if lowered.fixed else {}
        kernels = [{**k, "name": k["name"] + lowered.tag, **batch} for k in kernels]
    calls = [b.value for b in main_bindings(lowered.mod) if op_name(b.value) == "relax.call_tir"]
    return {
        "batch": lowered.batch,
        "sizes": dict(lowered.fixed),
        "kernels": kernels,
        "launches": sum(k["calls"] for k in kernels),
        "bytes_moved": sum(_moved(call, held) for call in calls),
        "activation_bytes": memory.arena.nbytes,
        "memory": memory.as_dict(lowered.tag),
        "weight_bytes": sum(w.nbytes for w in lowered.ctx.weights),
    }


def _moved(call: Any, held: Mapping[str, int]) -> int:
    """Bytes that a call of a kernel reads and writes."""
    return held.get(call.args[0].name_hint) or sum(map(bytes_of, (*call.args[1].fields, call)))


class _Weights:
    """Arrays, equal ones once; one program alone has each once already."""

    def __init__(self, shared: bool) -> None:
        self.arrays: list[np.ndarray] = []
        self._shared = shared
        self._known: dict[tuple[Any, ...], int] = {}

    def add(self, array: np.ndarray) -> int:
        """The number of the array of this value."""
        if not self._shared:
            self.arrays.append(array)
            return len(self.arrays) - 1
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        key = (array.shape, str(array.dtype), hashlib.blake2b(data.data).digest())
        index = self._known.setdefault(key, len(self.arrays))
        if index == len(self.arrays):
            self.arrays.append(array)
        return index
