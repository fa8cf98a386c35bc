"""build: kernels of a module as an executable that runs without a compiler, in this process or linked."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, topi

import tvm_ext
import tvm_ext.driver.build as build_module
from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import Stage, stage
from tvm_ext.core.errors import BuildError
from tvm_ext.core.machine import Machine
from tvm_ext.driver.build import build, build_objects, compile_kernels, has_parallel_loops
from tvm_ext.passes.lowering.lift_weights import LiftWeights

X = random(4, 6)


def lowered(threads: int = 2, nodes: Any = None, shape: tuple[int, ...] = (4, 6)) -> Stage:
    nodes = nodes or [node("Softmax", "x", "a"), node("Exp", "a", "b"), node("Tanh", "b", "y")]
    return stage(model(nodes, [value("x", shape)], [value("y", shape)]), LiftWeights, threads)


def run(module: Any, *inputs: np.ndarray) -> np.ndarray:
    return relax.VirtualMachine(module, tvm.cpu())["main"](*(tvm.runtime.tensor(x) for x in inputs)).numpy()


def expected(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return np.tanh(np.exp(e / e.sum(-1, keepdims=True)))


def kinds(module: Any) -> set[str]:
    return {str(m.kind) for m in module.imports}


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)


def test_it_runs_in_memory_with_no_compiler_at_all(no_compiler: None) -> None:
    lowering = lowered()
    executable = build(lowering.mod, lowering.ctx)
    assert kinds(executable.mod) == {"llvm"}, "a source module would need a compiler"
    np.testing.assert_allclose(run(executable.jit(), X), expected(X), atol=1e-6)


def test_a_model_without_any_kernel_runs_too(no_compiler: None) -> None:
    flatten = model([node("Flatten", "x", "y")], [value("x", (2, 3, 4))], [value("y", (2, 12))])
    staged = stage(flatten, LiftWeights)
    x = random(2, 3, 4)
    assert np.array_equal(run(build(staged.mod, staged.ctx).jit(), x), x.reshape(2, 12))


def test_objects_link_to_the_same_program(tmp_path: Path) -> None:
    lowering = lowered()
    library = tmp_path / "library.so"
    with build_objects(lowering.mod, lowering.ctx) as executable:
        executable.export_library(str(library))
    in_memory = run(build(lowering.mod, lowering.ctx).jit(), X)
    assert np.array_equal(run(tvm.runtime.load_module(str(library)), X), in_memory)


FUNCTIONS = {"Exp": np.exp, "Tanh": np.tanh, "Sqrt": np.sqrt, "Log": np.log, "Abs": np.abs, "Floor": np.floor}


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_a_kernel_may_be_called_as_a_function_of_the_c_library(operator: str) -> None:
    lowering, x = lowered(nodes=[node(operator, "x", "y")]), np.abs(X) + 0.5
    assert lowering.calls == [operator.lower()]
    result = run(build(lowering.mod, lowering.ctx).jit(), x)
    np.testing.assert_allclose(result, FUNCTIONS[operator](x.astype(np.float64)), rtol=1e-5)


def test_parallel_loops_are_found() -> None:
    large = [node("Tanh", "x", "y")]
    assert has_parallel_loops(lowered(2, large, (3000, 400)).mod)
    assert not has_parallel_loops(lowered(1, large, (300, 400)).mod)
    assert not has_parallel_loops(lowered(2, large, (3, 4)).mod)


@pytest.mark.parametrize("offset", [0, 16, 32, 48, 4])
def test_an_input_is_read_at_any_address(offset: int) -> None:
    """numpy's memory starts at a multiple of 16 bytes; at 4 it is copied first."""
    proto = model([node("Mul", "x x", "a"), node("Add", "a x", "y")], [value("x", (67,))], [value("y", (67,))])
    compiled = tvm_ext.compile(proto, cache=False)
    room = np.empty(67 * 4 + 128, np.uint8)
    start = -room.__array_interface__["data"][0] % 64 + offset
    x = np.ndarray((67,), np.float32, room, start)
    x[...] = random(67)
    np.testing.assert_allclose(compiled.run(x)["y"], x * x + x, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "repeats"),
    [((2, 3, 4, 5), (7, 6, 4, 2)), ((6, 4, 4, 8), (5, 1, 7, 2)), ((9, 7, 6, 8), (1, 8, 1, 5)),
     ((9, 9, 3, 8), (7, 6, 6, 6))],
)  # fmt: skip
def test_what_no_recipe_scheduled_is_compiled_without_llvms_vectorizer(shape: Any, repeats: Any) -> None:
    """LLVM 22 makes wrong code of these at level 2: modulo in the indices of a loop that it vectorizes."""
    x = te.placeholder(shape, "float32")
    kernel = te.create_prim_func([x, topi.tile(x, repeats)])
    numbers = np.random.default_rng(0).random(shape).astype(np.float32)
    wanted = np.tile(numbers, repeats)
    result = tvm.runtime.tensor(np.full(wanted.shape, np.nan, np.float32))
    compile_kernels({"main": kernel}, Machine.detect(), scheduled=False)["main"](tvm.runtime.tensor(numbers), result)
    np.testing.assert_array_equal(result.numpy(), wanted)


@pytest.mark.parametrize("step", ["lower_to_loops", "with_stack_buffers"])
def test_a_kernel_that_cannot_be_compiled_is_named_with_its_nodes(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whichever kernels share a core with it."""
    lowering, real = lowered(), getattr(build_module, step)
    bad = [name for name, kernel in lowering.ctx.kernels.items() if kernel.calls][-1]

    def fails(kernels: Any, *rest: Any) -> Any:
        if bad in (kernels if isinstance(kernels, dict) else (kernels.attrs["global_symbol"],)):
            raise ValueError("not this one\n  in a dump")
        return real(kernels, *rest)

    monkeypatch.setattr(build_module, step, fails)
    with pytest.raises(BuildError) as info:
        build(lowering.mod, lowering.ctx)
    kernel = lowering.ctx.kernels[bad]
    assert info.value.message.startswith(f"kernel {bad!r} ({kernel.recipe}) at node")
    assert all(repr(node) in info.value.message for node in kernel.nodes[:3]) and "dump" not in info.value.message
    assert info.value.message.endswith("ValueError: not this one") and isinstance(info.value.__cause__, ValueError)
