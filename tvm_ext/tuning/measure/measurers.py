"""Measuring on this machine, and on many: servers that registered under one key at a tracker of TVM's RPC.

On this machine:

    builds    as many at a time as there are workers
    runs      one at a time, with as many cores free as the kernel has threads

Where cores exceed the kernel's threads, builds go on beside a run; else they alternate: some candidates are built, then
run one after the other while the other workers wait on their pipes (threads of their pools have stopped spinning: they
do so some milliseconds after a kernel).
"""

from collections.abc import Sequence
from typing import Any

from ...core.errors import OptionError, is_whole
from ...core.machine import Machine, available_cores
from ...runtime.linker import find_linker
from .batch import Limits
from .measurement import MeasureError
from .pool import WorkerPool, check_numbers
from .timing import DEFAULT_REPEATS, Repeats

#: Sending a kernel with its arguments, and fetching the outputs.
_TRANSFER = 10.0
#: Seconds for the tracker to answer.
_CONNECT = 10.0


class LocalMeasurer(WorkerPool):
    """Builds, checks and times candidates on this machine, in worker processes that import once.

    Args:
        machine: kernels are compiled for it and use its threads.
        workers: processes; None: one a core this process may use.
        build_timeout, run_timeout: seconds for one candidate's build, and for its check and all its repeats.
        plugins: modules that workers import; recipes in their `RECIPES` can be measured, as registered ones can.
        cold: memory, in units of L3, that constant arguments are rotated through, so that a kernel finds its weights as
            cold as in a model (everything else is warm); each worker has so much, 256 MiB at most. 0: they stay cached.
        repeats: how often a kernel is timed.
        rounds: how often those close to the fastest are timed again, in turn.

    Raises:
        OptionError: a value does not fit.
    """

    def __init__(
        self, machine: Machine, workers: int | None = None, build_timeout: float = 10.0, run_timeout: float = 10.0, *,
        plugins: Sequence[str] = (), cold: float = 2.0, repeats: Repeats = DEFAULT_REPEATS, rounds: int = 1,
    ) -> None:  # fmt: skip
        workers = available_cores() if workers is None else workers
        check_numbers(workers=workers, build_timeout=build_timeout, run_timeout=run_timeout, rounds=rounds)
        if cold < 0:
            raise OptionError(f"cold={cold!r}: 0 or more is needed")
        spare = max(0, available_cores() - machine.threads)
        limits = Limits(workers, spare, build_timeout, run_timeout, rounds=rounds)
        hello = {"plugins": list(plugins), "cold": cold, "repeats": [repeats.count, repeats.seconds]}
        super().__init__(machine, workers, machine.threads, limits, hello)


class RPCMeasurer(WorkerPool):
    """Builds and checks candidates here, and times them on every server under a key, in parallel.

    A server that dies costs its trial; the others go on, and one that registers later takes part. Start the tracker and
    the servers with TVM's own commands (`tornado`, `cloudpickle` and `psutil` are needed, and a linker here and there):

        python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port 9190
        TVM_NUM_THREADS=4 TVM_BIND_THREADS=0 python -m tvm.exec.rpc_server --tracker HOST:9190 --key epyc

    A server runs whatever a client sends: only within a network that you trust.

    Args:
        machine: that the servers are; kernels are compiled for it, and servers must use as many threads.
        host, port: of the tracker.
        key: of the servers; all under one key must be equal machines.
        workers: local processes; None: one a server.
        build_timeout, run_timeout: seconds for one candidate's build, and for all its repeats on a server.
        wait: seconds in which a free server must be found.
        plugins, repeats: as of :class:`LocalMeasurer`.
        cold: 0: weights stay in the caches; else all arguments but the first are driven out before each repeat.

    Raises:
        OptionError: a value does not fit.
        ToolError: no linker is found.
        MeasureError: the tracker does not answer, or has no server under the key.
    """

    def __init__(
        self, machine: Machine, host: str, port: int, key: str, workers: int | None = None, *,
        build_timeout: float = 20.0, run_timeout: float = 10.0, wait: float = 20.0, plugins: Sequence[str] = (),
        cold: float = 2.0, repeats: Repeats = DEFAULT_REPEATS,
    ) -> None:  # fmt: skip
        check_tracker((host, port, key))
        find_linker()
        servers = servers_of(host, port, key)
        workers = servers if workers is None else workers
        check_numbers(workers=workers, build_timeout=build_timeout, run_timeout=run_timeout, wait=wait)
        cores = available_cores()
        limits = Limits(cores, cores, build_timeout, run_timeout + wait + _TRANSFER, remote=True)
        hello = {
            "plugins": list(plugins), "cold": cold, "repeats": [repeats.count, repeats.seconds],
            "rpc": [host, port, key, wait, run_timeout + _TRANSFER],
        }  # fmt: skip
        super().__init__(machine, workers, 1, limits, hello)


def check_tracker(rpc: Any) -> None:
    """Check the value of an option `rpc`.

    Raises:
        OptionError: it is no (host, port, key) of a TVM RPC tracker; the key is that which servers registered under.
    """
    host, port, key = rpc if isinstance(rpc, tuple | list) and len(rpc) == 3 else (None,) * 3
    named = all(isinstance(text, str) and text for text in (host, key))
    if not (named and is_whole(port) and 0 < port < 1 << 16):  # type: ignore[operator]
        wrong = f"rpc={rpc!r:.200}: (host, port, key) of a TVM RPC tracker is needed"
        raise OptionError(wrong, fix="for example rpc=('10.0.0.1', 9190, 'zen4')")


def servers_of(host: str, port: int, key: str) -> int:
    """How many servers are registered under a key.

    Raises:
        MeasureError: the tracker does not answer, or has none.
    """
    from .remote import connected

    try:
        tracker = connected(host, port, _CONNECT)
        known = [str(server.get("key", "")) for server in tracker.summary()["server_info"]]
        tracker.close()
    except (OSError, RuntimeError) as error:
        raise MeasureError(
            f"the RPC tracker {host}:{port} does not answer: {error}",
            fix="start one: python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port 9190",
        ) from error
    count = known.count(f"server:{key}")
    if not count:
        others = sorted({name.removeprefix("server:") for name in known if name})
        raise MeasureError(
            f"no server under key {key!r} at tracker {host}:{port}; keys there: {', '.join(others) or 'none'}",
            fix=f"start one: python -m tvm.exec.rpc_server --tracker {host}:{port} --key {key}",
        )
    return count
