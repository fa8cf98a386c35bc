"""What can be timed: each contender prepares a model and returns a call, numpy to numpy. Runs in a worker process.

This file and `worker.py` also run in other Python environments, where a peer is installed and this library is not:
at import they need numpy and the standard library only, and no contender but our own imports the library.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Outputs = dict[str, np.ndarray]
#: Operations, as OpenVINO's execution graph calls them, that do arithmetic; the others move data.
_ARITHMETIC = ("Convolution", "FullyConnected", "FullyConnectedQuantizedLegacy", "MatMul", "Pooling", "Subgraph")


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


class MissingError(RuntimeError):
    """A peer, or what it needs, is not installed in the Python that should run it."""


def prepare_tvm_ext(model: str, threads: int, options: dict[str, Any]) -> Prepared:
    """This library: `compile`, then `run`; first it imports what registers a back end."""
    from ..core.machine import Machine
    from ..driver.compile import compile_model
    from ..verification.verify import tolerance_of

    options = dict(options)
    sys.path += [path for path in options.pop("path", ()) if path not in sys.path]
    for module in options.pop("imports", ()):
        importlib.import_module(module)
    compiled = compile_model(model, threads=threads, **options)
    report = compiled.report
    details = {
        "launches": report.get("launches"), "bytes_moved": report.get("bytes_moved"),
        "kernels": len(report.get("kernels", ())), "tolerance": tolerance_of(compiled),
        "warnings": list(report.get("warnings", ())),
        "machine": Machine.detect(options.get("target"), threads).as_dict(),
    }  # fmt: skip
    return Prepared(compiled.run, f"tvm-ext {compiled.metadata.versions['tvm_ext']}", details)


def prepare_onnxruntime(model: str, threads: int, options: dict[str, Any]) -> Prepared:
    """onnxruntime on the CPU with its default graph optimizations, operators one after the other."""
    onnxruntime = _needed("onnxruntime")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.log_severity_level = 3  # its warnings are about its own optimizer
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def call(inputs: Mapping[str, np.ndarray]) -> Outputs:
        return dict(zip(names, session.run(names, inputs), strict=True))

    return Prepared(call, f"onnxruntime {onnxruntime.__version__}", {})


def prepare_openvino(model: str, threads: int, options: dict[str, Any]) -> Prepared:
    """OpenVINO's CPU plugin: latency hint, one stream, inputs and outputs shared instead of copied.

    It computes in float32; with "inference_precision" None among the options in what it likes best, which the details
    then name. The option "outputs" has the names of the graph's outputs for a Python without onnx.
    """
    openvino = _needed("openvino")
    network = openvino.Core().read_model(model)
    if shapes := _shapes(options):
        network.reshape({name: openvino.PartialShape(shape) for name, shape in shapes.items()})
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    if precision := options.get("inference_precision", "f32"):
        settings["INFERENCE_PRECISION_HINT"] = precision
    compiled = openvino.Core().compile_model(network, "CPU", settings)
    request = compiled.create_infer_request()
    # an output has every name that the model has for its value: take the one that is a graph output
    wanted = set(options.get("outputs") or _graph_names(model)[1])
    names = [next(iter(output.get_names() & wanted), output.get_any_name()) for output in compiled.outputs]

    def call(inputs: Mapping[str, np.ndarray]) -> Outputs:
        results = request.infer(dict(inputs), share_inputs=True, share_outputs=True)
        return dict(zip(names, results.values(), strict=True))

    version = openvino.__version__.partition("-")[0]
    details = {"settings": settings, **({} if precision else _taken(compiled))}
    return Prepared(call, f"openvino {version}", details)


def _taken(compiled: Any) -> dict[str, Any]:
    """The precision that OpenVINO says it has, and its kernels: "primitive (operation, precision)" -> how many."""
    kernels: Counter[str] = Counter()
    for node in compiled.get_runtime_model().get_ops():
        facts = {key: value.astype(str) for key, value in node.get_rt_info().items() if hasattr(value, "astype")}
        if facts.get("layerType") in _ARITHMETIC:
            kernels[f"{facts['primitiveType']} ({facts['layerType']}, {facts['runtimePrecision']})"] += 1
    hint = compiled.get_property("INFERENCE_PRECISION_HINT")
    return {"precision": hint.get_type_name(), "kernels": dict(kernels.most_common())}


def prepare_torch(model: str, threads: int, options: dict[str, Any]) -> Prepared:
    """PyTorch: the graph by onnx2torch, then `torch.compile`, which compiles during the first call."""
    torch, onnx2torch = _needed("torch"), _needed("onnx2torch")
    torch.set_num_threads(threads)
    takes, gives = _graph_names(model)
    module = torch.compile(onnx2torch.convert(model).eval())

    def call(inputs: Mapping[str, np.ndarray]) -> Outputs:
        with torch.inference_mode():
            result = module(*(torch.from_numpy(inputs[name]) for name in takes))
        values = [result] if isinstance(result, torch.Tensor) else list(result)
        return {name: value.numpy() for name, value in zip(gives, values, strict=True)}

    return Prepared(call, f"torch {torch.__version__}, compile", {})


def prepare_tvm(model: str, threads: int, options: dict[str, Any]) -> Prepared:
    """Stock TVM: `from_onnx` and `tvm.compile` with its default pipelines for this CPU, as shipped."""
    onnx, tvm = _needed("onnx"), _needed("tvm")
    relax, frontend = _needed("tvm.relax"), _needed("tvm.relax.frontend.onnx")
    mod = frontend.from_onnx(onnx.load(model), shape_dict=_shapes(options) or None, sanitize_input_names=False)
    machine = relax.VirtualMachine(tvm.compile(mod, target=llvm_target(options.get("target"), threads)), tvm.cpu())
    order = [param.name for param in mod["main"].params]
    _, names = _graph_names(model)
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
    "openvino": prepare_openvino,
    "torch": prepare_torch,
    "tvm": prepare_tvm,
}


def _needed(name: str) -> Any:
    """A module of a peer, which need not be installed where this library is.

    Raises:
        MissingError: it is not; says what to install, and where.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or name).partition(".")[0]
        raise MissingError(
            f"{missing} is not installed in {sys.executable}: install it there, or name a Python that has it "
            "(--python, python=)"
        ) from error


def _graph_names(model: str) -> tuple[Sequence[str], Sequence[str]]:
    """Names of the inputs that are no initializers, and of the outputs, in graph order."""
    graph = _needed("onnx").load(model, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return [v.name for v in graph.input if v.name not in weights], [v.name for v in graph.output]


def _shapes(options: Mapping[str, Any]) -> dict[str, list[int]]:
    return {name: list(shape) for name, shape in dict(options.get("shapes") or {}).items()}


def llvm_target(target: str | None, threads: int) -> Any:
    """The target of our option of that name ("CPU" or "TRIPLE:CPU"), by default this machine, without the vectors that
    LLVM expects of its name and that a host hides."""
    tvm, codegen = _needed("tvm"), _needed("tvm.target.codegen")
    triple, _, mcpu = (target or codegen.llvm_get_system_cpu()).rpartition(":")
    description: dict[str, Any] = {"kind": "llvm", "mcpu": mcpu, "num-cores": threads}
    if triple:
        description["mtriple"] = triple
    elif not target and (flags := _cpu_flags()):
        expected = (str(feature) for feature in codegen.llvm_get_cpu_features(tvm.target.Target(description)))
        vectors = (feature for feature in expected if feature.startswith(("avx", "amx", "fma")))
        description["mattr"] = [f"-{feature}" for feature in vectors if feature.replace("-", "") not in flags]
    return tvm.target.Target(description)


def _cpu_flags(cpuinfo: str = "/proc/cpuinfo") -> set[str]:
    """What Linux says that the CPU has, without underscores; empty where it does not say."""
    try:
        with open(cpuinfo, encoding="utf-8") as file:
            flags = next((line.partition(":")[2] for line in file if line.startswith("flags")), "")
    except OSError:
        return set()
    return {flag.replace("_", "") for flag in flags.split()}
