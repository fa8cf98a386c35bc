"""Sweeps against whole programs: layers timed alone, equal ones once, add up to what the whole takes."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import tvm_ext
from tests import onnx_graphs as graphs
from tvm_ext.byoc import Region
from tvm_ext.byoc.systolic import layer_rows, programs_of, rows_of, timings_of
from tvm_ext.byoc.systolic.config import SystolicOptions
from tvm_ext.byoc.systolic.lowering.regions import timing_of
from tvm_ext.byoc.systolic.results.sweep import sweep
from tvm_ext.core.errors import OptionError, ProgramError
from tvm_ext.core.machine import Machine
from tvm_ext.driver.regions import regions_of
from tvm_ext.passes.simplification.eliminate_dead_code import EliminateDeadCode

#: Small memories, so that layers have many tiles.
SMALL = {"scratchpad_bytes": 4096, "accumulator_bytes": 1024}
SETTINGS = [
    {"rows": 4, "cols": 4, "fusion": True, **SMALL},
    {"rows": 8, "cols": 2, "dataflow": "os", "dma_bytes_per_cycle": 4, "fusion": False, **SMALL},
    {"rows": 3, "cols": 5, "dataflow": "is", "compute_model": "physical", "fusion": True, **SMALL},
]


def blocks() -> Any:
    """Three residual blocks of equal convolutions, and two unequal matmuls behind a pooling."""
    nodes, weights, last = [], {}, "x"
    for i in range(3):
        weights |= {f"w{i}": graphs.random(6, 6, 3, 3, seed=i), f"b{i}": graphs.random(6, seed=i)}
        nodes += [
            graphs.node("Conv", f"{last} w{i} b{i}", f"c{i}", f"conv{i}", pads=[1, 1, 1, 1]),
            graphs.node("Add", f"c{i} {last}", f"a{i}"), graphs.node("Relu", f"a{i}", f"r{i}"),
        ]  # fmt: skip
        last = f"r{i}"
    weights |= {"v": graphs.random(6, 11), "u": graphs.random(11, 3)}
    nodes += [
        graphs.node("GlobalAveragePool", last, "p"), graphs.node("Flatten", "p", "f"),
        graphs.node("MatMul", "f v", "g", "first"), graphs.node("MatMul", "g u", "y", "second"),
    ]  # fmt: skip
    return graphs.model(nodes, [graphs.value("x", [1, 6, 9, 7])], [graphs.value("y", [1, 3])], weights)


@pytest.fixture(scope="module")
def regions() -> tuple[Region, ...]:
    return regions_of(blocks())


def test_layers_add_up_to_whole_programs(regions: tuple[Region, ...]) -> None:
    assert [len(region.composites) for region in regions] == [6]
    for setting, point in zip(SETTINGS, sweep(regions, SETTINGS), strict=True):
        timings = [timing_of(region, SystolicOptions(**setting)) for region in regions]
        assert point.cycles == sum(timing.cycles for timing in timings)
        assert point.dram_bytes == sum(timing.totals.bytes_at("dram") for timing in timings)
        rows = [row for timing in timings for row in layer_rows(timing)]
        assert [row.name for row in point.layers] == [row.name for row in rows] == [
            "conv0", "conv1", "conv2", "globalaveragepool_p", "first", "second"
        ]  # fmt: skip
        for mine, whole in zip(point.layers, rows, strict=True):
            same = ("cycles", "array_cycles", "vector_cycles", "macs", "dram_bytes", "utilization", "bound", "energy")
            assert {name: getattr(mine, name) for name in same} == {name: getattr(whole, name) for name in same}
        assert point.energy == pytest.approx(
            {level: sum(timing.totals.energy[level] for timing in timings) for level in point.energy}
        )
        launched = point.cycles + point.options.launch_cycles
        assert point.seconds == pytest.approx(launched / point.options.frequency_hz)
        assert 0 < point.utilization <= 1


def test_layers_are_planned_one_by_one_unless_a_setting_says_otherwise(regions: tuple[Region, ...]) -> None:
    (stated,) = sweep(regions, [{**SETTINGS[0], "fusion": False}])
    (left_out,) = sweep(regions, [{name: value for name, value in SETTINGS[0].items() if name != "fusion"}])
    assert (left_out.cycles, left_out.options) == (stated.cycles, stated.options)


def test_settings_are_checked(regions: tuple[Region, ...]) -> None:
    with pytest.raises(OptionError, match="rows=0"):
        sweep(regions, [{"rows": 0}])
    with pytest.raises(ProgramError, match="layer conv0: no tile"):
        sweep(regions, [{"scratchpad_bytes": 16}])


def test_regions_are_those_of_a_compile(regions: tuple[Region, ...]) -> None:
    compiled = tvm_ext.compile(blocks(), offload="systolic", offload_options={"when": "always", **SETTINGS[0]})
    assert [region.nodes for region in regions] == [region.nodes for region in compiled.offload_report().regions]
    (point,) = sweep(regions, SETTINGS[:1])
    assert point.cycles == sum(timing.cycles for timing in timings_of(compiled).values())
    assert [row.name for row in rows_of(compiled)] == [row.name for row in point.layers]
    assert {program.accelerator.rows for program in programs_of(compiled).values()} == {4}


def test_regions_obey_the_options_of_an_offload() -> None:
    kept = regions_of(blocks(), offload_options={"skip": ("Conv", "GlobalAveragePool")})
    assert [composite.name for region in kept for composite in region.composites] == ["first", "second"]
    assert regions_of(blocks(), offload_options={"minimum_work": 10**9}) == ()
    with pytest.raises(OptionError, match="no back end"):
        regions_of(blocks(), "systolix")


def test_regions_are_those_of_a_compile_for_the_machine_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Machine] = []
    run = EliminateDeadCode.run
    monkeypatch.setattr(
        EliminateDeadCode, "run", lambda self, mod, ctx: (seen.append(ctx.machine), run(self, mod, ctx))[1]
    )
    assert len(regions_of(blocks(), machine="zen4-avx2", threads=3)) == 1
    assert (seen[0].lanes, seen[0].threads) == (8, 3)
    with pytest.raises(OptionError, match="zen99"):
        regions_of(blocks(), machine="zen99")


def test_a_model_without_a_region_says_what_to_do() -> None:
    with pytest.raises(OptionError, match="nothing of this model"):
        programs_of(tvm_ext.compile(blocks()))


def test_layers_of_equal_shape_with_weights_of_more_bits_are_not_equal() -> None:
    """A weight that does not fit int8 takes two passes through k."""
    weights = {"w": np.full((8, 8), 3, np.int8), "v": np.full((8, 8), 200, np.uint8)}
    nodes = [graphs.node("MatMulInteger", "x w", "y1", "narrow"), graphs.node("MatMulInteger", "x v", "y2", "wide")]
    outputs = [graphs.value(name, [4, 8], TensorProto.INT32) for name in ("y1", "y2")]
    proto = graphs.model(nodes, [graphs.value("x", [4, 8], TensorProto.INT8)], outputs, weights)
    offloaded = regions_of(proto, offload_options={"dtype": "int8"})
    (point,) = sweep(offloaded, [{"dtype": "int8", **SETTINGS[0]}])
    timings = [timing_of(region, SystolicOptions(dtype="int8", **SETTINGS[0])) for region in offloaded]
    assert point.cycles == sum(timing.cycles for timing in timings)
    assert len({row.macs for row in point.layers}) == 2
