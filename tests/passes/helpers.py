"""Building tiny Relax modules, applying passes to them, and running them with TVM's own pipeline."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from tests.oracles.reference import module_outputs
from tvm_ext.core.graph.relax_graph import main_bindings, op_name, shape_of
from tvm_ext.core.machine import Machine
from tvm_ext.core.passes import CompileContext, Pass, PassResult
from tvm_ext.passes.conditions import well_formed


def build(body: Callable[..., Any], *shapes: Sequence[Any], dtype: str = "float32") -> IRModule:
    """A module whose `main` takes inputs `x0`, `x1`, ... of these shapes and returns `body(emit, x0, x1, ...)`.

    `emit` binds an expression and returns its variable; the body may return a tuple of variables.
    """
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = body(builder.emit, *inputs)
            outputs = [builder.emit_output(r) for r in result] if isinstance(result, tuple) else None
            output = relax.Tuple(outputs) if outputs else builder.emit_output(result)
        builder.emit_func_output(output)
    return relax.transform.CanonicalizeBindings()(builder.get())


def const(value: Any, dtype: str = "float32") -> Any:
    """A Relax constant."""
    return relax.const(np.asarray(value, dtype=dtype), dtype)


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Normal numbers, the same each time."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def ops(mod: IRModule) -> list[str]:
    """Operator names of `main` in order, without "relax."; "" for what is no operator call."""
    return [op_name(b.value).removeprefix("relax.").removeprefix("nn.") for b in main_bindings(mod)]


def execute(mod: IRModule, *inputs: np.ndarray) -> list[np.ndarray]:
    """Outputs of `main`, compiled by TVM as shipped."""
    return module_outputs(mod, inputs)


def new_context() -> CompileContext:
    """A compile context for this machine."""
    return CompileContext(machine=Machine.detect())


def apply(first: Pass, mod: IRModule, *more: Pass) -> PassResult:
    """Run passes; the result is the last module, with everything that fired or was skipped."""
    context, fired, skipped = new_context(), [], []
    for step in (first, *more):
        result = step(mod, context)
        assert well_formed(result.mod) is None
        mod, fired, skipped = result.mod, [*fired, *result.fired], [*skipped, *result.skipped]
    return PassResult(mod, tuple(fired), tuple(skipped))


def same_output(before: IRModule, after: IRModule, *inputs: np.ndarray, tolerance: float = 1e-6) -> None:
    """Assert that both modules give the same outputs, up to `tolerance` of each output's range."""
    for old, new in zip(execute(before, *inputs), execute(after, *inputs), strict=True):
        assert old.shape == new.shape and old.dtype == new.dtype
        span = max(float(np.abs(old[np.isfinite(old)]).max(initial=0.0)), 1e-30)
        np.testing.assert_allclose(new, old, rtol=0, atol=tolerance * span)


def rewritten(step: Pass, mod: IRModule, *more: Pass, tolerance: float = 1e-6, scale: float = 1.0) -> PassResult:
    """What passes make of a module, which gives the same outputs of random inputs as before."""
    result, shapes = apply(step, mod, *more), [shape_of(parameter) for parameter in mod["main"].params]
    same_output(
        mod, result.mod, *(scale * random(*shape, seed=i) for i, shape in enumerate(shapes)), tolerance=tolerance
    )
    return result


def untouched(step: Pass, mod: IRModule) -> list[str]:
    """The reasons of a pass that leaves a module as it is."""
    result = apply(step, mod)
    assert result.fired == () and result.mod.same_as(mod)
    return [event.detail for event in result.skipped]
