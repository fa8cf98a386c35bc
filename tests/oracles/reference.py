"""Other programs on a model: onnxruntime, and TVM as shipped."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .outcome import Refused


def session_of(model: Any, *, optimized: bool, threads: int = 1) -> Any:
    """An `onnxruntime.InferenceSession` of bytes, a path or an `onnx.ModelProto`, read by nobody else.

    Of a ModelProto sums of products of bytes are exact on every CPU.

    Args:
        optimized: with onnxruntime's graph optimizations, or every node as the model has it.
        threads: inside an operator.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # others of the run have work for a core
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model if isinstance(model, bytes | str) else unsaturated(model).SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


#: Products of bytes -> places of the zero point of their data (-1: there is none), of the weight and of its zero point.
_PRODUCTS = {
    "QLinearConv": (2, 3, 5), "QLinearMatMul": (2, 3, 5), "QGemm": (2, 3, 5), "MatMulInteger": (2, 1, 3),
    "ConvInteger": (2, 1, 3), "MatMulIntegerToFloat": (4, 1, 5), "DynamicQuantizeMatMul": (-1, 1, 3),
    "QAttention": (6, 1, 7),
}  # fmt: skip


def unsaturated(model: Any) -> Any:
    """A copy whose constant int8 weights of uint8 data are uint8, and their zero points 128 more.

    Without VNNI onnxruntime adds products of uint8 and int8 in pairs of 16 bits, and saturates them.
    """
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    known = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    bytes_in = {i.name for i in proto.graph.input if i.type.tensor_type.elem_type == onnx.TensorProto.INT8}
    for number, node in enumerate(proto.graph.node):
        data, weight, zero = _PRODUCTS.get(node.op_type, (0, 0, 0))
        names = [*node.input, *[""] * (zero + 1 - len(node.input))]
        signed = data >= 0 and (names[0] in bytes_in or known.get(names[data], np.uint8(0)).dtype != np.uint8)
        if not weight or signed or names[weight] not in known or known[names[weight]].dtype != np.int8:
            continue
        for at, values in ((weight, known[names[weight]]), (zero, known.get(names[zero], np.int8(0)))):
            names[at] = f"{names[at]}_unsigned_{number}_{at}"
            moved = np.asarray(values.astype(np.int16) + 128, np.uint8)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(moved, names[at]))
        del node.input[:]
        node.input.extend(names)
    return proto


def onnxruntime_outputs(
    model: Any, feeds: Mapping[str, Any], *, optimized: bool = False, threads: int = 1
) -> dict[str, Any]:
    """Outputs by name; of the feeds those that the graph has as inputs are taken."""
    return outputs_of(session_of(model, optimized=optimized, threads=threads), feeds)


def outputs_of(session: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of a session's run by name; of the feeds those that its graph has as inputs are taken."""
    names, inputs = [output.name for output in session.get_outputs()], {node.name for node in session.get_inputs()}
    return dict(zip(names, session.run(names, {k: v for k, v in feeds.items() if k in inputs}), strict=True))


def assert_agrees(
    compiled: Any, session: Any, feeds: Mapping[str, Any], rtol: float = 0.0, atol: float = 1e-5, where: object = ""
) -> None:  # fmt: skip
    """A compiled model gives what a session of onnxruntime gives, of the same shapes."""
    outputs = compiled.run(dict(feeds))
    for spec, expected in zip(compiled.outputs, session.run(None, dict(feeds)), strict=True):
        assert outputs[spec.name].shape == expected.shape, where
        np.testing.assert_allclose(outputs[spec.name], expected, rtol, atol, err_msg=f"{spec.name} {where}")


def stock_outputs(proto: Any, feeds: Mapping[str, Any], **options: Any) -> list[Any]:
    """Outputs of `from_onnx` and `tvm.compile` as shipped: arrays, lists for sequences.

    Args:
        proto: an `onnx.ModelProto`.
        feeds: in the order of its inputs.
        options: of `from_onnx`.

    Raises:
        Refused: `from_onnx` raised; the message is the reason.
    """
    from tvm.relax.frontend.onnx import from_onnx

    try:
        mod = from_onnx(proto, **options)
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from error
    return module_outputs(mod, feeds.values(), level=3)


def module_outputs(mod: Any, inputs: Iterable[Any], *, level: int = 0) -> list[Any]:
    """Outputs of a Relax module's `main`, compiled by TVM as shipped: arrays, lists for sequences.

    Args:
        level: of LLVM's optimizations. A module that is run once is compiled twice as fast without any.
    """
    import tvm
    from tvm import relax

    target = tvm.target.Target({"kind": "llvm", "opt-level": level})
    machine = relax.VirtualMachine(tvm.compile(mod, target), tvm.cpu())
    return _arrays(machine["main"](*map(_tensor, inputs)))


def _tensor(value: Any) -> Any:
    import tvm

    return [_tensor(element) for element in value] if isinstance(value, list) else tvm.runtime.tensor(value)


def _arrays(result: Any) -> list[np.ndarray | list[Any]]:
    """All outputs of a virtual machine."""
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [part.numpy() if hasattr(part, "numpy") else _arrays(part) for part in result]


def compiled(model: Any, **options: Any) -> Any:
    """The model by `tvm_ext.compile`, never out of the cache.

    Raises:
        Refused: the model was refused; the message is the reason.
    """
    import tvm_ext

    try:
        return tvm_ext.compile(model, cache=False, **options)
    except (tvm_ext.errors.ModelError, tvm_ext.errors.UnsupportedError) as error:
        raise Refused(error.message) from error
