"""Drivers: what runs the programs of offloaded regions, called from compiled code through one packed function.

    kernel of a region: call_packed("tvm_ext.offload", number of inputs, program, inputs ..., outputs ...)

A program lies among the model's weights. When a model is loaded, its driver reads the program once and gives a
function; that function is found by the program's address in each call.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import ArtifactError, DriverError
from .memory.arrays import Arrays, memory_at

Runner = Callable[[Arrays, Arrays], None]
Driver = Callable[[bytes], Runner]

#: The packed function that kernels of regions call.
TRAMPOLINE = "tvm_ext.offload"
#: Entry points: name of a back end -> its driver; a process that only runs models imports nothing else of a back end.
GROUP = "tvm_ext.drivers"

_drivers: dict[str, Driver] = {}
_runners: dict[int, tuple[str, Runner]] = {}


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
        _runners[address] = (f"back end {offload.backend!r}, region {offload.region}", runner)
        weakref.finalize(owner, _runners.pop, address, None)


@functools.cache
def _register_trampoline() -> None:
    from .tvm_runtime import load_runtime

    load_runtime()
    import tvm_ffi

    tvm_ffi.register_error("DriverError", DriverError)
    tvm_ffi.register_global_func(TRAMPOLINE, _offload, override=True)


def _offload(inputs: int, program: Any, *tensors: Any) -> None:
    """One call of a region by compiled code."""
    name, runner = _runners[program.data_ptr()]
    arrays = [memory_at(t.data_ptr(), t.shape, np.dtype(str(t.dtype))) for t in tensors]
    try:
        runner(arrays[:inputs], arrays[inputs:])
    except Exception as error:
        raise DriverError(f"{name}: {type(error).__name__}: {error}") from error
