"""The Verilog of an array under Verilator: every output in every clock is that of Amaranth's simulator.

What goes into the array in a run, and what comes out, is recorded there; a bench in SystemVerilog plays it again.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.systolic.config import Accelerator
from tvm_ext.byoc.systolic.rtl import verilog

from ..cases import random_int8

pytest.importorskip("amaranth")
pytest.importorskip("pyosys")
from amaranth.hdl import Value
from amaranth.lib.wiring import Flow

from .gemm_simulator import GemmSimulator

needs_verilator = pytest.mark.skipif(
    shutil.which("verilator") is None, reason="Verilator is not installed: apt-get install verilator"
)
BENCH = """\
module bench;
  reg clk = 0, rst = 1;
  reg [{inputs}-1:0] in, ins [0:{count}-1];
  reg [{outputs}-1:0] outs [0:{count}-1];
  wire [{outputs}-1:0] out;
  integer at;
  top dut(.clk(clk), .rst(rst), {ports});
  initial begin
    $readmemh("ins.hex", ins);
    $readmemh("outs.hex", outs);
    in = 0;
    #1 clk = 1; #1 clk = 0; rst = 0;
    for (at = 0; at < {count}; at = at + 1) begin
      in = ins[at];
      #1 if (out !== outs[at]) begin $display("differs in clock %0d", at); $finish; end
      clk = 1; #1 clk = 0; #1;
    end
    $display("equal in %0d clocks", at);
    $finish;
  end
endmodule
"""


class Recorder(GemmSimulator):
    """Keeps the bits of all ports, of each direction, just before each clock."""

    def __init__(self, *array: Any) -> None:
        super().__init__(*array)
        self.clocks: dict[Flow, list[int]] = {Flow.In: [], Flow.Out: []}

    def ports(self, flow: Flow) -> dict[str, Value]:
        members = self.unit.signature.members
        return {name: Value.cast(getattr(self.unit, name)) for name, each in members.items() if each.flow == flow}

    def _serve(self, context: Any, scratchpad: np.ndarray, memory: np.ndarray) -> None:
        super()._serve(context, scratchpad, memory)
        for flow, clocks in self.clocks.items():
            at = bits = 0
            for port in self.ports(flow).values():
                bits |= context.get(port) % (1 << len(port)) << at
                at += len(port)
            clocks.append(bits)


def bench_of(recorder: Recorder, folder: Path) -> None:
    """Writes the bench and its two files of bits."""
    widths, ports = {}, []
    for flow, wire in ((Flow.In, "in"), (Flow.Out, "out")):
        at = 0
        for name, port in recorder.ports(flow).items():
            ports.append(f".{name}({wire}[{at} +: {len(port)}])")
            at += len(port)
        widths[f"{wire}puts"] = at
        (folder / f"{wire}s.hex").write_text("".join(f"{bits:x}\n" for bits in recorder.clocks[flow]))
    count = len(recorder.clocks[Flow.In])
    (folder / "bench.sv").write_text(BENCH.format(count=count, ports=", ".join(ports), **widths))


@needs_verilator
@pytest.mark.parametrize("dataflow", ["ws", "os"])
def test_every_output_in_every_clock(dataflow: str, tmp_path: Path) -> None:
    rng, hardware = np.random.default_rng(3), Accelerator(rows=2, cols=3)
    recorder = Recorder(dataflow, 2, 3, True)
    recorder.run(random_int8(rng, (5, 7)), random_int8(rng, (7, 4)))
    bench_of(recorder, tmp_path)
    (tmp_path / "top.v").write_text(verilog(hardware, dataflow))
    command = ["verilator", "--binary", "-Wno-fatal", "-Wno-lint", "--top-module", "bench", "bench.sv", "top.v"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    played = subprocess.run([tmp_path / "obj_dir" / "Vbench"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"equal in {len(recorder.clocks[Flow.In])} clocks" in played.stdout
