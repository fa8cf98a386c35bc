"""Tiny programs built by hand with Relax, wrapped as compiled models."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from tvm_ext.runtime.memory.arrays import aligned_empty
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.runtime.spec import Metadata, Program, TensorSpec, installed_versions

Spec = tuple[str, tuple[int, ...], str]


def tensor_type(spec: Spec) -> relax.TensorType:
    return relax.TensorType(spec[1], spec[2])


def build(body: Callable[..., Any], inputs: Sequence[Spec], weights: Sequence[Spec] = ()) -> Any:
    """An executable whose `main` is `body(block builder, *variables)`; a tuple of expressions is a tuple."""
    builder = relax.BlockBuilder()
    variables = [relax.Var(spec[0], tensor_type(spec)) for spec in (*inputs, *weights)]
    with builder.function("main", variables):
        with builder.dataflow():
            result = body(builder, *variables)
            if isinstance(result, tuple):
                result = relax.Tuple([builder.emit(r) for r in result])
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return relax.build(builder.get(), tvm.target.Target("llvm"))


def metadata(
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    weights: Sequence[Spec] = (),
    parallel: bool = False,
    **changes: Any,
) -> Metadata:
    fields: dict[str, Any] = {
        "inputs": tuple(TensorSpec(*spec) for spec in inputs),
        "outputs": tuple(TensorSpec(*spec) for spec in outputs),
        "weights": tuple(TensorSpec(*spec) for spec in weights),
        "programs": (Program("main", tuple(range(len(weights)))),),
        "threads": 2 if parallel else 1,
        "parallel": parallel,
        "machine": {"isa": "scalar", "mcpu": "generic", "triple": "", "features": []},
        "versions": installed_versions(),
        "model": {"name": "tiny", "sha256": "0" * 64},
        "report": {"kernels": 1},
    }
    return Metadata(**{**fields, **changes})


def model(
    body: Callable[..., Any],
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    weights: Mapping[str, np.ndarray] | None = None,
    parallel: bool = False,
    **changes: Any,
) -> CompiledModel:
    """A compiled model in memory, as the compiler makes it."""
    weights = weights or {}
    specs = [(name, array.shape, str(array.dtype)) for name, array in weights.items()]
    executable = build(body, inputs, specs)
    described = metadata(inputs, outputs, specs, parallel, **changes)
    arrays = [aligned_copy(array) for array in weights.values()]
    return CompiledModel(executable.jit(), arrays, described, lambda path: executable.export_library(str(path)))


def aligned_copy(array: np.ndarray) -> np.ndarray:
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def unaligned_copy(array: np.ndarray) -> np.ndarray:
    """The same values at an address that is a multiple of the item size, and not of 64."""
    memory = aligned_empty((array.nbytes + 64,), np.uint8)
    copy = memory[array.itemsize : array.itemsize + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


BIAS = np.linspace(-1, 1, 32, dtype=np.float32)


def add_bias(**changes: Any) -> CompiledModel:
    """y[16, 32] = x + bias: one kernel, serial."""
    return model(
        lambda b, x, w: b.emit(relax.op.add(x, w)),
        [("x", (16, 32), "float32")],
        [("y", (16, 32), "float32")],
        {"bias": BIAS},
        **changes,
    )


SCALES = np.linspace(1, 2, 257, dtype=np.float32)


def scale_rows(rows: int = 33) -> CompiledModel:
    """y[rows, 257] = 2 x + scales, the rows in parallel."""
    x, w = te.placeholder((rows, 257), name="x"), te.placeholder((257,), name="w")
    y = te.compute((rows, 257), lambda i, j: x[i, j] * te.const(2.0, "float32") + w[j], name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, w, y]))
    row, column = schedule.get_loops(schedule.get_sblock("y"))
    schedule.parallel(row)
    schedule.vectorize(schedule.split(column, [None, 16])[1])
    kernel = schedule.mod["main"].with_attr("global_symbol", "scale_rows")

    def body(builder: relax.BlockBuilder, *variables: relax.Var) -> relax.Expr:
        function = builder.add_func(kernel, "scale_rows")
        return relax.call_tir(function, list(variables), out_ty=relax.TensorType((rows, 257), "float32"))

    shape = (rows, 257)
    return model(body, [("x", shape, "float32")], [("y", shape, "float32")], {"w": SCALES}, parallel=True)


def expected_rows(x: np.ndarray) -> np.ndarray:
    return 2 * x + SCALES


def export(compiled: CompiledModel, path: Path) -> Path:
    compiled.export(path)
    return path
