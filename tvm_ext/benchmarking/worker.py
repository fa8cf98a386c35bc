"""One contender in a process of its own: `python -m tvm_ext.benchmarking.worker`, JSON lines on stdin and stdout.

    -> {"contender", "model", "inputs", "outputs", "threads", "options"}   prepares, runs once, saves the outputs
    <- {"ready": {"version", "details", "outputs", "prepare_seconds", "seconds"}}   their names: arr_0, arr_1, ...
    -> {"run": {"inputs", "outputs"}}   runs once more, on other inputs
    <- {"outputs": their names}
    -> {"round": {"seconds"}}
    <- {"samples": [seconds, ...]}
    -> {"paused": {"calls", "pause"}}
    <- {"samples": [seconds, ...], "cpu", "work": seconds of CPU time a call}
    <- {"error": {"type", "message"}}   instead of either answer; the process then ends

Between the rounds it waits for the next line: it computes nothing, and the parent stops it. Like `contenders.py`, this
file needs numpy and the standard library only: it also runs where nothing else of this library can be imported.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

Arrays = dict[str, np.ndarray]
#: a round of a contender so slow that it runs once needs no warm-up: caches are cold after a second anyway
SLOW_SECONDS = 0.5
MOST_SAMPLES = 100_000


def main() -> int:
    """Serve until stdin ends. Whatever prepares and runs may print: stdout is kept for the protocol."""
    die_with(os.getppid())
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        _serve(sys.stdin, answers)
    except BrokenPipeError:
        return 1
    except BaseException as error:
        _answer(answers, {"error": {"type": type(error).__name__, "message": str(error)}})
        return 1
    return 0


def _serve(requests: TextIO, answers: TextIO) -> None:
    call: Callable[[Arrays], Arrays] | None = None
    inputs: Arrays = {}
    for line in requests:
        message = json.loads(line)
        if "contender" in message:
            call, inputs, answer = _prepare(message)
        elif call is None:
            raise RuntimeError(f"{', '.join(message)}: before the contender was prepared")
        elif asked := message.get("run"):
            answer = {"outputs": _save(asked["outputs"], call(_load(asked["inputs"])))}
        elif asked := message.get("round"):
            answer = {"samples": sample(functools.partial(call, inputs), float(asked["seconds"]))}
        else:
            asked = message["paused"]
            figures = paused(functools.partial(call, inputs), int(asked["calls"]), float(asked["pause"]))
            answer = dict(zip(("samples", "cpu", "work"), figures, strict=True))
        _answer(answers, answer)


def _prepare(message: dict[str, Any]) -> tuple[Callable[[Arrays], Arrays], Arrays, dict[str, Any]]:
    """A call of the contender, its inputs, and the answer."""
    from .contenders import CONTENDERS

    start = time.perf_counter()
    gc.disable()  # what is imported and compiled lives to the end: no cycle of it is worth a search
    try:
        prepared = CONTENDERS[message["contender"]](message["model"], message["threads"], message["options"])
    finally:
        gc.enable()
    inputs = _load(message["inputs"])
    begin = time.perf_counter()
    outputs = prepared.call(inputs)
    end = time.perf_counter()
    ready = {
        "version": prepared.version, "details": prepared.details, "outputs": _save(message["outputs"], outputs),
        "prepare_seconds": begin - start, "seconds": end - begin,
    }  # fmt: skip
    return prepared.call, inputs, {"ready": ready}


def _load(path: str) -> Arrays:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _save(path: str, outputs: Arrays) -> list[str]:
    """Store outputs, and elements of sequences, by position: savez takes none that is called "file"; their names."""
    listed = {name: x if isinstance(x, list) else [x] for name, x in outputs.items() if x is not None}
    tensors = {
        f"{n}[{i}]" if isinstance(outputs[n], list) else n: x for n, xs in listed.items() for i, x in enumerate(xs)
    }
    np.savez(path, *tensors.values())
    return list(tensors)


def sample(call: Callable[[], Any], seconds: float) -> list[float]:
    """Times of single calls for about `seconds`, at least one; a fifth of that time more is spent warming up first."""
    clock = time.perf_counter
    start = clock()
    call()
    first = clock() - start
    if first >= min(seconds, SLOW_SECONDS):
        return [first]
    while clock() - start < seconds / 5:
        call()
    samples: list[float] = []
    end = clock() + seconds
    while len(samples) < MOST_SAMPLES:
        begin = clock()
        call()
        now = clock()
        samples.append(now - begin)
        if now >= end:
            break
    return samples


def paused(call: Callable[[], Any], calls: int, pause: float) -> tuple[list[float], float, float]:
    """Single calls with a pause (in seconds) after each; one more goes before.

    Returns:
        Their times, CPU time of the process a call with its pause, and of that what was spent during the call itself.
    """
    call()
    time.sleep(pause)
    samples: list[float] = []
    work, first = 0.0, time.process_time()
    for _ in range(calls):
        cpu, begin = time.process_time(), time.perf_counter()
        call()
        samples.append(time.perf_counter() - begin)
        work += time.process_time() - cpu
        time.sleep(pause)
    return samples, (time.process_time() - first) / calls, work / calls


def _answer(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def die_with(parent: int) -> None:
    """Be killed when the parent ends, however it does: stopped, or in a kernel that hangs, a process reads no pipe."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before this was asked for
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
