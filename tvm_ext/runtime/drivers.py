"""Drivers: what runs the programs of offloaded regions, called from compiled code through one packed function.

    kernel of a region: call_packed("tvm_ext.offload", number of inputs, program, inputs ..., outputs ...)

A program lies among the model's weights. When a model is loaded, its driver reads the program once and gives a
function; that function is found by the program's address in each call.

An asynchronous region is called twice with the same arguments, by "tvm_ext.offload_queued": the first call puts it into
the queue of its back end, of one thread, and the second one waits for it. What runs between both is at once with it.
"""

import concurrent.futures
import contextlib
import contextvars
import functools
import importlib
import importlib.metadata
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import ArtifactError, DriverError
from .memory.arrays import Arrays, memory_at
from .pool.forks import renew_after_fork

Runner = Callable[[Arrays, Arrays], None]
Driver = Callable[[bytes], Runner]

#: The packed functions that kernels of regions call; the second one of asynchronous regions.
TRAMPOLINE, QUEUED = "tvm_ext.offload", "tvm_ext.offload_queued"
#: Entry points: name of a back end -> its driver; a process that only runs models imports nothing else of a back end.
GROUP = "tvm_ext.drivers"


@dataclass(frozen=True)
class Offload:
    """An offloaded region of an artifact.

    Attributes:
        weight: which of the artifact's weights is its program.
        backend: whose driver runs it.
        region: its name.
        module: whose import registers that driver.
    """

    weight: int
    backend: str
    region: str
    module: str


class _InFlight(threading.local):
    """The regions that calls of one thread have launched and not waited for.

    Attributes:
        regions: addresses of the program and of the last output -> its run; None of one that ran at once.
        at_once: whether regions run where they are launched.
    """

    def __init__(self) -> None:
        self.regions: dict[tuple[int, int], concurrent.futures.Future[None] | None] = {}
        self.at_once = False


class _Queues:
    """Back end -> the thread that runs its asynchronous regions, one after the other."""

    def __init__(self) -> None:
        self.reset()
        renew_after_fork(self, _Queues.reset)

    def reset(self) -> None:
        """Forget all threads, which a forked process does not have."""
        self._threads: dict[str, concurrent.futures.ThreadPoolExecutor] = {}
        self._lock = threading.Lock()

    def __call__(self, backend: str) -> concurrent.futures.ThreadPoolExecutor:
        with self._lock:
            if backend not in self._threads:
                self._threads[backend] = concurrent.futures.ThreadPoolExecutor(1, f"tvm_ext-{backend}")
            return self._threads[backend]


_in_flight, _queue_of = _InFlight(), _Queues()
_drivers: dict[str, Driver] = {}
_runners: dict[int, tuple[Offload, Runner]] = {}


def register_driver(name: str, driver: Driver) -> None:
    """Make the driver of a back end known in this process; one of the same name is replaced for models loaded later."""
    _drivers[name] = driver


def driver_named(name: str, module: str = "") -> Driver:
    """The driver of a back end.

    Args:
        name: of the back end.
        module: whose import registers it, for the message.

    Raises:
        ArtifactError: it is neither registered nor installed; the message says which import or package brings it.
    """
    if name not in _drivers:
        for entry in importlib.metadata.entry_points(group=GROUP, name=name):
            register_driver(name, entry.load())
    if name not in _drivers and module.startswith("tvm_ext."):  # newer than the entry points of what is installed
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    if name not in _drivers:
        known = ", ".join(sorted({*_drivers, *(e.name for e in importlib.metadata.entry_points(group=GROUP))}))
        fix = f"before loading, `import {module}`, which registers it, or install the package that brings it"
        raise ArtifactError(f"the driver of back end {name!r} is missing; there are: {known or 'none'}", fix=fix)
    return _drivers[name]


def connect(
    offloads: Sequence[Offload], programs: Sequence[tuple[int, np.ndarray]], owner: object, own: Mapping[str, Driver]
) -> None:
    """Make the programs of a model callable while `owner` lives.

    Args:
        offloads: the regions of the model.
        programs: (address as kernels see it, bytes) of each region's program.
        owner: what holds the memory of the programs.
        own: drivers that only this model has, by name.

    Raises:
        ArtifactError: a driver is missing, or refuses its program.
    """
    if not offloads:
        return
    _register_trampoline()
    for offload, (address, program) in zip(offloads, programs, strict=True):
        driver = own.get(offload.backend) or driver_named(offload.backend, offload.module)
        try:
            runner = driver(program.tobytes())
        except Exception as error:
            wrong = f"back end {offload.backend!r} does not take its program of region {offload.region}: {error}"
            raise ArtifactError(wrong) from error
        _runners[address] = (offload, runner)
        weakref.finalize(owner, _runners.pop, address, None)


@functools.cache
def _register_trampoline() -> None:
    from .tvm_runtime import load_runtime

    load_runtime()
    import tvm_ffi

    tvm_ffi.register_error("DriverError", DriverError)
    tvm_ffi.register_global_func(TRAMPOLINE, _offload, override=True)
    tvm_ffi.register_global_func(QUEUED, _offload_queued, override=True)


def _offload(inputs: int, program: Any, *tensors: Any) -> None:
    """One call of a region by compiled code."""
    _run(program.data_ptr(), inputs, _arrays(tensors))


def _arrays(tensors: Sequence[Any]) -> list[np.ndarray]:
    """The memory of tensors, which are views on the stack of their kernel."""
    return [memory_at(t.data_ptr(), t.shape, np.dtype(str(t.dtype))) for t in tensors]


def _run(program: int, inputs: int, arrays: Arrays) -> None:
    offload, runner = _runners[program]
    try:
        runner(arrays[:inputs], arrays[inputs:])
    except Exception as error:
        name = f"back end {offload.backend!r}, region {offload.region}"
        raise DriverError(f"{name}: {type(error).__name__}: {error}") from error


def _offload_queued(inputs: int, program: Any, *tensors: Any) -> None:
    """The launch of a region, or the wait for it, where it is in flight."""
    regions, region = _in_flight.regions, _region_of(program, tensors)
    if region in regions:
        if (run := regions[region]) is not None:
            run.result()
        del regions[region]
    elif _in_flight.at_once:
        _offload(inputs, program, *tensors)
        regions[region] = None
    else:
        queue, context = _queue_of(_runners[region[0]][0].backend), contextvars.copy_context()
        regions[region] = queue.submit(context.run, _run, region[0], inputs, _arrays(tensors))


def _region_of(program: Any, tensors: Sequence[Any]) -> tuple[int, int]:
    return program.data_ptr(), tensors[-1].data_ptr()


def settle() -> None:
    """Wait for the regions that a call of this thread launched before it failed: they write to its memory."""
    runs = [run for run in _in_flight.regions.values() if run is not None]
    _in_flight.regions.clear()
    concurrent.futures.wait(runs)


@contextlib.contextmanager
def launches_at_once() -> Iterator[Callable[[Sequence[Any]], bool]]:
    """Within it, regions of this thread run where they are launched, for whoever looks at single calls.

    Yields:
        Whether a call of these arguments is the wait for a region that was launched.
    """
    before, _in_flight.at_once = _in_flight.at_once, True
    try:
        yield _is_wait
    finally:
        _in_flight.at_once = before


def _is_wait(arguments: Sequence[Any]) -> bool:
    tensors = bool(_in_flight.regions) and len(arguments) > 1 and all(hasattr(a, "data_ptr") for a in arguments)
    return tensors and _region_of(arguments[0], arguments) in _in_flight.regions
