"""Which layers keep float32 so that a bound on the error of the outputs holds; measured once in a process."""

from __future__ import annotations

from dataclasses import replace

from ..core.options import CompileOptions
from ..frontend.reading.reader import Source
from .sensitivity import Sensitivity, sensitivity_of

#: (model, what of the options counts) -> what was measured in this process: a model is read again for its check and for
#: each look inside.
_known: dict[tuple[object, ...], Sensitivity] = {}


def measured(source: Source, options: CompileOptions) -> Sensitivity | None:
    """The sensitivity run that `max_error` asks for; None without one.

    Raises:
        OptionError: the bound leaves no layer to round.
        UnsupportedError: onnxruntime cannot run the model.
    """
    if options.max_error is None:
        return None
    bound = options.bound(min(options.sizes)) if options.sizes else options
    key = (source.sha256, bound.shapes, bound.freeze, bound.max_error, bound.keep_float32, bound.precision)
    if key not in _known:
        _known[key] = sensitivity_of(source, bound)
    return _known[key]


def with_kept(options: CompileOptions, found: Sensitivity | None) -> CompileOptions:
    """Options that name the layers which a sensitivity run keeps, beside those kept by hand."""
    if found is None:
        return options
    return replace(options, keep_float32=tuple({**found.reasons, **dict(options.keep_float32)}.items()))
