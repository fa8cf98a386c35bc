"""What a compiled language model takes and makes, by the names of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionError

if TYPE_CHECKING:
    from ..model import CompiledModel

TOKENS, LENGTHS, TOTAL, LOGITS = "input_ids", "seqlens_k", "total_sequence_length", "logits"
STARTS, PAST, TABLE, ROWS = "cumulative_sequence_length", "past_seqlens", "block_table", "logit_rows"


@dataclass(frozen=True)
class OneSequence:
    """A model of one sequence.

    Attributes:
        steps: most new tokens of a call.
        capacity: rows of the cache.
        vocabulary: tokens.
        every: whether it has logits behind each token of a call, and not the last one only.
    """

    steps: int
    capacity: int
    vocabulary: int
    every: bool

    @classmethod
    def of(cls, compiled: CompiledModel) -> OneSequence:
        """That of a model.

        Raises:
            OptionError: the model is no language model of one sequence with states.
        """
        fix = "give a model of zoo.gguf, compiled with state='auto'; one of several sequences is for a Scheduler"
        shapes = _shapes(compiled, {TOKENS, LENGTHS, TOTAL}, fix)
        steps = _most(compiled, shapes[TOKENS][-1], "dims={'S': (1, 512)}")
        logits = shapes[LOGITS]
        return cls(steps, shapes[""][2], logits[-1], steps == 1 or logits[1] != 1)


@dataclass(frozen=True)
class Several:
    """A model of several sequences over pages.

    Attributes:
        tokens, rows: most new tokens of a call, and most rows of logits.
        sequences: at once.
        pages: of the cache.
        page: tokens of one.
        each: pages of a sequence, at most.
        vocabulary: tokens.
        programs: (tokens, rows) of programs of these numbers only, ascending.
    """

    tokens: int
    rows: int
    sequences: int
    pages: int
    page: int
    each: int
    vocabulary: int
    programs: tuple[tuple[int, int], ...]

    @property
    def capacity(self) -> int:
        """Tokens that a sequence may have."""
        return self.each * self.page

    @classmethod
    def of(cls, compiled: CompiledModel) -> Several:
        """That of a model.

        Raises:
            OptionError: the model is no language model of several sequences with states.
        """
        fix = "give a model of zoo.gguf(..., sequences=8), compiled with state='auto'"
        shapes = _shapes(compiled, {TOKENS, STARTS, PAST, TABLE, ROWS}, fix)
        tokens, rows = (
            _most(compiled, shapes[name][0], "dims={'T': (1, 256), 'R': (1, 8)}") for name in (TOKENS, ROWS)
        )
        sequences, each = shapes[TABLE]
        if rows < sequences or tokens < sequences:
            wrong = f"{tokens} tokens and {rows} rows of logits a call, for {sequences} sequences"
            raise OptionError(f"{_name(compiled)}: {wrong}", fix=f"dims={{'T': (1, 256), 'R': (1, {sequences})}}")
        fixed = (dict(program.fixed) for program in compiled.metadata.programs if not program.symbols)
        names = [str(shapes[name][0]) for name in (TOKENS, ROWS)]
        programs = sorted((sizes[names[0]], sizes[names[1]]) for sizes in fixed if {*names} <= sizes.keys())
        pages, page = shapes[""][:2]
        return cls(tokens, rows, sequences, pages, page, each, shapes[LOGITS][-1], tuple(programs))


def _name(compiled: CompiledModel) -> str:
    return str(compiled.metadata.model["name"])


def _shapes(compiled: CompiledModel, wanted: set[str], fix: str) -> Mapping[str, Any]:
    """Name -> shape of the inputs that are no states, and of the logits; "" -> that of the smallest cache.

    Raises:
        OptionError: other inputs, no logits, or no states.
    """
    if (metadata := getattr(compiled, "metadata", None)) is None:
        raise OptionError(f"{compiled!r:.100} is no compiled model", fix=fix)
    inputs, outputs = ({spec.name: spec.shape for spec in side} for side in (metadata.inputs, metadata.outputs))
    caches = {taken for _, taken in metadata.state}
    free = inputs.keys() - caches
    if free != wanted or LOGITS not in outputs or not caches:
        names = ", ".join(sorted(free)) or "none"
        raise OptionError(f"{_name(compiled)}: its inputs beside states are {names}", fix=fix)
    rows = min((inputs[taken] for taken in caches), key=lambda shape: shape[2])
    return {**{name: inputs[name] for name in free}, LOGITS: outputs[LOGITS], "": rows}


def _most(compiled: CompiledModel, size: int | str, fix: str) -> int:
    """The largest size of a dimension that may be 1 too.

    Raises:
        OptionError: it is larger than 1 at least.
    """
    bounds = {symbol.name: (symbol.least, symbol.most) for symbol in compiled.metadata.symbols}
    least, most = (size, size) if isinstance(size, int) else bounds[size]
    if least > 1:
        raise OptionError(f"{_name(compiled)}: a call takes {least} tokens, no fewer", fix=fix)
    return most
