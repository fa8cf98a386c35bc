"""Who runs a case: this library, onnxruntime, and TVM as shipped, with and without frozen inputs.

Each returns the outputs, or raises :class:`Refused` where it says beforehand that it cannot.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tvm_ext.frontend.tensors import bits_of

from .cases import Case


class Refused(Exception):
    """The case was refused before anything ran; the message is the reason."""


def ours(case: Case) -> list[Any]:
    """`tvm_ext.compile`, with the inputs that decide a shape frozen."""
    import tvm_ext

    fed = _feeds(case)
    freeze = {name: fed.pop(name) for name in case.frozen}
    try:
        compiled = tvm_ext.compile(case.model, cache=False, threads=1, freeze=freeze)
    except (tvm_ext.errors.ModelError, tvm_ext.errors.UnsupportedError) as error:
        raise Refused(error.message) from error
    found = compiled.run(fed)
    return [found[spec.name] for spec in compiled.outputs]


def onnxruntime(case: Case, optimized: bool = True) -> list[Any]:
    """onnxruntime, with its default optimizations or none."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Refused(str(error)) from error
    feeds = {name: value for name, value in _feeds(case).items() if value is not None}
    if all(isinstance(value, list) or _is_native(value) for value in (*feeds.values(), *case.outputs)):
        return list(session.run(None, feeds))
    values = {name: _ort_value(onnxruntime, value) for name, value in feeds.items()}
    return [_ort_array(value) for value in session.run_with_ort_values(None, values)]


def _is_native(value: np.ndarray | None) -> bool:
    """Whether numpy itself has the dtype."""
    return value is None or value.dtype.type.__module__ == "numpy"


def _ort_value(onnxruntime: Any, value: np.ndarray) -> Any:
    """Floats and integers that numpy lacks go in as bytes with their type; those of four bits in pairs."""
    if _is_native(value):
        return onnxruntime.OrtValue.ortvalue_from_numpy(value)
    import onnx

    tensor = onnx.numpy_helper.from_array(value)
    made = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(value.shape), tensor.data_type)
    ctypes.memmove(made.data_ptr(), tensor.raw_data, len(tensor.raw_data))
    return made


def _ort_array(value: Any) -> np.ndarray:
    import onnx

    tensor = onnx.TensorProto(dims=value.shape(), data_type=value.element_type())
    bits = bits_of(tensor.data_type)
    tensor.raw_data = ctypes.string_at(value.data_ptr(), (math.prod(value.shape()) * bits + 7) // 8)
    return onnx.numpy_helper.to_array(tensor)


def stock(case: Case) -> list[Any]:
    """`from_onnx` and `tvm.compile` as shipped."""
    return _stock(case, ())


def stock_frozen(case: Case) -> list[Any]:
    """The same for a model in which the same inputs are initializers."""
    return _stock(case, case.frozen)


#: Those of the table.
NAMES = ("ours", "onnxruntime", "stock", "stock frozen")
CONTENDERS: dict[str, Callable[[Case], list[Any]]] = {
    "ours": ours, "onnxruntime": onnxruntime, "stock": stock, "stock frozen": stock_frozen,
    # what a worker must outlive
    "crash for a test": lambda case: os.kill(os.getpid(), signal.SIGSEGV) or [],
    "hang for a test": lambda case: time.sleep(600) or [],
    "nothing for a test": lambda case: [],
}  # fmt: skip


def _feeds(case: Case) -> dict[str, Any]:
    import onnx

    names = [value.name for value in onnx.ModelProto.FromString(case.model).graph.input]
    return dict(zip(names, case.inputs, strict=True))


def _stock(case: Case, frozen: tuple[str, ...]) -> list[Any]:
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from tvm_ext.core.frozen import frozen_inputs
    from tvm_ext.frontend.freezing import frozen_source
    from tvm_ext.frontend.reader import Source

    feeds = _feeds(case)
    freeze = frozen_inputs({name: feeds.pop(name) for name in frozen})
    model = frozen_source(Source(onnx.ModelProto.FromString(case.model), case.name, "", None), freeze).proto
    try:
        mod = from_onnx(model)
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from error
    machine = relax.VirtualMachine(tvm.compile(mod, tvm.target.Target("llvm")), tvm.cpu())
    return _numpy(machine["main"](*map(_tvm, feeds.values())))


def _tvm(value: Any) -> Any:
    import tvm

    return [_tvm(one) for one in value] if isinstance(value, list) else tvm.runtime.tensor(value)


def _numpy(found: Any) -> list[Any]:
    """All outputs of a virtual machine as arrays, sequences as lists."""
    if hasattr(found, "numpy"):
        return [found.numpy()]
    return [one.numpy() if hasattr(one, "numpy") else _numpy(one) for one in found]
