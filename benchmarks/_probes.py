"""Things to time in a fresh process: `python _probes.py NAME ARGUMENTS` prints one line of JSON when it is done.

Nothing is imported before the probe starts, so that the imports are part of what is timed.
"""

from __future__ import annotations

import json
import sys
import time

START = time.perf_counter()


def compile_cold(model: str, threads: str) -> dict[str, object]:
    """Compile without the cache."""
    import tvm_ext

    tvm_ext.compile(model, threads=int(threads), records=None, cache=False)
    return {}


def compile_cached(model: str, threads: str) -> dict[str, object]:
    """Compile with the cache, which an earlier run has filled."""
    import tvm  # noqa: F401  (timed on its own)

    import tvm_ext

    imported = time.perf_counter()
    tvm_ext.compile(model, threads=int(threads), records=None)
    return {"import": imported - START, "compile": time.perf_counter() - imported}


def onnxruntime_start(model: str, threads: str) -> dict[str, object]:
    """Open an onnxruntime session."""
    import onnxruntime

    imported = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return {"import": imported - START, "session": time.perf_counter() - imported}


def check(model: str, threads: str, artifact: str) -> dict[str, object]:
    """Compile, compare with onnxruntime, export; what the report says."""
    import tvm_ext

    compiled = tvm_ext.compile(model, threads=int(threads), records=None, cache=False)
    reports = [tvm_ext.verify(compiled, model, seed=seed) for seed in range(3)]
    compiled.export(artifact)
    kernels = compiled.report["kernels"]
    return {
        "launches": compiled.report["launches"],
        "kernels": len(kernels),
        "generic": [k["name"] for k in kernels if k["recipe"] == "generic"],
        "of_range": max(o.of_range for r in reports for o in r.outputs),
        "ok": all(r.ok for r in reports),
        "warnings": list(compiled.report["warnings"]),
    }


def load_and_run(artifact: str, imports: str) -> dict[str, object]:
    """Load an exported model and run it once, after importing all of TVM if `imports` is "full"."""
    import numpy as np

    import tvm_ext

    if imports == "full":
        import tvm  # noqa: F401  (timed with the rest)

    compiled = tvm_ext.load(artifact)
    outputs = compiled.run({s.name: np.ones(s.shape, s.dtype) for s in compiled.inputs})
    return {"finite": all(bool(np.isfinite(v).all()) for v in outputs.values())}


def export(model: str, threads: str, shapes: str, artifact: str) -> dict[str, object]:
    """Compile and export; `shapes` is JSON."""
    import tvm_ext

    tvm_ext.compile(model, threads=int(threads), shapes=json.loads(shapes), records=None).export(artifact)
    return {}


def peak_of_artifact(artifact: str, inputs: str) -> dict[str, object]:
    """Most memory that a process took which loads an artifact and runs it once."""
    import numpy as np

    import tvm_ext

    outputs = tvm_ext.load(artifact).run(dict(np.load(inputs)))
    return {"bytes": _peak(), "outputs": len(outputs)}


def peak_of_onnxruntime(model: str, threads: str, inputs: str) -> dict[str, object]:
    """The same with a session of onnxruntime on the model."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, dict(np.load(inputs)))
    return {"bytes": _peak(), "outputs": len(outputs)}


def _peak() -> int:
    """The high-water mark of resident memory, in bytes. (ru_maxrss also remembers the process that forked this one.)"""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def bandwidth(model: str, floats: str, threads: str, rounds: str, seconds: str) -> dict[str, object]:
    """Rounds of a dense layer and of a read of as many bytes; both run on TVM's threads, so in one process."""
    import numpy as np

    import tvm_ext
    from tvm_ext.core.machine import Machine
    from tvm_ext.rates.loops import call_of_read, round_minimum

    compiled = tvm_ext.compile(model, threads=int(threads), records=None, cache=False)
    read, read_bytes = call_of_read(Machine.detect(None, int(threads)), int(floats))
    (spec,) = compiled.inputs
    feeds = {spec.name: np.random.default_rng(0).standard_normal(spec.shape).astype(np.float32)}
    found = [
        (round_minimum(lambda: compiled.run(feeds), float(seconds)), round_minimum(read, float(seconds)))
        for _ in range(int(rounds))
    ]
    report = tvm_ext.verify(compiled, model)  # only now: onnxruntime's threads would disturb the rounds
    dense_bytes = 4 * int(floats)
    return {
        "rounds": [(dense_bytes / ours, read_bytes / theirs) for ours, theirs in found],
        "of_range": max(o.of_range for o in report.outputs), "ok": report.ok,
    }  # fmt: skip


def scaling(model: str, rounds: str, seconds: str) -> dict[str, object]:
    """Rounds of (model on 1 thread, on 2, multiply-adds on 1, on 2), in seconds; all on TVM's threads."""
    import numpy as np

    import tvm_ext
    from tvm_ext.core.machine import Machine
    from tvm_ext.rates.loops import call_of_fma, round_minimum

    calls = []
    for threads in (1, 2):
        compiled = tvm_ext.compile(model, threads=threads, records=None)
        feeds = {s.name: np.random.default_rng(0).standard_normal(s.shape).astype(s.dtype) for s in compiled.inputs}
        calls.append(lambda compiled=compiled, feeds=feeds: compiled.run(feeds))
    loops = [call_of_fma(Machine.detect(None, threads), 2_000_000) for threads in (1, 2)]
    calls += [call for call, _ in loops]
    found = [[round_minimum(call, float(seconds)) for call in calls] for _ in range(int(rounds))]
    gflops = [operations / min(row[2 + i] for row in found) / 1e9 for i, (_, operations) in enumerate(loops)]
    return {"rounds": found, "gflops": gflops}


def profile(model: str, threads: str, options: str, inputs: str) -> dict[str, object]:
    """The profile of a model without records, and the shape of each launch's result.

    Args:
        options: of the compile, as JSON.
        inputs: an .npz; what is missing in it is drawn by seed.
    """
    import numpy as np

    import tvm_ext
    from tvm_ext.core.sample_inputs import seeded_inputs

    compiled = tvm_ext.compile(model, threads=int(threads), records=None, **json.loads(options))
    found = tvm_ext.profile(compiled, {**seeded_inputs(compiled.inputs), **np.load(inputs)})
    sites = {kernel["name"]: kernel.get("sites") or [] for kernel in compiled.report["kernels"]}
    seen: dict[str, int] = dict.fromkeys(sites, 0)
    shapes = []
    for launch in found.launches:
        here, at = sites[launch.kernel], seen[launch.kernel]
        shapes.append(here[at % len(here)]["writes"][0]["shape"] if here else [])
        seen[launch.kernel] += 1
    return {"profile": found.as_dict(), "shapes": shapes}


def roofs(threads: str) -> dict[str, object]:
    """Multiply-adds and bytes a second of this machine, the best of three looks."""
    from tvm_ext.inspection.profile.roofs import RoofMeter

    meter = RoofMeter(int(threads))
    return [meter.measure() for _ in range(3)][-1].as_dict()


def stream(model: str, threads: str, rounds: str, seconds: str, options: str) -> dict[str, object]:
    """Rounds of (a model, a read of as many bytes as its kernels read and write, multiply-adds), in seconds; all on
    TVM's threads, so in one process.

    Args:
        options: of the compile, as JSON.
    """
    import numpy as np

    import tvm_ext
    from tvm_ext.core.machine import Machine
    from tvm_ext.rates.loops import call_of_fma, call_of_read, round_minimum

    compiled = tvm_ext.compile(model, threads=int(threads), records=None, **json.loads(options))
    kernels, machine = compiled.report["kernels"], Machine.detect(None, int(threads))
    work = {key: sum(kernel[key] * kernel["calls"] for kernel in kernels) for key in ("bytes", "executed", "flops")}
    (read, read_bytes), (fma, operations) = call_of_read(machine, work["bytes"] // 4), call_of_fma(machine, 400_000)
    feeds = {s.name: np.random.default_rng(0).standard_normal(s.shape).astype(s.dtype) for s in compiled.inputs}
    calls = (lambda: compiled.run(feeds), read, fma)
    found = [[round_minimum(call, float(seconds)) for call in calls] for _ in range(int(rounds))]
    report = tvm_ext.verify(compiled, model)  # only now: onnxruntime's threads would disturb the rounds
    return {
        "rounds": found, **work, "read_bytes": read_bytes, "operations": operations, "ok": report.ok,
        "of_range": max(o.of_range for o in report.outputs), "recipes": sorted({k["recipe"] for k in kernels}),
    }  # fmt: skip


def call_overhead(threads: str) -> dict[str, object]:
    """Least time of a call of a model that is one ReLU of 512 floats, numpy to numpy."""
    import numpy as np
    from onnx import TensorProto, helper

    import tvm_ext

    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 512]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "relu")], "one", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = tvm_ext.compile(model, threads=int(threads), records=None, cache=False)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 512)).astype(np.float32)}
    assert (compiled.run(feeds)["y"] == np.maximum(feeds["x"], 0)).all()
    best = []
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(2000):
            compiled.run(feeds)
        best.append((time.perf_counter() - begin) / 2000)
    return {"microseconds": 1e6 * min(best), "median_microseconds": 1e6 * sorted(best)[len(best) // 2]}


def many_threads(artifact: str, calls: str) -> dict[str, object]:
    """Call from short-lived threads, ten at a time: OS threads after each ten; answers are compared to the bit."""
    import os
    import threading

    import numpy as np

    import tvm_ext

    compiled = tvm_ext.load(artifact)
    rng = np.random.default_rng(0)
    feeds = [{s.name: rng.standard_normal(s.shape).astype(s.dtype) for s in compiled.inputs} for _ in range(4)]
    expected = [compiled.run(f) for f in feeds]
    done: list[int] = []

    def call(number: int) -> None:
        outputs = compiled.run(feeds[number % 4])
        right = all(np.array_equal(outputs[name], value) for name, value in expected[number % 4].items())
        if right:
            done.append(number)

    counts = []
    for first in range(0, int(calls), 10):
        threads = [threading.Thread(target=call, args=(n,)) for n in range(first, min(first + 10, int(calls)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep(0.01)  # a joined thread takes a moment to leave the kernel's list
        counts.append(len(os.listdir("/proc/self/task")))
    return {"os_threads": counts, "wrong": int(calls) - len(done)}


def main() -> None:
    probe, *arguments = sys.argv[1:]
    print(json.dumps(globals()[probe](*arguments)), flush=True)


if __name__ == "__main__":
    main()
