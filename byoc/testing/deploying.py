"""Checks of what is deployed: other processes, threads, damage, and drivers that fail."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import ArtifactError, DriverError
from ...runtime.model import load
from ..backend import Runner
from .case import UnexpectedError, need
from .processes import DAMAGED, RELOAD, WITHOUT_DRIVER, run_script
from .subject import Subject, feeds_of, same_bits

_THREADS, _CALLS = 8, 20
_MUTATIONS = 200
_SECONDS = 120.0
_MESSAGE = "the driver of the kit fails"


def fresh_process(subject: Subject) -> str:
    """An exported model gives the same bits in a process that imports the driver's module, and has no compiler."""
    compiled = subject.compiled(subject.main)
    feeds = feeds_of(compiled)
    with _exported(subject) as path:
        inputs, outputs, empty = path.with_name("inputs.npz"), path.with_name("outputs.npz"), path.with_name("empty")
        np.savez(inputs, *feeds.values())
        empty.mkdir()
        heavy = run_script(RELOAD, subject.backend.module, path, inputs, outputs, PATH=str(empty), CC="", CXX="")
        with np.load(outputs) as stored:
            results = {spec.name: stored[f"arr_{i}"] for i, spec in enumerate(compiled.outputs)}
        size = path.stat().st_size
    need(not heavy, f"{', '.join(heavy.split())} imported there: import it in functions that the driver does not call")
    need(same_bits(results, compiled.run(feeds)), "other bits")
    return f"{size / 1e3:.0f} kB"


def driver_missing(subject: Subject) -> str:
    """Where nothing brings the driver an exported model does not load; the ArtifactError names what to import."""
    with _exported(subject) as path:
        came = run_script(WITHOUT_DRIVER, path)
    need(came.startswith("ArtifactError") and f"import {subject.backend.module}" in came, came)
    return ""


def changed_artifact(subject: Subject) -> str:
    """An artifact with a changed program is an ArtifactError."""
    program = max(subject.compiled(subject.main).offload_programs().values(), key=len)
    with _exported(subject) as path:
        data = bytearray(path.read_bytes())
        at = data.find(program)
        need(at >= 0, "the program does not lie in the artifact as it is")
        data[at + len(program) // 2] ^= 1
        path.write_bytes(data)
        try:
            load(path)
        except ArtifactError:
            return ""
    raise UnexpectedError("it was loaded")


def damaged_programs(subject: Subject) -> str:
    """Of a damaged program the driver makes an error, or the right outputs; it ends in any case."""
    tried = 0
    for region, program in subject.regions(subject.main):
        inputs = [np.full(value.shape, 1, value.dtype) for value in region.inputs]
        outputs = [np.zeros(value.shape, value.dtype) for value in region.outputs]
        subject.backend.driver(program)(inputs, outputs)
        with tempfile.TemporaryDirectory(prefix="tvm-ext-kit-") as folder:
            path = Path(folder, "program.npz")
            arrays: dict[str, Any] = {f"x{i}": array for i, array in enumerate(inputs)}
            arrays.update({f"y{i}": array for i, array in enumerate(outputs)})
            arrays.update(program=np.frombuffer(program, np.uint8), inputs=len(inputs), outputs=len(outputs))
            np.savez(path, **arrays)
            backend = subject.backend
            run_script(DAMAGED, backend.module, backend.name, path, _MUTATIONS, seconds=_SECONDS)
        tried += _MUTATIONS
    return f"{tried} mutations"


def many_threads(subject: Subject) -> str:
    """Eight threads that call one model get the bits that one thread gets."""
    compiled = subject.compiled(subject.main)
    feeds = [feeds_of(compiled, seed) for seed in range(_THREADS)]
    expected = [compiled.run(feed) for feed in feeds]

    def calls(index: int) -> int:
        return sum(not same_bits(compiled.run(feeds[index]), expected[index]) for _ in range(_CALLS))

    with ThreadPoolExecutor(_THREADS) as pool:
        wrong = list(pool.map(calls, range(_THREADS)))
    need(not any(wrong), f"other bits in {sum(wrong)} of {_THREADS * _CALLS} calls")
    return f"{_THREADS * _CALLS} calls"


def failing_driver(subject: Subject) -> str:
    """What a driver raises is a DriverError that names back end and region."""
    compiled = subject.compile(subject.main, replace(subject.backend, driver=_failing))
    (region, *_) = compiled.offload_programs()
    try:
        compiled.run(feeds_of(compiled))
    except DriverError as error:
        text = str(error)
        need(all(part in text for part in (subject.backend.name, region, _MESSAGE)), f"DriverError: {text}")
        return text
    raise UnexpectedError("no error")


def _failing(program: bytes) -> Runner:
    def run(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        raise RuntimeError(_MESSAGE)

    return run


@contextlib.contextmanager
def _exported(subject: Subject) -> Iterator[Path]:
    """The main model as a file, in a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="tvm-ext-kit-") as folder:
        path = Path(folder, "model.so")
        subject.compiled(subject.main).export(path)
        yield path
