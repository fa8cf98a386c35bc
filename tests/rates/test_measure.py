"""Measured rates follow from seconds of loops; on a machine that others keep busy, a similar one's stand in."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.emulation.execution import MACHINE, tile_instructions
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.core.machine_files import descriptions
from tvm_ext.rates import Rates, loops, measure
from tvm_ext.runtime import cpu

TYPICAL = Machine.described("xeon-amx").rates
THREADS = 4
CACHES = measure.Caches(32 << 10, 1 << 20, 32 << 20)
CYCLE = 0.25e-9
#: What the fake machine does, in bytes a cycle, and by a call of a loop.
LEVELS = {"l1": 100.0, "l2": 40.0, "l3": 20.0, "memory": 8.0, "l3_all": 60.0, "memory_all": 12.0}
BYTES = 1_000_000
#: And of products of narrow numbers, and loads of tiles.
NARROW = {
    "dot_int8": 2.0, "dot_bf16": 1.0, "tile_int8": 0.0625, "tile_bf16": 0.03125,
    "tile_l1": 120.0, "tile_l2": 45.0, "tile_l3": 9.0,
}  # fmt: skip
INSTRUCTIONS = measure._STEPS * loops.CHAINS


def fake_seconds(**over: float) -> dict[str, float]:
    """Of calls on a machine of 4 GHz: 2 multiply-adds of whole vectors a cycle, 4 of halves, 5 us a launch."""
    fma = INSTRUCTIONS / 2 * CYCLE
    return {
        "chain": measure._STEPS * loops.CYCLES_OF_LINK * CYCLE, "fma": fma, "fma_all": fma, "fma_half": fma / 2,
        "launch": measure._LAUNCHES * 5e-6, **{f"read {name}": BYTES / rate * CYCLE for name, rate in LEVELS.items()},
        "exchange own": 1e-3, "exchange other": 1e-3 + BYTES * (1 / 2.0 - 1 / LEVELS["l2"]) * CYCLE,
        **{name: INSTRUCTIONS / rate * CYCLE for name, rate in NARROW.items()}, **over,
    }  # fmt: skip


class FakeBench:
    """A bench whose loops take the seconds it is given."""

    busy = staticmethod(measure._Bench.busy)
    seconds: Mapping[str, float]

    has: Iterable[str] = NARROW

    def __init__(self, vectors: Any, caches: Any) -> None:
        self.amounts = dict.fromkeys([*(f"read {name}" for name in LEVELS), "exchange other"], BYTES)
        self.amounts.update(dict.fromkeys(["fma", "fma_half", *self.has], INSTRUCTIONS))

    def run(self) -> Mapping[str, float]:
        return self.seconds


def measured(monkeypatch: pytest.MonkeyPatch, typical: Rates = TYPICAL, **over: float) -> Rates:
    monkeypatch.setattr(measure, "_Bench", FakeBench)
    monkeypatch.setattr(FakeBench, "seconds", fake_seconds(**over), raising=False)
    return measure.measure(Machine.described("xeon-amx", THREADS), CACHES, typical)


def close(rates: Rates) -> Any:
    return pytest.approx(rates.as_dict(), rel=1e-9)


def test_seconds_become_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = {**NARROW, "tile_int8": 16, "tile_bf16": 32}  # cycles of a product
    expected = Rates(clock=4, fma=2, fma_half=4, **LEVELS, foreign=2, launch=5, cores=THREADS, **narrow)
    assert measured(monkeypatch).as_dict() == close(expected)


@pytest.mark.parametrize("has", [(), ("dot_int8",), ("dot_int8", "dot_bf16"), ("tile_int8", "tile_l1", "tile_l2")])
def test_what_the_cpu_lacks_is_0_whatever_a_similar_machine_has(
    has: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBench, "has", has)
    got = measured(monkeypatch)
    assert {name for name in NARROW if getattr(got, name)} == set(has)


@pytest.mark.parametrize("slower", [0.5, 3.0])
def test_a_clock_that_moves_changes_no_ratio(monkeypatch: pytest.MonkeyPatch, slower: float) -> None:
    usual = measured(monkeypatch)
    scaled = {name: value * slower for name, value in fake_seconds().items() if name != "launch"}
    assert measured(monkeypatch, **scaled).as_dict() == close(replace(usual, clock=usual.clock / slower))


def test_on_a_busy_machine_a_similar_one_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what needs all threads; never less together than one thread alone."""
    busy = {"fma_all": fake_seconds()["fma"] * 1.3, "launch": 1.0, "read l3_all": 1.0, "exchange other": 1.0}
    typical = replace(TYPICAL, l3_all=33.0, memory_all=5.0, foreign=1.5, launch=2.25)
    got = measured(monkeypatch, typical, **busy)
    assert (got.l3_all, got.memory_all, got.foreign, got.launch) == pytest.approx((33, 8, 1.5, 2.25))
    assert (got.clock, got.fma, got.l3, got.memory) == pytest.approx((4, 2, 20, 8))


def test_a_little_noise_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    got = measured(monkeypatch, fma_all=fake_seconds()["fma"] * 1.1)
    assert (got.l3_all, got.launch) == pytest.approx((60, 5))


def test_threads_together_are_no_slower_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    got = measured(monkeypatch, **{"read l3_all": BYTES / 15.0 * CYCLE, "read memory_all": BYTES * CYCLE})
    assert (got.l3_all, got.memory_all) == pytest.approx((20, 8))


@pytest.mark.parametrize("other", [0.5e-3, 1e-3])
def test_lines_of_another_core_come_no_faster_than_from_l2(monkeypatch: pytest.MonkeyPatch, other: float) -> None:
    assert measured(monkeypatch, **{"exchange other": other}).foreign == pytest.approx(40)


VNNI, BF16, TILES = "avx512vnni", "avx512bf16", {"amx-tile", "amx-int8", "amx-bf16"}


@pytest.mark.parametrize(
    ("features", "lanes", "rates"),
    [
        ({VNNI, BF16, *TILES}, 16, ["dot_int8", "dot_bf16", "tile_int8", "tile_bf16"]),
        ({VNNI, BF16}, 16, ["dot_int8", "dot_bf16"]), ({VNNI}, 16, ["dot_int8"]), ({BF16}, 16, ["dot_bf16"]),
        ({VNNI, "amx-tile", "amx-int8"}, 16, ["dot_int8", "tile_int8"]), ({"amx-tile"}, 16, []),
        ({VNNI, *TILES - {"amx-tile"}}, 16, ["dot_int8"]), (set(), 16, []), ({"avxvnni", "fma"}, 8, []),
        ({"avx2", "fma"}, 8, ["dot_int16"]), ({"avx2", "avx512bw"}, 16, ["dot_int16"]), ({"avx2"}, 16, []),
        ({"avx2", "avx512bw", VNNI}, 16, ["dot_int8"]),
        ({"dotprod", "bf16", "i8mm"}, 4, []),
    ],
)  # fmt: skip
def test_instructions_are_measured_where_the_cpu_has_them(features: set[str], lanes: int, rates: list[str]) -> None:
    machine = replace(Machine.described("zen4"), features=tuple(sorted(features)), lanes=lanes)
    assert [product.rate for product in measure.products_of(machine)] == rates


@pytest.mark.parametrize(
    "name", [name for name, d in descriptions().items() if d.machine["isa"] != "avx2" and name != "zen4"]
)
def test_nothing_runs_that_the_cpu_lacks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "cpu_flags", lambda: frozenset({"avx", "avx2", "fma"}))
    monkeypatch.setattr(measure.tvm, "compile", lambda *_, **__: pytest.fail("compiled"))
    machine = Machine.described(name)
    with pytest.raises(OptionError, match=f"{machine.mcpu}.*avx512f"):
        measure.measure(machine, CACHES, TYPICAL)


def test_nothing_runs_on_tiles_that_linux_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "missing_features", lambda *_: [])
    monkeypatch.setattr(cpu, "why_no_tiles", lambda: "Linux gives none")
    with pytest.raises(OptionError, match="Linux gives none"):
        measure.measure(Machine.described("xeon-amx"), CACHES, TYPICAL)


def test_loops_of_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executed, as often as they are counted; a load of a level is of its size."""
    monkeypatch.setattr(measure, "why_not_here", lambda machine: "")
    monkeypatch.setattr(measure, "_READ_BYTES", 1 << 16)
    monkeypatch.setattr(measure, "_TILE_STEPS", 5)
    bench = measure._Bench(MACHINE.with_threads(1), measure.Caches(32 << 10, 64 << 10, 4 << 20))
    assert {name for name in bench._calls if name.startswith("tile")} == {name for name in NARROW if "tile" in name}
    with tile_instructions() as amx:
        for name in ("tile_int8", "tile_bf16"):
            assert bench.amounts[name] == 20
            bench._calls[name]()
        amx.assert_counts(tdpbssd=20, tdpbf16ps=20, tileloadd=8)
    with tile_instructions() as amx:
        for name, size in (("tile_l1", 8 << 10), ("tile_l2", 16 << 10), ("tile_l3", 256 << 10)):
            bench._calls[name]()
            assert bench.amounts[name] == max(size, 1 << 16)
        amx.assert_counts(tileloadd=(64 + 64 + 256), ldtilecfg=3, tilerelease=3)


def test_rounds_go_on_while_threads_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only of what all threads do at once, and until they have run together."""
    calls: dict[str, int] = {}

    def times(name: str) -> list[float]:
        calls[name] = calls.get(name, 0) + 1
        together = name != "fma_all" or calls[name] > measure._ROUNDS + 3
        return [1.0, 2.0] if together else [2.0]

    monkeypatch.setattr(measure, "_times", times)
    bench = object.__new__(measure._Bench)
    bench._calls = {name: name for name in fake_seconds()}  # type: ignore[misc]
    assert set(bench.run().values()) == {1.0}
    together = {"fma_all", "launch", "read l3_all", "read memory_all", "exchange own", "exchange other"}
    assert {name for name, count in calls.items() if count == measure._ROUNDS + 4} == together
    assert {count for name, count in calls.items() if name not in together} == {measure._ROUNDS}


def test_reads_from_memory_are_not_those_that_a_cache_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of them may be faster; of all else the least time counts, and no slow one does."""
    monkeypatch.setattr(measure, "_times", lambda name: [9.0, 3.0, 4.0, 1.0, 4.0, 5.0])
    bench = object.__new__(measure._Bench)
    bench._calls = {name: name for name in fake_seconds()}  # type: ignore[misc]
    seconds = bench.run()
    assert {name for name, least in seconds.items() if least == 4.0} == {"read memory", "read memory_all"}
    assert set(seconds.values()) == {1.0, 4.0}


def test_rounds_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_times", lambda name: [2.0 if name == "fma_all" else 1.0])
    bench = object.__new__(measure._Bench)
    bench._calls = {name: name for name in fake_seconds()}  # type: ignore[misc]
    assert bench.busy(bench.run())


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plausible numbers, in one short round."""
    monkeypatch.setattr(measure, "_ROUNDS", 1)
    monkeypatch.setattr(measure, "_MORE_ROUNDS", 0)
    machine = Machine.detect(None, 2)
    got = measure.measure(machine, measure.Caches(machine.l1d, machine.l2, 8 << 20), machine.rates)
    assert all(math.isfinite(value) and value > 0 for value in got.as_dict().values())
    assert got.cores == 2 and 0.1 < got.clock < 10
    assert all(0.01 < rate < 16 for rate in (got.fma, got.fma_half))
    assert all(0.01 < rate < 1000 for rate in (got.l1, got.l2, got.l3, got.memory, got.foreign))
    assert got.l3_all >= got.l3 and got.memory_all >= got.memory
    has = {product.rate for product in measure.products_of(machine)}
    narrow = ("dot_int8", "dot_int16", "dot_bf16", "tile_int8", "tile_bf16")
    assert {name for name in narrow if getattr(got, name)} == has
    assert all(0.01 < rate < 16 for rate in (got.dot_int8, got.dot_int16, got.dot_bf16) if rate)


def test_a_machine_of_one_thread() -> None:
    """No other core writes a line, and no loop is shared."""
    machine = Machine.detect(None, 1)
    bench = measure._Bench(machine, measure.Caches(machine.l1d, machine.l2, 4 << 20))
    for name in ("launch", "exchange own", "exchange other", "read memory_all"):
        bench._calls[name]()
    assert bench.amounts["read l3_all"] == bench.amounts["read l3"]
