"""From a model, compiled or not, or an artifact, to its profile."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.ir import IRModule

from ...core.errors import OptionError, UnsupportedError, check_switch, check_whole, is_number
from ...core.graph.nodes import kernels_of
from ...core.instruments import Instruments
from ...core.machine import Machine
from ...core.passes import CompileContext
from ...core.sample_inputs import seeded_inputs
from ...driver.compile import compile_model
from ...driver.machine_code import code_of
from ...passes.pipeline import LOWER, MEMORY
from ...runtime.library import is_artifact
from ...runtime.model import CompiledModel, load
from ...runtime.sizes.symbols import dimensions_of, named_sizes, sizes_text
from ...runtime.values import named
from ...verification.environment import describe_machine
from ...verification.sizes import sizes_of
from .clock import measured_overhead
from .code_facts import CodeFacts, facts_of_kernels
from .launch import Launch, launches_of, with_seconds
from .measure import measure
from .profile import Profile
from .roofs import SECONDS, RoofMeter

NO_FACTS = "no facts of the machine code: {}"
_BESIDE = (
    "regions are asynchronous: each is timed by itself, and kernels run beside them in an undisturbed run, which is "
    "shorter than all of them by what overlaps"
)


def profile_model(
    model: Any, inputs: Mapping[str, np.ndarray] | None = None, *, rounds: int = 7, seconds: float = 0.1,
    batch: int | None = None, seed: int = 0, code: bool = True, sizes: Mapping[str, int] | None = None, **options: Any,
) -> Profile:  # fmt: skip
    """Profile a model; see :func:`tvm_ext.profile`."""
    _check(rounds, seconds)
    check_switch("code", code)
    compiled, facts, note = _compiled(model, code, options)
    inputs = None if inputs is None else compiled.tensors_of(named(inputs, "inputs"))
    at = _sizes(compiled, inputs, batch, sizes)
    feeds = inputs if inputs is not None else seeded_inputs(compiled.inputs, seed, sizes=at)
    name, kernels = str(compiled.metadata.model["name"]), frozenset(k["name"] for k in compiled.report["kernels"])
    if not kernels:
        raise UnsupportedError(f"{name} has no kernels: nothing of it is left to compute when it runs")
    compiled.run(feeds)  # says what is wrong with the inputs before anything is measured
    instructions = [kernel.get("instruction", "") for kernel in compiled.report["kernels"]]
    machine = Machine.of(compiled.metadata.machine)
    overhead, a_loop = measured_overhead(), min(SECONDS, max(2.5 * seconds, 0.02))
    meter = RoofMeter(compiled.threads, machine, instructions, a_loop)
    meter.measure()
    measured = measure(compiled, feeds, kernels, rounds, seconds)
    launches, figures = _with_figures(launches_of(measured.order, compiled.report, facts), compiled, at)
    times = measured.seconds(overhead, [launch.arguments for launch in launches])
    bounded = at if compiled.symbols else {}
    beside = _BESIDE if compiled.report.get("offload", {}).get("asynchronous") else ""
    return Profile(
        name, str(compiled.metadata.model["sha256"]), {**describe_machine(), "isa": compiled.metadata.machine["isa"]},
        compiled.threads, 0 if bounded else max(at.values(), default=0), with_seconds(launches, times), measured.whole,
        measured.timelines, meter.measure(), overhead, tuple(text for text in (note, figures, beside) if text), bounded,
    )  # fmt: skip


def _check(rounds: Any, seconds: Any) -> None:
    check_whole("rounds", rounds, 1, fix="7 tell noise from change")
    if not is_number(seconds) or not 0 <= seconds < 3600:
        raise OptionError(f"seconds={seconds!r}: a number from 0 to 3600 is needed")


def _compiled(model: Any, code: bool, options: dict[str, Any]) -> tuple[CompiledModel, dict[str, CodeFacts], str]:
    """The program, the facts of its machine code, and why there are none."""
    if isinstance(model, CompiledModel) or is_artifact(model):
        if options:
            wrong = f"options {', '.join(options)} for a model that is compiled already"
            raise OptionError(wrong, fix="give the ONNX model, or leave them out")
        program = model if isinstance(model, CompiledModel) else load(model)
        return program, {}, NO_FACTS.format("the model was compiled before, and keeps no assembly; give the ONNX model")
    if not code:
        return compile_model(model, **options), {}, NO_FACTS.format("they were not asked for")
    return _compiled_with_facts(model, options)


def _compiled_with_facts(model: Any, options: dict[str, Any]) -> tuple[CompiledModel, dict[str, CodeFacts], str]:
    """Compile in this process, past the cache, so that the assembly is that of the kernels which run."""
    tried: dict[int, IRModule] = {}
    lowered: dict[int, tuple[IRModule, CompileContext]] = {}  # of programs that were kept: their memory is planned

    def watch(step: str, mod: IRModule, ctx: CompileContext) -> None:
        if step == LOWER[-1].name:
            tried[id(ctx)] = mod
        elif step == MEMORY[0].name and id(ctx) in tried:
            lowered[id(ctx)] = tried[id(ctx)], ctx

    compiled = compile_model(model, instruments=Instruments(watch=watch), **options)
    code: dict[str, str] = {}
    for (mod, ctx), program in zip(lowered.values(), compiled.metadata.programs, strict=True):
        suffix = program.function.removeprefix("main")
        texts = code_of(kernels_of(mod), ctx.machine, "asm")
        code.update({f"{name}{suffix}": text for name, text in texts.items()})
    facts, why = facts_of_kernels(code, compiled.metadata.machine["triple"], compiled.metadata.machine["isa"])
    return compiled, facts, why and NO_FACTS.format(why)


def _with_figures(
    launches: tuple[Launch, ...], compiled: CompiledModel, at: Mapping[str, int]
) -> tuple[tuple[Launch, ...], str]:
    """The launches with operations and bytes that are theirs at these sizes, and which have none.

    A program of any size is planned at the bounds of its symbols, and the report is of that.
    """
    bounds = compiled.metadata.program_at(at).planned if compiled.symbols else {}
    if bounds and bounds != at:
        note = (
            f"operations and bytes of kernels are known at the sizes that the program is planned at, "
            f"{sizes_text(bounds)}, and not at {sizes_text(at)}"
        )
        return tuple(replace(launch, flops=None, executed=None, bytes=None) for launch in launches), note
    unknown = sorted({launch.kernel for launch in launches if launch.flops is None or launch.bytes is None})
    return launches, f"operations of {', '.join(unknown)} are not known" if unknown else ""


def _sizes(
    compiled: CompiledModel, inputs: Mapping[str, np.ndarray] | None, batch: int | None, sizes: Mapping[str, int] | None
) -> dict[str, int]:
    """Sizes of the symbolic dimensions; none of a model of numbers.

    Raises:
        OptionError: a batch for a model that has none, or no whole number; sizes that do not fit; or either, and the
            inputs have others.
        InputError: the inputs fit no sizes.
    """
    dimensions = dimensions_of(compiled.inputs, compiled.symbols)
    if batch is not None:
        if compiled.symbols or not dimensions:
            wrong = f"batch={batch!r}, and {compiled.metadata.model['name']!r} has no symbolic batch"
            raise OptionError(wrong, fix=_fix_of(compiled))
        batch = check_whole("batch", batch, 1)
        if sizes is not None:
            raise OptionError(f"batch={batch} and sizes={sizes!r}", fix="give one of both")
        sizes = {dimensions[0].name: batch}
    stated = sizes_of(compiled, sizes)
    if inputs is None or any(spec.name not in inputs for spec in compiled.inputs):
        return stated
    shapes = [np.shape(inputs[spec.name]) for spec in compiled.inputs]
    own = named_sizes(compiled.inputs, shapes, dimensions) if dimensions else {}
    if sizes is not None and own != stated:
        raise OptionError(f"the inputs have {sizes_text(own)}, not {sizes_text(stated)}", fix="leave the sizes out")
    return own


def _fix_of(compiled: CompiledModel) -> str:
    if compiled.symbols:
        return f"give sizes of {', '.join(symbol.name for symbol in compiled.symbols)}: sizes="
    return f"compile it with shapes={{{compiled.inputs[0].name!r}: ('N', ...)}}"
