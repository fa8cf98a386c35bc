"""Mutants by number: the same number of the same series is always the same file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from . import bytes_mutators, external_mutators, graph_mutators, nesting_mutators, tensor_mutators
from .external_mutators import Entries
from .graph_mutators import NothingToChange
from .seeds import Seed, all_seeds

#: One mutant in so many gets odd values for its integer inputs.
_ODD_INPUTS = 6
#: Families of mutators, and how many mutants of a hundred each makes.
_SHARES = {"bytes": 22, "graph": 26, "tensor": 32, "nesting": 8, "external": 12}
_GRAPH_FAMILIES = {
    "graph": graph_mutators.MUTATORS, "tensor": tensor_mutators.MUTATORS, "nesting": nesting_mutators.MUTATORS,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A file that may be broken.

    Attributes:
        number: of it in its series.
        seed: name of what it was.
        how: names of its mutations.
        model: the file's bytes.
        entries: what else lies in its folder; with any, the model is compiled from a file, else from bytes.
        feeds: inputs of the seed; those that still fit are used.
        odd_inputs: whether other integers are of all sizes.
    """

    number: int
    seed: str
    how: tuple[str, ...]
    model: bytes
    entries: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    feeds: Mapping[str, np.ndarray] = field(default_factory=dict)
    odd_inputs: bool = False


def mutant(series: int, number: int) -> Mutant:
    """A mutant of a series."""
    rng = Random(f"{series}/{number}")
    family = rng.choices(list(_SHARES), list(_SHARES.values()))[0]
    models, cases = all_seeds()
    while True:
        seed = rng.choice(models if family in ("external", "nesting") or rng.random() < 0.45 else cases)
        try:
            built = _of_family(family, seed, rng)
        except (NothingToChange, DecodeError):  # or nested deeper than protobuf goes
            continue
        how, model, entries = built
        if model != seed.model or entries != {name: ("file", content) for name, content in seed.files.items()}:
            return Mutant(number, seed.name, how, model, entries, seed.feeds, rng.randrange(_ODD_INPUTS) == 0)


def _of_family(family: str, seed: Seed, rng: Random) -> tuple[tuple[str, ...], bytes, Entries]:
    entries: Entries = {name: ("file", content) for name, content in seed.files.items()}
    if family == "bytes":
        how, data = [], seed.model
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            chosen = rng.choice(bytes_mutators.MUTATORS)
            how, data = [*how, chosen.__name__], chosen(data, rng) or b"\0"
        return tuple(how), data, entries
    model, names = onnx.ModelProto.FromString(seed.model), []
    for _ in range(rng.choice((1, 1, 1, 1, 2))):
        chosen = rng.choice(external_mutators.MUTATORS if family == "external" else _GRAPH_FAMILIES[family])
        arguments: list[Any] = [model, entries, rng] if family == "external" else [model, rng]
        chosen(*arguments)  # type: ignore[operator]
        names.append(chosen.__name__)
    return tuple(names), model.SerializeToString(), entries
