"""Buffers of kernels: on the stack, among the activations, or in a thread's pool; the numbers stay what they were."""

from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.machine import Machine
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.assemble import Assembled, assemble
from tvm_ext.driver.programs import lower_all
from tvm_ext.passes.tir.buffers import POOLED_BYTES, STACK_BYTES
from tvm_ext.runtime import vm
from tvm_ext.runtime.memory.arrays import mapped_empty


def convolution(size: int, channels: int, count: int = 2) -> Any:
    """A chain of 3x3 convolutions of `channels` on [1, channels, size, size]."""
    names = ["x", *(f"v{at}" for at in range(1, count)), "y"]
    nodes = [node("Conv", f"{names[i]} w{i}", names[i + 1], pads=[1, 1, 1, 1]) for i in range(count)]
    weights = {f"w{i}": random(channels, channels, 3, 3) * np.float32(0.1) for i in range(count)}
    shape = (1, channels, size, size)
    return model(nodes, [value("x", shape)], [value("y", shape)], weights)


def assembled(proto: Any, threads: int) -> Assembled:
    return assemble(lower_all(proto, CompileOptions(threads=threads), Machine.detect(None, threads)))


def allocations(function: Any) -> list[Any]:
    buffers: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tirx.AllocBuffer, buffers.append))
    return buffers


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("size", "channels"), [(7, 5), (13, 48), (31, 32)])
def test_an_arena_full_of_nan_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, threads: int, size: int, channels: int
) -> None:
    def poisoned(nbytes: int) -> np.ndarray:
        memory = mapped_empty(nbytes)
        memory[...] = 0xFF  # NaN, as float32
        return memory

    proto = convolution(size, channels)
    monkeypatch.setattr(vm, "mapped_empty", poisoned)
    compiled = tvm_ext.compile(proto, threads=threads, cache=False)
    report = tvm_ext.verify(compiled, model=proto)
    assert report.ok, str(report)
    assert compiled.report["memory"]["arena_bytes"] > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_where_buffers_lie(threads: int) -> None:
    assembly = assembled(convolution(56, 128), threads)
    memory = assembly.facts[-1]["memory"]
    assert any(buffer["workspace"] for buffer in memory["buffers"])
    kernels = {g.name_hint: f for g, f in assembly.mod.functions_items() if isinstance(f, tirx.PrimFunc)}
    for function in kernels.values():
        for alloc in allocations(function):
            size = int(np.prod([int(d) for d in alloc.buffer.ty.shape]))
            size *= np.dtype(str(alloc.buffer.ty.dtype).split("x")[0]).itemsize
            on_stack = "disable_lower_builtin" in dict(alloc.annotations)
            assert on_stack if size <= STACK_BYTES // 64 else size <= POOLED_BYTES


def test_workspace_lives_in_one_launch_only() -> None:
    memory = assembled(convolution(56, 128), 2).facts[-1]["memory"]
    assert all(buffer["first"] == buffer["last"] for buffer in memory["buffers"] if buffer["workspace"])


def test_a_program_takes_views_of_its_arena() -> None:
    assembly = assembled(convolution(13, 16, count=4), 2)
    (program,) = assembly.programs
    assert program.arena_bytes == assembly.facts[-1]["memory"]["arena_bytes"]
    assert len(assembly.mod["main"].params) == 1 + len(program.weights) + 1 + len(program.arena)
