"""States: outputs of one call that are inputs of the next; which ones, as an option says it or as names tell.

present.0.key -> past.0.key        stateN -> state        h_out -> h
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import OptionError, choose_of

if TYPE_CHECKING:
    from ...runtime.spec import Specs, TensorSpec

#: Pairs are to be recognized by their names.
AUTO = "auto"

State = str | tuple[tuple[str, str], ...]
"""Pairs of an output and the input that takes it in the next call, in order; or :data:`AUTO`."""

Axes = frozenset[tuple[str, int]]
"""(name of an input, axis)."""

_FIX = "for example state={'present.0.key': 'past.0.key'}, or state='auto' for the usual names"
_PRESENT = re.compile(r"present(?:_key_values?)?(?:[._](.+))?")
_SUFFIX = re.compile(r"(.*[^_.])(?:[_.](?:out|new|next)|_?[nN])")


def checked_state(value: Any) -> State:
    """The option `state` as it is kept: pairs in the order of their names.

    Raises:
        OptionError: it is neither pairs of names nor "auto"; or a name is there twice.
    """
    if value is None or value == AUTO:
        return () if value is None else AUTO
    items = value.items() if isinstance(value, Mapping) else value
    pairs = [tuple(pair) for pair in items] if _is_rows(items) else [()]
    if not all(len(pair) == 2 and all(isinstance(name, str) and name for name in pair) for pair in pairs):
        raise OptionError(f"state={value!r}: names of outputs with names of inputs are needed", fix=_FIX)
    for side, what in enumerate(("output", "input")):
        names = [pair[side] for pair in pairs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            others = " and ".join(repr(pair[1 - side]) for pair in pairs if pair[side] == twice)
            raise OptionError(f"state={value!r}: {what} {twice!r} is paired with {others}", fix="pair it with one")
    return tuple(sorted(pairs))


def _is_rows(value: Any) -> bool:
    rows = isinstance(value, Iterable) and not isinstance(value, str)
    return rows and all(isinstance(row, tuple | list) for row in value)


def state_pairs(
    state: State, inputs: Specs, outputs: Specs, model: str, grows: Axes = frozenset()
) -> tuple[tuple[int, int], ...]:
    """The numbers of each output that is a state, and of the input that takes it.

    Args:
        state: as :func:`checked_state` gave it.
        inputs, outputs: of the model.
        model: its name, for messages.
        grows: (name of an input, axis) along which its output may be larger.

    Raises:
        OptionError: an unknown name, tensors that differ in shape or dtype, or names that tell no pair.
    """
    if isinstance(state, str):
        return _recognized(inputs, outputs, model, grows)
    of_output, of_input = ({spec.name: i for i, spec in enumerate(side)} for side in (outputs, inputs))
    pairs = []
    for output, taken in state:
        for name, what, names in ((output, "output", of_output), (taken, "input", of_input)):
            if name not in names:
                wrong = f"{model}: state={{{output!r}: {taken!r}}}: there is no {what} {name!r}"
                raise OptionError(wrong, fix=choose_of(name, f"{what}s", names))
        written, other = outputs[of_output[output]], inputs[of_input[taken]]
        if wrong := _difference(written, other, grows):
            fix = "a state has one shape and dtype in all calls: pad it to its largest size, or leave it out of state="
            raise OptionError(f"{model}: state: {wrong}", fix=fix)
        pairs.append((of_output[output], of_input[taken]))
    return tuple(sorted(pairs))


def growing_axes(inputs: Iterable[TensorSpec]) -> Axes:
    """(name of an input, axis) of all that are symbolic."""
    dims = ((spec.name, axis, dim) for spec in inputs for axis, dim in enumerate(spec.shape))
    return frozenset((name, axis) for name, axis, dim in dims if isinstance(dim, str))


def _difference(output: TensorSpec, taken: TensorSpec, grows: Axes) -> str:
    """How the tensors of a pair differ; "" if they do not, or only as they may."""
    if output.count is not None:
        return f"values decide the size of output {output.name!r}"
    if (output.shape, output.dtype) == (taken.shape, taken.dtype):
        return ""
    if (taken.name, taken.axis_of_growth(output)) in grows:
        return ""
    return f"output {output.name!r} is {output}, and input {taken.name!r} is {taken}"


def _recognized(inputs: Specs, outputs: Specs, model: str, grows: Axes) -> tuple[tuple[int, int], ...]:
    """Pairs whose names are usual, and whose tensors are alike.

    Raises:
        OptionError: there is none, or two outputs would be one input's.
    """
    of_input = {spec.name: i for i, spec in enumerate(inputs)}
    pairs: dict[int, int] = {}
    unlike = []
    for number, output in enumerate(outputs):
        for name in dict.fromkeys(_input_names(output.name)):
            if name not in of_input:
                continue
            if wrong := _difference(output, inputs[of_input[name]], grows):
                unlike.append(wrong)
                continue
            if (other := pairs.setdefault(of_input[name], number)) != number:
                both = f"outputs {outputs[other].name!r} and {output.name!r}"
                raise OptionError(f"{model}: state='auto': {both} could both be input {name!r}", fix=_FIX)
            break
    if not pairs:
        shown = "; ".join(f"{what}s: {', '.join(s.name for s in side) or 'none'}"
                          for what, side in (("output", outputs), ("input", inputs)))  # fmt: skip
        because = f" ({'; '.join(unlike[:3])})" if unlike else ""
        raise OptionError(f"{model}: state='auto': no output is a state by its name{because}", fix=f"{_FIX}; {shown}")
    return tuple(sorted((output, taken) for taken, output in pairs.items()))


def _input_names(output: str) -> Iterator[str]:
    """What the input that takes an output may be called, the likeliest first."""
    if match := _PRESENT.fullmatch(output):
        rest = match[1]
        for start in ("past", "past_key_values", "past_key_value"):
            yield from (f"{start}{separator}{rest}" for separator in "._") if rest else (start,)
    if match := _SUFFIX.fullmatch(output):
        yield from (match[1], *(f"{match[1]}{end}" for end in ("_in", ".in", "0", "_0", "_prev")))
