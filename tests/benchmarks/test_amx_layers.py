"""The benchmark of tile kernels counts what machine code does, prints a page, and refuses where there are no tiles."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.tiles import layers as amx_layers
from benchmarks.tiles.ablations import without
from benchmarks.tiles.kernels import LAYERS, Layer, Work
from tests.emulation.execution import tile_instructions
from tests.schedules.amx_cases import MACHINE, arrays_of, run_tiles

SMALL = Layer("3x3, 40 to 33, 6x7", 1, (1, 40, 6, 7), (33, 40, 3, 3), residual=True)
#: Rows of the image are tiles, of which the first and the last read a row of padding.
EVEN = Layer("3x3, 32 to 32, 5x14", 1, (1, 32, 5, 14), (32, 32, 3, 3))
NARROW = Layer("5x5 stride 2, 3 to 8, 9x9", 1, (1, 3, 9, 9), (8, 3, 5, 5), 2, 2)


def test_the_layers_are_those_of_the_model() -> None:
    """1.81 G multiply-adds, of which the last matmul has 0.5 M."""
    assert sum(layer.calls for layer in LAYERS) == 20
    work = sum(
        layer.calls * layer.w[0] * layer.w[1] * layer.w[2] ** 2 * (layer.x[2] // layer.stride) ** 2 for layer in LAYERS
    )
    assert work == 1_813_561_344


@pytest.mark.parametrize("kind", ["bf16", "int8"])
@pytest.mark.parametrize("layer", [SMALL, NARROW, EVEN])
def test_work_is_what_the_machine_code_does(layer: Layer, kind: str) -> None:
    with tile_instructions() as amx:
        figure = amx_layers.figure_of(layer, kind, amx_layers.Bench(MACHINE, 0.0), cold_bytes=1)
    calls = 2 + 4  # one to warm up and one measured, of the warm weights and of two copies
    name = "tdpbf16ps" if kind == "bf16" else "tdpbusd"
    amx.assert_counts(**{name: calls * figure.work.products})
    assert figure.work.operations == 2 * SMALL.x[2] * SMALL.x[3] * 33 * 40 * 9 or layer is not SMALL
    assert figure.cold > 0 and figure.warm > 0 and figure.estimate > 0


def test_alternatives_differ_from_the_choice_in_each_knob() -> None:
    machine = replace(MACHINE.with_threads(2), l1d=48 << 10, l2=2 << 20)
    layer = next(layer for layer in LAYERS if "64, 56x56" in layer.name)
    match = amx_layers._match(layer, "bf16", machine)
    config = amx_layers.Conv2dAmx().default(match, machine)
    figure = amx_layers.Figure(layer, "bf16", config, 1.0, 1.0, 1.0, Work.of(match, config))
    others = amx_layers.alternatives(figure, machine)
    assert config not in others
    for knob in ("share", "stream", "chunk", "parts"):
        assert {c[knob] for c in others} - {config[knob]}


@pytest.mark.parametrize(
    ("what", "missing"), {"no products": "tdpbf16ps", "no tile loads": "tileloadd", "no copy": "", "no epilogue": "",
    "no prefetch": "", "epilogue behind the tile": ""}.items(),
)  # fmt: skip
def test_ablations_leave_out_what_they_say(what: str, missing: str) -> None:
    """Kernels that still compute the layer give its result."""
    config = {"image": "staged", "pixels": 2, "parts": 1, "chunk": 2, "share": "pixels", "stream": "neither"}
    config["threads"] = 1
    group = amx_layers.group_of(SMALL, "bf16")
    rng = np.random.default_rng(list(what.encode()))  # no other test has left this image in memory
    before, arrays = arrays_of(group, rng), arrays_of(group, rng)
    run_tiles(amx_layers.Conv2dAmx, group, before, config)  # a copy that is not written holds another image
    with without(what):
        part, amx = run_tiles(amx_layers.Conv2dAmx, group, arrays, config)
    whole, full = run_tiles(amx_layers.Conv2dAmx, group, arrays, config)
    assert (whole.tobytes() == part.tobytes()) == (what in ("no prefetch", "epilogue behind the tile"))
    if full.emulator is not None and amx.emulator is not None:
        executed, fewer = full.emulator.executed, amx.emulator.executed
        assert executed == {**fewer, **({missing: executed[missing]} if missing else {})}


def test_page(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(amx_layers, "machine_with_tiles", lambda target, threads: (MACHINE, ""))
    monkeypatch.setattr(amx_layers, "LAYERS", (NARROW,))
    monkeypatch.setattr(amx_layers, "measured_rates", lambda machine: {"bf16": amx_layers.Rates(1e9, 1e11, 1e10)})
    monkeypatch.setattr(amx_layers, "COLD_BYTES", 1)
    monkeypatch.setattr(amx_layers.figure_of, "__defaults__", (None, 1))
    path = tmp_path / "figures.json"
    options = ["--kinds", "bf16", "--seconds", "0", "--limit", "0", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["amx_layers.py", *options])
    with tile_instructions():
        assert amx_layers.main() == 0
    (figure,) = json.loads(path.read_text())["figures"]
    assert figure["layer"] == NARROW.name and figure["config"]["image"] in ("packed", "staged")
    assert NARROW.name in capsys.readouterr().out


def test_no_tiles(monkeypatch, capsys) -> None:
    monkeypatch.setattr(amx_layers, "cpu_flags", lambda: frozenset({"avx512f"}))
    monkeypatch.setattr(sys, "argv", ["amx_layers.py"])
    assert amx_layers.main() == 3
    assert not capsys.readouterr().out
