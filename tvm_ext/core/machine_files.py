"""Described machines: JSON files of facts and rates, some of which come with this library (`core/machines/`).

{"name": "zen4", "source": "where the figures come from", "machine": {"isa": "avx512", ..., "rates": {...}}}
"""

import functools
import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..rates import Rates
from .errors import OptionError

FOLDER = Path(__file__).parent / "machines"
#: Features of which a machine without them is no stand-in for one that has them.
_DECISIVE = ("amx-tile", "avx512bf16", "avx512vnni", "avxvnni")

#: Instruction sets of narrower vectors than those of described machines -> f32 lanes.
_NARROWER = {"avx": 8, "sse4.2": 4, "neon": 4, "sve": 4, "scalar": 4}


@dataclass(frozen=True)
class Description:
    """A described machine.

    Attributes:
        name: by which it is named, as in `machine="zen4"`.
        source: of its figures.
        machine: facts and rates, as :meth:`.Machine.as_dict` has them.
    """

    name: str
    source: str
    machine: Mapping[str, Any]

    @property
    def rates(self) -> Rates:
        return Rates.of(self.machine["rates"])


@functools.cache
def descriptions() -> dict[str, Description]:
    """The machines that come with this library, by name."""
    return {path.stem: read_description(path) for path in sorted(FOLDER.glob("*.json"))}


def description_of(name: str | Path) -> Description:
    """A described machine by its name, or by the path of its file.

    Raises:
        OptionError: there is no such machine or file, or the file describes none.
    """
    known = descriptions()
    if str(name) in known:
        return known[str(name)]
    if not os.path.isfile(name):  # pathlib raises of a name that is too long
        choices = ", ".join(known)
        fix = f"choose from {choices}, or write one with `tvm-ext machine --json > FILE`"
        raise OptionError(f"machine={str(name)!r}: neither a described machine nor a file", fix=fix)
    return read_description(Path(name))


def read_description(path: Path) -> Description:
    """The machine that a file describes.

    Raises:
        OptionError: the file cannot be read, or describes none.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        machine = document["machine"]
        return Description(str(document.get("name", path.stem)), str(document.get("source", "")), dict(machine))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"machine={str(path)!r}: no description of a machine ({type(error).__name__}: {error})"
        raise OptionError(what, fix="`tvm-ext machine --json` prints one") from error


def similar_rates(isa: str, features: Collection[str], mcpu: str) -> Rates:
    """The rates of the described machine that is most like one: of its name, else its instruction set, maker, features.

    An estimate for machines that nobody measured: a target by its name, or one to be measured yet. Of narrower vectors,
    bytes a cycle are fewer; without fused multiply-adds, a multiplication and an addition take the place of one.
    """
    known = [d for d in descriptions().values() if not d.name.startswith("cluster")]
    same = [d for d in known if d.machine["mcpu"] == mcpu and d.machine["isa"] == isa]
    nearest = min(same or known, key=lambda d: _unlike(d, isa, features, mcpu))
    rates = nearest.rates
    if isa in _NARROWER:
        width = _NARROWER[isa] / nearest.machine["lanes"]
        rates = replace(rates, l1=rates.l1 * width, l2=rates.l2 * width)
    fused = "fma" in features or isa in ("neon", "sve")
    return rates if fused else replace(rates, fma=1.0, fma_half=1.0)


def nearest_rates(measured: Rates, isa: str) -> Rates:
    """The described rates that are nearest to measured ones: of machines with this instruction set, or of all.

    Of machines whose cores are equal, that of the nearest number of them.
    """
    known = list(descriptions().values())
    same = [d for d in known if d.machine["isa"] == isa] or known

    def distance(other: Rates) -> tuple[float, float]:
        names = ("fma", "fma_half", "l1", "l2", "l3")
        octaves = {n: abs(math.log2(getattr(other, n) / getattr(measured, n))) for n in (*names, "cores")}
        return sum(octaves[n] for n in names), octaves["cores"]

    return min((d.rates for d in same), key=distance)


def _unlike(
    description: Description, isa: str, features: Collection[str], mcpu: str
) -> tuple[bool, int, bool, int, str]:
    """How little a description is like a machine; a general name ("x86-64-v4") has no maker."""
    machine, have = description.machine, set(description.machine["features"])
    other = machine["isa"] != isa
    narrower = abs(machine["lanes"] - _NARROWER.get(isa, 16)) if other else 0
    other_maker = not mcpu.startswith("x86-64") and _is_zen(mcpu) != _is_zen(machine["mcpu"])
    return other, narrower, other_maker, sum((f in have) != (f in features) for f in _DECISIVE), description.name


def _is_zen(mcpu: str) -> bool:
    return mcpu.startswith("znver")
