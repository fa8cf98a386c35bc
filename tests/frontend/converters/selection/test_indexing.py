"""Constants that are cheap to make: a program computes them, and an artifact is about as large as its model."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import tvm_ext
from tests.onnx_graphs import model, node, random, value

#: What an artifact of a few kernels takes beside its constants.
PROGRAM = 256 << 10
LONG, WIDE = np.int64([400_000]), np.int64([600, 600])


def splat(number: Any, shape: str = "s", out: str = "z") -> onnx.NodeProto:
    return node("ConstantOfShape", shape, out, value=numpy_helper.from_array(np.array([number])))


def ends(*numbers: float, dtype: str = "float32") -> dict[str, np.ndarray]:
    return dict(zip(("a", "b", "c"), np.array(numbers, dtype)[:, None].reshape(3), strict=True))


#: name -> nodes that make z, constants, shape of z, dtype
CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], tuple[int, ...], str]] = {
    "splat": ([splat(np.float32(2))], {"s": LONG}, (400_000,), "float32"),
    "splat of two dimensions": ([splat(np.int64(-3))], {"s": WIDE}, (600, 600), "int64"),
    "sum of splats": (
        [splat(np.float32(2), out="u"), splat(np.float32(3), out="v"), node("Mul", "u v", "z")],
        {"s": LONG}, (400_000,), "float32",
    ),
    "range": ([node("Range", "a b c", "z")], ends(3, 400_003, 1, dtype="int64"), (400_000,), "int64"),
    "range down": ([node("Range", "a b c", "z")], ends(5, -900_000, -3, dtype="int32"), (300_002,), "int32"),
    "range of floats": ([node("Range", "a b c", "z")], ends(3, -200_000.5, -0.5), (400_007,), "float32"),
    "expand": ([node("Expand", "w s", "z")], {"w": random(1, 600), "s": WIDE}, (600, 600), "float32"),
    "tile": ([node("Tile", "w s", "z")], {"w": random(20, 200), "s": np.int64([10, 10])}, (200, 2000), "float32"),
    "concat": ([node("Concat", " ".join(["w"] * 40), "z", axis=0)], {"w": random(1, 8000)}, (40, 8000), "float32"),
    "sum of a row and a column": ([node("Add", "w v", "z")], {"w": random(600, 1), "v": random(1, 600)}, (600, 600),
                                  "float32"),
    "gather": ([node("Gather", "w i", "z")], {"w": random(3, 600), "i": np.arange(600) % 3}, (600, 600), "float32"),
    "pad": ([node("Pad", "w p", "z")], {"w": random(1, 600), "p": np.int64([0, 0, 599, 0])}, (600, 600), "float32"),
    "one hot": ([node("OneHot", "i d v", "z")], {"i": np.arange(600), "d": np.int64(600), "v": np.float32([0, 1])},
                (600, 600), "float32"),
    "triangle": ([splat(np.float32(2), out="u"), node("Trilu", "u", "z")], {"s": WIDE}, (600, 600), "float32"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "read"),
    [*((name, ("added", "an output")[i % 2]) for i, name in enumerate(CASES)),
     ("splat", "an output"), ("range", "added"), ("expand", "an output")],
)  # fmt: skip
def test_the_artifact_is_about_as_large_as_its_model(name: str, read: str, tmp_path: Path) -> None:
    nodes, constants, shape, dtype = CASES[name]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    reader = node("Add", "z x", "y") if read == "added" else node("Identity", "z", "y")
    proto = model([*nodes, reader, node("Neg", "x", "n")], [value("x", (1,), kind)],
                  [value("y", shape, kind), value("n", (1,), kind)], constants)  # fmt: skip
    compiled = tvm_ext.compile(proto, cache=False, threads=1)
    assert (report := tvm_ext.verify(compiled, proto)).ok, str(report)
    compiled.export(tmp_path / "a.so")
    assert (tmp_path / "a.so").stat().st_size < len(proto.SerializeToString()) + PROGRAM


def test_many_readers_of_one_splat(tmp_path: Path) -> None:
    names = range(20)
    nodes = [splat(np.float32(2)), *(node("Add", f"z k{i}", f"a{i}") for i in names),
             *(node("Add", f"a{i} x", f"y{i}") for i in names)]  # fmt: skip
    constants = {"s": np.int64([400_000]), **{f"k{i}": np.float32(i) for i in names}}
    proto = model(nodes, [value("x", (1,))], [value(f"y{i}", (400_000,)) for i in names], constants)
    compiled = tvm_ext.compile(proto, cache=False, threads=1)
    assert (report := tvm_ext.verify(compiled, proto)).ok, str(report)
    compiled.export(tmp_path / "a.so")
    assert (tmp_path / "a.so").stat().st_size < PROGRAM


@pytest.mark.parametrize("k", [-2, 0, 3])
def test_a_large_unit_matrix(k: int) -> None:
    nodes = [node("EyeLike", "x", "z", k=k, dtype=TensorProto.INT32), node("Cast", "z", "f", to=TensorProto.FLOAT),
             node("Add", "f x", "y")]  # fmt: skip
    proto = model(nodes, [value("x", (300, 401))], [value("y", (300, 401))])
    x = random(300, 401)
    got = tvm_ext.compile(proto, cache=False, threads=1).run({"x": x})["y"]
    assert np.array_equal(got, x + np.eye(300, 401, k, dtype=np.float32))
