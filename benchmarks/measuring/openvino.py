"""OpenVINO in a Python of its own, for it is no dependency of the project: one that is named, one
that has it already, or a virtual environment that pip makes in the cache folder."""

import functools
import importlib.util
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm_ext.benchmarking.process import Worker, WorkerError
from tvm_ext.verification.arrays import load_npz, save_npz

from benchmarks.common.results import CACHE, say
from benchmarks.common.rows import Unavailable
from benchmarks.models.wheels import run

REQUIREMENTS = ("openvino==2026.4.1", "numpy==2.4.6")
#: Seconds that making the environment may take (60 MB are downloaded), and a run of a model.
INSTALL, RUN = 600.0, 300.0

Arrays = dict[str, np.ndarray]

_named: list[str] = []


def use(program: str) -> None:
    """Take the OpenVINO of this Python, which needs numpy too, before any other one."""
    _named[:] = [program]


def installed() -> str:
    """A Python that has OpenVINO: that of :func:`use`, of the cache folder, or this one; "" where
    none has it yet."""
    if _named:
        return _named[0]
    if (_folder() / "complete").exists():
        return str(_folder() / "bin" / "python")
    return sys.executable if importlib.util.find_spec("openvino") else ""


def _folder() -> pathlib.Path:
    return CACHE / REQUIREMENTS[0].replace("==", "-")


@functools.cache
def python() -> str:
    """A Python that has OpenVINO; the environment in the cache folder, made now, where there is
    none.

    Raises:
        Unavailable: it cannot be made; says pip's last words.
    """
    if there := installed():
        return there
    folder = _folder()
    say(f"installing {', '.join(REQUIREMENTS)} into {folder}")
    run("OpenVINO", [sys.executable, "-m", "venv", "--clear", str(folder)], INSTALL)
    program = str(folder / "bin" / "python")
    pip = [program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    more = ["--only-binary", ":all:", "--retries", "2", *REQUIREMENTS]
    run("OpenVINO", [*pip, *more], INSTALL)
    (folder / "complete").touch()  # a run that was stopped half-way leaves none
    return program


def options(inputs: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, Any]:
    """Options of the contender "openvino" as it comes: it chooses the precision, and says what it
    took.

    Args:
        inputs: of the model, by name.
        names: of the model's outputs.
    """
    shapes = {name: list(array.shape) for name, array in inputs.items()}
    return {"shapes": shapes, "outputs": list(names), "inference_precision": None}


def outputs(
    model: pathlib.Path,
    names: Sequence[str],
    sets: Sequence[Mapping[str, np.ndarray]],
    threads: int,
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
    results = []
    with tempfile.TemporaryDirectory(prefix="tvm-ext-openvino-") as folder:
        files = {key: str(pathlib.Path(folder, f"{key}.npz")) for key in ("inputs", "outputs")}
        worker = Worker(threads, python=python())
        try:
            for number, feeds in enumerate(sets):
                save_npz(files["inputs"], feeds)
                message: dict[str, Any] = {"run": files}
                if not number:
                    about = {
                        "model": str(model),
                        "threads": threads,
                        "options": options(feeds, names),
                    }
                    message = {"contender": "openvino", **about, **files}
                answer = worker.ask(message, RUN)
                order = answer.get("ready", answer)["outputs"]
                results.append(dict(zip(order, load_npz(files["outputs"]).values(), strict=True)))
        except WorkerError as error:
            raise Unavailable(f"OpenVINO: {error.message}") from error
        finally:
            worker.close()
    return results
