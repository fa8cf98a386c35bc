"""Options of the back end: those of the accelerator, a mapping of energies, a dataflow; and what is refused."""

import dataclasses
import re
from typing import Any

import pytest

from tvm_ext.byoc.systolic.backend import BACKEND
from tvm_ext.byoc.systolic.config import Accelerator, EnergyTable, SystolicOptions
from tvm_ext.core.errors import OptionError


def test_defaults_are_those_of_the_accelerator_in_float32() -> None:
    assert SystolicOptions().accelerator == Accelerator(dtype="float32")
    assert SystolicOptions().dataflow is None


def test_all_settings_of_the_accelerator_are_options() -> None:
    settings: Any = {"rows": 8, "energy": {"dram_byte": 100.0}, "dataflow": "os", "frequency_hz": 2e9}
    options = BACKEND.make_options(settings)
    assert options.energy == EnergyTable(dram_byte=100.0)
    assert options.accelerator == Accelerator(rows=8, dtype="float32", energy=options.energy, frequency_hz=2e9)
    names = {field.name for field in dataclasses.fields(Accelerator)}
    assert {field.name for field in dataclasses.fields(SystolicOptions)} == {*names, "dataflow", "fusion", "run"}
    assert hash(options) == hash(BACKEND.make_options(settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataflow": "xs"}, "dataflow='xs' is unknown"),
        ({"energy": {"dram": 1.0}}, "unknown setting 'dram' of the energy table"),
        ({"energy": 3}, "is no EnergyTable"),
        ({"run": "verilog"}, "run='verilog': choose 'functional' or 'rtl'"),
        ({"run": "rtl"}, "run='rtl' with dtype='float32'"),
        ({"run": "rtl", "dtype": "int8", "arrays": 2}, "arrays=2: the hardware has 1 at most"),
        ({"run": "rtl", "dtype": "int8", "rows": 65}, "rows=65: the hardware has 64"),
        ({"fusion": "off"}, "fusion='off'"),
        ({"rows": 0}, "rows=0"),
        ({"dtype": "float16"}, "dtype='float16'"),
        ({"row": 4}, "no option 'row'.*did you mean 'rows'"),
    ],
)
def test_refusals(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        BACKEND.make_options(settings)

    assert re.search(message, str(caught.value), re.DOTALL)
