"""Kernels in shares: one for each core, those that recipes scheduled apart from the others."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import IRModule

from ...core.errors import BuildError, at_nodes, naming
from ...core.group import RECIPE
from ...core.machine import available_cores

if TYPE_CHECKING:
    from ...core.plan import Kernel


def on_all_cores(
    mod: IRModule, work: Callable[[Mapping[str, tirx.PrimFunc], bool, int], Any], known: Mapping[str, Kernel]
) -> list[Any]:  # fmt: skip
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


def kernels_of(mod: IRModule) -> dict[str, tirx.PrimFunc]:
    """The kernels of a module, by name."""
    return {g.name_hint: f for g, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}


def is_scheduled(kernel: tirx.PrimFunc) -> bool:
    """Whether a recipe scheduled a kernel: it decides how LLVM treats its loops."""
    return bool(kernel.attrs and RECIPE in kernel.attrs)
