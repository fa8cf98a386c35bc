"""Rates check themselves, lie on a coarse grid around a machine like theirs, and are shared by threads."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine_files import descriptions
from tvm_ext.rates import Rates

ANCHORS = {name: description.rates for name, description in descriptions().items()}
ZEN4, XEON = ANCHORS["zen4"], ANCHORS["xeon-amx"]
#: Octaves of a step, by field.
STEPS = {
    "clock": 0.25,
    "l1": 2,
    "l2": 2,
    "l3": 2,
    "memory": 2,
    "l3_all": 2,
    "memory_all": 2.0,
    "foreign": 6,
    "launch": 10,
}


@pytest.mark.parametrize("rates", ANCHORS.values(), ids=list(ANCHORS))
def test_plain_values_make_equal_rates(rates: Rates) -> None:
    assert Rates.of(rates.as_dict()) == rates
    assert 0 not in rates.as_dict().values()


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 10**400, True, "4", None, [4]])
@pytest.mark.parametrize("field", ["clock", "l3_all", "launch", "cores"])
def test_a_rate_is_a_number_above_0(field: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{field}="):
        Rates.of({**ZEN4.as_dict(), field: value})


def test_what_a_cpu_may_lack_may_be_0() -> None:
    lacking = replace(XEON, dot_int8=0, dot_bf16=0, tile_int8=0, tile_bf16=0, tile_l1=0, tile_l2=0, tile_l3=0)
    assert Rates.of(lacking.as_dict()) == lacking
    with pytest.raises(OptionError, match="tile_l1="):
        replace(XEON, tile_l1=-1)


def test_fields_are_named() -> None:
    with pytest.raises(OptionError, match=r"unknown .*L1, ghz(?s:.*)choose from.*clock"):
        Rates.of({**ZEN4.as_dict(), "ghz": 3, "L1": 2})
    values = ZEN4.as_dict()
    del values["l2"], values["fma"]
    with pytest.raises(OptionError, match=r"fma, l2 missing"):
        Rates.of(values)


@pytest.mark.parametrize("rates", ANCHORS.values(), ids=list(ANCHORS))
def test_an_anchor_lies_on_its_grid(rates: Rates) -> None:
    assert rates.on_grid(rates) == rates


@pytest.mark.parametrize("field", STEPS)
def test_every_field_but_ports_and_cores_has_a_step(field: str) -> None:
    rest = {f.name for f in fields(Rates)} - set(STEPS)
    assert field in STEPS and {name for name in rest if not name.startswith("tile")} == {
        "fma", "fma_half", "dot_int8", "dot_int16", "dot_bf16", "cores",
    }  # fmt: skip


@pytest.mark.parametrize("share", [-0.49, -0.2, 0.3, 0.49])
@pytest.mark.parametrize(("field", "step"), STEPS.items())
def test_within_half_a_step_the_anchor_stands_in(field: str, step: float, share: float) -> None:
    anchor = replace(ZEN4, **{field: math.pi})  # more digits than the grid has
    measured = replace(ZEN4, **{field: math.pi * 2 ** (share * step)})
    assert measured.on_grid(anchor) == anchor


@pytest.mark.parametrize(("share", "steps"), [(0.51, 1), (-0.51, -1), (1.4, 1), (1.6, 2), (-2.2, -2)])
@pytest.mark.parametrize(("field", "step"), STEPS.items())
def test_further_off_are_whole_steps(field: str, step: float, share: float, steps: int) -> None:
    anchor = replace(ZEN4, l1=1e6, l2=1e4, l3=100.0, memory=1.0)  # steps of one level do not reach another
    near = getattr(anchor, field)
    got = getattr(replace(anchor, **{field: near * 2 ** (share * step)}).on_grid(anchor), field)
    assert got == pytest.approx(near * 2 ** (steps * step), rel=0.005)  # three digits


@pytest.mark.parametrize(
    ("measured", "ports"), [(0.93, 1), (1.88, 2), (1.5, 2), (1.3, 1), (0.45, 0.5), (0.2, 0.25), (3.1, 4), (9, 4)]
)
def test_instructions_a_cycle_are_ports(measured: float, ports: float) -> None:
    """Whatever the anchor has."""
    for anchor in (ZEN4, XEON):
        got = replace(ZEN4, fma=measured, fma_half=measured).on_grid(anchor)
        assert (got.fma, got.fma_half) == (ports, ports)


def test_what_the_cpu_lacks_stays_0_and_cores_stay() -> None:
    got = replace(ZEN4, dot_int8=0, cores=5).on_grid(XEON)
    assert (got.dot_int8, got.tile_int8, got.tile_l1, got.cores) == (0, 0, 0, 5)
    tiles = replace(ZEN4, tile_int8=16.0).on_grid(ZEN4)  # the anchor has none
    assert tiles.tile_int8 == 16


def test_rounding_makes_no_cache_slower_than_the_next() -> None:
    """Alone, 15 near an L2 of 31 would be 7.75, and 14 near an L3 of 26 is that."""
    assert replace(ZEN4, l2=15.0, l3=14.0).on_grid(ZEN4).l2 == 26
    got = replace(ZEN4, l1=15.5, l2=15.0, l3=14.9, memory=14.5, memory_all=20.0).on_grid(ZEN4)
    assert got.l1 >= got.l2 >= got.l3 >= got.memory
    tiles = replace(XEON, tile_l1=80.0, tile_l2=66.0, tile_l3=30.0).on_grid(XEON)  # alone, 80 near 116 is 58
    assert (tiles.tile_l1, tiles.tile_l2, tiles.tile_l3) == (92, 92, 29.2)
    slower = replace(ZEN4, l2=7.0, l3=26.0).on_grid(ZEN4)  # as measured: a check tells of it
    assert slower.l2 < slower.l3


def test_two_measurements_of_one_machine_are_one() -> None:
    noisy = [replace(ZEN4, clock=c, fma=f, l2=l2, l3=l3, launch=t) for c, f, l2, l3, t in (
        (3.62, 0.97, 27.1, 21.0, 2.9), (3.79, 0.99, 40.2, 31.3, 1.6),
    )]  # fmt: skip
    assert noisy[0].on_grid(ZEN4) == noisy[1].on_grid(ZEN4) == ZEN4


def test_own_caches_are_not_shared() -> None:
    assert [ZEN4.shared(level, threads) for level in ("l1", "l2") for threads in (1, 64)] == [64, 64, 31, 31]


def test_what_lies_behind_saturates() -> None:
    rates = replace(ZEN4, l3=26, l3_all=52, memory=7, memory_all=10)
    assert [rates.shared("l3", t) for t in (1, 2, 4)] == [26, 26, 13]
    assert [rates.shared("memory", t) for t in (1, 2, 5)] == [7, 5, 2]


def test_a_clock_in_hertz() -> None:
    assert replace(ZEN4, clock=2.5).hertz == 2_500_000_000
