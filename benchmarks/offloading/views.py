"""The views of the simulated accelerator against each other, and against programs that someone
changed."""

import pathlib
import tempfile
from collections import Counter
from typing import Any

import numpy as np
import tvm_ext
from tests.byoc.systolic.cases import (
    gemm_of,
    scalesim_memory_cycles,
    scalesim_memory_rows,
    scalesim_rows,
)
from tests.byoc.systolic.programs import mutated, small_program
from tvm_ext.byoc.systolic import (
    Accelerator,
    Program,
    Tensor,
    gemm_cycles,
    lower,
    matmul,
    program_from_bytes,
    run,
    simulate,
    step_gemm,
)
from tvm_ext.byoc.systolic.code.isa import Gemm
from tvm_ext.byoc.systolic.driver import driver
from tvm_ext.byoc.systolic.simulation.timing import Event
from tvm_ext.core.errors import ArtifactError, InputError, ProgramError

from benchmarks.offloading.models import offloaded

DATAFLOWS = ("ws", "os", "is")


def scalesim() -> dict[str, int]:
    """Rows that SCALE-Sim 3.0.0 printed, and how many of them the closed form gives."""
    rows = scalesim_rows()
    equal = [
        gemm_cycles(*gemm_of(row), model="scalesim") - 1 == int(row["printed_compute_cycles"])
        for row in rows
    ]
    return {"rows": len(rows), "equal": sum(equal)}


def scalesim_memories() -> dict[str, int]:
    """Rows that SCALE-Sim 3.0.0 printed of layers with double buffers, and how many are equal in
    total cycles, with prefetch and without, and in stalls."""
    pairs = [scalesim_memory_cycles(row) for row in scalesim_memory_rows()]
    stalled = sum(printed.stalls > 0 for _, printed in pairs)
    equal = sum(computed == printed for computed, printed in pairs)
    return {"rows": len(pairs), "stalled": stalled, "equal": equal}


def stepper(count: int = 300) -> dict[str, Any]:
    """Random GEMMs, in all dataflows, folds in sequence and overlapped: stepper against timing and
    functional view."""
    rng, totals, worst = np.random.default_rng(0), Counter[str](), 0.0
    for number in range(count):
        m, k, n = (int(v) for v in rng.integers(1, 21, 3))
        rows, cols = (int(v) for v in rng.integers(1, 9, 2))
        kind = ("int8", "whole float32", "float32")[number % 3]
        a, b = (_operand(rng, kind, shape) for shape in ((m, k), (k, n)))
        for flow, model in ((f, c) for f in DATAFLOWS for c in ("physical", "overlapped")):
            hardware = Accelerator(rows, cols, str(a.dtype), compute_model=model)
            program = _gemm_program(a, b, hardware, flow)
            totals["runs"] += 1
            cycles = (_stepped(program, e) - (e.end - e.start) for e in _gemm_events(program))
            totals["other cycles"] += any(cycles)
            values, exact = (run(program, {"x": a, "w": b}, v)["y"] for v in ("stepper", "numpy"))
            if kind == "float32":
                bound = k * 2.0**-24 * (np.abs(a).astype(float) @ np.abs(b).astype(float))
                worst = max(worst, float(np.max(np.abs(values - exact.astype(float)) / bound)))
            else:
                totals["other bits"] += values.tobytes() != exact.tobytes()
    counts = {key: totals[key] for key in ("runs", "other cycles", "other bits")}
    return {"gemms": count, **counts, "of_bound": worst}


def changed(count: int = 200) -> dict[str, int]:
    """A byte flipped at random places of an exported artifact, and of a program alone: how many are
    refused."""
    rng, refused = np.random.default_rng(1), Counter[str]()
    compiled = offloaded(tvm_ext.zoo.mlp())
    (program,) = compiled.offload_programs().values()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "mlp.so")
        compiled.export(path)
        whole = path.read_bytes()
        for _ in range(count):
            path.write_bytes(_flipped(rng, whole))
            refused["artifacts"] += _refuses(tvm_ext.load, path, ArtifactError)
            refused["programs"] += _refuses(driver, _flipped(rng, program), ProgramError)
    return {"places": count, "artifact_bytes": len(whole), **refused}


def mutations(count: int = 1000) -> dict[str, int]:
    """Programs changed behind their checksum, which is made anew: errors, equal values of two
    views, anything else."""
    rng = np.random.default_rng(2)
    seen = Counter[str]({"errors": 0, "equal": 0, "different": 0})
    data = small_program().to_bytes()
    x = rng.integers(-128, 128, (1, 2, 4, 5), dtype=np.int8)
    for _ in range(count):
        try:
            program = program_from_bytes(mutated(rng, data))
            values = run(program, {"x": x})
        except (ProgramError, InputError):
            seen["errors"] += 1
            continue
        stepped = run(program, {"x": x}, backend="stepper")
        same = all(values[name].tobytes() == stepped[name].tobytes() for name in values)
        seen["equal" if same and simulate(program).cycles > 0 else "different"] += 1
    return {"mutations": count, **seen}


def _operand(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    if kind == "float32":
        return rng.standard_normal(shape, dtype=np.float32)
    return rng.integers(-128, 128, shape).astype("int8" if kind == "int8" else "float32")


def _gemm_program(a: np.ndarray, b: np.ndarray, hardware: Accelerator, dataflow: str) -> Program:
    """y = x w of one layer."""
    (m, k), n = a.shape, b.shape[1]
    tensors = [
        Tensor("x", "input", (m, k), hardware.dtype), Tensor("w", "input", (k, n), hardware.dtype),
        Tensor("y", "output", (m, n), hardware.accumulator_dtype),
    ]  # fmt: skip
    return lower([matmul("gemm", "x", "w", "y", (m, k, n))], tensors, hardware, dataflow)


def _gemm_events(program: Program) -> list[Event]:
    """When the timing view lets each GEMM instruction run: one a tile."""
    code = program.instructions
    return [event for event in simulate(program).events if isinstance(code[event.index], Gemm)]


def _stepped(program: Program, event: Event) -> int:
    """Clocks of the same instruction, register by register."""
    gemm, hardware = program.instructions[event.index], program.accelerator
    assert isinstance(gemm, Gemm)
    a, b = (np.zeros(s, hardware.dtype) for s in ((gemm.m, gemm.k), (gemm.k, gemm.n)))
    overlapped, size = hardware.compute_model == "overlapped", (hardware.rows, hardware.cols)
    return step_gemm(a, b, gemm.dataflow, *size, overlapped=overlapped)[1]


def _flipped(rng: np.random.Generator, data: bytes) -> bytes:
    at = int(rng.integers(len(data)))
    return data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]


def _refuses(read: Any, what: Any, error: type[Exception]) -> bool:
    try:
        read(what)
    except error:
        return True
    return False
