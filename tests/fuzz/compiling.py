"""What this library does of a mutant: the outcome, and the outputs in a file for the other side.

"refused"                     says beforehand what is wrong
"internal"                    so too, with a reason of TVM's own
"compiled" or "large"         outputs are there, or would take too much memory to make
"failed", "memory", "leak"    findings, as are crashes and hangs, which the pool sees
"""

import contextlib
import os
import pathlib
import pickle
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.outcome import Outcome, short

from .external_mutators import SECRET
from .mutants import Mutant
from .numbers import SIZES

#: Bytes that a program may take in activations and results to be run; limit of the worker: see `run.py`.
LARGEST_RUN = 256 << 20
#: Classes of errors by which a model is refused. Others of this library say that a part of it is broken.
_REFUSALS = ("ModelError", "UnsupportedError", "OptionError")
#: A reason in TVM's or Python's own words: still a refusal that names the node, but not one that was thought of.
_INTERNAL = re.compile(r"cannot be converted: (Internal|Runtime|Attribute|Key|Index|Assertion)Error")


@dataclass(frozen=True)
class Answer:
    """What a run gave, for the other side: inputs by name, and outputs in order."""

    feeds: dict[str, np.ndarray]
    outputs: list[np.ndarray]


def compiled_outcome(mutant: Mutant, path: str, accuracy: str = "default") -> Outcome:
    """Compile a mutant, run it, and keep an :class:`Answer` in a file.

    Args:
        path: of that file.
        accuracy: option of the compile.
    """
    import tvm_ext

    with in_folder(mutant) as source:
        if mutant.entries and (leak := _leak(source)) is not None:
            return leak
        try:
            model = tvm_ext.compile(source, cache=False, threads=1, records=None, accuracy=accuracy)
        except tvm_ext.errors.TvmExtError as error:
            return _refusal(error)
        except MemoryError as error:
            return Outcome("memory", short(error))
        except Exception as error:
            return failed("compile", error)
    return _run(model, mutant, path)


def failed(what: str, error: Exception) -> Outcome:
    """The outcome of an error that was not foreseen."""
    return Outcome("failed", f"{what}: {type(error).__name__}: {short(error)}")


def _refusal(error: Exception) -> Outcome:
    kind, text = type(error).__name__, short(error)
    if "bad_alloc" in str(error) or "MemoryError" in str(error):
        return Outcome("memory", f"{kind}: {text}")
    if kind not in _REFUSALS or len(text) < 10:
        return failed("compile", error)
    return Outcome("internal" if _INTERNAL.search(str(error)) else "refused", f"{kind}: {text}")


def _run(model: Any, mutant: Mutant, path: str) -> Outcome:
    facts = model.report
    inputs, outputs = sized(model, model.inputs), sized(model, model.outputs)
    size = facts["activation_bytes"] + sum(spec.nbytes for spec in (*inputs, *outputs))
    if size > LARGEST_RUN:
        return Outcome("large", f"a run takes {size} bytes")
    try:
        feeds = feeds_of(mutant, inputs)
        results = model.run(feeds)
    except Exception as error:
        return failed("run", error)
    pathlib.Path(path).write_bytes(pickle.dumps(Answer(feeds, list(results.values()))))
    return Outcome("compiled")


def sized(model: Any, specs: Any) -> list[Any]:
    """Inputs or outputs of a model with numbers for all dimensions: the smallest sizes, of a batch of rows two."""
    lows = {symbol.name: -(-symbol.low // symbol.multiple) * symbol.multiple for symbol in model.symbols}
    return [spec.sized(lows) if lows else spec.at(2) for spec in specs]


def feeds_of(mutant: Mutant, specs: Any) -> dict[str, np.ndarray]:
    """Inputs: the seed's where they fit, else random ones; if the mutant says so, integers of all sizes."""
    from tvm_ext.core.sample_inputs import seeded_inputs

    feeds = {}
    for spec in specs:
        stated = mutant.feeds.get(spec.name)
        fits = stated is not None and stated.shape == spec.shape and stated.dtype == spec.numpy_dtype
        value = stated if stated is not None and fits else _drawn(spec, seeded_inputs)
        if mutant.odd_inputs and value.dtype.kind in "iu" and spec.dtype not in ("int4", "uint4", "int2", "uint2"):
            rng = np.random.default_rng(mutant.number)
            value = rng.choice(np.array(SIZES, object), value.shape)
            wrapped = np.vectorize(lambda v: int(v) & 0xFFFFFFFFFFFFFFFF, otypes=[np.uint64])(value)
            value = wrapped.astype(spec.numpy_dtype)
        feeds[spec.name] = value
    return feeds


def _drawn(spec: Any, seeded_inputs: Any) -> np.ndarray:
    try:
        return seeded_inputs([spec], seed=7)[spec.name]
    except Exception:  # a dtype that no random values are defined of
        return np.random.default_rng(7).standard_normal(spec.sizes).astype(spec.numpy_dtype)


# ------------------------------------------------------------ files
@contextlib.contextmanager
def in_folder(mutant: Mutant) -> Iterator[str | bytes]:
    """The model as bytes, or where it has files beside it, its path in a folder with them; a secret lies above it."""
    if not mutant.entries:
        yield mutant.model
        return
    with tempfile.TemporaryDirectory(prefix="tvm-ext-fuzz-") as above:
        folder = pathlib.Path(above, "model")
        folder.mkdir()
        pathlib.Path(above, "secret.bin").write_bytes(SECRET)
        (folder / "model.onnx").write_bytes(mutant.model)
        for name, (kind, content) in mutant.entries.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            if kind == "link":
                path.symlink_to(content.decode())
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind == "folder":
                path.mkdir()
            else:
                path.write_bytes(content)
        yield str(folder / "model.onnx")


def _leak(source: str | bytes) -> Outcome | None:
    """The finding, if what was read of a model holds a piece of the secret."""
    from tvm_ext.core.errors import TvmExtError
    from tvm_ext.frontend.reading.reader import read_model

    try:
        held = read_model(source).proto.SerializeToString()
    except (TvmExtError, MemoryError):
        return None
    except Exception as error:
        return failed("read", error)
    return Outcome("leak", "bytes of a file outside the folder are in the model") if SECRET[:16] in held else None
