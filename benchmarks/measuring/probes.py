"""Things to time in a fresh process; see :mod:`.processes`.

Nothing is imported before the probe starts, so that the imports are part of what is timed.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

START = time.perf_counter()
Answer = dict[str, Any]


def compile_cold(model: str, threads: int) -> Answer:
    """Compile without the cache."""
    _compiled(model, threads, cache=False)
    return {}


def compile_cached(model: str, threads: int) -> Answer:
    """Compile with the cache, which an earlier run has filled."""
    import tvm  # noqa: F401  (timed on its own)
    import tvm_ext  # noqa: F401

    imported = time.perf_counter()
    _compiled(model, threads)
    return {"import": imported - START, "compile": time.perf_counter() - imported}


def onnxruntime_start(model: str, threads: int) -> Answer:
    """Open an onnxruntime session."""
    import onnxruntime  # noqa: F401

    imported = time.perf_counter()
    _session(model, threads)
    return {"import": imported - START, "session": time.perf_counter() - imported}


def check(model: str, threads: int, artifact: str) -> Answer:
    """Compile, compare with onnxruntime, export; what the report says."""
    import tvm_ext

    compiled = _compiled(model, threads, cache=False)
    reports = [tvm_ext.verify(compiled, model, seed=seed) for seed in range(3)]
    compiled.export(artifact)
    kernels = compiled.report["kernels"]
    return {
        "launches": compiled.report["launches"], "kernels": len(kernels),
        "generic": [k["name"] for k in kernels if k["recipe"] == "generic"],
        "of_range": max(report.of_range for report in reports),
        "ok": all(r.ok for r in reports), "warnings": list(compiled.report["warnings"]),
    }  # fmt: skip


def load_and_run(artifact: str, imports: str) -> Answer:
    """Load an exported model and run it once, after importing all of TVM if `imports` is "full"."""
    import numpy as np
    import tvm_ext

    if imports == "full":
        import tvm  # noqa: F401  (timed with the rest)

    compiled = tvm_ext.load(artifact)
    outputs = compiled.run({s.name: np.ones(s.shape, s.dtype) for s in compiled.inputs})
    return {"finite": all(bool(np.isfinite(v).all()) for v in outputs.values())}


def reload(artifact: str, inputs: str, outputs: str) -> Answer:
    """Run an artifact by the runtime alone: compilers that are on PATH, what was imported that a
    deployment needs not; inputs and outputs are .npz, by name."""
    import shutil
    import sys

    import numpy as np
    from tvm_ext.runtime.model import load

    model = load(artifact)
    with np.load(inputs) as stored:
        values = model.run({spec.name: stored[spec.name] for spec in model.inputs})
    np.savez(outputs, *values.values())
    heavy = ("onnx", "onnxruntime", "tvm_ext.driver", "tvm_ext.passes")
    return {
        "compilers": [name for name in ("gcc", "cc", "clang", "ld") if shutil.which(name)],
        "imported": [name for name in heavy if name in sys.modules],
    }


def export(model: str, threads: int, shapes: dict[str, Sequence[int]], artifact: str) -> Answer:
    """Compile and export."""
    _compiled(model, threads, shapes=shapes).export(artifact)
    return {}


def peak_of_artifact(artifact: str, inputs: str) -> Answer:
    """Most memory that a process took which loads an artifact and runs it once."""
    import numpy as np
    import tvm_ext

    outputs = tvm_ext.load(artifact).run(dict(np.load(inputs)))
    return {"bytes": _peak(), "outputs": len(outputs)}


def peak_of_onnxruntime(model: str, threads: int, inputs: str) -> Answer:
    """The same with a session of onnxruntime on the model."""
    import numpy as np

    outputs = _session(model, threads).run(None, dict(np.load(inputs)))
    return {"bytes": _peak(), "outputs": len(outputs)}


def bandwidth(model: str, floats: int, threads: int, rounds: int, seconds: float) -> Answer:
    """Rounds of a dense layer and of a read of as many bytes, in bytes a second; both run on TVM's
    threads, so in one process."""
    from tvm_ext.core.machine import Machine
    from tvm_ext.rates.loops import call_of_read

    compiled = _compiled(model, threads, cache=False)
    read, read_bytes = call_of_read(Machine.detect(None, threads), floats)
    times = _rounds([_call(compiled), read], rounds, seconds)
    rates = [(4 * floats / ours, read_bytes / theirs) for ours, theirs in times]
    return {"rounds": rates, **_error(compiled, model)}


def scaling(model: str, rounds: int, seconds: float) -> Answer:
    """Rounds of (model on 1 thread, on 2, multiply-adds on 1, on 2), in seconds; all on TVM's
    threads."""
    from tvm_ext.core.machine import Machine
    from tvm_ext.rates.loops import call_of_fma

    calls = [_call(_compiled(model, threads)) for threads in (1, 2)]
    loops = [call_of_fma(Machine.detect(None, threads), 2_000_000) for threads in (1, 2)]
    times = _rounds([*calls, *(call for call, _ in loops)], rounds, seconds)
    least = [min(column) for column in zip(*times, strict=True)][2:]
    rates = [work / time / 1e9 for (_, work), time in zip(loops, least, strict=True)]
    return {"rounds": times, "gflops": rates}


def profile(model: str, threads: int, options: dict[str, Any], inputs: str) -> Answer:
    """The profile of a model without records, and the shape of each launch's result.

    Args:
        model: an ONNX file.
        threads: of the program.
        options: of the compile.
        inputs: an .npz; what is missing in it is drawn by seed.
    """
    import numpy as np
    import tvm_ext
    from tvm_ext.core.sample_inputs import seeded_inputs

    compiled = _compiled(model, threads, **options)
    profiled = tvm_ext.profile(compiled, {**seeded_inputs(compiled.inputs), **np.load(inputs)})
    sites = {kernel["name"]: kernel.get("sites") or [] for kernel in compiled.report["kernels"]}
    seen: dict[str, int] = dict.fromkeys(sites, 0)
    shapes = []
    for launch in profiled.launches:
        here, at = sites[launch.kernel], seen[launch.kernel]
        shapes.append(here[at % len(here)]["writes"][0]["shape"] if here else [])
        seen[launch.kernel] += 1
    return {"profile": profiled.as_dict(), "shapes": shapes}


def roofs(threads: int) -> Answer:
    """Multiply-adds and bytes a second of this machine, the best of three looks."""
    from tvm_ext.inspection.profile.roofs import RoofMeter

    meter = RoofMeter(threads)
    return [meter.measure() for _ in range(3)][-1].as_dict()


def stream(
    model: str, threads: int, rounds: int, seconds: float, options: dict[str, Any]
) -> Answer:
    """Rounds of (a model, a read of as many bytes as its kernels read and write, multiply-adds), in
    seconds; all on TVM's threads, so in one process. Options are those of the compile."""
    from tvm_ext.core.machine import Machine
    from tvm_ext.rates.loops import call_of_fma, call_of_read

    compiled, machine = _compiled(model, threads, **options), Machine.detect(None, threads)
    kernels, keys = compiled.report["kernels"], ("bytes", "executed", "flops")
    work = {key: sum(kernel[key] * kernel["calls"] for kernel in kernels) for key in keys}
    read, read_bytes = call_of_read(machine, work["bytes"] // 4)
    fma, operations = call_of_fma(machine, 400_000)
    return {
        "rounds": _rounds([_call(compiled), read, fma], rounds, seconds), **work,
        "read_bytes": read_bytes, "operations": operations, **_error(compiled, model),
        "recipes": sorted({kernel["recipe"] for kernel in kernels}),
    }  # fmt: skip


def call_overhead(threads: int) -> Answer:
    """Least time of a call of a model that is one ReLU of 512 floats, numpy to numpy."""
    import numpy as np
    from onnx import TensorProto, helper

    names, floats = ("x", "y"), TensorProto.FLOAT
    tensors = [helper.make_tensor_value_info(name, floats, [1, 512]) for name in names]
    node = helper.make_node("Relu", ["x"], ["y"], "relu")
    graph = helper.make_graph([node], "one", tensors[:1], tensors[1:])
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    compiled = _compiled(model, threads, cache=False)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 512)).astype(np.float32)}
    assert (compiled.run(feeds)["y"] == np.maximum(feeds["x"], 0)).all()
    best = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(2000):
            compiled.run(feeds)
        best.append((time.perf_counter() - begin) / 2000)
    middle = sorted(best)[len(best) // 2]
    return {"microseconds": 1e6 * min(best), "median_microseconds": 1e6 * middle}


def many_threads(artifact: str, calls: int) -> Answer:
    """Call from short-lived threads, ten at a time: OS threads after each ten; answers are compared
    to the bit."""
    import os
    import threading

    import numpy as np
    import tvm_ext
    from tvm_ext.core.sample_inputs import seeded_inputs

    compiled = tvm_ext.load(artifact)
    feeds = [seeded_inputs(compiled.inputs, seed) for seed in range(4)]
    expected = [compiled.run(inputs) for inputs in feeds]
    done: list[int] = []

    def call(number: int) -> None:
        outputs, right = compiled.run(feeds[number % 4]), expected[number % 4]
        if all(np.array_equal(outputs[name], value) for name, value in right.items()):
            done.append(number)

    counts = []
    for first in range(0, calls, 10):
        numbers = range(first, min(first + 10, calls))
        threads = [threading.Thread(target=call, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(0.01)  # a joined thread takes a moment to leave the kernel's list
        counts.append(len(os.listdir("/proc/self/task")))
    return {"os_threads": counts, "wrong": calls - len(done)}


def _compiled(model: Any, threads: int, **options: Any) -> Any:
    """A model compiled without records."""
    import tvm_ext

    return tvm_ext.compile(model, threads=threads, records=None, **options)


def _session(model: str, threads: int) -> Any:
    """A session as the contender of the races opens it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _call(compiled: Any) -> Callable[[], Any]:
    """A call of a model on inputs drawn by seed."""
    from tvm_ext.core.sample_inputs import seeded_inputs

    feeds = seeded_inputs(compiled.inputs)
    return lambda: compiled.run(feeds)


def _rounds(calls: Sequence[Callable[[], Any]], rounds: int, seconds: float) -> list[list[float]]:
    """The least time of each call in each round, in seconds."""
    from tvm_ext.rates.loops import round_minimum

    return [[round_minimum(call, seconds) for call in calls] for _ in range(rounds)]


def _error(compiled: Any, model: str) -> Answer:
    """Of a model whose rounds are over: onnxruntime's threads would disturb them."""
    import tvm_ext

    report = tvm_ext.verify(compiled, model)
    return {"of_range": report.of_range, "ok": report.ok}


def _peak() -> int:
    """The high-water mark of resident memory, in bytes. (ru_maxrss also remembers the process that
    forked this one.)"""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))
