"""OpenVINO in a Python of its own, for it is no dependency of the project: one that is named, one that has it already,
or a virtual environment that pip makes in the cache folder."""

from __future__ import annotations

import functools
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from _common import FOLDER, Unavailable, say

from tvm_ext.benchmarking.process import Worker, foreign_environment
from tvm_ext.verification.arrays import load_npz, save_npz

REQUIREMENTS = ("openvino==2026.4.1", "numpy==2.4.6")
WORKER = FOLDER / "_openvino_worker.py"
#: Seconds that making the environment may take (60 MB are downloaded), and a run of a model.
INSTALL, RUN = 600.0, 300.0

Arrays = dict[str, np.ndarray]


_named: list[str] = []


def use(program: str) -> None:
    """Take the OpenVINO of this Python, which needs numpy too, before any other one."""
    _named[:] = [program]


def installed() -> str:
    """A Python that has OpenVINO: that of :func:`use`, of the cache folder, or this one; "" where none has it yet."""
    if _named:
        return _named[0]
    if (_folder() / "complete").exists():
        return str(_folder() / "bin" / "python")
    return sys.executable if importlib.util.find_spec("openvino") else ""


def _folder() -> pathlib.Path:
    return FOLDER / ".cache" / REQUIREMENTS[0].replace("==", "-")


@functools.cache
def python() -> str:
    """A Python that has OpenVINO; the environment in the cache folder, made now, where there is none.

    Raises:
        Unavailable: it cannot be made; says pip's last words.
    """
    if there := installed():
        return there
    folder = _folder()
    program = folder / "bin" / "python"
    say(f"installing {', '.join(REQUIREMENTS)} into {folder}")
    _told([sys.executable, "-m", "venv", "--clear", str(folder)])
    _told([str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
           "--retries", "2", *REQUIREMENTS])  # fmt: skip
    (folder / "complete").touch()  # a run that was stopped half-way leaves none
    return str(program)


def worker(threads: int) -> Worker:
    """A worker process with the contender "openvino".

    Raises:
        Unavailable: there is no OpenVINO.
    """
    return Worker(threads, command=[python(), str(WORKER)], python=python())


def outputs(
    model: pathlib.Path, names: Sequence[str], sets: Sequence[Mapping[str, np.ndarray]], threads: int
) -> list[Arrays]:
    """Outputs by name for each set of inputs, in one process; all sets have the same shapes.

    Args:
        model: an ONNX file.
        names: of the model's outputs.
        sets: inputs by name.
        threads: of OpenVINO.

    Raises:
        Unavailable: there is no OpenVINO, or it cannot run the model.
    """
    options = {"shapes": {name: array.shape for name, array in sets[0].items()}, "outputs": list(names)}
    task = json.dumps({"model": str(model), "threads": threads, "options": options})
    with tempfile.TemporaryDirectory(prefix="tvm-ext-openvino-") as folder:
        given, found = pathlib.Path(folder, "in.npz"), pathlib.Path(folder, "out.npz")
        save_npz(given, {f"{i}/{name}": array for i, one in enumerate(sets) for name, array in one.items()})
        _told([python(), str(WORKER), task, str(given), str(found)], foreign_environment(threads, folder), RUN)
        arrays = load_npz(found)
    return [{name: arrays[f"{i}/{name}"] for name in names} for i in range(len(sets))]


def _told(command: Sequence[str], env: Mapping[str, str] | None = None, timeout: float = INSTALL) -> None:
    """Run a command.

    Raises:
        Unavailable: it fails, or takes too long; says its last line.
    """
    try:
        done: Any = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Unavailable(f"OpenVINO: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Unavailable(f"OpenVINO: {last}")
