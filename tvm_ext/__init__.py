"""tvm-ext: an ONNX model goes in, a checked, fast, deployable CPU program comes out. Built on the stock apache-tvm.

    import tvm_ext

    compiled = tvm_ext.compile("resnet18.onnx")
    outputs = compiled.run({"input": x})
    print(tvm_ext.verify(compiled, model="resnet18.onnx"))

Importing this package is cheap: TVM, ONNX and numpy are imported by the first function that needs them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .core.collector import rare_collections as _rare_collections

if TYPE_CHECKING:
    import numpy as np

    from .benchmarking.table import BenchmarkTable
    from .core import errors as errors
    from .core.options import CompileOptions as CompileOptions
    from .driver.session import InferenceSession as InferenceSession
    from .driver.stages.resume import resume as resume
    from .frontend import zoo as zoo
    from .inspection.analysis import analyze as analyze
    from .inspection.estimates import estimate as estimate
    from .inspection.inspection import inspect as inspect
    from .inspection.memory import memory_plan as memory_plan
    from .inspection.profile import Profile
    from .inspection.report import report as report
    from .precision.sensitivity import sensitivity as sensitivity
    from .quantization.quantize import quantize as quantize
    from .runtime.language.generation import PromptCache as PromptCache
    from .runtime.language.generation import generate as generate
    from .runtime.language.scheduler import Scheduler as Scheduler
    from .runtime.model import CompiledModel
    from .runtime.model import load as load
    from .tuning.templates.template import template as template
    from .tuning.tune import tune as tune
    from .verification.bisect import bisect as bisect
    from .verification.layers import LayerReport
    from .verification.verify import VerifyReport

    __version__: str

__all__ = [
    "CompileOptions", "InferenceSession", "PromptCache", "Scheduler", "__version__", "analyze", "benchmark", "bisect",
    "compile", "errors", "estimate", "generate", "inspect", "load", "memory_plan", "profile", "quantize", "report",
    "resume", "sensitivity", "template", "tune", "verify", "zoo",
]  # fmt: skip

# name -> (module, attribute); an empty attribute is the module itself
_LAZY = {
    "CompileOptions": ("tvm_ext.core.options", "CompileOptions"),
    "InferenceSession": ("tvm_ext.driver.session", "InferenceSession"),
    "PromptCache": ("tvm_ext.runtime.language.generation", "PromptCache"),
    "Scheduler": ("tvm_ext.runtime.language.scheduler", "Scheduler"),
    "analyze": ("tvm_ext.inspection.analysis", "analyze"),
    "bisect": ("tvm_ext.verification.bisect", "bisect"),
    "errors": ("tvm_ext.core.errors", ""),
    "estimate": ("tvm_ext.inspection.estimates", "estimate"),
    "generate": ("tvm_ext.runtime.language.generation", "generate"),
    "inspect": ("tvm_ext.inspection.inspection", "inspect"),
    "load": ("tvm_ext.runtime.model", "load"),
    "memory_plan": ("tvm_ext.inspection.memory", "memory_plan"),
    "quantize": ("tvm_ext.quantization.quantize", "quantize"),
    "report": ("tvm_ext.inspection.report", "report"),
    "resume": ("tvm_ext.driver.stages.resume", "resume"),
    "sensitivity": ("tvm_ext.precision.sensitivity", "sensitivity"),
    "template": ("tvm_ext.tuning.templates.template", "template"),
    "tune": ("tvm_ext.tuning.tune", "tune"),
    "zoo": ("tvm_ext.frontend.zoo", ""),
}


def compile(model: Any, **options: Any) -> CompiledModel:
    """Compile an ONNX model for a CPU.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        **options: fields of :class:`CompileOptions`, which explains them: `shapes`, `dims`, `specialize`, `freeze` of
            inputs, `state`, `target`, `machine` and `threads`, `fusion`, `accuracy`, `precision` with `max_error` and
            `keep_float32`, `records`, `choose` with `seconds`, `offload` with `offload_options`, `fallback`,
            `cache`, `threads_wait`.

    Returns:
        A program: `run` takes and returns numpy arrays by their ONNX names, from any number of threads;
        `report` says what was done and why; `export` writes one file that :func:`load` reads.

    Raises:
        OptionError: an unknown option or a bad value.
        ModelError: the model is no valid ONNX, is incomplete, or leaves dimensions free that `shapes` does not bind,
            and is no program for all sizes.
        UnsupportedError: a node cannot be compiled; the message names it.
    """
    with _rare_collections:
        from .driver.compile import compile_model

    _measure_choices(model, options)
    return compile_model(model, **options)


def verify(
    compiled: Any, model: Any = None, inputs: Mapping[str, np.ndarray] | None = None, *, seed: int = 0,
    reference: Mapping[str, np.ndarray] | None = None, tolerance: float | None = None, layers: bool = False,
    sizes: Sequence[Mapping[str, int]] | None = None,
) -> VerifyReport | LayerReport:  # fmt: skip
    """Run a compiled model and onnxruntime on the same inputs and compare every output, or every layer too.

    Args:
        compiled: what :func:`compile` or :func:`load` returned; or a model, which is compiled with the default options.
        model: the ONNX model it came from: path, bytes or `onnx.ModelProto`. Not needed with `reference`.
        inputs: name -> array; None draws them: floats standard normal, integers of a small range, booleans random.
        seed: seed of the drawn inputs.
        reference: expected outputs by name, instead of running onnxruntime.
        tolerance: largest error of a floating-point output, as a part of the output's range; None takes the
            default of its dtype (1e-5 for float32).
        layers: compare what each kernel writes with onnxruntime's value there, too, each kernel on the reference's
            operands, within tolerances by dtype, length of sums and magnitudes.
        sizes: of a model of symbolic dimensions: the sizes to check, `[{"N": 3, "S": 37}, ...]`; None takes the ends of
            their bounds, two that are drawn by `seed`, and one of each program of fixed sizes.

    Returns:
        A report: `ok`, one row an output (max abs, of-range, ULP, cosine, NaN and Inf), `str()` prints a table. With
        `layers` a row a kernel's value, `first_bad`, and `outputs`, the report of the outputs.

    Raises:
        OptionError: neither `model` nor `reference` was given; or `layers` and no `model`, or with `sizes`.
        InputError: `inputs` do not fit the model.
        ModelError: the model cannot be read.
        UnsupportedError: onnxruntime cannot run the model.
    """
    from .core.errors import check_switch
    from .verification.verify import compiled_of
    from .verification.verify import verify as run_verify

    check_switch("layers", layers)
    compiled, model = compiled_of(compiled, model, needs_model=reference is None)
    if not layers:
        return run_verify(compiled, model, inputs, seed=seed, reference=reference, tolerance=tolerance, sizes=sizes)
    from .verification.layer_check import check_layers

    return check_layers(compiled, model, inputs, seed=seed, reference=reference, tolerance=tolerance, sizes=sizes)


def benchmark(
    model: Any, against: Sequence[str] = ("onnxruntime",), threads: int | None = None, *, rounds: int = 9,
    seconds_per_round: float = 0.5, seed: int = 0, timeout: float = 600.0,
    inputs: Mapping[str, np.ndarray] | None = None, python: str | Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None, **options: Any,
) -> BenchmarkTable:  # fmt: skip
    """Time a model against other runtimes, each in a process of its own, in interleaved rounds.

    The figure is the median over rounds of (our round's minimum / the other's round's minimum). Outputs of all are
    compared with onnxruntime's first; a row whose outputs disagree has no time.

    Args:
        model: a path, the bytes of an ONNX file, or an `onnx.ModelProto`.
        against: any of "onnxruntime", "openvino", "torch" (by onnx2torch and `torch.compile`) and "tvm" (stock
            `tvm.compile`, as shipped).
        threads: threads of every contender; None takes every core this process may use.
        rounds: interleaved rounds, 7 or more.
        seconds_per_round: how long each contender runs in a round; a slower one runs once.
        seed: seed of the inputs.
        timeout: seconds a contender may take to prepare, or for one round.
        inputs: name -> array for inputs whose values matter, such as token ids; the others are drawn.
        python: the Python that has the peers: one path for all but onnxruntime, or contender -> path. It needs
            numpy and the peer's packages, and nothing of this library.
        sizes: of symbolic dimensions, `{"N": 3, "S": 37}`, at which all are timed; None takes those of `inputs`, or the
            largest. Peers that compile get them as fixed sizes.
        **options: compile options of our side, as for :func:`compile`.

    Returns:
        A table: `str()` and `markdown()` print it with the machine; `warnings` says when it was too noisy to tell.

    Raises:
        OptionError: an unknown contender or option, or too few rounds.
        InputError: `inputs` do not fit the model.
        ModelError: the model cannot be read.
    """
    from .benchmarking.benchmark import benchmark as run_benchmark

    _measure_choices(model, {**options, "threads": threads})
    return run_benchmark(
        model, against, threads, rounds=rounds, seconds_per_round=seconds_per_round, seed=seed, timeout=timeout,
        inputs=inputs, python=python, sizes=sizes, **options,
    )  # fmt: skip


def profile(
    model: Any,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    rounds: int = 7,
    seconds: float = 0.1,
    batch: int | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    code: bool = True,
    **options: Any,
) -> Profile:
    """Time every kernel of a model inside the model, against what this machine can do.

    Runs with a look at every kernel and undisturbed runs take turns; what looking costs is measured and subtracted.
    The machine's multiply-adds and bandwidth are measured on the model's number of threads, before and after.

    Args:
        model: a path, the bytes of an ONNX file, an `onnx.ModelProto`, the path of an exported model, or what
            :func:`compile` or :func:`load` returned; only of an ONNX model are there facts of the machine code.
        inputs: name -> array; None draws them.
        rounds: interleaved rounds; intervals of 95 % need 6.
        seconds: how long each side runs in a round, once at least.
        batch: rows of a symbolic batch; None takes those of `inputs`, or the largest size there is a program for.
        sizes: of symbolic dimensions, `{"N": 3, "S": 37}`; None takes those of `inputs`, or the largest. Operations and
            bytes of kernels are known at the bounds, and at the own sizes of a program in which all are fixed.
        seed: of the drawn inputs.
        code: count instructions in the assembly of the kernels; the model is then compiled in this process.
        **options: compile options, as for :func:`compile`; none for a model that is compiled already.

    Returns:
        A profile: `rows(group_by)`, `str()` prints them; `trace(path)`, `roofline()`, `save(path)`, `compare(other)`.

    Raises:
        OptionError: a bad option, or options for a model that is compiled already.
        InputError: `inputs` do not fit the model.
        UnsupportedError: the model has no kernels.
        ModelError, ArtifactError: the model cannot be read.
    """
    from .inspection.profile import profile_model

    _measure_choices(model, options)
    return profile_model(
        model, inputs, rounds=rounds, seconds=seconds, batch=batch, sizes=sizes, seed=seed, code=code, **options
    )


def _measure_choices(model: Any, options: Mapping[str, Any]) -> None:
    """With `choose="measure"`: measure what the timing cache lacks; whatever compiles later follows the cache."""
    if str(options.get("choose")) == "measure":
        from .tuning.choose import measure_choices

        measure_choices(model, **options)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _LAZY:
        module, attribute = _LAZY[name]
        with _rare_collections:
            value = importlib.import_module(module)
        value = getattr(value, attribute) if attribute else value
    else:
        raise AttributeError(f"module 'tvm_ext' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("tvm-ext")
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"
