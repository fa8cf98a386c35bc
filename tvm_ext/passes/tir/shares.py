"""Kernels in shares: one for each core, those that recipes scheduled apart from the others."""

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

if TYPE_CHECKING:
    from ...core.plan import Kernel


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
    shares = shares_of(kernels_of(mod))

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
    on = [one for one in passes if one.name not in ctx.switches.passes]
    for part in [on] if ctx.instruments.watch is None else [[one] for one in on]:
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
        for one in part:
            ctx.instruments.see(one.name, mod, ctx)
    return mod


def note_reports(ctx: CompileContext, shares: Iterable[Sequence[PassReport]]) -> None:
    """Add one report a pass to the context, of those of each share: how many kernels it changed, seconds of all
    threads together."""
    for told in zip(*shares, strict=True):
        count = sum(len(one.fired) for one in told)
        fired = (Event(f"{count} kernel{'s' * (count > 1)}", "rewritten"),) if count else ()
        ctx.reports.append(PassReport(told[0].name, fired, (), sum(one.seconds for one in told)))


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


def shares_of(kernels: Mapping[str, tirx.PrimFunc]) -> list[tuple[dict[str, tirx.PrimFunc], bool]]:
    """The kernels that recipes scheduled, and the others, each in one part a core."""
    return [*_shares(kernels, scheduled=True), *_shares(kernels, scheduled=False)]


def _shares(kernels: Mapping[str, tirx.PrimFunc], *, scheduled: bool) -> list[tuple[dict[str, tirx.PrimFunc], bool]]:
    chosen = [(name, f) for name, f in kernels.items() if is_scheduled(f) == scheduled]
    workers = min(available_cores(), len(chosen))
    return [(dict(chosen[index::workers]), scheduled) for index in range(workers)]


def is_scheduled(kernel: tirx.PrimFunc) -> bool:
    """Whether a recipe scheduled a kernel: it decides how LLVM treats its loops."""
    return bool(kernel.attrs and RECIPE in kernel.attrs)
