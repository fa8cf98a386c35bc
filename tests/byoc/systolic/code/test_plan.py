"""Whole-chip plans: results that stay in the scratchpad, whole or by bands, have the values of those in DRAM."""

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.bands import Band, rows_read
from tvm_ext.byoc.systolic.code.codegen import code_of, lower
from tvm_ext.byoc.systolic.code.isa import Finish, Load, Store
from tvm_ext.byoc.systolic.code.layer import (
    ConvGeometry,
    GemmLayer,
    Matrix,
    Step,
    conv2d,
    filter_matrices,
    matmul,
    nchw,
    windowed,
)
from tvm_ext.byoc.systolic.code.plan import plan
from tvm_ext.byoc.systolic.code.program import Program, Tensor, program_from_bytes
from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.timing import simulate
from tvm_ext.core.errors import ProgramError

from ..cases import random_int8
from ..hardware.programs import random_inputs, resnet18
from ..races import find_races

SMALL = Accelerator(rows=4, cols=4, scratchpad_bytes=4096, accumulator_bytes=1024, dma_latency=20)
QUANTIZE = (Step("dequantize", scale=0.002), Step("quantize", scale=0.5, zero_point=-7))


def chain(seed: int) -> tuple[list[GemmLayer], list[Tensor], Accelerator]:
    """Three to six convolutions, depthwise ones, poolings and residual adds of one or two images, each of the last."""
    rng = np.random.default_rng([seed, 31])
    images, channels, size = int(rng.integers(1, 3)), int(rng.integers(1, 7)), (int(rng.integers(12, 40)), 9)
    tensors, layers = [Tensor("x", "input", (images, channels, *size), ("int8", "uint8")[seed % 2])], []
    for at in range(int(rng.integers(3, 7))):
        before, name, kind = tensors[-1].name, f"t{at}", ("conv", "dot", "max", "add")[int(rng.integers(4))]
        kernel = int(rng.integers(1, min(3, size[0]) + 1)), int(rng.integers(1, 3))
        pads = [int(rng.integers(0, reach)) for reach in (kernel[0], kernel[1], kernel[0], kernel[1])]
        strides = (int(rng.integers(1, 3)), 1) if size[0] > 8 else (1, 1)
        if kind == "add":
            a, out = (nchw(each, channels, size, images) for each in (before, name))
            layers.append(GemmLayer(name, size[0] * size[1], 1, channels, a, None, out, images, QUANTIZE, reduce="sum"))
        else:
            geometry = ConvGeometry(channels, size, kernel, strides, (pads[0], pads[1], pads[2], pads[3]))
            if kind == "conv":
                n = int(rng.integers(1, 9))
                weights = filter_matrices(random_int8(rng, (n, channels, *kernel)))
                same = geometry.out_size == size and n == channels
                residual = (Step("add", tile=nchw(before, n, size, images), dtype="int8", scale=0.5),) if same else ()
                steps = (QUANTIZE[0], *residual, QUANTIZE[1])
                layers.append(conv2d(name, before, weights, name, geometry, images=images, pad_value=-7, steps=steps))
                channels = n
            else:
                weights = random_int8(rng, (1, kernel[0] * kernel[1], channels)) if kind == "dot" else None
                steps = QUANTIZE if kind == "dot" else ()
                layers.append(windowed(name, kind, before, weights, name, geometry, images=images, steps=steps,
                                       pad_value=-128 if kind == "max" else -7))  # fmt: skip
            size = geometry.out_size
        tensors.append(Tensor(name, "scratch", (images, channels, *size), "int8"))
    tensors[-1] = dataclasses.replace(tensors[-1], role="output")
    settings = {"dma_bytes_per_cycle": 1, "dma_latency": 2, "vector_lanes": 16}
    hardware = dataclasses.replace(SMALL, scratchpad_bytes=int(rng.integers(900, 2500)), **settings)
    return layers, tensors, hardware


def outputs(program: Program, backend: str = "numpy") -> list[bytes]:
    return [values.tobytes() for values in run(program, random_inputs(program), backend).values()]


def test_values_are_those_of_layers_by_themselves() -> None:
    """Of random chains: whole, by bands, or in DRAM; no race, fewer bytes of DRAM, to the byte of what is estimated."""
    places: Counter[str] = Counter()
    for seed in range(16):
        layers, tensors, hardware = chain(seed)
        planned = plan(layers, tensors, hardware)
        fused, apart = code_of(planned, hardware), lower(layers, tensors, hardware)
        assert outputs(fused) == outputs(apart), seed
        assert len(fused.instructions) > 500 or not find_races(fused), seed
        before, after = (simulate(program).totals.bytes_at("dram") for program in (apart, fused))
        saved = sum(edge.saved for edge in planned.edges)
        assert before - after == pytest.approx(saved, abs=0.02 * before), seed
        kept = [edge for edge in planned.edges if edge.place != "dram"]
        assert bool(kept) == (after < before) and all(edge.saved > 0 for edge in kept)
        places.update(edge.place for edge in planned.edges)
    assert places["scratchpad"] > 20 and places["bands"] > 4 and places["dram"] > 3, places


@pytest.mark.parametrize("scratchpad", [2048, 4096, 16384])
def test_resnet18(scratchpad: int) -> None:
    """The stepper has the same values; the bytes of the program are those that were made."""
    apart, fused = (resnet18(29, 4, scratchpad, fusion) for fusion in (False, True))
    again = program_from_bytes(fused.to_bytes())
    assert again.tensors == fused.tensors and outputs(again) == outputs(apart) == outputs(fused)
    assert not find_races(fused)
    kept = [tensor for tensor in fused.tensors if tensor.address is not None]
    timings = simulate(apart), simulate(fused)
    bytes_of = [timing.totals.bytes_at("dram") for timing in timings]
    assert kept and bytes_of[1] < bytes_of[0] and timings[1].cycles <= 1.02 * timings[0].cycles
    stores = [i for i in fused.instructions if isinstance(i, Store)]
    assert {fused.tensors[store.tensor].role for store in stores} >= {"scratch", "output"}


def test_the_stepper_runs_bands() -> None:
    layers, tensors, hardware = chain(7)
    fused = lower(layers, tensors, hardware, fusion=True)
    assert any("#" in tensor.name for tensor in fused.tensors)
    assert outputs(fused, "stepper") == outputs(fused) == outputs(lower(layers, tensors, hardware))


def test_what_stays_takes_no_turn_of_the_channel() -> None:
    """Bytes over the width of the scratchpad's port, and no latency; its energy is the scratchpad's."""
    tensors = (Tensor("h", "scratch", (4, 6), "int8", 64), Tensor("y", "output", (4, 6), "int8"))
    code = (Store(0, 0, 4, 6, 0, 6, 1, 0), Load("a", 0, 0, 4, 6, 0, 6, 1), Finish())
    timing = simulate(Program(SMALL, tensors, (), code))
    assert [event.end - event.start for event in timing.events] == [-(-24 // 4), -(-24 // 4), 0]
    assert timing.busy["dma"] == timing.totals.transfer_cycles == timing.totals.compute_cycles == 0
    assert timing.totals.traffic == {
        ("scratchpad", "output"): 24, ("accumulator", "output"): 4 * 24, ("scratchpad", "a"): 48
    }  # fmt: skip


def edges_of(layers: list[GemmLayer], tensors: list[Tensor], hardware: Accelerator = SMALL) -> dict[str, Any]:
    return {edge.tensor: edge for edge in plan(layers, tensors, hardware).edges}


def square(name: str, x: str, out: str, size: int, **more: Any) -> GemmLayer:
    return matmul(name, x, np.ones((size, size), np.int8), out, (size, size, size), steps=QUANTIZE, **more)


def test_edges_say_why_they_do_not_stay() -> None:
    layers = [square("one", "x", "g", 16), square("two", "g", "h", 16), square("three", "h", "y", 16)]
    roles = {"x": "input", "g": "output", "h": "scratch", "y": "output"}
    tensors = [Tensor(name, role, (16, 16), "int8") for name, role in roles.items()]
    edges = edges_of(layers, tensors)
    assert (edges["g"].place, edges["g"].why) == ("dram", "it is an output of the program")
    assert (edges["h"].place, edges["h"].readers, edges["h"].why) == ("scratchpad", ("three",), "")
    assert edges["h"].saved == 2 * edges["h"].nbytes == 512
    edges = edges_of(layers, tensors, dataclasses.replace(SMALL, scratchpad_bytes=300))
    assert edges["h"].place == "dram"
    assert "h has 256 bytes" in edges["h"].why and "no rows of images" in edges["h"].why
    again = [*layers, square("four", "h", "z", 16)]
    edges = edges_of(again, [*tensors, Tensor("z", "output", (16, 16), "int8")], dataclasses.replace(
        SMALL, scratchpad_bytes=300
    ))  # fmt: skip
    assert "not the next layer alone" in edges["h"].why
    assert not any(tensor.address is not None for tensor in lower(layers, tensors, SMALL).tensors)


def test_a_tensor_that_two_layers_write_is_not_kept() -> None:
    half = Matrix("h", 16), Matrix("h", 16, offset=8)
    ones = np.ones((1, 16, 8), np.int8)
    parts = [GemmLayer(name, 16, 16, 8, Matrix("x", 16), ones, out, steps=QUANTIZE)
             for name, out in zip("ab", half, strict=True)]  # fmt: skip
    tensors = [Tensor(name, role, (16, 16), "int8")
               for name, role in (("x", "input"), ("h", "scratch"), ("y", "output"))]  # fmt: skip
    layers = [*parts, square("last", "h", "y", 16)]
    assert edges_of(layers, tensors)["h"].why == "several layers write it"
    assert outputs(lower(layers, tensors, SMALL, fusion=True)) == outputs(lower(layers, tensors, SMALL))


@pytest.mark.parametrize("geometry", [
    ConvGeometry(1, (11, 5), (3, 3), (1, 1), (1, 1, 1, 1)), ConvGeometry(1, (12, 5), (3, 1), (2, 1), (0, 0, 1, 0)),
    ConvGeometry(1, (9, 5), (2, 2), (1, 1), (2, 0, 0, 0), (3, 1)), ConvGeometry(1, (9, 5), (1, 1), (3, 3)),
])  # fmt: skip
def test_rows_that_a_band_reads(geometry: ConvGeometry) -> None:
    """By looking at each window: the first and the last row of the image that any of them touches."""
    layer = windowed("w", "max", "x", None, "y", geometry)
    height = geometry.out_size[0]
    for begin in range(height):
        for end in range(begin + 1, height + 1):
            rows = [y * geometry.strides[0] - geometry.padding[0] + tap * geometry.dilation[0]
                    for y in range(begin, end) for tap in range(geometry.kernel[0])]  # fmt: skip
            assert rows_read(layer, begin, end) == (max(0, min(rows)), min(geometry.size[0], max(rows) + 1))


def test_a_band_of_a_tensor() -> None:
    band = Band(Tensor("h", "scratch", (2, 3, 8, 5), "int8"), 2, 5)
    assert (band.name, band.shape) == ("h#2-5", (2, 3, 3, 5))
    assert band.matrix(nchw("h", 3, (8, 5), 2)) == nchw("h#2-5", 3, (3, 5), 2)


def test_places_are_checked() -> None:
    with pytest.raises(ProgramError, match="only scratch has an address"):
        Tensor("x", "input", (4,), "int8", 0)
    for address, message in ((4090, "ends at byte 4098"), (2, "no multiple of 4")):
        dtype = "int8" if address > 2 else "int32"
        with pytest.raises(ProgramError, match=f"tensor h: .*{message}"):
            Program(SMALL, (Tensor("h", "scratch", (8,), dtype, address),), (), (Finish(),))
