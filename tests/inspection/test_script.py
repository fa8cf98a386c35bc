"""script and constants: what stands in the text for a value says each of its bits, or names a tensor of the file."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar, IRModule

from tvm_ext.driver.stages.constants import file_form, from_bytes
from tvm_ext.inspection.constants import ElidedNaming, FileNaming, Tensors, scalar_text
from tvm_ext.inspection.script import canonical, script


def parsed(text: str, **names: Any) -> IRModule:
    from tvm.script.parser.core.entry import _default_globals

    return tvm.script.from_source(text, extra_vars={**_default_globals(), **names})


@pytest.mark.parametrize(
    "value",
    [
        np.float32(0.1), np.float32(-0.0), np.float32(1e-45), np.float64(1 / 3), np.float16(0.1), np.bool_(True),
        np.int64(2**63 - 1), np.int64(-(2**63)), np.int8(-128), np.uint8(255), np.int32(7),
    ],
)  # fmt: skip
def test_scalars_stand_in_the_text_bit_by_bit(value: Any) -> None:
    text = scalar_text(np.asarray(value))
    constant = eval(text, {"R": relax})
    assert constant.value.numpy().tobytes() == np.asarray(value).tobytes() and constant.ty.dtype == str(value.dtype)


@pytest.mark.parametrize(
    "array",
    [
        np.array(np.nan, np.float32), np.array(np.inf), np.array(0.5, ml_dtypes.bfloat16), np.ones(1, np.float32),
        np.array(1, ml_dtypes.float8_e4m3fn), np.array(2**64 - 1, np.uint64),
    ],
)  # fmt: skip
def test_others_are_tensors_of_the_file(array: np.ndarray) -> None:
    assert scalar_text(array) == ""
    kept = file_form(array)
    assert kept.dtype.kind in "biufc" and kept.dtype.isbuiltin == 1
    read = kept if kept.dtype == array.dtype else from_bytes(kept, str(array.dtype), array.shape)
    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())


def add_constants(*arrays: np.ndarray) -> IRModule:
    x = relax.Var("x", relax.TensorType(arrays[0].shape, str(arrays[0].dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        total: Any = x
        for array in arrays:
            total = builder.emit(relax.op.add(total, relax.const(array)), "total")
        builder.emit_func_output(total)
    return builder.get()


def test_equal_tensors_are_one_and_are_named_by_their_reader(tmp_path: Path) -> None:
    one, other = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    tensors = Tensors()
    naming = FileNaming(tensors)
    text = script(add_constants(one, other, one.copy()), naming)
    assert list(naming.used) == ["total", "total1"] and len(tensors.arrays) == 2
    assert text.count("tvm_ext_tensors.total)") == 2 and "metadata" not in text and "tvm_ext_constant" not in text


def test_elided_constants_are_told_apart() -> None:
    one, naming = np.arange(3, dtype=np.float32), ElidedNaming()
    first, second = (script(add_constants(one * k, np.ones(3, np.float32)), naming) for k in (1, 2))
    a, b = (text[text.index("<float32[3] ") :].partition(">")[0] for text in (first, second))
    assert a != b and first.replace(a, b) == second


@pytest.mark.parametrize("lanes", [2, 6, 16, 24])
def test_vectors_of_any_length_read_back(lanes: int) -> None:
    dtype, b, c = f"float32x{lanes}", *(tirx.decl_buffer((lanes,), "float32", name) for name in "bc")
    index, v, u = tirx.Ramp(0, 1, lanes), tirx.Var("v", dtype), tirx.Var("u", dtype)
    body = tirx.SeqStmt([tirx.Bind(u, b[index] + b[index]), tirx.BufferStore(c, tirx.Let(v, b[index], v * u), [index])])
    mod = IRModule({GlobalVar("kernel"): tirx.PrimFunc([b, c], body)})
    text = script(mod, ElidedNaming())
    assert f"T.{dtype}" not in text
    tvm.ir.assert_structural_equal(parsed(text)["kernel"], mod["kernel"], map_free_vars=True)


def test_canonical_kernels_bind_each_variable_once() -> None:
    a, b = (tirx.decl_buffer((4,), "float32", name) for name in "ab")
    i, t = tirx.Var("i", "int32"), tirx.Var("t", "float32")
    loop = tirx.For(i, 0, 4, tirx.ForKind.SERIAL, tirx.BufferStore(b, tirx.Let(t, a[i], t * t), [i]))
    kernel = tirx.PrimFunc([a, b], tirx.SeqStmt([loop, loop])).with_attr("s_tir", True)
    mod = canonical(IRModule({GlobalVar("kernel"): kernel}))
    text = script(mod, ElidedNaming())
    tvm.ir.assert_structural_equal(parsed(text)["kernel"], mod["kernel"], map_free_vars=True)
