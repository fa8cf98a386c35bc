"""OpenVINO as it comes, in a process of an environment of its own: it chooses the precision, and says what it took.

The peer of `tvm_ext.benchmark` is held to float32; this one takes bf16 on a CPU that has it, and quantized models as
they are. Needs openvino and numpy, and nothing of this library: the files of the protocol
(`tvm_ext/benchmarking/worker.py`) are linked into a package of another name; see `tvm_ext.benchmarking.process`.

    python _openvino_worker.py                              JSON lines on stdin and stdout, as that protocol has them
    python _openvino_worker.py JSON INPUTS.npz OUTPUTS.npz  one run for each set of inputs: "0/name", "1/name", ...

JSON holds model, threads and options; options are shapes (input -> shape) and outputs (names of the graph's outputs).
"""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino  # type: ignore[import-not-found,unused-ignore]
from tvm_ext_worker import contenders, worker  # type: ignore[import-not-found]

#: Operations, as OpenVINO's execution graph calls them, that do arithmetic; the others move data.
ARITHMETIC = ("Convolution", "FullyConnected", "FullyConnectedQuantizedLegacy", "MatMul", "Pooling", "Subgraph")


def prepare(model: str, threads: int, options: Mapping[str, Any]) -> Any:
    """Compile for latency on so many threads; inputs and outputs are shared instead of copied."""
    core = openvino.Core()
    network = core.read_model(model)
    network.reshape({name: openvino.PartialShape(shape) for name, shape in options["shapes"].items()})
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    compiled = core.compile_model(network, "CPU", settings)
    request = compiled.create_infer_request()
    # an output has every name that the model has for its value: take the one that is a graph output
    wanted = set(options["outputs"])
    names = [next(iter(output.get_names() & wanted), output.get_any_name()) for output in compiled.outputs]

    def call(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = request.infer(dict(inputs), share_inputs=True, share_outputs=True)
        return dict(zip(names, results.values(), strict=True))

    version = openvino.__version__.partition("-")[0]
    return contenders.Prepared(call, f"openvino {version}", {"settings": settings, **taken(compiled)})


def taken(compiled: Any) -> dict[str, Any]:
    """The precision that it says it has, and its kernels: "primitive (operation, precision)" -> how many."""
    found: collections.Counter[str] = collections.Counter()
    for node in compiled.get_runtime_model().get_ops():
        facts = {key: value.astype(str) for key, value in node.get_rt_info().items() if hasattr(value, "astype")}
        if facts.get("layerType") in ARITHMETIC:
            found[f"{facts['primitiveType']} ({facts['layerType']}, {facts['runtimePrecision']})"] += 1
    hint = compiled.get_property("INFERENCE_PRECISION_HINT")
    return {"precision": hint.get_type_name(), "kernels": dict(found.most_common())}


def run_all(task: Mapping[str, Any], inputs: str, outputs: str) -> None:
    """Run every set of inputs in a file, and store the outputs as "0/name", "1/name", ..."""
    call = prepare(task["model"], task["threads"], task["options"]).call
    sets: dict[str, dict[str, np.ndarray]] = collections.defaultdict(dict)
    with np.load(inputs, allow_pickle=False) as stored:
        for name in stored.files:
            number, _, key = name.partition("/")
            sets[number][key] = stored[name]
    found = {n: {key: array.copy() for key, array in call(one).items()} for n, one in sets.items()}
    np.savez(outputs, **{f"{n}/{key}": array for n, one in found.items() for key, array in one.items()})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_all(json.loads(sys.argv[1]), *sys.argv[2:])
    else:
        contenders.CONTENDERS["openvino"] = prepare
        sys.exit(worker.main())
