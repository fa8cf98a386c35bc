"""Options of `compile`: one frozen object that checks itself, and says how its fields stand on a command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..runtime.cpu import MOST_THREADS
from ..runtime.pool.waiting import ThreadsWait, checked_wait
from ..runtime.sizes.symbols import Symbol
from .errors import OptionError, check_choice, check_switch, check_whole, choose_of, is_number
from .fusion import FUSION_MODELS, FusionModel
from .numbers.precision import NEEDS_PRECISION, PRECISIONS, Kept, checked_error, checked_kept
from .settings import flags
from .settings.flags import Flag
from .settings.frozen import FrozenInput, frozen_inputs
from .settings.shapes import DEFAULT_SIZES as DEFAULT_SIZES
from .settings.shapes import Shapes as Shapes
from .settings.shapes import checked_bounds, checked_shapes, checked_sizes
from .settings.shapes import names_in as names_in
from .settings.states import State, checked_state

#: Bounds of symbolic dimensions that `dims` says nothing of: of one that stands first in a shape, and of others.
DEFAULT_BATCH, DEFAULT_SIZE = (1, 8), (1, 512)
#: How long `choose="measure"` measures unless `seconds` says otherwise.
DEFAULT_SECONDS = 20.0
#: What may become of nodes that no converter takes.
FALLBACKS = ("error", "onnxruntime")
#: Options that leave the program as it is: they are no part of its key in the cache.
NOT_OF_THE_PROGRAM = ("cache", "seconds", "threads_wait")


def _flag(name: str, metavar: str, help: str, **how: Any) -> dict[str, Flag]:
    """Metadata of a field: its place on the command line."""
    return {"flag": Flag(name, metavar, help, **how)}


@dataclass(frozen=True)
class CompileOptions:
    """How a model is compiled: each field is an option of :func:`tvm_ext.compile` and of every verb that compiles.

    Attributes:
        shapes: input name -> shape, for inputs whose dimensions the model leaves free. A name in the place of a number,
            as in `{"input": ("N", 3, 224, 224)}`, is the batch: the program takes any number of rows, 0 too.
            Of a sequence a list of shapes, one for each of its tensors, as in `{"seq": [(2, 3), (4, 3)]}`; None of an
            optional that is absent.
        dims: name of a symbolic dimension -> its smallest and largest size, as in `{"N": (1, 8), "S": (1, 512)}`: one
            program, planned at the largest sizes, runs all of them. With `dims`, or with several names in `shapes`, a
            name without bounds has those of a batch, 1 to 8, if it stands first in a shape, else 1 to 512. A size of 0
            is among them where it is the stated smallest one, and the model is defined there.
        specialize: name of a symbolic dimension -> sizes that have programs of their own, as in `{"S": (32, 128)}`:
            beside the one of any size, in the same artifact, over the same weights. With several names there is one for
            each combination. Of a batch without bounds, of a model that works on each row by itself, all other sizes
            are composed of them; the default is then (1, 4, 16).
        freeze: input name -> value, for inputs that are the same in every run: they are inputs no more. What decides a
            shape (axes, pads, repeats, k, sizes) must be an initializer of the model, or be frozen.
        state: output name -> input name, for outputs of a call that are inputs of the next: caches, hidden states.
            "auto" pairs them by the usual names (present.X -> past.X, stateN -> state, hn -> h0, X_out -> X) where
            shape and dtype are equal. :meth:`tvm_ext.runtime.model.CompiledModel.session` keeps them between calls.
        target: CPU to compile for; see :meth:`tvm_ext.core.Machine.detect`. None is this machine.
        machine: described machine to compile for, with its rates: a name ("zen4") or a JSON file, as
            `tvm-ext machine --json` prints it. None is this machine, or the CPU of `target`.
        threads: threads of the parallel kernels. None takes all cores this process may use.
        fusion: "default" groups each anchor operation with its epilogue; "none" leaves every operation alone; a
            function of a :class:`tvm_ext.core.fusion.FusionCandidate` decides each step itself (such a compile does not
            use the cache: a function has no key).
        accuracy: "default" may use Winograd convolution: rounding stays within 1e-5 of an output's range, and a NaN or
            infinity among activations reaches every output of its tile; grouped and transposed convolutions may add
            products with zeros, by which one reaches outputs of a neighbouring group or phase. "exact" uses only
            kernels that sum the products the operation states.
        precision: "float32": numbers are stored as the model has them. "bf16" or "fp16": operands of convolutions and
            matmuls, and tensors between them, are rounded to bfloat16 or float16; sums, epilogues, softmax and
            normalization, inputs and outputs stay float32. What is beyond 65504 becomes infinite in float16.
        max_error: with "bf16" or "fp16": largest error of the outputs, of their range, as measured on random inputs.
            Layers that would exceed it keep float32, those first that cost most by themselves; see
            :func:`tvm_ext.sensitivity`.
        keep_float32: with "bf16" or "fp16": ONNX nodes that keep float32; names, or a mapping of names to reasons, as
            the report has it under "precision", "kept".
        records: tuning records to use: "auto" takes those shipped with this library; None takes none; a path, or
            several, takes those logs; a folder is a MetaSchedule database. A record is followed where it was measured
            on this machine; one of another machine is a candidate for `choose="measure"`.
        choose: how recipes and configurations are chosen: "estimate" by the cost model (and records of this machine);
            "measure" times the best few of each group on this machine, once: the times are kept in the cache's folder,
            and used where a group comes again.
        seconds: with "measure": about how long may be measured; None takes 20.
        offload: an accelerator's back end that gets part of the model: its name, or a :class:`tvm_ext.byoc.Backend`.
        offload_options: name -> value: settings of the back end, and what it gets: `when` ("pays" or "always"), `skip`
            (names of nodes or operators), `minimum_work` (multiply-adds), `asynchronous` (the CPU goes on while regions
            run); see :class:`tvm_ext.byoc.settings.Offloading`.
        fallback: what becomes of nodes that no converter takes: "error", or "onnxruntime": it runs them, in regions of
            their own, with the reason of each in the report; strings, sequences and sizes that depend on values are
            fine between them. Such a program needs onnxruntime where it runs.
        cache: whether to look in, and write to, the on-disk cache.
        threads_wait: how worker threads wait for the next kernel, or call: None spins for a time bounded by what waking
            them costs, as measured, and then sleeps; "spin" is TVM's own way, a tenth of a second; "sleep" is at once;
            or seconds. One setting for the process, fixed before its first run; no part of the program or its file.

    Raises:
        OptionError: a value does not fit; the message says what would.
    """

    shapes: Shapes = field(default=(), metadata=_flag(
        "--shape", "NAME=1,3,224,224", "shape of an input whose dimensions the model leaves free; once per input; a "
        "name, as in N,3,224,224, is a batch of any size; NAME[0], NAME[1], ... are those of a sequence, and None is "
        "an optional that is absent",
        example="--shape input=1,3,224,224", parse=flags.dims, join=flags.join_named, write=flags.write_dims,
    ))  # fmt: skip
    dims: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), metadata=_flag(
        "--dims", "S=1,512", "smallest and largest size of a symbolic dimension; once per name (default: 1,8 of one "
        "that stands first in a shape, 1,512 of others)", example="--shape input_ids=N,S --dims N=1,8 --dims S=1,512",
        parse=flags.dims, join=flags.join_named, write=flags.write_dims,
    ))  # fmt: skip
    specialize: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), metadata=_flag(
        "--specialize", "S=32,128", "sizes of a symbolic dimension that have programs of their own; once per name "
        "(default: none, 1,4,16 of a batch without bounds)",
        example="--shape input_ids=N,S --dims S=1,512 --specialize S=32,128",
        parse=flags.dims, join=flags.join_named, write=flags.write_dims,
    ))  # fmt: skip
    freeze: tuple[FrozenInput, ...] = field(default=(), metadata=_flag(
        "--freeze", "NAME=1,2,3", "value of an input that is the same in every run, as numbers or NAME=FILE.npy; once "
        "per input", example="--freeze axes=0,2", parse=flags.frozen, join=flags.join_named, write=flags.write_frozen,
    ))  # fmt: skip
    state: State = field(default=(), metadata=_flag(
        "--state", "OUT=IN", "output of a call that is an input of the next, once per pair; or auto, which pairs them "
        "by their names (default: none)",
        example="--state present=past", parse=flags.pair, join=flags.join_pairs, write=flags.write_pairs,
    ))  # fmt: skip
    target: str | None = field(default=None, metadata=_flag(
        "--target", "CPU", "LLVM CPU name, or TRIPLE:CPU (default: this machine)", example="--target haswell",
    ))  # fmt: skip
    machine: str | None = field(default=None, metadata=_flag(
        "--machine", "NAME", "described machine to compile for: zen4, xeon-amx, ... or a JSON file as `tvm-ext machine "
        "--json` prints (default: this machine, measured)", example="--machine zen4",
    ))  # fmt: skip
    threads: int | None = field(default=None, metadata=_flag(
        "--threads", "N", "threads of the parallel kernels (default: all cores this process may use)",
        example="--threads 2", parse=flags.number,
    ))  # fmt: skip
    fusion: str | FusionModel = field(default="default", metadata=_flag(
        "--fusion", "", "grouping of operations: each anchor with its epilogue, or none (default: default)",
        example="--fusion none", choices=tuple(FUSION_MODELS),
        write=lambda value: (value,) if isinstance(value, str) else (),
    ))  # fmt: skip
    accuracy: str = field(default="default", metadata=_flag(
        "--accuracy", "", "exact: no kernels, such as Winograd's, that sum other products than the operations state "
        "(default: default)", example="--accuracy exact", choices=("default", "exact"),
    ))  # fmt: skip
    precision: str = field(default="float32", metadata=_flag(
        "--precision", "", "bf16 or fp16: operands of products and tensors between them in bfloat16 or float16, sums "
        "in float32 (default: float32)",
        example="--precision bf16", choices=PRECISIONS,
    ))  # fmt: skip
    max_error: float | None = field(default=None, metadata=_flag(
        "--max-error", "PART", "with bf16 or fp16: largest error of the outputs, of their range; layers that exceed it "
        "keep float32, as measured", example="--precision bf16 --max-error 0.01", parse=flags.number,
    ))  # fmt: skip
    keep_float32: Kept = field(default=(), metadata=_flag(
        "--keep-float32", "NODE", "with bf16 or fp16: an ONNX convolution or matmul that keeps float32; any number of "
        "times",
        example="--precision bf16 --keep-float32 /conv1/Conv", join=flags.join_words, write=dict,
    ))  # fmt: skip
    records: str | tuple[str, ...] | None = field(default="auto", metadata=_flag(
        "--records", "LOG", "log of tuning records to use, or none; any number of times (default: auto, those shipped "
        "with the library that fit this machine)",
        example="--records model.tuning.json", join=flags.join_records, write=flags.write_records,
    ))  # fmt: skip
    choose: str = field(default="estimate", metadata=_flag(
        "--choose", "", "kernels by estimate, or the best few measured on this machine, once (default: estimate)",
        example="--choose measure", choices=("estimate", "measure"), switches={"--measure": "measure"},
    ))  # fmt: skip
    seconds: float | None = field(default=None, metadata=_flag(
        "--measure-seconds", "S", "with --choose measure: about how long to measure (default: 20)",
        example="--measure --measure-seconds 5", parse=flags.number,
    ))  # fmt: skip
    offload: Any = field(default=None, metadata=_flag(
        "--offload", "NAME", "back end that gets part of the model",
        example="--offload systolic", write=lambda value: (getattr(value, "name", value),),
    ))  # fmt: skip
    offload_options: tuple[tuple[str, Any], ...] = field(default=(), metadata=_flag(
        "--offload-option", "KEY=VALUE", "a setting of the back end, or when=always (default: pays), skip=NODE,OP, "
        "minimum_work=N, asynchronous=true; once per key, skip any number of times; values are JSON, or text",
        example="--offload systolic --offload-option when=always",
        parse=flags.setting, join=flags.join_settings, write=flags.write_settings,
    ))  # fmt: skip
    fallback: str = field(default="error", metadata=_flag(
        "--fallback", "", "nodes that no converter takes: an error, or run by onnxruntime in regions of their own "
        "(default: error)", example="--fallback onnxruntime", choices=FALLBACKS,
    ))  # fmt: skip
    cache: bool = field(default=True, metadata=_flag(
        "--no-cache", "", "neither read nor write the on-disk cache",
        example="--no-cache", switches={"--no-cache": False},
    ))  # fmt: skip
    threads_wait: ThreadsWait = field(default=None, metadata=_flag(
        "--threads-wait", "WAIT", "how worker threads wait for the next kernel: spin, sleep, or seconds of spinning "
        "(default: as long as waking them is worth, then sleep)",
        example="--threads-wait sleep", parse=flags.number,
    ))  # fmt: skip

    def __post_init__(self) -> None:
        for name in FLAGS:
            if getattr(getattr(self, name), "ndim", 0):
                raise OptionError(f"{name} is an array", fix=f"as on a command line: {FLAGS[name].example}")
        object.__setattr__(self, "shapes", checked_shapes(self.shapes))
        object.__setattr__(self, "dims", checked_bounds(self.dims))
        object.__setattr__(self, "specialize", checked_sizes(self.specialize, self.dims))
        object.__setattr__(self, "freeze", frozen_inputs(self.freeze))
        object.__setattr__(self, "state", checked_state(self.state))
        if self.target is not None and not (isinstance(self.target, str) and self.target):
            raise OptionError(f"target={self.target!r}: a CPU name is needed, or None for this machine")
        object.__setattr__(self, "machine", None if self.machine is None else str(self.machine))
        if self.machine is not None and self.target is not None:
            wrong = f"machine={self.machine!r} and target={self.target!r}: a described machine names its CPU"
            raise OptionError(wrong, fix="give one of both")
        if self.threads is not None:
            threads = check_whole("threads", self.threads, 1, MOST_THREADS, fix="leave it out for all cores")
            object.__setattr__(self, "threads", threads)
        for name, flag in FLAGS.items():
            value = getattr(self, name)
            if flag.choices and not (name == "fusion" and callable(value)):
                check_choice(name, value, flag.choices, fix="or give a function" if name == "fusion" else "")
        object.__setattr__(self, "max_error", checked_error(self.max_error, self.precision))
        object.__setattr__(self, "keep_float32", checked_kept(self.keep_float32))
        if self.keep_float32 and self.precision == "float32":
            names = [name for name, _ in self.keep_float32]
            raise OptionError(f"keep_float32={names} with precision='float32'", fix=NEEDS_PRECISION)
        object.__setattr__(self, "records", _checked_records(self.records))
        object.__setattr__(self, "seconds", _checked_seconds(self.choose, self.seconds))
        object.__setattr__(self, "offload_options", _checked_offload(self.offload, self.offload_options))
        check_switch("cache", self.cache)
        object.__setattr__(self, "threads_wait", checked_wait(self.threads_wait))

    @classmethod
    def of(cls, **stated: Any) -> CompileOptions:
        """Build from keywords; an unknown one is an error that suggests the nearest.

        Args:
            **stated: fields.

        Raises:
            OptionError: an unknown name or a bad value.
        """
        names = [f.name for f in fields(cls)]
        for name in stated:
            if name not in names:
                raise OptionError(f"unknown compile option {name!r}", fix=choose_of(name, "options", names))
        return cls(**stated)

    @property
    def by_rows(self) -> bool:
        """Whether what is symbolic is one batch without bounds, which may be composed of programs of several sizes."""
        several = any(sum(isinstance(d, str) for d in dims) > 1 for _, dims in self.shapes)
        return len(names_in(self.shapes)) == 1 and not several and not self.dims

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbolic dimensions, with the bounds that one program for all sizes is planned at."""
        bounds, exact = dict(self.dims), dict(self.specialize)
        defaults = {name: DEFAULT_BATCH if leads else DEFAULT_SIZE for name, leads in names_in(self.shapes).items()}
        wide = {name: (low, max(high, *exact.get(name, (1,)))) for name, (low, high) in defaults.items()}
        return tuple(Symbol(name, *bounds.get(name, default)) for name, default in wide.items())

    def named(self, shapes: Mapping[str, tuple[int | str, ...]]) -> CompileOptions:
        """These options with shapes that name all free dimensions."""
        return replace(self, shapes=tuple(shapes.items()))

    def at(self, sizes: Mapping[str, int]) -> CompileOptions:
        """These options with numbers for symbolic dimensions, some or all; those that are left have no exact sizes."""
        shapes = tuple((name, tuple(sizes.get(str(d), d) for d in dims)) for name, dims in self.shapes)
        dims = tuple((name, bounds) for name, bounds in self.dims if name not in sizes)
        return replace(self, shapes=shapes, dims=dims, specialize=())

    @property
    def stated_sizes(self) -> dict[str, int]:
        """Name of a dimension -> the last size that `specialize` names, else the largest that `dims` has."""
        return {name: sizes[-1] for name, sizes in (*self.dims, *self.specialize)}

    @property
    def symbol(self) -> str | None:
        """The name of a symbolic batch that is composed of programs of several sizes; None if there is none."""
        return next(iter(names_in(self.shapes))) if self.by_rows else None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of such a batch that programs are made for, ascending; none if there is none."""
        return dict(self.specialize).get(self.symbol, DEFAULT_SIZES) if self.symbol else ()

    def with_dims(self, dims: Mapping[str, tuple[int, ...]]) -> CompileOptions:
        """These options with bounds of symbolic dimensions.

        Args:
            dims: name -> smallest and largest size.
        """
        return replace(self, dims=tuple(dims.items()))

    def bound(self, size: int) -> CompileOptions:
        """These options with a number for the symbolic batch.

        Args:
            size: of it.
        """
        return self.at(dict.fromkeys(names_in(self.shapes), size))

    def arguments(self) -> list[str]:
        """Arguments of the command line that say the same; a function, which has no text, is left out."""
        default = CompileOptions()
        chosen = [name for name in FLAGS if getattr(self, name) != getattr(default, name)]
        return [word for name in chosen for word in FLAGS[name].arguments(getattr(self, name))]


#: Option -> how it is written on a command line.
FLAGS: dict[str, Flag] = {option.name: option.metadata["flag"] for option in fields(CompileOptions)}


def _checked_records(records: Any) -> str | tuple[str, ...] | None:
    if records is None or records == "auto":
        return None if records is None else "auto"
    paths = (records,) if isinstance(records, str | os.PathLike) else records
    try:
        return tuple(os.fspath(path) for path in paths)
    except TypeError:
        wrong = f"records={records!r}: 'auto', None, the path of a log, or several are needed"
        raise OptionError(wrong) from None


def _checked_seconds(choose: Any, seconds: Any) -> float | None:
    if seconds is None:
        return DEFAULT_SECONDS if choose == "measure" else None
    if choose != "measure":
        raise OptionError(f"seconds={seconds!r} with choose={choose!r}", fix="give choose='measure' with it")
    if not (is_number(seconds) and seconds > 0):
        raise OptionError(f"seconds={seconds!r}: a number above 0 is needed")
    return float(seconds)


def _checked_offload(offload: Any, options: Any) -> tuple[tuple[str, Any], ...]:
    if offload is not None and not isinstance(getattr(offload, "name", offload), str):
        raise OptionError(f"offload={offload!r}: the name of a back end is needed, a Backend, or None")
    try:
        pairs = tuple(sorted(dict(options or {}).items()))
    except (TypeError, ValueError):
        pairs = ((1, None),)
    if not all(isinstance(name, str) for name, _ in pairs):
        fix = "for example offload_options={'when': 'always'}"
        raise OptionError(f"offload_options={options!r}: names with their values are needed", fix=fix)
    if pairs and offload is None:
        raise OptionError(f"offload_options={dict(pairs)!r} without offload", fix="give offload='systolic'")
    return pairs
