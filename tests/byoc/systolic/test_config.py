"""The accelerator's settings: defaults, checks, and the way through JSON."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tvm_ext.byoc.systolic.config import Accelerator, Dataflow, EnergyTable
from tvm_ext.core.errors import OptionError


def test_dtypes_and_sizes() -> None:
    int8, f32 = Accelerator(), Accelerator(dtype="float32")
    assert (int8.itemsize, int8.accumulator_dtype, int8.accumulator_itemsize) == (1, "int32", 4)
    assert (f32.itemsize, f32.accumulator_dtype, f32.accumulator_itemsize) == (4, "float32", 4)
    bf16 = Accelerator(dtype="bfloat16")
    assert (bf16.itemsize, bf16.accumulator_dtype, bf16.tensor_itemsize) == (2, "float32", 4)
    assert int8.macs_per_cycle == 256
    assert Accelerator(frequency_hz=2e9).seconds(10**9) == 0.5


def test_settings_go_through_json() -> None:
    accelerator = Accelerator(rows=8, cols=4, dtype="float32", energy=EnergyTable(dram_byte=100.0))
    assert Accelerator.from_dict(json.loads(json.dumps(accelerator.as_dict()))) == accelerator
    assert Accelerator.from_dict({"rows": 2}) == Accelerator(rows=2)
    assert hash(accelerator) != hash(Accelerator())


def test_energy_of_a_multiply_add() -> None:
    """Multiplier plus adder of Horowitz's table: 0.2 + 0.1 pJ, 3.7 + 0.9 pJ; 1.1 + 0.9 pJ of bfloat16."""
    assert EnergyTable().mac("int8") == pytest.approx(0.2 + 0.1)
    assert EnergyTable().mac("float32") == pytest.approx(3.7 + 0.9)
    assert EnergyTable().mac("bfloat16") == pytest.approx(1.1 + 0.9)
    assert EnergyTable(mac_int8=1.5).mac("int8") == 1.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 0}, "rows=0: a whole number from 1 to 1024"),
        ({"cols": 2.0}, "cols=2.0"),
        ({"vector_lanes": True}, "vector_lanes=True"),
        ({"accumulator_bytes": 3}, "accumulator_bytes=3"),
        ({"dtype": "float16"}, "choose one of 'int8', 'bfloat16', 'float32'"),
        ({"compute_model": "scalesim"}, "choose 'overlapped' or 'physical'"),
        ({"frequency_hz": 0}, "frequency_hz=0"),
        ({"frequency_hz": 5e-324}, "a number from 1 to 1e\\+15"),
        ({"frequency_hz": 10**400}, "frequency_hz=1000"),
        ({"energy": {"dram_byte": 1e308}}, "energy.dram_byte=1e\\+308"),
        ({"energy": {"dram_byte": -1.0}}, "energy.dram_byte=-1.0"),
        ({"energy": {"sram_byte": 1.0}}, "unknown setting 'sram_byte' of the energy table"),
        ({"energy": 3}, "is no EnergyTable"),
        ({"columns": 4}, "unknown setting 'columns' of the accelerator"),
    ],
)
def test_refusals(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Accelerator.from_dict(settings)


def test_dataflow_by_name() -> None:
    assert Dataflow.of("os") is Dataflow.OS
    assert Dataflow.WS == "ws"
    assert f"{Dataflow.IS}" == "is"
    with pytest.raises(OptionError, match="dataflow='xs' is unknown"):
        Dataflow.of("xs")
    with pytest.raises(OptionError, match="dataflow='rs' is not of a systolic array"):
        Dataflow.systolic("rs")


def test_import_brings_no_compiler() -> None:
    """The driver of an exported model runs where TVM's compiler is not loaded."""
    program = "import sys, tvm_ext.byoc.systolic; print([name for name in ('tvm', 'onnx') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
