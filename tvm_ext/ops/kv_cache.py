"""Two operators of Relax that TVM has not: a cache of keys or values that rows are written to, and attention over it.

    present = tvm_ext.cache_append(past, new, lengths, ...)      present = past; present[b, :, p + s] = new[b, s]
    y = tvm_ext.cached_attention(q, keys, values, lengths, ...)  y[b, s] = softmax(q[b, s] keys^T * scale) values

    past, present (B, G, C, D): room for C rows of each of G heads; new (B, S, H, D), of whose H heads G are read
    q (B, S, H, D), of whose H heads N are read; keys, values (B, G, C, D); y (B, S, N, D)

Of sequence b, `lengths[b]` + 1 rows count once the S new ones are there: those begin at row p = lengths[b] + 1 - S, or
at row 0 where S is `total`, that of a first prompt, whose sequences may be shorter than S. TVM's printer writes the
operators, and its parser reads them, by :func:`cache_append` and :func:`cached_attention`.

A cache in pages has no sequences of its own: past, present, keys, values (pages, R, G, D). Then each token is a row of
the batch, S = 1, of sequence `sequences[b]`, whose row r is row r % R of page `table[sequences[b], r // R]`. Sequences
with a common beginning name the same pages. Kwon et al., "Efficient Memory Management for Large Language Model Serving
with PagedAttention" (2023).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

from tvm import relax
from tvm.ir import Call

from .own_operators import register

APPEND, ATTENTION = "relax.tvm_ext.cache_append", "relax.tvm_ext.cached_attention"
#: What else operands can be, in the order of a call: `total`, one number; cosines and sines (positions, half), by which
#: pairs of elements are turned; `positions` (B, S) of the new rows instead of their places; `sink` (N), the score of
#: one more key of each head, without a value; `sequences` (B) and `table` (sequences, pages of each), of pages.
ROLES = ("lengths", "total", "cos", "sin", "positions", "sink", "sequences", "table")

_Says = TypeVar("_Says", bound="_Cache")


@dataclass(frozen=True)
class _Cache:
    """What calls of both say.

    Attributes:
        operands: what the operands behind the tensors are, of :data:`ROLES`.
        first: the first head of `new` or of `q` that is read.
        interleaved: whether the pairs that are turned are neighbours, and not half of a row apart.
    """

    name: ClassVar[str]
    tensors: ClassVar[tuple[str, ...]]
    operands: tuple[str, ...]
    first: int = 0
    interleaved: bool = False

    @classmethod
    def of(cls: type[_Says], call: Call) -> _Says:
        """What a call says."""
        stated: dict[str, Any] = {"operands": tuple(map(str, call.attrs["operands"]))}
        for name, value in asdict(cls(())).items():
            if name not in stated:
                stated[name] = type(value)(call.attrs[name])
        return cls(**stated)

    @property
    def paged(self) -> bool:
        """Whether the cache is in pages."""
        return "table" in self.operands

    @property
    def roles(self) -> tuple[str, ...]:
        """What each operand is."""
        return (*self.tensors, *self.operands)

    def call(self, operands: Mapping[str, Any]) -> Call:
        """A call that says this, on operands by what they are."""
        stated = {**asdict(self), "operands": list(self.operands)}
        make = cache_append if self.name == APPEND else cached_attention
        return make(*(operands[role] for role in self.roles), **stated)


@dataclass(frozen=True)
class Append(_Cache):
    """What a call of `cache_append` says.

    Attributes:
        source, position_source: the tensors that an error about a length, or a position, or a page, names.
        turned: positions that keys have cosines for, and calls on values are as far as; 0 if they are not turned.
    """

    name = APPEND
    tensors = ("past", "new")
    source: str = ""
    position_source: str = ""
    turned: int = 0


@dataclass(frozen=True)
class Attention(_Cache):
    """What a call of `cached_attention` says.

    Attributes:
        heads: N.
        scale: that scores are multiplied by.
        softcap: c of c tanh(score / c), which scores become; 0 if they do not.
        window: how many keys up to its own place a query sees; 0 for all.
        causal: whether a query sees no key behind its own place.
        smooth: whether there is one more key, of score 0 and without a value.
    """

    name = ATTENTION
    tensors = ("query", "keys", "values")
    heads: int = 0
    scale: float = 1.0
    softcap: float = 0.0
    window: int = 0
    causal: bool = True
    smooth: bool = False


def _present(call: Call, _: Any) -> relax.TensorType:
    return call.args[0].ty


def _attended(call: Call, _: Any) -> relax.TensorType:
    query, values = call.args[0].ty, call.args[2].ty
    (batch, steps, _, _), width = query.shape.values, values.shape.values[3]
    return relax.TensorType((batch, steps, Attention.of(call).heads, width), query.dtype)


cache_append = register(APPEND, "New rows in a cache.", _present)
cached_attention = register(ATTENTION, "Attention over a cache.", _attended)
