"""Kernels in shares: one for each core at most, those that recipes scheduled apart from the others."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import IRModule

from ...core.errors import BuildError, at_nodes, naming
from ...core.graph.nodes import kernels_of
from ...core.graph.relax_graph import with_functions
from ...core.group import RECIPE
from ...core.kernel_pass import KernelPass, run_kernel_passes
from ...core.machine import available_cores
from ...core.passes import CompileContext, Event, PassReport
from ...ops.operator import Kind
from ...ops.table import of

if TYPE_CHECKING:
    from ...core.plan import Kernel

#: Small kernels that take LLVM about as long as a module by itself: a third of it to optimize, the rest to load.
_OF_A_MODULE = 8


def on_all_cores(
    mod: IRModule, work: Callable[[Mapping[str, tirx.PrimFunc], bool, int], Any], known: Mapping[str, Kernel]
) -> list[Any]:
    """What `work` makes of the kernels of a module, a share of them on each core: LLVM works without Python's lock.

    Args:
        work: is given a share, whether recipes scheduled it, and its number.
        known: of the kernels, by name, for messages.

    Raises:
        BuildError: names the kernel with which it fails, and its nodes.
    """
    shares = _shares(kernels_of(mod), known)

    def done(index: int) -> Any:
        with naming(BuildError, lambda: _culprit(*shares[index], index, work, known)):
            return work(*shares[index], index)

    with concurrent.futures.ThreadPoolExecutor(available_cores()) as pool:
        return list(pool.map(done, range(len(shares))))


def run_on_kernels(passes: Iterable[KernelPass], mod: IRModule, ctx: CompileContext) -> IRModule:
    """The module with its kernels after passes, without those that are off; each core takes a share of the kernels.

    With somebody who watches, each pass ends on all cores before the next begins.

    Raises:
        BuildError: as :func:`on_all_cores`.
    """
    on = [step for step in passes if step.name not in ctx.switches.passes]
    for part in [on] if ctx.instruments.watch is None else [[step] for step in on]:
        reports: list[list[PassReport]] = []

        def work(
            share: Mapping[str, tirx.PrimFunc], scheduled: bool, _: int,
            part: list[KernelPass] = part, reports: list[list[PassReport]] = reports,
        ) -> IRModule:  # fmt: skip
            after, told = run_kernel_passes(part, IRModule(dict(share)), ctx.machine.target(scheduled=scheduled))
            reports.append(told)
            return after

        shares = on_all_cores(mod, work, ctx.kernels)
        mod = with_functions(mod, {name: kernel for share in shares for name, kernel in kernels_of(share).items()})
        note_reports(ctx, reports)
        for step in part:
            ctx.instruments.see(step.name, mod, ctx)
    return mod


def note_reports(ctx: CompileContext, shares: Iterable[Sequence[PassReport]]) -> None:
    """Add one report a pass to the context, of those of each share: how many kernels it changed, seconds of all
    threads together."""
    for told in zip(*shares, strict=True):
        count = sum(len(report.fired) for report in told)
        fired = (Event(f"{count} kernel{'s' * (count > 1)}", "rewritten"),) if count else ()
        ctx.reports.append(PassReport(told[0].name, fired, (), sum(report.seconds for report in told)))


def _culprit(
    share: Mapping[str, tirx.PrimFunc], scheduled: bool, index: int, work: Callable[..., Any],
    known: Mapping[str, Kernel],
) -> str:  # fmt: skip
    """Which kernel of a share cannot be compiled, in words: the first that fails alone."""
    for name, function in share.items():
        try:
            work({name: function}, scheduled, index)
        except Exception:  # what it is, the caller says
            kernel = known.get(name)
            by = f" ({kernel.recipe}){at_nodes(kernel.nodes, {})}" if kernel else ""
            return f"kernel {name!r}{by} cannot be compiled"
    return f"kernels {', '.join(share)[:200]} cannot be compiled together"


def _shares(
    kernels: Mapping[str, tirx.PrimFunc], known: Mapping[str, Kernel]
) -> list[tuple[dict[str, tirx.PrimFunc], bool]]:  # fmt: skip
    """(name -> function, whether recipes scheduled them) of each share: one a core, or fewer of small kernels."""
    shares = []
    for scheduled in (True, False):
        names = [name for name, function in kernels.items() if is_scheduled(function) == scheduled]
        count = min(available_cores(), -(-sum(_small_kernels(known.get(name)) for name in names) // _OF_A_MODULE))
        shares += [({name: kernels[name] for name in names[index::count]}, scheduled) for index in range(count)]
    return shares


def _small_kernels(kernel: Kernel | None) -> int:
    """How many small kernels take LLVM as long: one, but for a recipe that sums products or has several operators."""
    anchor = kernel.plan.match.group.anchor if kernel is not None and kernel.plan is not None else "elementwise"
    return 1 if anchor == "elementwise" or of(anchor).kind not in (Kind.PRODUCT, Kind.OTHER) else _OF_A_MODULE


def is_scheduled(kernel: tirx.PrimFunc) -> bool:
    """Whether a recipe scheduled a kernel: it decides how LLVM treats its loops."""
    return bool(kernel.attrs and RECIPE in kernel.attrs)
