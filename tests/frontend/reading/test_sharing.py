"""Imports of one model at several sizes: what no size decides they have in common, until the last one ended."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tvm.ir import GenericConst

from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.errors import UnsupportedError
from tvm_ext.core.graph.relax_graph import main_bindings
from tvm_ext.core.options import CompileOptions
from tvm_ext.frontend.checks import checker
from tvm_ext.frontend.importer import Imported, import_model
from tvm_ext.frontend.reading.reader import Source, read_model
from tvm_ext.passes.sizes.alignment import constants_of

MODEL = model([node("MatMul", "x w", "m"), node("Add", "m k", "y")], [value("x", ["N", 4]), value("k", [3])],
              [value("y", ["N", 3])], {"w": random(4, 3)})  # fmt: skip


def at(source: Source, rows: int, **freeze: list[float]) -> Imported:
    return import_model(source, CompileOptions.of(shapes={"x": (rows, 4)}, freeze=freeze))


def weights_of(imported: Imported) -> list[GenericConst]:
    return [constant for binding in main_bindings(imported.mod) for constant in constants_of(binding.value)]


@pytest.mark.parametrize("freeze", [{}, {"k": [1.0, 2.0, 3.0]}])
def test_weights_are_read_and_made_once(freeze: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    own = checker._weights

    def noting(*args: Any, **named: Any) -> Any:
        read.append(1)
        return own(*args, **named)

    monkeypatch.setattr(checker, "_weights", noting)
    source = read_model(MODEL)
    with source.sharing() as shared:
        one, other = at(shared, 2, **freeze), at(shared, 5, **freeze)
        assert read == [1] and shared.shared
        assert all(a.same_as(b) for a, b in zip(weights_of(one), weights_of(other), strict=True))
        assert [tuple(i.mod["main"].params[0].ty.shape.values) for i in (one, other)] == [(2, 4), (5, 4)]
    assert shared.shared == {} and source.shared is None
    assert not weights_of(at(source, 2, **freeze))[0].same_as(weights_of(one)[0]) and len(read) == 2


def test_what_converters_make_of_weights_is_made_once() -> None:
    codes = np.arange(3 * 2 * 8, dtype=np.uint8).reshape(3, 2, 8)
    scales, points = np.float32([[1, 2], [3, 4], [5, 6]]), np.uint8([[1], [2], [3]])
    table = [node("GatherBlockQuantized", "t i s", "r", domain="com.microsoft", bits=4, block_size=16, quantize_axis=1)]
    nodes = [node("MatMulNBits", "r w s p", "y", domain="com.microsoft", N=3, K=32, bits=4, block_size=16), *table]
    proto = model(
        nodes[::-1], [value("i", ["N"], TensorProto.INT64)], [value("y", ["N", 3])],
        {"w": codes, "s": scales, "p": points, "t": codes.reshape(3, 16)},
    )  # fmt: skip
    proto.opset_import.add(domain="com.microsoft", version=1)
    with read_model(proto).sharing() as shared:
        one, other = (import_model(shared, CompileOptions.of(shapes={"i": (rows,)})) for rows in (2, 5))
    pairs = list(zip(weights_of(one), weights_of(other), strict=True))
    assert len(pairs) == 5 and all(a.same_as(b) for a, b in pairs)


def test_other_frozen_values_are_other_models() -> None:
    with read_model(MODEL).sharing() as shared:
        one, other = at(shared, 2, k=[1.0, 2.0, 3.0]), at(shared, 2, k=[0.0, 0.0, 0.0])
    assert not weights_of(one)[-1].same_as(weights_of(other)[-1])


def test_what_is_wrong_is_said_at_each_size() -> None:
    wrong = model([node("Relu", "x", "y")], [value("x", ["N"], TensorProto.STRING)], [value("y", ["N"])], {})
    with read_model(wrong).sharing() as shared:
        for _ in range(2):
            with pytest.raises(UnsupportedError, match="STRING"):
                import_model(shared, CompileOptions.of(shapes={"x": (2,)}))
