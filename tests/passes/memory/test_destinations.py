"""Outputs are written into memory that the caller gives; what no kernel writes is returned."""

from pathlib import Path

import numpy as np
import onnx

import tvm_ext
from tvm_ext.runtime.model import CompiledModel

from ...onnx_graphs import model, node, random, value
from ...runtime.processes import run_python


def compiled(nodes: list[onnx.NodeProto], outputs: str, **weights: np.ndarray) -> CompiledModel:
    outs = [value(name, None) for name in outputs.split()]
    return tvm_ext.compile(model(nodes, [value("x", (4, 6))], outs, weights), cache=False, threads=1)


def test_outputs_of_kernels_are_written_in_place_even_behind_a_reshape() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Reshape", "b s", "y"), node("Softmax", "a", "z")]
    assembled = compiled(nodes, "y z a", w=random(6, 6), s=np.array([2, -1]))
    (program,) = assembled.metadata.programs
    assert program.destinations == ((0, (4, 6)), (1, (4, 6)), (2, (4, 6)))
    x = random(4, 6)
    y, z, a = assembled.run(x).values()
    assert np.allclose(a, x @ random(6, 6), atol=1e-5) and np.allclose(y.reshape(4, 6), np.maximum(a, 0), atol=1e-6)
    assert np.allclose(z.sum(1), 1, atol=1e-6)


def test_what_no_kernel_writes_is_returned() -> None:
    nodes = [
        node("Relu", "x", "y"), node("Reshape", "y s", "again"), node("Add", "c c", "constant"),
        node("Identity", "x", "same"),
    ]  # fmt: skip
    program = compiled(nodes, "y again constant same", s=np.array([24]), c=random(3))
    x = random(4, 6)
    for _ in range(4):
        outputs = program.run(x)
        assert np.array_equal(outputs["y"], np.maximum(x, 0)) and np.array_equal(outputs["again"], outputs["y"].ravel())
        assert np.array_equal(outputs["constant"], 2 * random(3)) and np.array_equal(outputs["same"], x)
        arrays = [*outputs.values(), x]
        assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
        for array in outputs.values():
            array[...] = np.nan  # nothing of it may be seen in the next run


def test_numbers_that_numpy_cannot_lend_are_returned() -> None:
    nodes = [
        node("Cast", "x", "y", to=onnx.TensorProto.BFLOAT16),
        node("Slice", "x z z", "empty"),
        node("Abs", "x", "a"),
    ]
    outs = [value("y", (4, 6), onnx.TensorProto.BFLOAT16), value("empty", (0, 6)), value("a", (4, 6))]
    compiled = tvm_ext.compile(model(nodes, [value("x", (4, 6))], outs, {"z": np.array([0])}), cache=False, threads=1)
    assert [output for output, _ in compiled.metadata.programs[0].destinations] == [2]
    outputs = compiled.run(random(4, 6))
    assert outputs["empty"].shape == (0, 6) and str(outputs["y"].dtype) == "bfloat16"


def test_runs_after_the_first_touch_no_new_memory(tmp_path: Path) -> None:
    """Activations of 20 MB and the workspace of a Winograd convolution: each fresh page would be a page fault."""
    nodes = [node("Conv", f"{a} w{i}", b, pads=[1, 1, 1, 1]) for i, (a, b) in enumerate(["xc", "cd", "de"])]
    nodes += [node("GlobalAveragePool", "e", "y")]
    weights = {"w0": random(64, 3, 3, 3), "w1": random(64, 64, 3, 3), "w2": random(64, 64, 3, 3)}
    proto = model(nodes, [value("x", (1, 3, 160, 160))], [value("y", None)], weights)
    tvm_ext.compile(proto, cache=False, threads=2).export(tmp_path / "a.so")
    code = """
import resource, sys, numpy, tvm_ext
model, x = tvm_ext.load(sys.argv[1]), numpy.ones((1, 3, 160, 160), 'f4')
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def after(runs):
    start = faults()
    for _ in range(runs): model.run(x)
    return faults() - start
print(after(1), after(2), after(20))
"""
    first, _, later = map(int, run_python(code, tmp_path / "a.so").split())
    assert later < 20 < first, (first, later)
