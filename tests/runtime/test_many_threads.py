"""Three models in one process, called by sixteen threads at once, and a thousand times: bits, memory, OS threads."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext

from ..onnx_graphs import model, node, random, value
from .processes import run_python

UNSET = {"TVM_BIND_THREADS": None, "OMP_NUM_THREADS": None}


def convolutions() -> onnx.ModelProto:
    """Convolutions with a residual, pooling, a classifier; a batch of any size."""
    nodes = [
        node("Conv", "x w1", "c1", pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2", pads=[1, 1, 1, 1]), node("Add", "c2 r1", "s"), node("Relu", "s", "r2"),
        node("GlobalAveragePool", "r2", "g"), node("Flatten", "g", "f"), node("MatMul", "f w3", "d"),
        node("Softmax", "d", "y", axis=-1),
    ]  # fmt: skip
    weights = {"w1": random(24, 3, 3, 3, scale=0.3), "w2": random(24, 24, 3, 3, scale=0.1), "w3": random(24, 10)}
    return model(nodes, [value("x", ("N", 3, 33, 31))], [value("y", ("N", 10))], weights)


def attention() -> onnx.ModelProto:
    """Matmuls, softmax and layer norm over a sequence."""
    nodes = [
        node("MatMul", "x wq", "q"), node("MatMul", "x wk", "k0"), node("Transpose", "k0", "k", perm=[0, 2, 1]),
        node("MatMul", "q k", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p x", "o"),
        node("Add", "o x", "a"), node("LayerNormalization", "a gamma beta", "y", axis=-1),
    ]  # fmt: skip
    weights = {
        "wq": random(64, 64, scale=0.1),
        "wk": random(64, 64, scale=0.1),
        "gamma": random(64),
        "beta": random(64),
    }
    return model(nodes, [value("x", (2, 37, 64))], [value("y", (2, 37, 64)), value("p", (2, 37, 37))], weights)


def recurrent() -> onnx.ModelProto:
    """An LSTM, its states among inputs and outputs, and integers beside it."""
    nodes = [
        node("LSTM", "x w r b  h c", "all hn cn", hidden_size=16), node("Gather", "table i", "e", axis=0),
        node("Squeeze", "all one", "sq"), node("Add", "sq e", "y"),
    ]  # fmt: skip
    weights = {
        "w": random(1, 64, 8, scale=0.3), "r": random(1, 64, 16, scale=0.3), "b": random(1, 128),
        "table": random(11, 16), "one": np.array([1]),
    }  # fmt: skip
    state = (1, 3, 16)
    inputs = [value("x", (5, 3, 8)), value("h", state), value("c", state), value("i", (3,), onnx.TensorProto.INT64)]
    return model(nodes, inputs, [value("y", (5, 3, 16)), value("hn", state), value("cn", state)], weights)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The three models, exported."""
    folder = tmp_path_factory.mktemp("artifacts")
    paths = []
    for build in (convolutions, attention, recurrent):
        shapes = {"x": ("N", 3, 33, 31)} if build is convolutions else {}
        compiled = tvm_ext.compile(build(), shapes=shapes, threads=2, cache=False)
        paths.append(folder / f"{build.__name__}.so")
        compiled.export(paths[-1])
    return paths


COMMON = """
import gc, json, os, sys, threading
import numpy as np
from tvm_ext.runtime.model import load

models = [load(path) for path in sys.argv[2:]]
amount = int(sys.argv[1])

def feeds(model, seed):
    rng = np.random.default_rng(seed)
    draw = lambda spec: (rng.integers(0, 11, spec.sizes) if "int" in spec.dtype else rng.standard_normal(spec.sizes))
    return {s.name: draw(s.at(1 + seed % 7)).astype(s.dtype) for s in model.inputs}

def bits(outputs):
    return [array.tobytes() for array in outputs.values()]

def os_threads():
    return len(os.listdir("/proc/self/task"))

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def in_threads(count, work):
    start, errors = threading.Barrier(count), []
    def body(i):
        start.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(repr(error))
    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return errors
"""

AT_ONCE = """
threads = 16
given = [[feeds(model, seed) for seed in range(threads)] for model in models]
wanted = [[bits(model.run(one)) for one in inputs] for model, inputs in zip(models, given)]
different = []

def work(i):
    for call in range(amount):
        for k in range(len(models)):
            m = (i + call + k) % len(models)
            seed = (i + call) % threads
            if bits(models[m].run(given[m][seed])) != wanted[m][seed]:
                different.append((m, seed))

errors = in_threads(threads, work)
print(json.dumps({"errors": errors, "different": different, "threads": os_threads()}))
"""

CALLS = """
inputs = [feeds(model, 3) for model in models]
wanted = [bits(model.run(one)) for model, one in zip(models, inputs)]

def calls(count):
    same = True
    for call in range(count):
        m = call % len(models)
        same &= bits(models[m].run(inputs[m])) == wanted[m]
    return same

def everywhere(count):
    found = []
    errors = in_threads(4, lambda i: found.append(calls(count // 4)))
    return errors == [] and all(found)

same = calls(300) and everywhere(300)  # what is made once is made
before = resident(), os_threads()
same &= calls(amount) and everywhere(amount)
after = resident(), os_threads()
print(json.dumps({"same": bool(same), "bytes": [before[0], after[0]], "threads": [before[1], after[1]]}))
"""


@pytest.mark.long
def test_sixteen_threads_give_the_bits_of_one(artifacts: list[Path]) -> None:
    """200 rounds each over all models, in different orders."""
    answer = json.loads(run_python(COMMON + AT_ONCE, "200", *artifacts, timeout=300, **UNSET))
    assert answer["errors"] == [] and answer["different"] == []


@pytest.mark.long
def test_a_thousand_calls_take_no_memory_and_no_threads(artifacts: list[Path]) -> None:
    """1,000 calls in the main thread, and 1,000 in four others; a few pages are Python's own."""
    answer = json.loads(run_python(COMMON + CALLS, "1000", *artifacts, timeout=300, **UNSET))
    (before, after), threads = answer["bytes"], answer["threads"]
    assert answer["same"]
    assert threads[0] == threads[1]
    assert after - before < 1 << 20
