"""The node cases of `onnx.backend.test`, and which of their inputs are frozen: those that decide a shape."""

import functools
import os
import pathlib
import pickle
import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.oracles.float64 import casts

#: Operator -> numbers of the inputs that decide a shape, or which program is compiled, never what is computed on.
_DECIDING = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2),
    "Compress": (1,), "ConstantOfShape": (0,), "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "Dropout": (1, 2),
    "Expand": (1,), "HammingWindow": (0,), "HannWindow": (0,), "If": (0,), "Loop": (0, 1), "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4), "NonMaxSuppression": (2,), "OneHot": (1,), "Pad": (1, 3), "Range": (0, 1, 2),
    "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,), "ReduceMax": (1,),
    "ReduceMean": (1,), "ReduceMin": (1,), "ReduceProd": (1,), "ReduceSum": (1,), "ReduceSumSquare": (1,),
    "Reshape": (1,), "Resize": (1, 2, 3), "STFT": (1, 3), "SequenceAt": (1,), "SequenceErase": (1,),
    "SequenceInsert": (2,), "Slice": (1, 2, 3, 4), "Split": (1,), "SplitToSequence": (1,),
    "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,),
    "Upsample": (1,),
}  # fmt: skip
#: Operator -> least absolute tolerance. ONNX's spectra were computed in float32: what cancels is noise of 2e-7.
_ATOL = {"DFT": 1e-6, "STFT": 1e-6}
_EXPANDED = "_expanded"
#: Of pytest's cache, which a checkout leaves out.
_FOLDER = pathlib.Path(__file__).resolve().parents[2] / ".pytest_cache"


@dataclass(frozen=True)
class Case:
    """A model of one node (or of the function that defines it, expanded), inputs, and the outputs wanted.

    Attributes:
        name: without "test_".
        operator: of the first node; for an expanded case of the node it stands for, where its plain case is known.
        model: the serialized model.
        inputs, outputs: arrays, lists of arrays for sequences, None for an empty optional; in graph order.
        frozen: names of the inputs that decide a shape.
        rtol, atol: for floating-point outputs, as ONNX's own runner takes them.
    """

    name: str
    operator: str
    model: bytes
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    frozen: tuple[str, ...]
    rtol: float
    atol: float

    @property
    def plain(self) -> bool:
        """Whether it is a case of the operator itself."""
        return is_plain(self.name)


def is_plain(name: str) -> bool:
    """Whether a case is one of an operator, not of the function that defines it."""
    return not name.endswith(_EXPANDED)


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every node case by name. ONNX computes them for five seconds: they are kept beside pytest's own cache."""
    import onnx

    made_of = (onnx.__version__, np.__version__, ml_dtypes.__version__, pathlib.Path(__file__).read_text())
    kept = _FOLDER / f"node-cases-{zlib.crc32(repr(made_of).encode()):08x}.pickle"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps(_computed()))
        partial.replace(kept)
    return pickle.loads(kept.read_bytes())


def _computed() -> dict[str, Case]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # divisions by zero and overflows that the cases are about
        listed = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    cases: dict[str, Case] = {}
    for each in listed:  # a plain case comes before those that expand it
        name = each.name.removeprefix("test_")
        cases[name] = _case(name, each, cases.get(name.partition(_EXPANDED)[0]))
    return cases


def a_part_of(names: Iterable[str]) -> set[str]:
    """About a ninth of the names, chosen by a hash that never changes."""
    return {name for name in names if zlib.crc32(name.encode()) % 9 == 0}


def _case(name: str, source: Any, plain: Case | None) -> Case:
    graph = source.model.graph
    inputs, outputs = source.data_sets[0]
    deciding = _deciding(graph) | set(plain.frozen if plain else ())
    there = {value.name for value, x in zip(graph.input, inputs, strict=True) if x is not None}
    operator, frozen = plain.operator if plain else graph.node[0].op_type, tuple(sorted(deciding & there))
    fed, wanted = tuple(map(_value, inputs)), tuple(map(_value, outputs))
    if {node.op_type for node in graph.node} <= {"Cast", "CastLike"}:
        wanted = _cast(source.model, fed, wanted)
    return Case(
        name, operator, source.model.SerializeToString(), fed, wanted, frozen, source.rtol,
        max(source.atol, _ATOL.get(operator, 0.0)),
    )  # fmt: skip


def _cast(model: Any, inputs: Sequence[Any], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The outputs of a case of Cast; of integers of 2 and 4 bits those of :func:`casts`: what ONNX's package has where
    a number does not fit is what ml_dtypes says."""
    from onnx.reference import ReferenceEvaluator

    if not any(getattr(x, "dtype", np.dtype(bool)).name in ("int2", "uint2", "int4", "uint4") for x in outputs):
        return outputs
    feeds = {value.name: x for value, x in zip(model.graph.input, inputs, strict=True)}
    return tuple(ReferenceEvaluator(model, new_ops=casts()).run(None, feeds))


def _deciding(graph: Any) -> set[str]:
    """Names that stand where a node takes what decides a shape."""
    return {
        node.input[i]
        for node in graph.node
        for i in _DECIDING.get(node.op_type, ())
        if i < len(node.input) and node.input[i]
    }


def _value(listed: Any) -> Any:
    """TensorProto, as which floats and integers come that numpy lacks, and numpy's scalars -> array."""
    from onnx import TensorProto, numpy_helper

    if isinstance(listed, TensorProto):
        return numpy_helper.to_array(listed)
    return np.asarray(listed) if isinstance(listed, np.generic) else listed
