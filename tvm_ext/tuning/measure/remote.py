"""A worker whose kernels run on other machines, through TVM's RPC tracker and servers.

A candidate is built and linked here, sent to whichever server under the key is free, timed there, and its outputs come
back to be compared here. Each run has a connection of its own, which the server ends when it takes too long.
"""

import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import StringImm
from tvm.rpc import connect_tracker
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...core.errors import essence
from ...core.machine import Machine
from ...driver.build import compile_kernels
from ...runtime import tiles
from ...runtime.tiles import REQUEST, needs_tiles
from .dtypes import bits_of
from .measurement import NO_SERVER
from .timing import DISCARD, Repeats
from .workbench import ENTRY, Built, Failed, Workbench

#: Drives all arguments but the first (the activation) out of the caches before each repeat.
_COLD = "cache_flush_cpu_non_first_arg"


@dataclass(frozen=True)
class Fleet:
    """Servers under one key of a tracker.

    Attributes:
        host, port: of the tracker.
        key: of the servers.
        wait: seconds to wait for a free one.
        run_timeout: seconds after which a server ends a run.
    """

    host: str
    port: int
    key: str
    wait: float
    run_timeout: float

    def session(self) -> Any:
        """A connection to a server that nobody else uses meanwhile.

        Raises:
            Failed: none was free in time.
        """
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(self.wait)  # the tracker answers when a server is free
        try:
            tracker = connected(self.host, self.port, self.wait)
            # whole seconds: the server reads no others
            return tracker.request(self.key, session_timeout=math.ceil(self.run_timeout), max_retry=2)
        except (OSError, RuntimeError) as error:
            what = f"no server under key {self.key!r} of tracker {self.host}:{self.port} answers: {essence(error)}"
            raise Failed(NO_SERVER, what) from error
        finally:
            socket.setdefaulttimeout(before)


def connected(host: str, port: int, wait: float) -> Any:
    """A connection to a tracker.

    Raises:
        OSError: it does not answer within `wait` seconds; TVM would try for a minute.
    """
    socket.create_connection((host, port), wait).close()
    return connect_tracker(host, port)


class RemoteWorkbench(Workbench):
    """Builds here, runs there.

    Args:
        machine: that the servers are.
        cold: 0: weights stay in the caches; else they are driven out.
        fleet: where kernels run.
        folder: for libraries on their way.
    """

    def __init__(self, machine: Machine, cold: float, repeats: Repeats, fleet: Fleet, folder: str) -> None:
        super().__init__(machine, 0, repeats)
        self._cold, self._fleet, self._folder = cold > 0, fleet, folder

    def forget(self) -> None:
        for built in self._built.values():
            Path(built.function).unlink(missing_ok=True)
        super().forget()

    def _compiled(self, trial: int, kernel: Any) -> str:
        """Path of a shared library: of the kernel, and of the one that asks for tiles where it may need them."""
        path = str(Path(self._folder, f"kernel-{os.getpid()}-{trial}.so"))
        more = {ASK: asking_kernel()} if needs_tiles(self._machine.features) else {}
        compile_kernels({ENTRY: kernel, **more}, self._machine).export_library(path)
        return path

    def _timed(self, built: Built, outputs: Mapping[int, np.ndarray], best: float) -> tuple[tuple[float, ...], bool]:
        session = None
        try:
            session = self._fleet.session()
            return self._remotely(session, built, outputs, best)
        except Failed:
            raise
        except Exception as error:
            alive = session is not None and _alive(session)
            raise Failed("run" if alive else "crash", f"on the server: {essence(error)}") from error
        finally:
            Path(built.function).unlink(missing_ok=True)

    def _remotely(
        self, session: Any, built: Built, outputs: Mapping[int, np.ndarray], best: float
    ) -> tuple[tuple[float, ...], bool]:
        name, device = Path(built.function).name, session.cpu()
        session.upload(built.function)
        kernel = session.load_module(name)
        if needs_tiles(self._machine.features) and (refused := tiles.refusal(request_of(kernel, device))):
            raise Failed(NO_SERVER, f"a server under key {self._fleet.key!r}: {refused}")
        arrays = {**self._given(built.task, built.layouts), **outputs}
        tensors = {index: tvm.runtime.tensor(bits_of(array), device) for index, array in arrays.items()}
        arguments = [tensors[index] for index in sorted(tensors)]

        def seconds(repeat: int) -> tuple[float, ...]:
            clock = kernel.time_evaluator(ENTRY, device, number=1, repeat=repeat, f_preproc=_COLD if self._cold else "")
            return tuple(float(s) for s in clock(*arguments).results)

        costs = seconds(1)  # after one call that warms up
        discarded = costs[0] > DISCARD * best
        more = min(self._repeats.count - 1, math.ceil(self._repeats.seconds / costs[0]) - 1)
        if not discarded and more > 0:
            costs += seconds(more)
        for index, array in outputs.items():
            np.copyto(bits_of(array), tensors[index].numpy())
        return costs, discarded


def _alive(session: Any) -> bool:
    """Whether the server behind a connection still answers."""
    try:
        session.listdir("")
    except Exception:
        return False
    return True


#: Name of the kernel in a module.
ASK = "tvm_ext_ask_for_tiles"
_SYSTEM_CALL = "tvm_ext_system_call"
#: System calls of x86-64: arguments and result are in these registers.
_SOURCE = f"""
define i64 @{_SYSTEM_CALL}(i64 %number, i64 %first, i64 %second) noinline nounwind {{
  %r = call i64 asm sideeffect "syscall", "={{rax}},{{rax}},{{rdi}},{{rsi}},~{{rcx}},~{{r11}},~{{memory}}"(
    i64 %number, i64 %first, i64 %second)
  ret i64 %r
}}
"""


def asking_kernel() -> tirx.PrimFunc:
    """A kernel, of a buffer of one int64, that asks Linux for tile registers in the process that runs it: a
    server that has TVM, and not this library.

    out[0] = syscall(arch_prctl, ARCH_REQ_XCOMP_PERM, tile data)      0, or minus the number of the error
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(ASK)
        T.func_attr({"tirx.noalias": True})
        out = T.arg("out", T.buffer((1,), "int64"))
        numbers = (tirx.const(number, "int64") for number in REQUEST)
        T.buffer_store(out, tirx.call_extern("int64", _SYSTEM_CALL, *numbers), [0])
    function = builder.get()
    source = tirx.AttrStmt(tirx.const(0), "pragma_import_llvm", StringImm(_SOURCE), function.body)
    return function.with_body(source)


def request_of(module: Any, device: Any) -> Callable[[], int]:
    """Asks as :func:`tvm_ext.runtime.tiles.request` does, wherever a module with the kernel was loaded."""

    def request() -> int:
        out = tvm.runtime.tensor(np.zeros(1, np.int64), device)
        module[ASK](out)
        return -int(out.numpy()[0])

    return request
