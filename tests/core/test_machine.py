"""Machines: detection, other CPUs, features from the processor, descriptions, rates, errors."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm.script import tirx as T

from tvm_ext.core import machine as machine_module
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import RELEVANT_FEATURES, Machine, available_cores, machine_for, machine_of_features
from tvm_ext.core.options import CompileOptions
from tvm_ext.rates import Rates, measure

SIZES = {"l1d": 32 << 10, "l2": 1 << 20, "l3": 32 << 20}
XEON, ZEN5, ZEN4, HASWELL = ("sapphirerapids", "znver5", "znver4", "haswell")


def features_of(mcpu: str, *hidden: str) -> frozenset[str]:
    """What LLVM says a CPU has, without features that begin so."""
    return frozenset(f for f in Machine.detect(mcpu, 1).features if not f.startswith(hidden or "?"))


def test_the_host() -> None:
    machine = Machine.detect()
    assert machine.threads == available_cores() >= 1
    assert machine.lanes in (4, 8, 16) and machine.registers in (16, 32)
    assert 4 << 10 <= machine.l1d <= machine.l2 <= 1 << 30
    assert str(machine.target().kind) == "llvm"


@pytest.mark.parametrize(
    ("target", "isa", "lanes", "registers"),
    [
        ("skylake-avx512", "avx512", 16, 32), ("haswell", "avx2", 8, 16), ("sandybridge", "avx", 8, 16),
        ("x86-64-v2", "sse4.2", 4, 16), ("aarch64-linux-gnu:cortex-a72", "neon", 4, 32),
    ],
)  # fmt: skip
def test_other_machines(target: str, isa: str, lanes: int, registers: int) -> None:
    machine = Machine.detect(target, 3)
    assert (machine.isa, machine.lanes, machine.registers, machine.threads) == (isa, lanes, registers, 3)
    assert machine.features == tuple(sorted(machine.features))
    assert machine.as_dict()["features"] == list(machine.features)


@pytest.mark.parametrize("target", ["no-such-cpu", "aarch64-linux-gnu:haswell", "nonsense:triple:cpu"])
def test_an_unknown_cpu_is_refused(target: str) -> None:
    with pytest.raises(OptionError, match="fix: leave target out"):
        Machine.detect(target)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True])
def test_threads_are_a_whole_number(threads: object) -> None:
    with pytest.raises(OptionError, match="threads"):
        Machine.detect(None, threads)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Told:
    """A machine as Linux and LLVM tell it.

    Attributes:
        features: what Linux reports.
        name: what LLVM takes the CPU for.
        isa, mcpu: of the machine that follows.
        adds, takes: features that its target adds to those of `mcpu`, and takes away; some of them.
    """

    features: frozenset[str]
    name: str
    isa: str
    mcpu: str
    adds: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()

    @property
    def machine(self) -> Machine:
        return machine_of_features(self.features, self.name, "", 2, SIZES)


TOLD = {
    "as its name says": Told(features_of(HASWELL), HASWELL, "avx2", HASWELL),
    "a masked Xeon": Told(
        features_of(XEON), "rocketlake", "avx512", "rocketlake",
        ("amx-tile", "amx-bf16", "amx-int8", "avx512bf16", "avx512fp16", "avxvnni"),
    ),
    "a masked Xeon without tiles": Told(
        features_of(XEON, "amx"), "rocketlake", "avx512", "rocketlake", ("avx512bf16", "avxvnni")
    ),
    "a Xeon whose tiles are refused": Told(
        features_of(XEON, "amx"), XEON, "avx512", XEON, (), ("amx-tile", "amx-bf16", "amx-int8")
    ),
    "a new Zen that LLVM does not know": Told(
        features_of(ZEN5), "generic", "avx512", "x86-64-v4", ("avx512bf16", "avx512vnni", "avxvnni", "gfni")
    ),
    "taken for an older one": Told(features_of(ZEN4), "znver3", "avx512", "x86-64-v4", ("avx512bf16", "avx512vnni")),
    "hides AVX-512": Told(
        features_of(ZEN4, "avx512"), ZEN4, "avx2", ZEN4, (), ("avx512f", "avx512vl", "avx512bf16", "avx512vnni")
    ),
    "hides FMA": Told(features_of(HASWELL, "fma"), HASWELL, "avx2", HASWELL, (), ("fma",)),
    "hides FMA alone of AVX-512": Told(features_of(ZEN4, "fma"), ZEN4, "avx2", ZEN4, (), ("fma",)),
    "AVX2 without FMA, generic": Told(features_of(HASWELL, "fma"), "generic", "avx2", "x86-64-v3", (), ("fma",)),
    "hides AVX2": Told(features_of(HASWELL, "avx2", "fma"), HASWELL, "avx", HASWELL, (), ("avx2", "fma")),
    "hides AVX": Told(features_of(HASWELL, "avx", "fma", "f16c"), HASWELL, "sse4.2", HASWELL, (), ("avx", "f16c")),
}  # fmt: skip


@pytest.mark.parametrize("told", TOLD.values(), ids=list(TOLD))
def test_features_are_those_of_the_processor(told: Told) -> None:
    """The name only tells how instructions are scheduled: attributes add and take away what it is wrong about."""
    machine = told.machine
    assert (machine.isa, machine.mcpu) == (told.isa, told.mcpu)
    assert machine.features == tuple(sorted(told.features & set(RELEVANT_FEATURES)))
    attributes = set(machine.target().attrs.get("mattr", ()))
    implied = features_of(machine.mcpu)
    assert attributes == {f"+{f}" for f in told.features - implied} | {f"-{f}" for f in implied - told.features}
    assert {f"+{f}" for f in told.adds} | {f"-{f}" for f in told.takes} <= attributes


def multiply_add(lanes: int) -> Any:
    """c += a b, in one vector."""

    @T.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        a: T.Buffer((lanes,), "float32"), b: T.Buffer((lanes,), "float32"), c: T.Buffer((lanes,), "float32"),  # type: ignore[valid-type]
    ):  # fmt: skip
        T.func_attr({"global_symbol": "kernel", "tirx.noalias": True})
        for i in T.vectorized(lanes):
            c[i] = a[i] * b[i] + c[i]

    return kernel


@pytest.mark.parametrize(
    ("told", "registers", "fused"),
    [
        ("as its name says", "ymm", True), ("a masked Xeon", "zmm", True),
        ("a new Zen that LLVM does not know", "zmm", True), ("taken for an older one", "zmm", True),
        ("hides AVX-512", "ymm", True), ("hides FMA", "ymm", False), ("hides FMA alone of AVX-512", "ymm", False),
        ("AVX2 without FMA, generic", "ymm", False), ("hides AVX", "xmm", False),
    ],
)  # fmt: skip
def test_llvm_emits_what_the_processor_has(told: str, registers: str, fused: bool) -> None:
    """Of 16 multiply-adds: the widest registers there are, and fused instructions only where there are any."""
    code = str(tvm.compile(multiply_add(16), target=TOLD[told].machine.target()).mod.inspect_source("asm"))
    assert next(name for name in ("zmm", "ymm", "xmm") if f"%{name}" in code) == registers
    assert ("vfmadd" in code) == fused and ("mulps" in code) != fused


def test_llvm_emits_tiles_of_a_masked_xeon() -> None:
    @T.prim_func(s_tir=True)
    def kernel(c: T.Buffer((1,), "float32")):  # type: ignore[no-untyped-def]
        T.func_attr({"global_symbol": "kernel"})
        T.evaluate(T.call_llvm_intrin("void", "llvm.x86.tilerelease"))
        c[0] = T.float32(0)

    code = str(tvm.compile(kernel, target=TOLD["a masked Xeon"].machine.target()).mod.inspect_source("asm"))
    assert "tilerelease" in code


def test_a_described_machine() -> None:
    machine = Machine.described("zen4")
    assert (machine.isa, machine.threads, machine.lanes, machine.mcpu) == ("avx512", 2, 16, "znver4")
    assert Machine.described("zen4", 5) == machine.with_threads(5)
    with pytest.raises(OptionError, match="threads=0"):
        Machine.described("zen4", 0)


ZEN4_VALUES = Machine.described("zen4").as_dict()
OF_ANOTHER_KIND: list[tuple[str, Any]] = [
    ("isa", "avx1024"), ("isa", None), ("isa", ["avx2"]), ("mcpu", 3), ("triple", None), ("lanes", 0), ("lanes", 8.0),
    ("registers", "16"), ("l1d", -1), ("l2", True), ("threads", 0), ("operand_broadcast", 1),
    ("operand_broadcast", "yes"), ("features", "avx2"), ("features", ["mmx"]), ("features", [["avx2"]]),
    ("features", None), ("features", 3), ("features", {"avx2": 1}), ("rates", None), ("rates", [1]), ("rates", 3),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), OF_ANOTHER_KIND, ids=str)
def test_fields_of_another_kind_are_refused(field: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{field}="):
        Machine.of({**ZEN4_VALUES, field: value})


def test_fields_are_named() -> None:
    with pytest.raises(OptionError, match="cores missing or unknown"):
        Machine.of({**ZEN4_VALUES, "cores": 3})
    for field in ZEN4_VALUES:
        with pytest.raises(OptionError, match=f"{field} missing or unknown"):
            Machine.of({name: value for name, value in ZEN4_VALUES.items() if name != field})
    with pytest.raises(OptionError, match="rates: clock"):
        Machine.of({**ZEN4_VALUES, "rates": {**ZEN4_VALUES["rates"], "clock": 0}})


def test_machines_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_EXT_RATES", "typical")
    assert machine_for(CompileOptions.of(threads=3)) == Machine.detect(None, 3)
    assert machine_for(CompileOptions.of(target=HASWELL, threads=2)) == Machine.detect(HASWELL, 2)
    assert machine_for(CompileOptions.of(machine="zen5")) == Machine.described("zen5")
    assert machine_for(CompileOptions.of(machine="zen5", threads=7)) == Machine.described("zen5", 7)


def test_a_described_machine_with_another_cpu_is_refused() -> None:
    with pytest.raises(OptionError, match="target"):
        CompileOptions.of(machine="zen4", target=HASWELL)


def fake_measure(rates: Rates, calls: list[int]) -> Callable[..., Rates]:
    def call(vectors: Any, caches: measure.Caches, typical: Rates) -> Rates:
        calls.append(vectors.threads)
        return rates

    return call


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Threads of each measurement, of a machine a little off the described Zen 4 at half its clock."""
    calls: list[int] = []
    off = dataclasses.replace(Machine.described("zen4").rates, clock=1.9, fma=0.96, l2=27.0)
    monkeypatch.setattr(measure, "measure", fake_measure(off, calls))
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path))
    monkeypatch.delenv("TVM_EXT_RATES")
    return calls


def test_rates_of_this_machine_are_measured_once(measuring: list[int]) -> None:
    detected = machine_of_features(features_of(ZEN4), ZEN4, "", 1, SIZES)
    machine = detected.measured()
    assert machine == dataclasses.replace(detected, rates=machine.rates)
    assert machine.rates.clock == pytest.approx(3.7 / 2, rel=0.01)
    assert machine.rates == dataclasses.replace(Machine.described("zen4").rates, clock=machine.rates.clock)
    assert detected.measured() == machine and measuring == [1]
    assert detected.measured(again=True) == machine and measuring == [1, 1]


def test_rates_are_of_no_more_threads_than_there_are(measuring: list[int]) -> None:
    Machine.detect(None, available_cores() + 5).measured()
    assert measuring == [available_cores()]


def test_options_measure_this_machine_alone(measuring: list[int]) -> None:
    """What is named or described is not here to be measured."""
    machine_for(CompileOptions.of(target=HASWELL))
    machine_for(CompileOptions.of(machine="zen4"))
    assert measuring == []
    assert machine_for(CompileOptions.of()) == Machine.detect().measured() and len(measuring) == 1


def test_typical_rates_are_those_of_a_similar_machine(measuring: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_EXT_RATES", "typical")
    machine = Machine.detect()
    assert machine.measured(again=True) == machine and measuring == []


@pytest.mark.parametrize(("value", "calls"), [("measured", 1), ("", 1)])
def test_measured_rates_can_be_asked_for(
    value: str, calls: int, measuring: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_EXT_RATES", value)
    Machine.detect().measured()
    assert len(measuring) == calls


def test_other_rates_are_refused(measuring: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_EXT_RATES", "guessed")
    with pytest.raises(OptionError, match="TVM_EXT_RATES='guessed': choose 'measured' or 'typical'"):
        Machine.detect().measured()


def test_why_a_machine_has_no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine.described("xeon-amx").why_no_tiles() == ""
    assert "znver4" in Machine.described("zen4").why_no_tiles()
    refused = TOLD["a Xeon whose tiles are refused"].machine
    monkeypatch.setattr(machine_module, "cpu_flags", lambda: frozenset({"amx_tile"}))
    monkeypatch.setattr(machine_module, "_host", lambda: refused)
    monkeypatch.setattr(machine_module, "why_no_tiles", lambda: "Linux says no")
    assert refused.why_no_tiles() == "Linux says no"


def test_rates_of_instructions_by_width() -> None:
    machine = Machine.described("zen4")
    assert (machine.fma_per_cycle, machine.fma_at(16), machine.fma_at(8), machine.fma_at(4)) == (1, 1, 2, 2)
