"""What a session runs: a model of one program, or one with free dimensions and a program a set of input shapes."""

import os
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import InputError, ModelError, OptionError, ProgramError, UnsupportedError
from ...core.options import CompileOptions, Shapes
from ...core.settings.shapes import check_names
from ...frontend.reading.outline import Outline, outline_of
from ...frontend.reading.reader import fingerprint
from ...frontend.reading.shapes import Dim, bound_dims, named_dims
from ...runtime.library import ELF_MAGIC, is_artifact
from ...runtime.model import CompiledModel, load
from ...runtime.pool.threads import available_cores, dispatcher
from .bounds import Bounds
from .compiling import Compiler
from .feed import Feeds, Input, checked_mapping, converted
from .node_args import ModelMeta, NodeArg, element_dtype
from .programs import COMPILED, Programs
from .report import SessionReport, ShapesRow
from .stand_in import StandIn

#: `on_miss`, `max_programs`, `compile_after`, `any_size`.
Policy = tuple[str, int, int, bool]


class FixedModel:
    """A model of one program, which takes whatever shapes there are.

    Args:
        program: of the model.
        outline: of the ONNX model; None of an exported one.
    """

    def __init__(self, program: CompiledModel, outline: Outline | None) -> None:
        self.program, self._outline = program, outline
        sides = (program.arguments, program.inputs), (program.results, program.outputs)
        self.inputs, self.outputs = ([NodeArg.of(value, specs) for value in values] for values, specs in sides)
        self.overridable: list[NodeArg] = []
        self._called, self._lock = 0, threading.Lock()
        self._bounds, self._fixed = Bounds.of(program), Counter[str]()
        self._several = bool(program.symbols) and len(program.metadata.programs) > 1

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickled as program and outline."""
        return FixedModel, (self.program, self._outline)

    def run(self, names: Sequence[str], feed: Mapping[str, Any], run_options: Any) -> list[np.ndarray]:
        """Outputs of a call."""
        checked_mapping(feed)
        if not all(type(value) is np.ndarray for value in feed.values()):
            dtypes = {spec.name: spec.numpy_dtype for spec in self.program.inputs}
            known = {name for name, value in feed.items() if name in dtypes and value is not None}
            feed = {n: converted(v, n, dtypes[n]) if n in known else v for n, v in feed.items()}
        outputs = self.program.run(feed)
        fixed = ""  # sizes that are fixed in the program that ran
        if self._several:
            tensors = self.program.tensors_of(feed)
            fixed = self._bounds.fixed(tuple((name, np.shape(tensors[name])) for name in self._bounds.inputs))
        with self._lock:
            self._called += 1
            if fixed:
                self._fixed[fixed] += 1
        return [outputs[name] for name in names]

    def compile_for(self, shapes: Mapping[str, Sequence[int]]) -> CompiledModel:
        """The one program that there is, if the shapes fit it."""
        Feeds([Input(spec.name, spec.shape, spec.numpy_dtype) for spec in self.program.inputs]).shapes_of(shapes)
        return self.program

    def wait_compiled(self, timeout: float | None) -> bool:
        """True: nothing is pending."""
        return True

    def close(self) -> None:
        """Nothing runs in the background."""

    def meta(self) -> ModelMeta:
        """Names and properties."""
        model = self.program.metadata.model
        return ModelMeta.of_artifact(model) if self._outline is None else ModelMeta.of(self._outline, model["sha256"])

    def report(self) -> SessionReport:
        """The calls as one row: all were compiled."""
        fixed = tuple(sorted(self._fixed.items()))
        row = ShapesRow((), 0, self._called, COMPILED, symbols=self._bounds.symbols, fixed=fixed)
        return SessionReport(self.program.metadata.model["name"], (row,))


@dataclass(frozen=True)
class FreeModel:
    """A model with free dimensions.

    Attributes:
        name: for reports.
        feeds: checks of what is passed in.
        programs: for shapes.
        stand_in: onnxruntime, where there is none.
        source: path or bytes of the model; outline: of it.
        inputs: as onnxruntime describes them, with the dimensions that the options fix.
        how: what it was made of.
    """

    name: str
    feeds: Feeds
    programs: Programs
    stand_in: StandIn
    source: bytes | str
    outline: Outline
    inputs: list[NodeArg]
    how: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickled as what it was made of, without its programs; `SessionOptions` of onnxruntime cannot be pickled."""
        return _free_model, self.how

    @property
    def program(self) -> CompiledModel:
        """Raises InputError: there is one for each set of input shapes."""
        wrong = f"model {self.name!r} has free dimensions, and a program for each set of input shapes"
        raise InputError(wrong, fix="session.compile_for({name: shape}) gives it")

    @property
    def outputs(self) -> list[NodeArg]:
        """As onnxruntime describes them."""
        return list(self.stand_in.outputs)

    @property
    def overridable(self) -> list[NodeArg]:
        """Initializers that a call may replace."""
        return list(self.stand_in.overridable)

    def run(self, names: Sequence[str], feed: Mapping[str, Any], run_options: Any) -> list[Any]:
        """Outputs of a call.

        Raises:
            InputError: the inputs do not fit, or have no program and `on_miss="error"`.
            RunError: the program, or onnxruntime, stopped.
        """
        fed = self.feeds.read(feed)
        program = self.programs.program_for(fed.shapes, fed.never)
        if program is not None:
            outputs = program.run(fed.arrays)
            return [outputs[name] for name in names]
        try:
            return self.stand_in.run(names, fed.arrays, run_options)
        except Exception as error:
            if fed.contradiction:
                raise InputError(f"inputs do not fit: {fed.contradiction}", fix="give it one size") from error
            raise

    def compile_for(self, shapes: Mapping[str, Sequence[int]]) -> CompiledModel:
        """The program for these shapes, compiled now if it is not there."""
        return self.programs.compile_for(self.feeds.shapes_of(shapes))

    def wait_compiled(self, timeout: float | None) -> bool:
        """Whether no compile is pending, after so many seconds at most."""
        return self.programs.wait_compiled(timeout)

    def close(self) -> None:
        """End what runs in the background."""
        self.programs.close()

    def meta(self) -> ModelMeta:
        """Names and properties."""
        return ModelMeta.of(self.outline, fingerprint(self.source)[0])

    def report(self) -> SessionReport:
        """The calls of each set of shapes."""
        return self.programs.report(self.name)


def opened(source: Any, sess_options: Any, policy: Policy, keywords: Mapping[str, Any]) -> FixedModel | FreeModel:
    """What a session of this model runs.

    Args:
        source: a path, bytes, or ModelProto.
        sess_options: onnxruntime's, or None.
        policy: `on_miss`, `max_programs`, `compile_after` and `any_size`.
        keywords: options of the compile.

    Raises:
        TvmExtError: see :class:`InferenceSession`.
    """
    if _is_exported(source):
        if more := sorted(set(keywords) - {"threads_wait"}):
            wrong = f"{source}: compiled already; no use for {more}"
            raise OptionError(wrong, fix="give them when the model is compiled")
        return FixedModel(load(source, threads_wait=keywords.get("threads_wait")), None)
    options = {"fallback": "onnxruntime", **_with_session_options(keywords, sess_options)}
    data, outline = _outline(source)
    if any(map(_is_free, outline.inputs.values())):
        free = _free_model(data, outline, sess_options, policy, options)
        if isinstance(free, FreeModel):
            return free
        options["shapes"] = free
    from ..compile import compile_model

    return FixedModel(compile_model(source, **options), outline)


def _free_model(
    source: bytes | str, outline: Outline, sess_options: Any, policy: Policy, keywords: dict[str, Any]
) -> FreeModel | Shapes:
    """The model with its free dimensions; or, if options bind them all, the shapes."""
    options = CompileOptions.of(**keywords)
    frozen = {item.name: item.array() for item in options.freeze}
    stated = {name: dims for name, dims in outline.inputs.items() if name not in frozen}
    name = os.path.basename(source) if isinstance(source, str) else outline.graph_name or "model"
    if unknown := [item for item in frozen if item not in outline.inputs and item not in outline.weights]:
        raise OptionError(f"freeze: {unknown[0]!r} is no input of {name}", fix=f"inputs: {', '.join(outline.inputs)}")
    nested = outline.nested - frozen.keys()
    plain = {key: shape for key, shape in options.shapes if not _owner(key, nested)}
    bound = bound_dims({key: dims for key, dims in stated.items() if key not in nested}, plain, outline.weights, name)
    told = {_owner(key, nested) for key, _ in options.shapes}
    if nested <= told and not any(_is_free(dims, options.symbol) for dims in bound.values()):
        return options.shapes
    if nested:  # how many tensors there are is no size: each number of them has programs of its own
        options, policy = replace(options, shapes=tuple(plain.items())), (*policy[:3], False)
    dispatcher.choose_wait(options.threads_wait)
    stand_in = _stand_in(source, options, sess_options, frozen, name)
    inputs = [_input(arg, bound.get(arg.name)) for arg in stand_in.inputs]
    if not any(item.free for item in inputs):  # by overrides in the session's options
        return tuple((item.name, item.dims) for item in inputs if item.dims is not None)  # type: ignore[misc]
    overridable = [_input(arg, tuple(arg.shape)) for arg in stand_in.overridable]
    described = [replace(arg, shape=_shown(arg, item)) for arg, item in zip(stand_in.inputs, inputs, strict=True)]
    free = [item for item in inputs if item.dims is not None and _is_free(stated.get(item.name))]
    names = {item.name: named_dims(item.name, item.dims or ()) for item in free}
    options = options.named({**dict(options.shapes), **names})
    for option, pairs in (("dims", options.dims), ("specialize", options.specialize)):
        check_names(option, pairs, [symbol.name for symbol in options.symbols], name)
    programs = Programs(Compiler(source, options), *policy)
    if policy[0] == "error":
        programs.compile_any_size()
    how = source, outline, sess_options, policy, keywords
    return FreeModel(name, Feeds(inputs, overridable), programs, stand_in, source, outline, described, how)


def _owner(key: str, nested: Set[str]) -> str:
    """The sequence or optional that an entry of `shapes` is about; "" if it is about none."""
    return next((name for name in nested if key == name or key.startswith(f"{name}[")), "")


def _stand_in(
    source: bytes | str, options: CompileOptions, sess_options: Any, frozen: Mapping[str, np.ndarray], name: str
) -> StandIn:
    """onnxruntime for a model whose shapes are not known.

    Raises:
        UnsupportedError: it does not take the model.
    """
    try:
        return StandIn(source, options.threads or available_cores(), sess_options, frozen)
    except ProgramError as error:
        wrong = f"{name} has free dimensions, for which onnxruntime stands in: {error.message}"
        raise UnsupportedError(wrong, fix="give shapes={...} for them: then all of it is compiled") from error


def _is_free(dims: Sequence[Dim] | None, batch: str | None = None) -> bool:
    """Whether a dimension has no size; that of a batch of any size needs none."""
    return dims is None or not all(isinstance(dim, int) or dim == batch is not None for dim in dims)


def _input(arg: NodeArg, dims: tuple[Dim, ...] | None) -> Input:
    """An input: dimensions as the model and `shapes` have them, and sizes that the session's options give free ones."""
    if dims is not None and len(dims) == len(arg.shape):
        pairs = zip(dims, arg.shape, strict=True)
        dims = tuple(size if isinstance(size, int) and not isinstance(dim, int) else dim for dim, size in pairs)
    return Input(arg.name, dims, element_dtype(arg.type), arg.type)


def _shown(arg: NodeArg, bound: Input) -> list[int | str | None]:
    """Dimensions as onnxruntime writes them, and sizes where the options give them."""
    if bound.dims is None or len(bound.dims) != len(arg.shape):
        return list(bound.dims or ())
    pairs = zip(bound.dims, arg.shape, strict=True)
    return [dim if isinstance(dim, int) else stated for dim, stated in pairs]


def _outline(source: Any) -> tuple[bytes | str, Outline]:
    """Path or bytes of a model, and its outline; an empty one of what cannot be read: the compile says why."""
    try:
        if isinstance(source, str | os.PathLike):
            path = os.path.abspath(os.fspath(source))
            data = Path(path).read_bytes() if os.path.isfile(path) else b""  # a device has no end
            return path, outline_of(data)
        onnx = sys.modules.get("onnx")
        is_proto = onnx is not None and isinstance(source, onnx.ModelProto)
        data = source.SerializeToString() if is_proto else bytes(source)
        return data, outline_of(data)
    except Exception:
        return b"", Outline()


def _with_session_options(options: Mapping[str, Any], sess_options: Any) -> dict[str, Any]:
    """Compile options, with what onnxruntime's say of them.

    Raises:
        OptionError: two different numbers of threads, or no options of a session.
    """
    if sess_options is None:
        return dict(options)
    if not hasattr(sess_options, "intra_op_num_threads"):
        wrong = f"sess_options is {type(sess_options).__name__}"
        raise OptionError(wrong, fix="give onnxruntime.SessionOptions(), or None")
    merged = dict(options)
    if threads := sess_options.intra_op_num_threads:
        if options.get("threads") not in (None, threads):
            both = f"threads={options['threads']!r} and sess_options.intra_op_num_threads={threads!r}"
            raise OptionError(f"two numbers of threads: {both}", fix="set one of them")
        merged["threads"] = threads
    level = getattr(sess_options, "graph_optimization_level", None)
    if getattr(level, "name", "") == "ORT_DISABLE_ALL":
        merged.setdefault("accuracy", "exact")
    if getattr(sess_options, "enable_profiling", False):
        warnings.warn("sess_options.enable_profiling is ignored: tvm_ext.profile times kernels", stacklevel=5)
    return merged


def _is_exported(source: Any) -> bool:
    """Whether this is the path of an exported model.

    Raises:
        ModelError: the bytes of one.
    """
    if isinstance(source, bytes | bytearray | memoryview) and bytes(source[: len(ELF_MAGIC)]) == ELF_MAGIC:
        raise ModelError("these bytes are a shared library, not an ONNX model", fix="pass the artifact's path")
    return is_artifact(source)
