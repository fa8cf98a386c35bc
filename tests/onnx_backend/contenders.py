"""Who runs a case: this library, onnxruntime, and TVM as shipped, with and without frozen inputs.

Each returns the outputs, or raises :class:`Refused` where it says beforehand that it cannot.
"""

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracles.compare import close, difference
from tests.oracles.outcome import Outcome, Refused, attempt
from tests.oracles.pool import Service
from tests.oracles.reference import compiled, session_of, stock_outputs
from tvm_ext.frontend.reading.tensors import bits_of

from .cases import Case


def ours(case: Case, **options: Any) -> list[Any]:
    """`tvm_ext.compile`, with the inputs that decide a shape frozen."""
    feeds = feeds_of(case)
    freeze = {name: feeds.pop(name) for name in case.frozen}
    shapes = {name: _shapes(value) for name, value in feeds.items()} if _takes_sequences(case.model) else {}
    program = compiled(case.model, threads=1, freeze=freeze, shapes=shapes, **options)
    return list(program.run(feeds).values())


def _takes_sequences(model: bytes) -> bool:
    """Whether an input is a sequence or an optional."""
    import onnx

    return not all(value.type.HasField("tensor_type") for value in onnx.ModelProto.FromString(model).graph.input)


def _shapes(value: Any) -> Any:
    """What `shapes` says of a value."""
    return [x.shape for x in value] if isinstance(value, list) else None if value is None else value.shape


def onnxruntime(case: Case, optimized: bool = True) -> list[Any]:
    """onnxruntime, with its default optimizations or none."""
    import onnxruntime

    try:
        session = session_of(case.model, optimized=optimized)
    except Exception as error:
        raise Refused(str(error)) from error
    feeds = {name: value for name, value in feeds_of(case).items() if value is not None}
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
    ort_value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(value.shape), tensor.data_type)
    ctypes.memmove(ort_value.data_ptr(), tensor.raw_data, len(tensor.raw_data))
    return ort_value


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


def _stock(case: Case, frozen: tuple[str, ...]) -> list[Any]:
    import onnx

    from tvm_ext.core.settings.frozen import frozen_inputs
    from tvm_ext.frontend.reading.freezing import frozen_source
    from tvm_ext.frontend.reading.reader import Source

    feeds = feeds_of(case)
    freeze = frozen_inputs({name: feeds.pop(name) for name in frozen})
    source = Source(onnx.ModelProto.FromString(case.model), case.name, "", None)
    return stock_outputs(frozen_source(source, freeze).proto, feeds)


def feeds_of(case: Case) -> dict[str, Any]:
    import onnx

    names = [value.name for value in onnx.ModelProto.FromString(case.model).graph.input]
    return dict(zip(names, case.inputs, strict=True))


CONTENDERS: dict[str, Callable[[Case], list[Any]]] = {
    "ours": ours, "onnxruntime": onnxruntime, "stock": stock, "stock frozen": stock_frozen,
}  # fmt: skip


def answer(task: tuple[str, Case]) -> Outcome:
    """The outcome of a case in a contender, by the names of both."""
    contender, case = task

    def run() -> Outcome:
        outputs = CONTENDERS[contender](case)
        reason, _ = difference(outputs, case.outputs, close(case.rtol, case.atol))
        return Outcome("wrong", reason) if reason else Outcome("pass")

    return attempt(run, without=f"test_{case.name}: ")


SERVICE = Service(answer)
