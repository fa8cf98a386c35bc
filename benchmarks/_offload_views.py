"""The views of the simulated accelerator against each other, and against programs that someone changed.

`python _offload_views.py mutations` prints one line of JSON: it runs apart, so that a hang could be seen.
"""

from __future__ import annotations

import csv
import hashlib
import json
import pathlib
import struct
import sys
import tempfile
import zlib
from collections import Counter
from typing import Any

import numpy as np

import tvm_ext
from tvm_ext.byoc.systolic import (
    Accelerator,
    ConvGeometry,
    Program,
    Step,
    Tensor,
    conv2d,
    filter_matrices,
    gemm_cycles,
    lower,
    matmul,
    nchw,
    program_from_bytes,
    run,
    simulate,
    step_gemm,
)
from tvm_ext.byoc.systolic.code.isa import Gemm
from tvm_ext.byoc.systolic.driver import driver
from tvm_ext.byoc.systolic.simulation.timing import Event
from tvm_ext.core.errors import ArtifactError, InputError, ProgramError

SCALESIM = pathlib.Path(__file__).resolve().parents[1] / "tests/byoc/systolic/data/scalesim_3_0_0_gemm.csv"
DATAFLOWS = ("ws", "os", "is")
_PREFIX, _START = struct.Struct("<8sIIIIQ"), 64  # of a program's bytes, see byoc/systolic/code/program.py


def scalesim() -> dict[str, int]:
    """Rows that SCALE-Sim 3.0.0 printed, and how many of them the closed form gives."""
    with SCALESIM.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ("M", "K", "N", "rows", "cols")
    found = [gemm_cycles(row["dataflow"], *(int(row[n]) for n in names), model="scalesim") - 1 for row in rows]
    equal = [mine == int(row["printed_compute_cycles"]) for mine, row in zip(found, rows, strict=True)]
    return {"rows": len(rows), "equal": sum(equal)}


def stepper(count: int = 300) -> dict[str, Any]:
    """Random GEMMs, in all dataflows, folds in sequence and overlapped: stepper against timing and functional view."""
    rng = np.random.default_rng(0)
    totals: Counter[str] = Counter()
    worst = 0.0
    for number in range(count):
        m, k, n = (int(v) for v in rng.integers(1, 21, 3))
        rows, cols = (int(v) for v in rng.integers(1, 9, 2))
        kind = ("int8", "whole float32", "float32")[number % 3]
        a, b = (_operand(rng, kind, shape) for shape in ((m, k), (k, n)))
        for dataflow in DATAFLOWS:
            for model in ("physical", "overlapped"):
                hardware = Accelerator(rows, cols, str(a.dtype), compute_model=model)
                program = _gemm_program(a, b, hardware, dataflow)
                totals["runs"] += 1
                totals["other cycles"] += any(_stepped(program, e) != e.end - e.start for e in _gemm_events(program))
                inputs = {"x": a, "w": b}
                values, numpy_values = (run(program, inputs, view)["y"] for view in ("stepper", "numpy"))
                if kind == "float32":
                    bound = k * 2.0**-24 * (np.abs(a).astype(float) @ np.abs(b).astype(float))
                    worst = max(worst, float(np.max(np.abs(values - numpy_values.astype(float)) / bound)))
                else:
                    totals["other bits"] += values.tobytes() != numpy_values.tobytes()
    return {"gemms": count, **{key: totals[key] for key in ("runs", "other cycles", "other bits")}, "of_bound": worst}


def changed(count: int = 200) -> dict[str, int]:
    """A byte flipped at random places of an exported artifact, and of a program alone: how many are refused."""
    rng, refused = np.random.default_rng(1), Counter[str]()
    compiled = tvm_ext.compile(tvm_ext.zoo.mlp(), offload="systolic", offload_options={"when": "always"}, cache=False)
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
    """Programs changed behind their checksum, which is made anew: errors, equal values of two views, anything else."""
    rng, seen = np.random.default_rng(2), Counter[str]({"errors": 0, "equal": 0, "different": 0})
    data = _small_program().to_bytes()
    x = rng.integers(-128, 128, (1, 2, 4, 5), dtype=np.int8)
    for _ in range(count):
        try:
            program = program_from_bytes(_mutated(rng, data))
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
    return [event for event in simulate(program).events if isinstance(program.instructions[event.index], Gemm)]


def _stepped(program: Program, event: Event) -> int:
    """Clocks of the same instruction, register by register."""
    gemm, hardware = program.instructions[event.index], program.accelerator
    assert isinstance(gemm, Gemm)
    a, b = np.zeros((gemm.m, gemm.k), hardware.dtype), np.zeros((gemm.k, gemm.n), hardware.dtype)
    overlapped = hardware.compute_model == "overlapped"
    return step_gemm(a, b, gemm.dataflow, hardware.rows, hardware.cols, overlapped=overlapped)[1]


def _flipped(rng: np.random.Generator, data: bytes) -> bytes:
    at = int(rng.integers(len(data)))
    return data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]


def _refuses(read: Any, what: Any, error: type[Exception]) -> bool:
    try:
        read(what)
    except error:
        return True
    return False


def _small_program() -> Program:
    """Two convolutions of int8, with instructions of all kinds."""
    rng = np.random.default_rng(3)
    geometry = ConvGeometry(2, (4, 5), (2, 2), padding=(1, 0, 0, 1))
    first, second = (filter_matrices(rng.integers(-128, 128, (2, 2, 2, 2), dtype=np.int8)) for _ in range(2))
    steps = (
        Step("add", row=rng.integers(-1000, 1000, 2, dtype=np.int32), dtype="int32"),
        Step("dequantize", row=np.float32([0.01, 0.02])),
        Step("add", tile=nchw("x", 2, (4, 5), 1), dtype="int8", scale=0.5), Step("relu"),
        Step("quantize", scale=0.25, zero_point=-3),
    )  # fmt: skip
    layers = [conv2d("first", "x", first, "h", geometry, steps=steps), conv2d("second", "h", second, "y", geometry)]
    roles = (("x", "input", "int8"), ("h", "scratch", "int8"), ("y", "output", "int32"))
    tensors = [Tensor(name, role, (1, 2, 4, 5), dtype) for name, role, dtype in roles]
    return lower(layers, tensors, Accelerator(rows=4, cols=4, scratchpad_bytes=1024, accumulator_bytes=128))


def _mutated(rng: np.random.Generator, data: bytes) -> bytes:
    """Bits flipped, bytes set, instructions exchanged, behind a checksum that fits."""
    _, _, header_bytes, _, code_bytes, _ = _PREFIX.unpack_from(data)
    at = _START + header_bytes
    code = bytearray(zlib.decompressobj().decompress(data[at : at + code_bytes]))
    parts = [bytearray(data[_START:at]), code, bytearray(data[at + code_bytes :])]
    for _ in range(rng.integers(1, 4)):
        part, way = parts[rng.choice(3, p=(0.2, 0.7, 0.1))], rng.integers(3)
        if way == 0:
            one, other = (64 * int(i) for i in rng.integers(len(code) // 64, size=2))
            code[one : one + 64], code[other : other + 64] = code[other : other + 64], code[one : one + 64]
        elif way == 1:
            part[rng.integers(len(part))] ^= 1 << rng.integers(8)
        else:
            part[rng.integers(len(part))] = rng.integers(256)
    packed = zlib.compress(bytes(code))
    packed += b"\0" * (-len(packed) % 64)
    prefix = _PREFIX.pack(b"TVMXSYST", 1, len(parts[0]), len(code) // 64, len(packed), len(parts[2]))
    body = bytes(parts[0]) + packed + bytes(parts[2])
    return prefix + hashlib.sha256(prefix + body).digest() + body


if __name__ == "__main__":
    print(json.dumps({"mutations": mutations}[sys.argv[1]]()), flush=True)
