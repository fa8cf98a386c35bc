"""Measures the rates of the cores this process runs on, in well under a second.

Every figure is the least time of several short calls, taken in turn over some rounds, so that something else on the
machine spoils a call or a round, and no figure. Of reads from memory it is the time that a third of them take less
than: an L3 keeps some windows of a buffer several times its size, and the least time is of one that it kept. Bytes and
instructions are counted by cycles of a chain of dependent integers that is timed in the same rounds: a clock that
moves changes no ratio. Products of narrow numbers run where the CPU has them, those of 16 bits where it has
none of 8, and are 0 elsewhere. Where the threads never run all at once, because other programs have the cores, loops
that need all of them have no figure: those of a similar machine stand in.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from ..core.errors import OptionError
from ..runtime.cpu import why_not_here
from ..runtime.memory.arrays import mapped_empty, to_tensor
from . import loops, product_loops
from .instructions import INSTRUCTIONS, Product
from .rates import Rates

#: Rounds, and seconds that each loop is called for in one, at least twice.
_ROUNDS, _SECONDS = 6, 0.003
#: Rounds more of what all threads do at once, while they do not; and how much longer they take if they do not.
_MORE_ROUNDS, _BUSY = 20, 1.2
#: Bytes that a call reads of what caches hold, steps of chains in a call, of products of tiles, and parallel loops.
_READ_BYTES, _STEPS, _TILE_STEPS, _LAUNCHES = 4 << 20, 20_000, 1000, 20
#: The share of a cache that a buffer takes to lie in it, and the most that is read for L3. What is read as memory are
#: windows of a buffer four times as large as L3, where that is not too much to touch.
_SHARE, _MOST_OF_L3, _MOST, _WINDOW = 0.25, 64 << 20, 128 << 20, 16 << 20
#: The share of the reads from memory that are faster than the figure.
_FASTER = 1 / 3
#: One instruction for each rate of products, and what tiles load.
_PRODUCTS = ("vpdpbusd", "vpmaddwd", "vdpbf16ps", "tdpbssd", "tdpbf16ps")
_LOADS = ("tile_l1", "tile_l2", "tile_l3")
#: Loops do not check their arguments, which are made here: the checks take two thirds as long to compile as the loops.
_CONFIG = {"tirx.disable_assert": True}
_FIX = "leave out the target, for this machine; a described machine has its rates already"


@dataclass(frozen=True)
class Caches:
    """Bytes of the data caches: a core's own L1 and L2, and the L3 that cores share."""

    l1d: int
    l2: int
    l3: int


def measure(vectors: loops.Vectors, caches: Caches, typical: Rates) -> Rates:
    """The rates of this machine, as measured; :meth:`.Rates.on_grid` rounds them.

    Args:
        vectors: lanes, threads and target of the loops; rates of several threads are of so many.
        caches: which sizes to read.
        typical: rates of a similar machine, for what cannot be measured: rates of several threads, while others keep
            the machine busy.

    Raises:
        OptionError: this CPU lacks instructions that the vectors' target has, or Linux keeps its tiles.
    """
    bench = _Bench(vectors, caches)
    seconds = bench.run()
    cycle = seconds["chain"] / (_STEPS * loops.CYCLES_OF_LINK)
    a_cycle = {name: amount * cycle / seconds[name] for name, amount in bench.amounts.items()}
    reads = {name: a_cycle[f"read {name}"] for name in ("l1", "l2", "l3", "memory")}
    if bench.busy(seconds):
        shared = {"l3_all": typical.l3_all, "memory_all": typical.memory_all}
        others = {"foreign": typical.foreign, "launch": typical.launch}
    else:
        shared = {name: a_cycle[f"read {name}"] for name in ("l3_all", "memory_all")}
        launch = max(seconds["launch"] / _LAUNCHES * 1e6, 0.05)
        others = {"foreign": _foreign(bench, seconds, cycle, reads["l2"]), "launch": launch}
    return Rates(
        clock=1e-9 / cycle, fma=a_cycle["fma"], fma_half=a_cycle["fma_half"], **reads,
        **{name: max(rate, reads[name.removesuffix("_all")]) for name, rate in shared.items()},
        **others, cores=vectors.threads, **_narrow(a_cycle),
    )  # fmt: skip


def _foreign(bench: _Bench, seconds: Mapping[str, float], cycle: float, l2: float) -> float:
    """Bytes a cycle of lines that another core wrote: what reading them takes longer than reading one's own."""
    share = bench.amounts["exchange other"]
    longer = (seconds["exchange other"] - seconds["exchange own"]) / cycle + share / l2
    return min(l2, share / longer) if longer > 0 else l2


def _narrow(a_cycle: Mapping[str, float]) -> dict[str, float]:
    """The rates of products of narrow numbers; those that were not run are 0. Of tiles, cycles of a product."""
    rates = {name: a_cycle.get(name, 0.0) for name in ("dot_int8", "dot_int16", "dot_bf16", *_LOADS)}
    return {**rates, **{name: 1 / a_cycle[name] for name in ("tile_int8", "tile_bf16") if name in a_cycle}}


def products_of(vectors: loops.Vectors) -> list[Product]:
    """The instructions to measure, of those that the vectors' features have: of pairs only where none takes bytes."""
    known = [INSTRUCTIONS[name] for name in _PRODUCTS if INSTRUCTIONS[name].fits(vectors.lanes)]
    has = [product for product in known if product.features(vectors.lanes) <= set(vectors.features)]
    bytewise = any(product.instruction == "vpdpbusd" for product in has)
    return [product for product in has if not (bytewise and product.instruction == "vpmaddwd")]


class _Bench:
    """The loops, compiled as one module, with their buffers.

    Attributes:
        amounts: instructions of a call, or bytes that it reads: of one thread, of all for names that end in "_all"; of
            an exchange, those that each thread reads.
    """

    def __init__(self, vectors: loops.Vectors, caches: Caches) -> None:
        if why := why_not_here(vectors.as_dict()):
            raise OptionError(f"rates are measured on the machine itself: {why}", fix=_FIX)
        lanes, threads = vectors.lanes, vectors.threads
        self._threads, self._lanes, self._products = threads, lanes, products_of(vectors)
        self._row = loops.CHAINS * lanes * 4
        memory = min(4 * caches.l3, _MOST)
        size = max(memory, 2 * threads * caches.l2, 2 * _WINDOW)
        self._starts = itertools.cycle(range(0, size // 4 - _WINDOW // 4, _WINDOW // 4))
        x = mapped_empty(size + 4 * self._row).view(np.float32)
        filling = threading.Thread(target=x.fill, args=(1.0,))  # a host may take longer to give memory than a compile
        filling.start()
        with tvm.transform.PassContext(config=_CONFIG):
            self._code = tvm.compile(tvm.IRModule(self._functions(lanes)), target=vectors.target())
        filling.join()
        self._x = to_tensor(x)
        self._out = {t: tvm.runtime.tensor(np.zeros((t, loops.CHAINS, lanes), np.float32)) for t in {1, threads}}
        self.amounts: dict[str, int] = {}
        l3 = min(4 * threads * caches.l2, caches.l3 // 2, _MOST_OF_L3)
        sizes = {"l1": int(_SHARE * caches.l1d), "l2": int(_SHARE * caches.l2), "l3": l3, "memory": _WINDOW}
        self._calls = {
            "chain": self._chain(), "fma": self._fma("fma", lanes, 1), "fma_all": self._fma("fma_all", lanes, threads),
            "fma_half": self._fma("fma_half", max(1, lanes // 2), 1), "launch": self._launch(),
            **{f"read {name}": self._read(f"read {name}", size, 1) for name, size in sizes.items()},
            **{f"read {name}_all": self._read(f"read {name}_all", sizes[name], threads) for name in ("l3", "memory")},
            "exchange own": self._exchange("exchange own", sizes["l2"], 0),
            "exchange other": self._exchange("exchange other", sizes["l2"], 1),
            **{product.rate: self._product(product) for product in self._products},
            **{name: self._tile_read(name, sizes[name.removeprefix("tile_")]) for name in self._loads},
        }  # fmt: skip

    def _functions(self, lanes: int) -> dict[str, Any]:
        threads = self._threads
        fma = {"fma": (lanes, 1), "fma_all": (lanes, threads), "fma_half": (max(1, lanes // 2), 1)}
        return {
            **{name: loops.fma_kernel(*of, name) for name, of in fma.items()},
            **{name: loops.read_kernel(lanes, t, name) for name, t in {"read": 1, "read_all": threads}.items()},
            "chain": loops.chain_kernel(), "launch": loops.launch_kernel(threads),
            "exchange": loops.exchange_kernel(lanes, threads),
            **{p.rate: product_loops.product_kernel(p, 1, p.rate, lanes) for p in self._products},
            **({"tile_read": product_loops.tile_read_kernel()} if self._loads else {}),
        }  # fmt: skip

    @property
    def _loads(self) -> tuple[str, ...]:
        return _LOADS if any(product.tiles for product in self._products) else ()

    def run(self) -> dict[str, float]:
        """Seconds of a call of each loop: the least, or those that a third of the reads from memory take less than."""
        times: dict[str, list[float]] = {name: [] for name in self._calls}
        together = [name for name in self._calls if name.endswith("_all") or name.startswith(("launch", "exchange"))]
        for number in range(_ROUNDS + _MORE_ROUNDS):
            if number >= _ROUNDS and not self.busy({name: min(times[name]) for name in ("fma", "fma_all")}):
                break
            for name in self._calls if number < _ROUNDS else together:
                times[name] += _times(self._calls[name])
        share = {name: _FASTER if name.startswith("read memory") else 0.0 for name in times}
        return {name: sorted(several)[int(share[name] * len(several))] for name, several in times.items()}

    @staticmethod
    def busy(seconds: Mapping[str, float]) -> bool:
        """Whether the threads never ran all at once: as many multiply-adds on each take longer than on one."""
        return seconds["fma_all"] > _BUSY * seconds["fma"]

    def _chain(self) -> Callable[[], Any]:
        x = tvm.runtime.tensor(np.array([1, 0x9E3779B97F4A7C15], np.uint64))
        function = self._code["chain"]
        return lambda: function(_STEPS, x)

    def _fma(self, name: str, lanes: int, threads: int) -> Callable[[], Any]:
        half, one = (tvm.runtime.tensor(np.full(lanes, v, np.float32)) for v in (0.5, 1.0))
        out = tvm.runtime.tensor(np.zeros((threads, loops.CHAINS, lanes), np.float32))
        function, self.amounts[name] = self._code[name], _STEPS * loops.CHAINS
        return lambda: function(_STEPS, half, one, out)

    def _product(self, product: Product) -> Callable[[], Any]:
        function, steps = self._code[product.rate], _TILE_STEPS if product.tiles else _STEPS
        self.amounts[product.rate] = steps * product_loops.per_step(product)
        arguments = product_loops.arguments_of(product, 1, self._lanes)
        return lambda: function(steps, *arguments)

    def _tile_read(self, name: str, size: int) -> Callable[[], Any]:
        passes, steps = self._passes(name, size, product_loops.STEP_BYTES, _READ_BYTES)
        out = tvm.runtime.tensor(np.zeros(product_loops.LOADED_SHAPE, np.float32))
        function, configuration = self._code["tile_read"], product_loops.configuration()
        return lambda: function(passes, steps, configuration, self._x, out)

    def _passes(self, name: str, size: int, step: int, nbytes: int) -> tuple[int, int]:
        """How often a call reads a buffer, and in how many steps of so many bytes each time."""
        steps = max(1, size // step)
        passes = max(1, nbytes // (steps * step))
        self.amounts[name] = passes * steps * step
        return passes, steps

    def _read(self, name: str, size: int, threads: int) -> Callable[[], Any]:
        passes, steps = self._passes(name, size, threads * self._row, _READ_BYTES)
        function, out = self._code["read_all" if name.endswith("_all") else "read"], self._out[threads]
        if name.startswith("read memory"):
            return lambda: function(passes, next(self._starts), steps, self._x, out)
        return lambda: function(passes, 0, steps, self._x, out)

    def _exchange(self, name: str, size: int, shift: int) -> Callable[[], Any]:
        passes, steps = self._passes(name, size, self._row, _READ_BYTES // 8)
        function, out = self._code["exchange"], self._out[self._threads]
        return lambda: function(passes, steps, shift, self._x, out)

    def _launch(self) -> Callable[[], Any]:
        out = tvm.runtime.tensor(np.zeros((self._threads, 64), np.int32))
        function = self._code["launch"]
        return lambda: function(_LAUNCHES, out)


def _times(call: Callable[[], Any]) -> list[float]:
    """Seconds of calls within a short time, of two at least."""
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < 2 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times
