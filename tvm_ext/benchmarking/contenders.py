"""What can be timed: each contender prepares a model and returns a call, numpy to numpy. Runs in a worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Prepared:
    """A contender that is ready.

    Attributes:
        call: inputs by name -> outputs by name.
        version: what runs, with its version.
        details: plain values for the table.
    """

    call: Callable[[Mapping[str, np.ndarray]], Outputs]
    version: str
    details: dict[str, Any]


def prepare_tvm_ext(model: str, threads: int, options: dict[str, Any]) -> Prepared:
    """This library: `compile`, then `run`."""
    from ..core.machine import Machine
    from ..driver.compile import compile_model

    compiled = compile_model(model, threads=threads, **options)
    report = compiled.report
    details = {
        "launches": report.get("launches"), "kernels": len(report.get("kernels", ())),
        "warnings": list(report.get("warnings", ())),
        "machine": Machine.detect(options.get("target"), threads).as_dict(),
    }  # fmt: skip
    return Prepared(compiled.run, f"tvm-ext {compiled.metadata.versions['tvm_ext']}", details)


def prepare_onnxruntime(model: str, threads: int, options: dict[str, Any]) -> Prepared:
    """onnxruntime on the CPU with its default graph optimizations."""
    import onnxruntime

    from ..verification.reference import onnxruntime_session

    session = onnxruntime_session(model, threads)
    names = [output.name for output in session.get_outputs()]

    def call(inputs: Mapping[str, np.ndarray]) -> Outputs:
        return dict(zip(names, session.run(names, inputs), strict=True))

    return Prepared(call, f"onnxruntime {onnxruntime.__version__}", {})


def prepare_tvm(model: str, threads: int, options: dict[str, Any]) -> Prepared:
    """Stock TVM: `from_onnx` and `tvm.compile` with its default pipelines for this CPU, as shipped."""
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    from ..core.machine import Machine

    proto = onnx.load(model)
    shapes = {name: list(shape) for name, shape in dict(options.get("shapes") or {}).items()}
    mod = from_onnx(proto, shape_dict=shapes or None, sanitize_input_names=False)
    target = Machine.detect(options.get("target"), threads).target()
    machine = relax.VirtualMachine(tvm.compile(mod, target=target), tvm.cpu())
    order = [param.name for param in mod["main"].params]
    names = [output.name for output in proto.graph.output]
    main = machine["main"]

    def call(inputs: Mapping[str, np.ndarray]) -> Outputs:
        result = main(*(tvm.runtime.tensor(inputs[name]) for name in order))
        values = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return {name: value.numpy() for name, value in zip(names, values, strict=True)}

    return Prepared(call, f"apache-tvm {tvm.__version__}", {})


#: name -> how it prepares a model
CONTENDERS: dict[str, Callable[[str, int, dict[str, Any]], Prepared]] = {
    "tvm_ext": prepare_tvm_ext,
    "onnxruntime": prepare_onnxruntime,
    "tvm": prepare_tvm,
}
