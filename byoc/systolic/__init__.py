"""A systolic-array accelerator, simulated: its programs, code for layers, and three views that must agree."""

from .assembler import assemble, disassemble
from .codegen import lower
from .compiled import programs_of, rows_of, timings_of
from .config import Accelerator, Dataflow, EnergyTable
from .cycles import gemm_cycles
from .functional import run
from .layer import ConvGeometry, GemmLayer, Matrix, Step, Windows, conv2d, filter_matrices, matmul, nchw
from .program import Layer, Program, Tensor, program_from_bytes
from .report import LayerRow, layer_rows, scale_sim_csv
from .roofline import roofline_svg, roofline_text
from .stepper import step_gemm
from .sweep import DesignPoint, sweep
from .timeline import chrome_trace
from .timing import Timing, simulate

__all__ = [
    "Accelerator",
    "ConvGeometry",
    "Dataflow",
    "DesignPoint",
    "EnergyTable",
    "GemmLayer",
    "Layer",
    "LayerRow",
    "Matrix",
    "Program",
    "Step",
    "Tensor",
    "Timing",
    "Windows",
    "assemble",
    "chrome_trace",
    "conv2d",
    "disassemble",
    "filter_matrices",
    "gemm_cycles",
    "layer_rows",
    "lower",
    "matmul",
    "nchw",
    "program_from_bytes",
    "programs_of",
    "roofline_svg",
    "roofline_text",
    "rows_of",
    "run",
    "scale_sim_csv",
    "simulate",
    "step_gemm",
    "sweep",
    "timings_of",
]
