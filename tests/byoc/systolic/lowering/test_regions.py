"""Regions of several composites, their facts, what is remembered, and the traps of whole models."""

import gc
import json
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.region import Region
from tvm_ext.byoc.systolic.backend import BACKEND
from tvm_ext.byoc.systolic.code.layer import ConvGeometry
from tvm_ext.byoc.systolic.code.program import program_from_bytes
from tvm_ext.byoc.systolic.config import SystolicOptions
from tvm_ext.byoc.systolic.lowering import regions as lowering
from tvm_ext.byoc.systolic.lowering.regions import lower_region, seconds_of, timing_of
from tvm_ext.core.errors import ProgramError

from ..cases import direct_conv2d, random_float
from ..regions import SMALL, composite, conv2d, dequantize, matmul, op, region, run, value

OPTIONS = SystolicOptions(**SMALL)


def two_layers(rng: np.random.Generator) -> tuple[Region, list[np.ndarray]]:
    """y = relu(x w1 + b) w2, both of one shape but for the weights."""
    w1, w2, bias = (random_float(rng, shape) for shape in ((9, 9), (9, 9), (9,)))
    first = matmul(value("x", 5, 9), w1)
    add = op("add", first, bias)
    relu = op("nn.relu", add)
    return region(composite(first, add, relu), composite(matmul(relu, w2))), [w1, w2, bias]


def test_two_equal_layers_with_different_weights() -> None:
    rng = np.random.default_rng(0)
    offloaded, (w1, w2, bias) = two_layers(rng)
    x = random_float(rng, (5, 9))
    (y,) = run(offloaded, {"x": x})
    expected = np.maximum(x.astype(float) @ w1 + bias, 0) @ w2
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_an_output_that_a_later_layer_reads_too() -> None:
    """A leaking intermediate: it is given back, and read again, by one layer as operand and by the next as residual."""
    rng = np.random.default_rng(1)
    w1, w2, w3 = (random_float(rng, (7, 7)) for _ in range(3))
    first = matmul(value("x", 6, 7), w1)
    second = matmul(first, w2)
    third = matmul(second, w3)
    add = op("add", third, first)
    parts = (composite(first), composite(second), composite(third, add))
    offloaded = region(*parts, outputs=[first.result, add.result])
    x = random_float(rng, (6, 7))
    h, y = run(offloaded, {"x": x})
    exact = x.astype(float) @ w1
    np.testing.assert_allclose(h, exact, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(y, exact @ w2 @ w3 + exact, rtol=1e-5, atol=1e-3)


def test_convolutions_that_branch_and_meet() -> None:
    """The block of a ResNet: a shortcut of 1x1, and the residual add in the epilogue of the last convolution."""
    rng = np.random.default_rng(2)
    x = random_float(rng, (1, 3, 8, 8))
    w1, w2, w3 = (random_float(rng, s) for s in ((4, 3, 3, 3), (4, 4, 3, 3), (4, 3, 1, 1)))
    a = conv2d(value("x", 1, 3, 8, 8), w1, padding=(1, 1, 1, 1), strides=(2, 2))
    relu = op("nn.relu", a)
    shortcut = conv2d(value("x", 1, 3, 8, 8), w3, strides=(2, 2))
    b = conv2d(relu, w2, padding=(1, 1, 1, 1))
    add = op("add", b, shortcut)
    offloaded = region(composite(a, relu), composite(shortcut), composite(b, add, op("nn.relu", add)))
    inner = np.maximum(direct_conv2d(x.astype(float), w1, ConvGeometry(3, (8, 8), (3, 3), (2, 2), (1, 1, 1, 1))), 0)
    short = direct_conv2d(x.astype(float), w3, ConvGeometry(3, (8, 8), (1, 1), (2, 2)))
    last = direct_conv2d(inner, w2, ConvGeometry(4, (4, 4), (3, 3), (1, 1), (1, 1, 1, 1)))
    (y,) = run(offloaded, {"x": x})
    np.testing.assert_allclose(y, np.maximum(last + short, 0), rtol=1e-5, atol=1e-4)


def test_names_that_assembler_text_cannot_hold() -> None:
    x, w = value("a b;[c]", 3, 4), np.eye(4, dtype=np.float32)
    offloaded = region(composite(matmul(x, w)), composite(matmul(value("a b,[c]", 3, 4), w)))
    inputs = {v.name: random_float(np.random.default_rng(3), (3, 4)) for v in offloaded.inputs}
    assert len(inputs) == 2
    for outputs, array in zip(run(offloaded, inputs), inputs.values(), strict=True):
        np.testing.assert_array_equal(outputs, array)
    text = BACKEND.disassemble(lower_region(offloaded, OPTIONS).program)  # type: ignore[misc]
    assert "a_b__c" in text and "sha256:" in text and "base64" not in text


def test_facts() -> None:
    offloaded, _ = two_layers(np.random.default_rng(4))
    lowered = lower_region(offloaded, OPTIONS)
    facts: Any = json.loads(json.dumps(lowered.facts))
    program = program_from_bytes(lowered.program)
    timing = timing_of(offloaded, OPTIONS)
    assert facts["cycles"] == timing.cycles and facts["macs"] == 2 * 5 * 9 * 9
    assert facts["seconds"] == seconds_of(offloaded, OPTIONS) == (timing.cycles + 1000) / 1e9
    assert facts["accelerator"] == program.accelerator.as_dict() and "dataflow" not in facts["accelerator"]
    assert facts["dram_bytes"] == timing.totals.bytes_at("dram") and sum(facts["energy"].values()) > 0
    assert facts["energy_source"] == program.accelerator.energy.source
    first, second = facts["layers"]
    assert (first["op"], first["epilogue"], second["epilogue"]) == ("matmul", ["add", "nn.relu"], [])
    assert first["node"] == offloaded.composites[0].name and first["nodes"] == list(offloaded.composites[0].nodes)
    assert len(first["tile"]) == 3 and first["dataflow"] in ("ws", "os", "is") and first["runners_up"]
    assert first["cycles"] > 0 and first["intensity"] > 0 and first["bound"] in ("memory", "compute")


def test_a_dataflow_for_all_layers() -> None:
    offloaded, _ = two_layers(np.random.default_rng(5))
    for dataflow in ("ws", "os", "is"):
        layers: Any = lower_region(offloaded, SystolicOptions(**SMALL, dataflow=dataflow)).facts["layers"]
        assert {layer["dataflow"] for layer in layers} == {dataflow}


def test_a_region_is_lowered_once_and_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    offloaded, _ = two_layers(np.random.default_rng(6))
    calls = []
    real = lowering.simulate
    monkeypatch.setattr(lowering, "simulate", lambda program: calls.append(program) or real(program))
    seconds = seconds_of(offloaded, OPTIONS)
    lower_region(offloaded, OPTIONS)
    assert seconds_of(offloaded, SystolicOptions(**SMALL)) == seconds and len(calls) == 1
    assert seconds_of(offloaded, SystolicOptions(**{**SMALL, "rows": 8})) != seconds and len(calls) == 2
    alive = weakref.ref(offloaded)
    assert offloaded in lowering._known
    del offloaded
    gc.collect()
    assert alive() is None


def test_a_layer_that_fits_no_memory_is_named() -> None:
    offloaded, _ = two_layers(np.random.default_rng(7))
    with pytest.raises(ProgramError, match=rf"layer {offloaded.composites[0].name}: no tile .* scratchpad of 64"):
        lower_region(offloaded, SystolicOptions(scratchpad_bytes=64))


def test_what_cannot_be_lowered_after_all_names_its_layer() -> None:
    broken = composite(matmul(value("x", 3, 4), value("w", 3, 4, 5)), op("tanh", value("x", 3, 4)))
    with pytest.raises(ProgramError, match=f"layer {broken.name}: "):
        lower_region(region(broken), OPTIONS)


def test_eight_threads_run_one_program() -> None:
    rng = np.random.default_rng(8)
    offloaded, (w1, w2, bias) = two_layers(rng)
    runner = BACKEND.driver(lower_region(offloaded, OPTIONS).program)

    def one(seed: int) -> None:
        x = random_float(np.random.default_rng(seed), (5, 9))
        y = np.empty((5, 9), np.float32)
        runner([x], [y])
        expected = np.maximum(x.astype(float) @ w1 + bias, 0) @ w2
        assert np.abs(y - expected).max() < 1e-4 * np.abs(expected).max()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(160)))


def test_cost_and_lowering_from_eight_threads_agree() -> None:
    offloaded, _ = two_layers(np.random.default_rng(9))
    with ThreadPoolExecutor(8) as pool:
        programs = list(pool.map(lambda _: lower_region(offloaded, OPTIONS).program, range(16)))
    assert len(set(programs)) == 1


def test_checks_look_at_no_weight() -> None:
    """A check is asked for each length of an epilogue: with weights of 1 GiB it allocates nothing of that size."""
    size = 1 << 15
    x = dequantize(value("x", 1, size, dtype="int8"), 0.5, 3)
    w = dequantize(np.broadcast_to(np.int8(3), (size, size)), 0.5, 1)
    layer = composite(x, w, matmul(x, w))
    tracemalloc.start()
    reason = BACKEND.patterns[0].check(layer, SystolicOptions(dtype="int8"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (reason, peak < 1 << 20) == ("", True)
