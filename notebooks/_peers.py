"""Times of the kernels of other runtimes, in a process of their own: thread pools of two runtimes disturb each other.

Run as:
    python _peers.py onnxruntime model.onnx 2     ->  {"conv1": 0.0012, ...}    ONNX node -> seconds, as JSON
    python _peers.py tvm model.onnx 2             ->  the same of stock TVM, its convolutions only
"""

import json
import os
import statistics
import sys
import tempfile
import time

import numpy as np
import onnx


def inputs_of(graph):
    """Normal numbers for each input of static shape."""
    rng = np.random.default_rng(0)
    weights = {tensor.name for tensor in graph.initializer}
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.input if v.name not in weights}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def onnxruntime_kernels(path, threads, runs=30):
    """From its own profiler. It names a fused node by the value that the node computes."""
    import onnxruntime

    graph = onnx.load(path).graph
    node_of = {value: node.name for node in graph.node for value in (node.name, *node.output)}
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_profiling, options.profile_file_prefix = True, os.path.join(folder, "profile")
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        for _ in range(runs):
            session.run(None, inputs_of(graph))
        with open(session.end_profiling()) as file:
            events = json.load(file)
    seconds = {}
    for event in events:
        name = event["name"].removesuffix("_kernel_time").removesuffix("_nchwc")
        if event["name"].endswith("_kernel_time") and name in node_of:
            seconds.setdefault(node_of[name], []).append(event["dur"] / 1e6)
    return {node: statistics.median(times) for node, times in seconds.items()}


def tvm_kernels(path, threads, runs=3):
    """By an instrument of the virtual machine. It runs convolutions in the order of the ONNX graph."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx
    from tvm_ext.benchmarking.contenders import llvm_target

    model = onnx.load(path)
    machine = relax.VirtualMachine(tvm.compile(from_onnx(model), target=llvm_target(None, threads)), tvm.cpu())
    nodes = [node.name for node in model.graph.node if node.op_type == "Conv"]
    seconds, started = [], 0.0

    def watch(function, symbol, before, result, *arguments):
        nonlocal started
        if before:
            started = time.perf_counter()
        elif symbol.startswith("conv2d"):
            seconds.append(time.perf_counter() - started)

    machine.set_instrument(watch)
    values = [tvm.runtime.tensor(array) for array in inputs_of(model.graph).values()]
    for _ in range(runs):
        machine["main"](*values)
    return {node: statistics.median(seconds[i :: len(nodes)]) for i, node in enumerate(nodes)}


if __name__ == "__main__":
    runtime, path, threads = sys.argv[1:]
    os.environ["TVM_NUM_THREADS"] = threads
    kernels = {"onnxruntime": onnxruntime_kernels, "tvm": tvm_kernels}[runtime]
    print(json.dumps(kernels(path, int(threads))))
