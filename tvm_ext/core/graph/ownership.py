"""Who has the work of each ONNX node: a kernel, a region, memory that is read another way, or a pass that made it none.

Kept while passes run. A node whose last variable vanishes in a pass is owned by that pass, with the reason the pass
gave for this variable, or for what read it; one that vanishes without a reason is owned by nobody, and shows as such.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..passes import Event
    from ..plan import Kernel
    from .provenance import Provenance

#: Kinds of owners: a call of a kernel; a call of a region that a back end runs; memory that is read in another shape or
#: order; a pass, or the import, after which no work is left.
KERNEL, REGION, MEMORY, FOLD = "kernel", "region", "memory", "fold"
IMPORT = "import"

#: What stands for a region in :attr:`..plan.Kernel.recipe`.
OFFLOAD = "offload:"


class Role(enum.Flag):
    """What the work of nodes is after a pass; a pass declares it."""

    NONE = 0
    #: From here on operations are kernels, and one that vanishes is another reading of memory.
    MAKES_KERNELS = enum.auto()
    #: What it takes of a node that lives on, such as results nobody reads, is nothing to tell of that node.
    TELLS_NOTHING = enum.auto()
    #: What is left in the program and is no kernel is another shape of the same memory.
    LEAVES_VIEWS = enum.auto()


@dataclass(frozen=True)
class Owner:
    """One owner of a node.

    Attributes:
        kind: KERNEL, REGION, MEMORY or FOLD.
        name: of the kernel, the region's kernel, or the pass.
        reason: why this one; "" where the kernel's recipe takes the node.
        call: number of the call site among those of the kernel; -1 if it is none.
    """

    kind: str
    name: str
    reason: str = ""
    call: int = -1

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        call = {} if self.call < 0 else {"call": self.call}
        return {"kind": self.kind, "name": self.name, **call, **({"reason": self.reason} if self.reason else {})}


class Ownership:
    """Owners of the nodes of one model.

    Args:
        types: ONNX node -> ONNX operator, of all nodes.
        imported: nodes that the import left no work of -> why.

    Attributes:
        gone: node -> the owner that made it no work; a node may come back by provenance, and is then no more here.
        passes: node -> (pass, what it did) of every rewrite before kernels are made.
    """

    def __init__(self, types: Mapping[str, str] | None = None, imported: Mapping[str, str] | None = None) -> None:
        self.types = dict(types or {})
        self.gone = {node: Owner(FOLD, IMPORT, why) for node, why in (imported or {}).items()}
        self.passes: dict[str, list[tuple[str, str]]] = {}
        self._mod: IRModule | None = None
        self._live: dict[str, tuple[str, ...]] = {}
        self._roles: dict[Role, str] = {}

    def see(
        self, step: str, mod: IRModule, provenance: Provenance, events: Iterable[Event] = (), role: Role = Role.NONE
    ) -> None:
        """Look at the module after a step; what is gone since the step before is owned by this one."""
        self._roles.update((flag, step) for flag in Role if flag & role)
        if not self.types or mod is self._mod:
            return
        from .relax_graph import main_bindings

        reasons: dict[str, str] = {}
        for event in events:
            reasons.update((name, event.detail) for name in event.variables if name not in reasons)
        before, live = self._live, {b.var.name: provenance.of(b.var.name) for b in main_bindings(mod)}
        if Role.MAKES_KERNELS not in self._roles and Role.TELLS_NOTHING not in role:
            self._note(step, events, {**live, **before})
        here = {node for nodes in live.values() for node in nodes}
        lost = dict.fromkeys(node for nodes in before.values() for node in nodes if node not in here)
        if lost:
            self._note_lost(step, lost, live, reasons)
        self.gone = {node: owner for node, owner in self.gone.items() if node not in here}
        self._mod, self._live = mod, live

    def _note(self, step: str, events: Iterable[Event], nodes_of: Mapping[str, tuple[str, ...]]) -> None:
        for event in events:
            nodes = dict.fromkeys(node for name in event.variables for node in nodes_of.get(name, ()))
            for node in nodes:
                known = self.passes.setdefault(node, [])
                if (step, event.detail) not in known:
                    known.append((step, event.detail))

    def _note_lost(self, step: str, lost: Iterable[str], live: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
        from .relax_graph import uses_of

        assert self._mod is not None
        readers: dict[str, list[str]] = {}
        for var, uses in uses_of(self._mod["main"]).items():
            readers[var.name] = [reader.name for reader in uses if reader is not None]
        kind = MEMORY if Role.MAKES_KERNELS in self._roles else FOLD
        variables: dict[str, list[str]] = {node: [] for node in lost}
        for name, node in ((name, node) for name, nodes in self._live.items() for node in nodes if node in variables):
            variables[node].append(name)
        for node in lost:
            if reason := _nearest(variables[node], readers, reasons, lambda name: name in live):
                self.gone[node] = Owner(kind, step, reason)

    def owners(self, kernels: Mapping[str, Kernel]) -> dict[str, list[Owner]]:
        """Owners of every node, once all passes ran; an empty list is a node that nobody owns.

        Args:
            kernels: with their call sites.
        """
        owners_of: dict[str, list[Owner]] = {node: [] for node in self.types}
        for kernel in kernels.values():
            kind, reason = (REGION, "") if kernel.recipe.startswith(OFFLOAD) else (KERNEL, kernel.reason)
            for call, nodes in enumerate(kernel.calls):
                for node in nodes:
                    owners_of.setdefault(node, []).append(Owner(kind, kernel.name, reason, call))
        here = {node for nodes in self._live.values() for node in nodes}
        by = self._roles.get(Role.LEAVES_VIEWS, IMPORT)
        view = Owner(MEMORY, by, "another shape of the same memory")  # of a node that is here, and in no call
        for node, owners in owners_of.items():
            if not owners and (owner := self.gone.get(node) or (view if node in here else None)):
                owners.append(owner)
        return owners_of

    def as_dict(self, kernels: Mapping[str, Kernel], name_of: Callable[[str], str] = str) -> dict[str, Any]:
        """Plain values for JSON: node -> its operator, owners, and what passes did to it.

        Args:
            kernels: with their call sites.
            name_of: the name of a kernel in the report.
        """

        def row(owner: Owner) -> dict[str, Any]:
            return owner.as_dict() | ({"name": name_of(owner.name)} if owner.kind in (KERNEL, REGION) else {})

        rows = {}
        for node, owners in self.owners(kernels).items():
            passes = list(map(list, self.passes.get(node, ())))
            rows[node] = {"op": self.types.get(node, ""), "owners": list(map(row, owners)), "passes": passes}
        return rows


def _nearest(
    variables: Iterable[str], readers: Mapping[str, Iterable[str]], reasons: Mapping[str, str],
    stays: Callable[[str], bool],
) -> str:  # fmt: skip
    """The reason given for one of these variables, else for what reads them, through what is gone with them."""
    level = list(dict.fromkeys(variables))
    seen = set(level)
    while level:
        for name in level:
            if name in reasons:
                return reasons[name]
        level = [reader for name in level if not stays(name) for reader in readers.get(name, ()) if reader not in seen]
        level = list(dict.fromkeys(level))
        seen.update(level)
    return ""
