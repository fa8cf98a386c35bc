"""A systolic-array accelerator, simulated: its programs, code for layers, and three views that must agree."""

from .code.assembler import assemble, disassemble
from .code.codegen import lower
from .code.layer import ConvGeometry, GemmLayer, Matrix, Step, Windows, conv2d, filter_matrices, matmul, nchw
from .code.program import Layer, Program, Tensor, program_from_bytes
from .config import Accelerator, Dataflow, EnergyTable
from .results.report import LayerRow, layer_rows, programs_of, rows_of, timings_of
from .results.roofline import roofline_svg, roofline_text
from .results.scale_sim_report import ScaleSimLayer, read_topology, report_csv, scale_sim_csv
from .results.sweep import DesignPoint, sweep
from .results.timeline import chrome_trace
from .rtl import Cells, cells, run_rtl, verilog
from .simulation.cycles import gemm_cycles
from .simulation.functional import run
from .simulation.scale_sim import Memories, MemoryCycles, scale_sim_cycles, window_addresses
from .simulation.stepper import step_gemm
from .simulation.timing import Timing, simulate

__all__ = [
    "Accelerator", "Cells", "ConvGeometry", "Dataflow", "DesignPoint", "EnergyTable", "GemmLayer", "Layer",
    "LayerRow", "Matrix", "Memories", "MemoryCycles", "Program", "ScaleSimLayer", "Step", "Tensor", "Timing",
    "Windows", "assemble", "cells", "chrome_trace", "conv2d", "disassemble", "filter_matrices", "gemm_cycles",
    "layer_rows", "lower", "matmul", "nchw", "program_from_bytes", "programs_of", "read_topology", "report_csv",
    "roofline_svg", "roofline_text", "rows_of", "run", "run_rtl", "scale_sim_csv", "scale_sim_cycles", "simulate",
    "step_gemm", "sweep", "timings_of", "verilog", "window_addresses",
]  # fmt: skip
