"""The name of a machine is made of facts, and of none that a virtual machine hides."""

import pathlib
from typing import Any

import pytest

from benchmarks.common import machine
from benchmarks.common.results import RESULTS

FACTS = {"vendor": "amd", "processor": "znver4", "isa": "avx512", "features": "avx2 avx512f", "cores": 2}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "amd-zen4-avx512-2c"),
        ({"processor": "znver3", "isa": "avx2", "cores": 64}, "amd-zen3-avx2-64c"),
        ({"vendor": "intel", "processor": "", "features": "avx512f amx-tile amx-int8"}, "intel-avx512-amx-2c"),
        ({"vendor": "intel", "processor": "diamond", "features": "amx-tile"}, "intel-diamond-avx512-amx-2c"),
        ({"vendor": "intel", "processor": "skylake-avx512"}, "intel-skylake-avx512-2c"),
    ],
)
def test_names(changes: dict[str, Any], name: str) -> None:
    assert machine.machine_name({**FACTS, **changes}) == name


def test_a_processor_with_features_that_its_name_does_not_imply_is_another_one() -> None:
    implied = {"avx2", "avx512f", "avx512vnni"}
    assert machine.known_name("rocketlake", implied, ["avx512f", "avx512vnni"]) == "rocketlake"
    assert machine.known_name("rocketlake", implied, ["avx512f", "amx-tile"]) == ""  # masked
    assert machine.known_name("rocketlake", implied, ["avx2"]) == "rocketlake"  # some of its features are hidden
    assert machine.known_name("generic", implied, []) == ""


@pytest.mark.parametrize(
    ("text", "vendor"),
    [("vendor_id\t: AuthenticAMD\n", "amd"), ("vendor_id : GenuineIntel\n", "intel"), ("vendor_id : Hygon\n", "hygon")],
)
def test_vendors(text: str, vendor: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{text}")
    assert machine._vendor(str(tmp_path / "cpuinfo")) == vendor
    assert machine._vendor(str(tmp_path / "none")) == machine.architecture()


def test_results_of_this_machine_go_to_its_folder() -> None:
    facts = machine.this_machine()
    assert RESULTS.name == facts["name"] == machine.machine_name(facts) and RESULTS.parent.name == "results"
    assert facts["l1d"] > 0 and facts["name"] in machine.machine_text(facts)


def test_instructions_for_narrow_numbers_are_named() -> None:
    facts = {"isa": "avx512", "features": "avx2 avx512f avx512bf16 amx-tile amx-int8"}
    assert machine.instructions(facts) == "avx512, avx512bf16, amx-int8"
