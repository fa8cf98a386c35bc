"""Described machines: those of the library are whole, others are read or refused, the most like stands in."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.core.machine_files import FOLDER, description_of, descriptions, nearest_rates, similar_rates

NAMES = [path.stem for path in sorted(FOLDER.glob("*.json"))]
ZEN4 = json.loads((FOLDER / "zen4.json").read_text())


def test_some_come_with_the_library() -> None:
    assert {"xeon-amx", "zen3-avx2", "zen4", "zen5"} <= set(NAMES) and list(descriptions()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_description_is_whole(name: str) -> None:
    description, machine = description_of(name), Machine.described(name)
    assert description.name == name and description.source
    assert Machine.of(machine.as_dict()) == machine
    assert machine.as_dict() == description.machine
    assert machine.rates == description.rates and machine.rates.cores == machine.threads
    assert machine.l1d < machine.l2 < machine.l3


@pytest.mark.parametrize("name", NAMES)
def test_facts_are_those_of_the_cpu(name: str) -> None:
    """LLVM's of its name, but for caches, threads and rates; and for AVX-512, where a host hides it."""
    described = Machine.described(name)
    detected = Machine.detect(described.mcpu, described.threads)
    hidden = set(detected.features) - set(described.features)
    assert all(feature.startswith("avx512") or feature == "gfni" for feature in hidden)
    vectors = ("isa", "features", "lanes", "registers", "operand_broadcast") if hidden else ()
    facts = {field: getattr(described, field) for field in ("l1d", "l2", "l3", "rates", *vectors)}
    assert described == dataclasses.replace(detected, **facts)


@pytest.mark.parametrize("name", NAMES)
def test_rates_fit_the_instructions(name: str) -> None:
    machine = Machine.described(name)
    rates, features = machine.rates, machine.features
    assert bool(rates.tile_int8) == ("amx-int8" in features) and bool(rates.tile_bf16) == ("amx-bf16" in features)
    assert bool(rates.dot_int8) == ("avx512vnni" in features) == (not rates.dot_int16)
    assert bool(rates.dot_bf16) == ("avx512bf16" in features)
    assert rates.l1 >= rates.l2 >= rates.l3 >= rates.memory
    assert rates.l3_all >= rates.l3 and rates.memory_all >= rates.memory


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(ZEN4 | {"name": "mine", "machine": ZEN4["machine"] | {"threads": 9}}))
    for named in (path, str(path)):
        assert description_of(named).name == "mine"
        assert Machine.described(named) == Machine.described("zen4", 9)
    path.write_text(json.dumps({"machine": ZEN4["machine"]}))
    assert (description_of(path).name, description_of(path).source) == ("mine", "")


@pytest.mark.parametrize("name", ["zen6", "", "no/such/file.json", ".", "x" * 5000, "a\0b", "zen4.json"])
def test_an_unknown_name_is_refused_with_choices(name: str) -> None:
    with pytest.raises(OptionError, match="zen4") as error:
        Machine.described(name)
    assert all(choice in error.value.fix for choice in NAMES)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "{}", '{"machine": 3}', '{"machine": null}', '{"machine": "zen4"}', "[" * 100_000]
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(text)
    with pytest.raises(OptionError, match=r"damaged\.json") as error:
        Machine.described(path)
    assert "tvm-ext machine --json" in error.value.fix


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(OptionError, match=r"damaged\.json"):
        Machine.described(path)


@pytest.mark.parametrize(
    "over", [{"mcpu": "no-such-cpu"}, {"mcpu": ""}, {"triple": "nonsense"}, {"mcpu": "cortex-a72"}, {"lanes": "16"},
             {"rates": {}}, {"unknown": 1}, {"lanes": 8}, {"registers": 16}, {"features": []},
             {"operand_broadcast": False}, {"isa": "avx2"}, {"threads": 1025}], ids=str
)  # fmt: skip
def test_a_file_of_no_machine_is_refused(tmp_path: Path, over: dict[str, Any]) -> None:
    """Of a triple that LLVM does not know, a target would end the process."""
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(ZEN4 | {"machine": ZEN4["machine"] | over}))
    with pytest.raises(OptionError):
        Machine.described(path)


@pytest.mark.parametrize(
    ("mcpu", "hidden", "like"),
    [
        ("znver4", (), "zen4"), ("znver3", (), "zen3-avx2"), ("sapphirerapids", (), "xeon-amx"), ("znver5", (), "zen5"),
        ("haswell", (), "zen3-avx2"), ("cascadelake", (), "xeon-skylake"), ("skylake-avx512", (), "xeon-skylake"),
        ("x86-64-v4", (), "xeon-skylake"), ("graniterapids", (), "xeon-amx"),
        ("znver4", ("avx512",), "zen4-avx2"),
    ],
)  # fmt: skip
def test_the_most_similar_machine_stands_in(mcpu: str, hidden: tuple[str, ...], like: str) -> None:
    machine = Machine.detect(mcpu, 2)
    features = [f for f in machine.features if not f.startswith(hidden or "?")]
    isa = "avx2" if hidden else machine.isa
    rates = similar_rates(isa, features, mcpu)
    assert rates == descriptions()[like].rates


def test_no_cluster_stands_in_for_a_machine_of_its_cpu() -> None:
    clusters = [d.rates for name, d in descriptions().items() if name.startswith("cluster")]
    for name in NAMES:
        assert Machine.detect(Machine.described(name).mcpu, 2).rates not in clusters


@pytest.mark.parametrize("name", NAMES)
def test_measured_rates_are_nearest_to_their_own(name: str) -> None:
    """Noise of a few percent does not change it; nor do more cores of the same kind, nor their clock."""
    machine = Machine.described(name)
    noisy = dataclasses.replace(machine.rates, l1=machine.rates.l1 * 0.95, l2=machine.rates.l2 * 1.04, clock=1.0)
    assert dataclasses.replace(nearest_rates(noisy, machine.isa), clock=machine.rates.clock) == machine.rates


def test_only_machines_of_the_instruction_set_are_near() -> None:
    zen4 = descriptions()["zen4"].rates
    assert nearest_rates(zen4, "avx2") == descriptions()["zen3-avx2"].rates
    assert nearest_rates(zen4, "neon") == zen4  # none is described: the nearest of all
