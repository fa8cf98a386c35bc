"""Options of `compile`: one frozen object that checks itself when it is made."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..runtime.waiting import ThreadsWait, checked_wait
from .errors import OptionError
from .frozen import FrozenInput, frozen_inputs
from .fusion import FUSION_MODELS, FusionModel
from .precision import PRECISIONS, Kept, checked_error, checked_kept

#: Batches a symbolic model is specialized for unless `specialize` says otherwise.
DEFAULT_SIZES = (1, 4, 16)

Shapes = tuple[tuple[str, tuple[int | str, ...]], ...]


#: Options that leave the program as it is.
NOT_OF_THE_PROGRAM = ("cache", "threads_wait")


@dataclass(frozen=True)
class CompileOptions:
    """How a model is compiled.

    Attributes:
        shapes: input name -> shape, for inputs whose dimensions the model leaves free. A name in the place of a number,
            as in `{"input": ("N", 3, 224, 224)}`, is the batch: the program takes any number of rows, 1 or more.
        specialize: name of the batch -> sizes that programs are made for, as in `{"N": (1, 4, 16)}`, which is the
            default; other sizes are composed of them. It takes a model that works on each row by itself.
        freeze: input name -> value, for inputs that are the same in every run: they are inputs no more. What decides a
            shape (axes, pads, repeats, k, sizes) must be an initializer of the model, or be frozen.
        target: CPU to compile for; see :meth:`tvm_ext.core.Machine.detect`. None is this machine.
        threads: threads of the parallel kernels. None takes all cores this process may use.
        fusion: "default" groups each anchor operation with its epilogue; "none" leaves every operation alone; a
            function of a :class:`tvm_ext.core.fusion.FusionCandidate` decides each step itself (such a compile does not
            use the cache: a function has no key).
        accuracy: "default" may use Winograd convolution: rounding stays within 1e-5 of an output's range, and a NaN or
            infinity among activations reaches every output of its tile; grouped and transposed convolutions may add
            products with zeros, by which one reaches outputs of a neighbouring group or phase. "exact" uses only
            kernels that sum the products the operation states.
        precision: "float32", or "bf16": operands of convolutions and matmuls, and tensors between them, are rounded to
            bfloat16; sums, epilogues, softmax and normalization, inputs and outputs stay float32.
        max_error: with "bf16": largest error of the outputs, of their range, as measured on random inputs. Layers that
            would exceed it keep float32, those first that cost most by themselves; see :func:`tvm_ext.sensitivity`.
        keep_float32: with "bf16": ONNX nodes that keep float32; names, or a mapping of names to reasons, as the report
            has it under "precision", "kept".
        records: tuning records to use: "auto" takes those shipped with this library, where instruction set and number
            of threads fit; None takes none; a path, or several, takes those logs; a folder is a MetaSchedule database.
        offload: an accelerator's back end that gets part of the model: its name, or a :class:`tvm_ext.byoc.Backend`.
        offload_options: name -> value: settings of the back end, and what it gets: `when` ("pays" or "always"), `skip`
            (names of nodes or operators), `minimum_work` (multiply-adds); see
            :class:`tvm_ext.byoc.settings.Offloading`.
        cache: whether to look in, and write to, the on-disk cache.
        threads_wait: how worker threads wait for the next kernel, or call: None spins for a time bounded by what waking
            them costs, as measured, and then sleeps; "spin" is TVM's own way, a tenth of a second; "sleep" is at once;
            or seconds. One setting for the process, fixed before its first run; no part of the program or its file.

    Raises:
        OptionError: a value does not fit; the message says what would.
    """

    shapes: Shapes = field(default=())
    specialize: tuple[tuple[str, tuple[int, ...]], ...] = field(default=())
    freeze: tuple[FrozenInput, ...] = field(default=())
    target: str | None = None
    threads: int | None = None
    fusion: str | FusionModel = "default"
    accuracy: str = "default"
    precision: str = "float32"
    max_error: float | None = None
    keep_float32: Kept = field(default=())
    records: str | tuple[str, ...] | None = "auto"
    offload: Any = None
    offload_options: tuple[tuple[str, Any], ...] = field(default=())
    cache: bool = True
    threads_wait: ThreadsWait = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes", _checked_shapes(self.shapes))
        object.__setattr__(self, "specialize", _checked_sizes(self.specialize, _symbol_of(self.shapes)))
        object.__setattr__(self, "freeze", frozen_inputs(self.freeze))
        if self.target is not None and not (isinstance(self.target, str) and self.target):
            raise OptionError(f"target={self.target!r}: a CPU name is needed, or None for this machine")
        if self.threads is not None and (
            isinstance(self.threads, bool) or not isinstance(self.threads, int) or not 1 <= self.threads <= 1024
        ):
            raise OptionError(f"threads={self.threads!r}: a whole number from 1 to 1024, or None for all cores")
        if not callable(self.fusion) and self.fusion not in FUSION_MODELS:
            raise OptionError(
                f"fusion={self.fusion!r}: choose {', '.join(map(repr, FUSION_MODELS))}, or give a function"
            )
        if self.accuracy not in ("default", "exact"):
            raise OptionError(f"accuracy={self.accuracy!r}: choose 'default' or 'exact'")
        if self.precision not in PRECISIONS:
            raise OptionError(f"precision={self.precision!r}: choose {' or '.join(map(repr, PRECISIONS))}")
        object.__setattr__(self, "max_error", checked_error(self.max_error, self.precision))
        object.__setattr__(self, "keep_float32", checked_kept(self.keep_float32))
        if self.keep_float32 and self.precision == "float32":
            names = [name for name, _ in self.keep_float32]
            raise OptionError(f"keep_float32={names} with precision='float32'", fix="give precision='bf16' with it")
        object.__setattr__(self, "records", _checked_records(self.records))
        object.__setattr__(self, "offload_options", _checked_offload(self.offload, self.offload_options))
        if not isinstance(self.cache, bool):
            raise OptionError(f"cache={self.cache!r}: choose True or False")
        object.__setattr__(self, "threads_wait", checked_wait(self.threads_wait))

    @classmethod
    def of(cls, **given: Any) -> CompileOptions:
        """Build from keywords; an unknown one is an error that suggests the nearest.

        Raises:
            OptionError: an unknown name or a bad value.
        """
        names = [f.name for f in fields(cls)]
        for name in given:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise OptionError(f"unknown compile option {name!r}", fix=f"{hint}options: {', '.join(names)}")
        return cls(**given)

    @property
    def symbol(self) -> str | None:
        """The name of the symbolic batch; None if all shapes are numbers."""
        return self.specialize[0][0] if self.specialize else None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the batch that programs are made for, ascending; none if nothing is symbolic."""
        return self.specialize[0][1] if self.specialize else ()

    def bound(self, size: int) -> CompileOptions:
        """These options with a number for the symbolic batch."""
        shapes = tuple((name, tuple(size if isinstance(d, str) else d for d in dims)) for name, dims in self.shapes)
        return replace(self, shapes=shapes, specialize=())


def _checked_records(records: Any) -> str | tuple[str, ...] | None:
    if records is None or records == "auto":
        return None if records is None else "auto"
    paths = (records,) if isinstance(records, str | os.PathLike) else records
    try:
        return tuple(os.fspath(path) for path in paths)
    except TypeError:
        wrong = f"records={records!r}: 'auto', None, the path of a log, or several are needed"
        raise OptionError(wrong) from None


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


def _checked_shapes(shapes: Any) -> Shapes:
    pairs = shapes.items() if isinstance(shapes, Mapping) else (shapes or ())
    checked = []
    for pair in pairs:
        try:
            name, shape = pair
            dims = _dims(shape)
        except (TypeError, ValueError):
            dims, name = None, pair
        if not isinstance(name, str) or dims is None:
            raise OptionError(
                f"shapes={shapes!r}: every entry is an input name and a tuple of whole numbers, 0 or more, or names",
                fix="for example shapes={'input': (1, 3, 224, 224)}, or ('N', 3, 224, 224) for any batch N",
            )
        checked.append((name, dims))
    return tuple(sorted(checked, key=lambda pair: pair[0]))


def _dims(shape: Any) -> tuple[int | str, ...] | None:
    """Whole numbers and names; None if something else is among them."""
    if isinstance(shape, str):
        return None
    dims = tuple(d if isinstance(d, str) else int(d) for d in shape)
    fit = all(d.isidentifier() if isinstance(d, str) else d >= 0 for d in dims)
    return dims if fit else None


def _symbol_of(shapes: Shapes) -> str | None:
    """The one name among the dimensions.

    Raises:
        OptionError: there are several.
    """
    names = sorted({dim for _, dims in shapes for dim in dims if isinstance(dim, str)})
    if len(names) > 1 or any(sum(isinstance(d, str) for d in dims) > 1 for _, dims in shapes):
        raise OptionError(
            f"shapes={dict(shapes)!r}: {', '.join(map(repr, names))}: one dimension can be symbolic, the batch",
            fix="give numbers for the others",
        )
    return names[0] if names else None


def _checked_sizes(specialize: Any, symbol: str | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    try:
        given = dict(specialize or {})
    except (TypeError, ValueError):  # no pairs of name and sizes
        given = {repr(specialize): ()}
    wrong = [name for name in given if name != symbol]
    if wrong:
        fix = f"the symbolic dimension is {symbol!r}" if symbol else "name it: shapes={'input': ('N', 3, 224, 224)}"
        raise OptionError(f"specialize={specialize!r}: no dimension in `shapes` is {wrong[0]!r}", fix=fix)
    if symbol is None:
        return ()
    sizes = given.get(symbol, DEFAULT_SIZES)
    whole = not isinstance(sizes, str | int) and all(type(n) is int and n >= 1 for n in sizes)
    if not whole or not sizes:
        raise OptionError(
            f"specialize={specialize!r}: sizes are whole numbers, 1 or more",
            fix=f"for example specialize={{{symbol!r}: {DEFAULT_SIZES}}}",
        )
    return ((symbol, tuple(sorted(set(sizes)))),)
