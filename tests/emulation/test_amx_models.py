"""Whole models compiled for a CPU with AMX, run by it or under the emulation, and compared with onnxruntime."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import residual_network
from tests.oracles.reference import onnxruntime_outputs
from tvm_ext.core.errors import ArtifactError
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.programs import lower
from tvm_ext.frontend import zoo
from tvm_ext.runtime import cpu

from .execution import HOST, MACHINE, tile_instructions

_AMX_FLAGS = {"amx_tile", "amx_bf16", "amx_int8"}


@pytest.fixture
def amx_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine, as if it had AMX and Linux gave it the registers."""
    flags = cpu.cpu_flags() | _AMX_FLAGS
    monkeypatch.setattr(
        Machine, "detect", staticmethod(lambda target=None, threads=1: MACHINE.with_threads(threads or 1))
    )
    monkeypatch.setattr(cpu, "cpu_flags", lambda: flags)
    monkeypatch.setattr(cpu, "why_no_tiles", lambda: "")


def quantized(model: onnx.ModelProto, signed: bool) -> onnx.ModelProto:
    """The model with QuantizeLinear and DequantizeLinear, scales of weights for each channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left: Iterator[dict[str, np.ndarray]] = (inputs_of(model, seed) for seed in range(3))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "model.onnx"), Path(folder, "quantized.onnx")
        onnx.save(model, source)
        kind = QuantType.QInt8 if signed else QuantType.QUInt8
        quantize_static(source, target, Reader(), per_channel=True, activation_type=kind, weight_type=QuantType.QInt8)
        return onnx.load(target)


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype("float32")}


def reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    return next(iter(onnxruntime_outputs(model, inputs).values()))


def check_but_for_ties(got: np.ndarray, wanted: np.ndarray) -> None:
    """Some numbers are a step of their scale apart, the others equal."""
    off = np.abs(got - wanted)
    assert off.max() <= 1.01 * np.diff(np.unique(wanted)).min() and np.mean(off > 0) <= 0.1


def recipes_and_layouts(model: Any) -> list[tuple[str, str]]:
    return [(k["recipe"], k["layouts"]) for k in model.metadata.report["kernels"]]


def check_layouts(model: Any, block: str) -> None:
    """Blocks of one width from the first convolution to the global pool, and nothing that converts them."""
    kernels = recipes_and_layouts(model)
    convolutions = [layouts for recipe, layouts in kernels if recipe == "conv2d_amx"]
    assert len(convolutions) == 6 and all(layouts.endswith(f"-> {block}") for layouts in convolutions)
    assert not [recipe for recipe, _ in kernels if recipe in ("layout_transform", "generic")]
    assert [layouts for recipe, layouts in kernels if recipe == "pool2d"] == [f"{block} -> {block}"]


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])
def test_bf16(threads: int, amx_machine: None) -> None:
    proto = residual_network()
    model = tvm_ext.compile(proto, precision="bf16", threads=threads, cache=False)
    inputs = inputs_of(proto, 7)
    with tile_instructions() as amx:
        got = next(iter(model.run(inputs).values()))
    wanted = reference(proto, inputs)
    assert np.abs(got - wanted).max() <= 0.01 * np.abs(wanted).max()
    amx.assert_entered("tdpbf16ps")
    check_layouts(model, "NCHW32c")


@pytest.mark.parametrize("signed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_int8(signed: bool, amx_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal bits without tiles, by sums of integers; where sums are float32, a tie may fall to the other side."""
    proto = quantized(residual_network(), signed)
    model = tvm_ext.compile(proto, threads=1, cache=False)
    inputs = inputs_of(proto, 7)
    with tile_instructions() as amx:
        got = next(iter(model.run(inputs).values()))
    check_but_for_ties(got, reference(proto, inputs))
    monkeypatch.setattr(Machine, "detect", staticmethod(lambda target=None, threads=1: HOST))
    plain = next(iter(tvm_ext.compile(proto, threads=1, cache=False).run(inputs).values()))
    assert np.array_equal(got, plain) or "avx512vnni" not in HOST.features
    check_but_for_ties(got, plain)
    amx.assert_entered("tdpbssd" if signed else "tdpbusd")
    check_layouts(model, "NCHW64c")


def test_only_programs_with_tiles_ask_for_them(amx_machine: None, tmp_path: Path) -> None:
    proto = residual_network(32, 32)
    plain = tvm_ext.compile(proto, threads=1, cache=False)
    tiled = tvm_ext.compile(proto, precision="bf16", threads=1, cache=False)
    assert "conv2d_amx" in dict(recipes_and_layouts(tiled))
    assert not {f for f in plain.metadata.machine["features"] if f.startswith("amx")}
    assert {"amx-tile", "amx-bf16"} <= set(tiled.metadata.machine["features"])
    plain.export(tmp_path / "plain.so")
    tiled.export(tmp_path / "tiled.so")
    inputs = inputs_of(proto, 7)
    with tile_instructions() as amx:
        again = tvm_ext.load(tmp_path / "tiled.so").run(inputs)
        amx.assert_entered("tdpbf16ps")
    assert np.isfinite(next(iter(again.values()))).all()


def test_another_cpu_refuses_them(
    amx_machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    tvm_ext.compile(residual_network(32, 32), precision="bf16", threads=1, cache=False).export(tmp_path / "tiled.so")
    flags = cpu.cpu_flags() - _AMX_FLAGS
    monkeypatch.setattr(cpu, "cpu_flags", lambda: flags)
    with pytest.raises(ArtifactError, match="it needs amx-bf16, amx-int8, amx-tile, which this"):
        tvm_ext.load(tmp_path / "tiled.so")


def test_resnet18_is_on_tiles_and_nothing_converts_between() -> None:
    lowered = lower(zoo.resnet18(), CompileOptions(precision="bf16", threads=1), MACHINE)
    kernels = [kernel.as_dict() for kernel in lowered.ctx.kernels.values() if kernel.calls]
    convolutions = [kernel["layouts"] for kernel in kernels if kernel["recipe"] == "conv2d_amx"]
    assert len(convolutions) >= 10 and all(layouts.endswith("-> NCHW32c") for layouts in convolutions)
    recipes = {kernel["recipe"] for kernel in kernels}
    assert not {"layout_transform", "generic", "conv2d_dot", "conv2d_nchwc"} & recipes
