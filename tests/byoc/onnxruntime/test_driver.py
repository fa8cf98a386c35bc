"""The driver runs a model of onnxruntime's on arrays, and says what is wrong with a program, a result, or a process."""

import sys
from typing import Any

import numpy as np
import pytest

from tests.onnx_graphs import model, node, random, value
from tvm_ext.byoc.onnxruntime.backend import BACKEND, OnnxruntimeOptions
from tvm_ext.byoc.onnxruntime.driver import driver, model_of, program_of
from tvm_ext.byoc.region import NodeRegion
from tvm_ext.byoc.settings import offloading_of
from tvm_ext.core.errors import ArtifactError, OptionError, ProgramError


def product(stated: list[Any]) -> bytes:
    proto = model([node("MatMul", "a b", "y")], [value("a", ["M", 3]), value("b", [3, 2])], [value("y", stated)])
    return program_of(proto.SerializeToString(), 1)


def test_it_writes_the_outputs_in_place() -> None:
    a, b, y = random(4, 3), random(3, 2, seed=1), np.empty((4, 2), np.float32)
    driver(product([4, 2]))([a, b], [y])
    np.testing.assert_allclose(y, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-6)


def test_a_result_of_another_shape_is_an_error() -> None:
    run = driver(product(["M", 2]))
    with pytest.raises(ProgramError, match=r"value 'y' is float32\[5, 2\]; the model says that it is float32\[4, 2\]"):
        run([random(5, 3), random(3, 2)], [np.empty((4, 2), np.float32)])


def test_what_is_no_model_is_an_error() -> None:
    with pytest.raises(ProgramError, match="onnxruntime does not take it"):
        driver(program_of(b"nonsense", 1))


def test_without_onnxruntime_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ArtifactError, match="pip install onnxruntime"):
        driver(product([4, 2]))


def test_the_manifest_makes_programs_and_text_of_them() -> None:
    region = NodeRegion("r", model_of(product([4, 2])), {"MatMul:y": "no converter"})
    lowered = BACKEND.lowered(region, OnnxruntimeOptions(threads=2))
    assert int.from_bytes(lowered.program[:4], "little") == 2
    assert lowered.facts["reasons"] == {"MatMul:y": "no converter"}
    assert BACKEND.disassemble is not None and "y = MatMul (a, b)" in BACKEND.disassemble(lowered.program)


def test_it_is_asked_by_fallback_and_not_by_offload() -> None:
    with pytest.raises(OptionError, match="fallback='onnxruntime'"):
        offloading_of(BACKEND, {})
