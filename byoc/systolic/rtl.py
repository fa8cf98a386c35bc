"""The accelerator as hardware: its Verilog, its cells, and programs run on it clock by clock. Needs the extra `rtl`.

:mod:`.hardware` has the registers, in Amaranth; a reader of :mod:`.simulation` knows them all by name.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import OptionError, ToolError
from ...core.extras import extra
from .code.isa import Conv, Instruction, Vector, error_at
from .code.program import Program
from .config import SYSTOLIC, Accelerator, Dataflow, check_hardware
from .simulation.functional import in_order

if TYPE_CHECKING:
    from .hardware.simulation import CoreSimulator

#: What can be written: a PE, the GEMM unit (PEs, skew registers, the sequencer of folds), or the whole chip.
PARTS = ("element", "array", "core")
#: What the vector unit does in hardware, of :data:`.code.isa.VectorOp`; the others need exp or erf.
OPERATIONS = ("add", "multiply", "relu", "clip", "dequantize", "quantize")
_FIX = 'run="functional" has all of them'
#: Memories begin undefined: no program reads what it has not written, and zeros would be most of the text.
_TO_VERILOG = "delete t:$meminit_v2; proc -nomux -norom; memory_collect; write_verilog -norename -noattr {output}"
#: Gates of two inputs and flip-flops; PEs within an array are left out, for one stands for all.
_TO_CELLS = (
    "blackbox top.array.element_*; setattr -unset init w:*; synth -booth -top top; "
    "dfflegalize -cell $_DFF_P_ x; abc -g cmos2; tee -q -o {output} stat -json"
)
#: Transistors of a static CMOS cell, as yosys counts them.
_TRANSISTORS = {"$_NOT_": 2, "$_NAND_": 4, "$_NOR_": 4, "$_DFF_P_": 16}
_YOSYS = "import sys; from pyosys import libyosys; libyosys.run_pass(sys.argv[1], libyosys.Design())"


@dataclass(frozen=True)
class Cells:
    """Gates and flip-flops of a piece of hardware after synthesis by yosys; memories are not among them.

    Attributes:
        gates: inverters, and NAND and NOR of two inputs.
        flip_flops: bits of registers.
        transistors: of both, in static CMOS.
    """

    gates: int
    flip_flops: int
    transistors: int

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Cells:
        """Of cells by their type."""
        flip_flops = counts.get("$_DFF_P_", 0)
        known = {kind: counts.get(kind, 0) for kind in _TRANSISTORS}
        transistors = sum(_TRANSISTORS[kind] * count for kind, count in known.items())
        return cls(sum(known.values()) - flip_flops, flip_flops, transistors)


def check_instructions(instructions: Sequence[Instruction]) -> None:
    """Raises ProgramError at the first operation of the vector unit that the hardware has not, or convolution."""
    for index, instruction in enumerate(instructions):
        if isinstance(instruction, Conv):
            what = f"the hardware has no dataflow='rs'; it has {', '.join(SYSTOLIC)}"
            raise error_at(index, instruction, what, fix=_FIX)
        if isinstance(instruction, Vector) and (problem := missing_operation(instruction.op)):
            raise error_at(index, instruction, problem, fix=_FIX)


def missing_operation(op: str) -> str:
    """Why the vector unit of the hardware does not do an operation; "" if it does."""
    return "" if op in OPERATIONS else f"the hardware has no {op}; its vector unit does {', '.join(OPERATIONS)}"


def verilog(accelerator: Accelerator, dataflow: str = "ws", part: str = "array") -> str:
    """Verilog of the accelerator, its module `top` last.

    Args:
        accelerator: sizes; int8.
        dataflow: "ws" and "is" have the same array.
        part: one of PARTS.

    Raises:
        OptionError: there is no such hardware.
        ToolError: the extra `rtl` is not installed, or yosys fails.
    """
    return _yosys(_rtlil(accelerator, dataflow, part), _TO_VERILOG, "writing Verilog")


def cells(accelerator: Accelerator, dataflow: str = "ws") -> dict[str, Cells]:
    """What the array of an accelerator takes, by part.

    Returns:
        "element", one PE that has neighbours at all sides; "elements", all as such; "skew" registers; the "sequencer",
        with the addresses of operands and sums; and "array", the sum of the last three.

    Raises:
        OptionError, ToolError: as :func:`verilog`.
    """
    (element,) = _counts(_rtlil(accelerator, dataflow, "element")).values()
    modules = _counts(_rtlil(accelerator, dataflow, "array"))
    skew, others = (
        Cells.of(sum((counts for name, counts in modules.items() if name.endswith("_skew") == is_skew), Counter()))
        for is_skew in (True, False)
    )
    count = accelerator.rows * accelerator.cols
    elements = Counter({kind: number * count for kind, number in element.items()})
    return {
        "element": Cells.of(element),
        "elements": Cells.of(elements),
        "skew": skew,
        "sequencer": others,
        "array": Cells.of(sum(modules.values(), elements)),
    }


def run_rtl(program: Program, inputs: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
    """Runs a program on the hardware, in Amaranth's simulator: its outputs by name, and its cycles.

    Values are those of :func:`.simulation.functional.run`, cycles those of :func:`.simulation.timing.simulate`.

    Raises:
        InputError, ProgramError: as the functional view; or an instruction has no hardware.
        OptionError: the accelerator has none.
        ToolError: the extra `rtl` is not installed.
    """
    outputs = {tensor.name: np.empty(tensor.shape, tensor.dtype) for tensor in program.of_role("output")}
    cycles = simulator(program).run_into(in_order(program, inputs), list(outputs.values()))
    return outputs, cycles


def simulator(program: Program) -> CoreSimulator:
    """The chip of a program; errors are those of :func:`run_rtl`."""
    check_hardware(program.accelerator)
    check_instructions(program.instructions)
    _ = program.order  # or it deadlocks
    _hardware()
    from .hardware.simulation import CoreSimulator

    return CoreSimulator(program)


def _hardware() -> None:
    extra("amaranth", "rtl", "the accelerator as hardware")


def _rtlil(accelerator: Accelerator, dataflow: str, part: str) -> str:
    dataflow = Dataflow.systolic(dataflow)
    check_hardware(accelerator)
    _hardware()
    extra("pyosys", "rtl", "the accelerator as Verilog")
    from amaranth.back import rtlil

    from .hardware.core import Core
    from .hardware.gemm import element_of, unit_of

    overlapped = accelerator.compute_model == "overlapped"
    if part == "core":
        component: Any = Core(accelerator, (dataflow,))
    elif part == "array":
        component = unit_of(dataflow, accelerator.rows, accelerator.cols, overlapped)
    elif part == "element":
        component = element_of(dataflow)
    else:
        raise OptionError(f"part={part!r} is unknown", fix=f"choose of {', '.join(map(repr, PARTS))}")
    return str(rtlil.convert(component, emit_src=False))


def _yosys(rtlil: str, script: str, what: str) -> str:
    """The text that a script of yosys writes to {output}, run in a process of its own.

    Raises:
        ToolError: it fails; with its last line.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, output, commands = (Path(folder, name) for name in ("top.il", "output", "script.ys"))
        source.write_text(rtlil, encoding="utf-8")
        lines = script.format(output=output).replace("; ", "\n")
        commands.write_text(f"read_rtlil {source}\n{lines}\n", encoding="utf-8")
        command: Sequence[str] = (sys.executable, "-c", _YOSYS, f"script {commands}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not output.exists():
            reason = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise ToolError(f"yosys failed in {what}: {reason}", fix="pip install --upgrade pyosys")
        return output.read_text(encoding="utf-8")


def _counts(rtlil: str) -> dict[str, Counter[str]]:
    """Cells of each module by their type, without the modules in it."""
    modules = json.loads(_yosys(rtlil, _TO_CELLS, "counting cells"))["modules"]
    return {name: Counter(facts["num_cells_by_type"]) for name, facts in modules.items() if "element_" not in name}
