"""Assembles lowered programs into one module over one set of weights, with the metadata and the report.

main of batch 1, main of batch 4   ->   main_n1, main_n4, kernels of both, equal weights once
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GlobalVar, IRModule

from ..core.layout import Layout
from ..core.machine import Machine
from ..core.relax_graph import main_bindings, op_name, shape_of
from ..frontend.reader import Source
from ..runtime.drivers import Offload
from ..runtime.expansion import Compact, Expansion
from ..runtime.spec import Metadata, Program, TensorSpec, installed_versions
from .build import has_parallel_loops
from .destinations import storage_bytes, with_destinations
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
    offloads: tuple[Offload, ...] = ()

    @property
    def source(self) -> Source:
        return self.model.lowered[0].source

    @property
    def machine(self) -> Machine:
        return self.model.lowered[0].ctx.machine

    @property
    def clock(self) -> Clock:
        return self.model.lowered[0].clock

    def metadata(self) -> Metadata:
        """What the artifact says of itself."""
        weights = tuple(TensorSpec(f"w{i}", w.shape, str(w.dtype)) for i, w in enumerate(self.weights))
        compact = tuple(Compact(index, stored.shape, how) for index, (stored, how) in self._compact.items())
        machine, source = self.machine, self.source
        return Metadata(
            self.model.inputs, self.model.outputs, weights, self.programs, machine.threads,
            has_parallel_loops(self.mod), machine.as_dict(), installed_versions(),
            {"name": source.name, "sha256": source.sha256}, self._report(), compact, offloads=self.offloads,
        )  # fmt: skip

    def compact(self) -> dict[int, np.ndarray]:
        """Smaller forms of the weights that have one, by their numbers."""
        return {index: stored for index, (stored, _) in self._compact.items()}

    @functools.cached_property
    def _compact(self) -> dict[int, tuple[np.ndarray, Expansion]]:
        made = {index: layout.compact(value) for index, (value, layout) in sorted(self.origins.items())}
        return {index: form for index, form in made.items() if form is not None}

    def _report(self) -> dict[str, Any]:
        """Facts of the largest program stand at the top; `programs` has those of each, if there are several."""
        lowered = self.model.lowered
        report = {
            "kernels": [k for facts in self.facts for k in facts["kernels"]],
            **{key: value for key, value in self.facts[-1].items() if key not in ("kernels", "batch")},
            "passes": [r.as_dict() for r in lowered[-1].ctx.reports],
            "timing": dict(self.clock.seconds),
            "warnings": list(dict.fromkeys(w for one in lowered for w in (*one.imported.warnings, *_left_out(one)))),
        }
        if freeze := lowered[-1].ctx.options.freeze:
            report["frozen"] = [asdict(one) for one in freeze]
        if (plan := lowered[-1].ctx.offload) is not None:
            report["offload"] = plan.as_dict(lowered[-1].ctx.node_types)
        if len(self.facts) > 1:
            report["programs"] = [{k: v for k, v in facts.items() if k != "kernels"} for facts in self.facts]
        return report


def _left_out(lowered: Lowered) -> list[str]:
    """Lines of the tuning logs that were no records: the first few."""
    return [f"left out of the tuning records: {problem}" for problem in lowered.ctx.records.problems[:5]]


def assemble(model: Programs) -> Assembled:
    """One module of all programs, whose functions take memory for their outputs."""
    weights = _Weights(shared=len(model.lowered) > 1)
    functions: dict[GlobalVar, Any] = {}
    origins: dict[int, tuple[np.ndarray, Layout]] = {}
    programs, facts = [], []
    offloads: dict[int, Offload] = {}  # by weight: equal programs, of several batches, are one
    for lowered in model.lowered:
        one = _renamed(lowered)
        entry = _entry(lowered)
        mod, destinations = _in_place(one, entry)
        functions.update(mod.functions_items())
        facts.append(_facts(lowered, mod))
        cost = sum(k.estimate * len(k.calls) for k in lowered.ctx.kernels.values())
        indices = tuple(weights.add(w) for w in lowered.ctx.weights)
        origins.update({indices[i]: origin for i, origin in lowered.ctx.origins.items()})
        programs.append(Program(entry, indices, destinations, lowered.batch, cost))
        for region in lowered.ctx.offload.regions if lowered.ctx.offload else ():
            name, weight = _of_batch(region.name, lowered), indices[region.weight]
            offloads.setdefault(weight, Offload(weight, region.backend, name, region.module))
    return Assembled(
        model, IRModule(functions), weights.arrays, origins, tuple(programs), tuple(facts), tuple(offloads.values())
    )


def _entry(lowered: Lowered) -> str:
    return _of_batch("main", lowered)


def _of_batch(name: str, lowered: Lowered) -> str:
    return f"{name}_n{lowered.batch}" if lowered.batch else name


def _renamed(lowered: Lowered) -> IRModule:
    """The module with names that tell its batch."""
    if not lowered.batch:
        return lowered.mod
    builder, new = relax.BlockBuilder(), {}
    for gvar, function in lowered.mod.functions_items():
        if not isinstance(function, relax.Function):
            new[gvar] = builder.add_func(function, _of_batch(gvar.name_hint, lowered))
    main = tvm_ffi.structural_map(lowered.mod["main"], (GlobalVar, lambda found: new.get(found, found)))
    builder.add_func(main.with_attr("global_symbol", _entry(lowered)), _entry(lowered))
    return builder.get()


def _in_place(mod: IRModule, entry: str) -> tuple[IRModule, tuple[tuple[int, tuple[int, ...]], ...]]:
    """Calls in destination-passing style, the outputs' memory among the parameters."""
    t = relax.transform
    mod = tvm.transform.Sequential([t.ToNonDataflow(), t.RemovePurityChecking(), t.CallTIRRewrite()])(mod)
    function, destinations = with_destinations(mod[entry])
    mod.update_func(mod.get_global_var(entry), function)
    return t.Normalize()(mod), destinations


def _facts(lowered: Lowered, mod: IRModule) -> dict[str, Any]:
    """What a program does in one call: launches, bytes its kernels read and write, memory it takes."""
    kernels = [k.as_dict() for k in lowered.ctx.kernels.values() if k.calls]
    if lowered.batch:
        kernels = [{**k, "name": f"{k['name']}_n{lowered.batch}", "batch": lowered.batch} for k in kernels]
    calls = [b.value for b in main_bindings(lowered.mod) if op_name(b.value) == "relax.call_tir"]
    planned = relax.transform.StaticPlanBlockMemory()(mod)
    return {
        "batch": lowered.batch,
        "kernels": kernels,
        "launches": sum(k["calls"] for k in kernels),
        "bytes_moved": sum(_bytes(v) for call in calls for v in (*call.args[1].fields, call)),
        "activation_bytes": storage_bytes(planned[_entry(lowered)]),
        "weight_bytes": sum(w.nbytes for w in lowered.ctx.weights),
    }


def _bytes(value: Any) -> int:
    """Bytes of a tensor, or of each of a tuple."""
    if isinstance(value.ty, relax.TupleType):
        return sum(_bytes(relax.Var("t", field)) for field in value.ty.fields)
    bits = tvm.DataType(str(value.ty.dtype)).bits
    return math.prod(shape_of(value) or ()) * -(-bits // 8)


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
