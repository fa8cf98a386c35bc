"""How tokens are drawn of logits, and the options that say so, which the command line has too."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, OptionError, RunError

if TYPE_CHECKING:  # options of a command line are read without numpy
    import numpy as np


def _option(default: float | None, form: str, text: str) -> Any:
    return field(default=default, metadata={"form": form, "help": text})


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What is drawn of one sequence; of fields with a `form` and a `help`, `tvm-ext chat` has an option each.

    Attributes:
        stop: tokens behind which nothing is made; one of them is the last.

    Raises:
        OptionError: names what does not fit.
    """

    max_new: int = _option(128, "N", "tokens of an answer")
    top_k: int = _option(0, "K", "draw from so many; 0 from all; it counts with a temperature above 0 only")
    temperature: float = _option(0.0, "T", "0 takes the likeliest")
    seed: int | None = _option(None, "SEED", "of what is drawn")
    stop: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for name in ("max_new", "top_k", "seed"):
            if not (name == "seed" and self.seed is None):
                check_whole(name, getattr(self, name))
        number = isinstance(self.temperature, numbers.Real) and not isinstance(self.temperature, bool)
        if not number or not 0 <= self.temperature < float("inf"):
            raise OptionError(f"temperature={self.temperature!r}: a number of 0 or more is needed")
        object.__setattr__(self, "stop", _ends(self.stop))

    def rng(self) -> np.random.Generator:
        """Random numbers of a sequence."""
        import numpy as np

        return np.random.default_rng(self.seed)

    def pick(self, logits: np.ndarray, rng: np.random.Generator) -> int:
        """The token that follows, of logits (vocabulary,).

        Raises:
            RunError: one is NaN or inf, or all are -inf.
        """
        import numpy as np

        if not np.isfinite(logits.max()):
            raise RunError(
                f"the largest logit is {logits.max()}",
                fix="look for NaN or infinity in the weights: tvm_ext.verify(layers=True)",
            )
        if self.temperature == 0 or self.top_k == 1:
            return int(logits.argmax())
        among = _largest(logits, self.top_k) if 0 < self.top_k < len(logits) else np.arange(len(logits))
        scores = logits[among].astype(np.float64)
        with np.errstate(over="ignore"):  # -inf at temperatures near 0, where the likeliest alone is left
            weights = np.exp((scores - scores.max()) / self.temperature)
        return int(rng.choice(among, p=weights / weights.sum()))

    def accepted(self, logits: np.ndarray, draft: Sequence[int], rng: np.random.Generator) -> list[int]:
        """The tokens that are drawn one after the other, as without a draft, until one is not the draft's.

        Args:
            logits: (1 + tokens of the draft, vocabulary): behind the last token, and behind each of the draft.
        """
        tokens: list[int] = []
        for row, guess in zip(logits, [*draft, None], strict=True):
            tokens.append(self.pick(row, rng))
            if tokens[-1] != guess or tokens[-1] in self.stop:
                break
        return tokens


def flags() -> Mapping[str, tuple[type, Any, str, str]]:
    """Name of an option -> type, default, form and help on a command line."""
    kinds = {"temperature": float}
    return {
        one.name: (kinds.get(one.name, int), one.default, one.metadata["form"], one.metadata["help"])
        for one in fields(Sampling)
        if one.metadata
    }


def check_whole(name: str, value: object, least: int = 0) -> int:
    """The value of an option that is a whole number.

    Raises:
        OptionError: it is none, or below `least`.
    """
    if not is_whole(value) or value < least:  # type: ignore[operator]
        raise OptionError(f"{name}={value!r}: a whole number of {least} or more is needed")
    return int(value)  # type: ignore[call-overload]


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, of Python or numpy."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def prompt_of(tokens: Sequence[int], capacity: int, vocabulary: int) -> np.ndarray:
    """The tokens as int64.

    Raises:
        InputError: no whole numbers in one dimension; none, or more than `capacity`; or not of the vocabulary.
    """
    import numpy as np

    try:
        prompt = np.asarray(tokens)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"a prompt is one sequence of whole numbers: {error}") from error
    if prompt.ndim != 1 or (len(prompt) and prompt.dtype.kind not in "iu"):
        kind = f"{prompt.dtype} in {prompt.ndim} dimensions"
        raise InputError(f"a prompt of {kind}: whole numbers in one dimension are needed", fix="tokens of a Dialogue")
    if not 0 < len(prompt) <= capacity:
        raise InputError(f"a prompt of {len(prompt)} tokens; 1 to {capacity} fit into the cache")
    if prompt.min() < 0 or prompt.max() >= vocabulary:
        raise InputError(f"tokens from {prompt.min()} to {prompt.max()}: those below {vocabulary} are known")
    return prompt.astype(np.int64)


def _ends(stop: Any) -> frozenset[int]:
    if isinstance(stop, str | bytes) or not hasattr(stop, "__iter__") or not all(map(is_whole, ends := tuple(stop))):
        raise OptionError(f"stop={stop!r}: a sequence of tokens is needed")
    return frozenset(map(int, ends))


def _largest(logits: np.ndarray, count: int) -> np.ndarray:
    """Places of the largest, ascending."""
    import numpy as np

    return np.sort(np.argpartition(logits, -count)[-count:])
