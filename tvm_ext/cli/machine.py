"""`tvm-ext machine`: what kernels are chosen by: instruction set, caches, what the cores do in a cycle, measured."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .shared.common import Progress, print_result, table_text

if TYPE_CHECKING:
    from ..core.machine import Machine

EXAMPLE = """\
  tvm-ext machine
  tvm-ext machine --measure --json > here.json
  tvm-ext compile zoo:resnet18 --machine here.json -o resnet18.so
  tvm-ext machine zen4"""

#: Of rates, by what $TVM_EXT_RATES takes.
SOURCES = {"measured": "measured by `tvm-ext machine`", "typical": "rates of a similar machine (TVM_EXT_RATES=typical)"}
_RATES = (
    ("fma", "f32 multiply-adds of whole vectors a cycle"), ("fma_half", "of half vectors"),
    ("dot_int8", "8-bit dot products of whole vectors a cycle"),
    ("dot_int16", "16-bit dot products of whole vectors a cycle"), ("dot_bf16", "bfloat16 dot products a cycle"),
    ("tile_int8", "cycles of an 8-bit product of AMX tiles"), ("tile_bf16", "cycles of a bfloat16 product of tiles"),
)  # fmt: skip
_BYTES = (
    ("l1", "loads from L1, one core"), ("l2", "from L2, one core"), ("l3", "from L3, one core"),
    ("l3_all", "from L3, all cores"), ("memory", "from memory, one core"), ("memory_all", "from memory, all cores"),
    ("foreign", "of lines that another core wrote"), ("tile_l1", "tile loads from L1"),
    ("tile_l2", "tile loads from L2"), ("tile_l3", "tile loads from L3"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A described machine, or whether to measure this one again."""
    parser.add_argument("machine", nargs="?", metavar="NAME", help="a described machine, or its JSON file")
    parser.add_argument("--measure", action="store_true", help="measure this machine again, about a second")


def run(args: argparse.Namespace) -> int:
    """Print the facts and rates of this machine, or of a described one.

    Raises:
        OptionError: no such description; or both a description and a measurement are asked for.
    """
    from ..core.errors import OptionError
    from ..core.machine import Machine, source_of_rates
    from ..verification.environment import cpu_name

    if args.machine and args.measure:
        raise OptionError(f"machine={args.machine!r} is described: nothing to measure", fix="leave out one of both")
    if args.machine:
        from ..core.machine_files import description_of

        described = description_of(args.machine)
        name, source, machine = described.name, described.source, Machine.described(args.machine)
    else:
        with Progress("measuring the machine"):
            machine = Machine.detect().measured(again=args.measure)
        name, source = cpu_name(), SOURCES[source_of_rates()]
    values = {"name": name, "source": source, "machine": machine.as_dict()}
    return print_result(args, values, *_lines(name, machine), f"source: {source}")


def _lines(name: str, machine: Machine) -> Iterator[str]:
    caches = ", ".join(f"{level} {getattr(machine, level.lower()) >> 10} KiB" for level in ("L1d", "L2", "L3"))
    yield f"{name}: {machine.isa}, {machine.threads} threads, {caches}; scheduled by LLVM as {machine.mcpu}"
    yield f"features: {' '.join(machine.features)}"
    rates, clock = machine.rates, machine.rates.clock
    peak = 2 * machine.lanes * rates.fma * clock
    rows = [(what, f"{value:g}", f"{peak:.0f} GFLOP/s a core" if field == "fma" else "")
            for field, what in _RATES if (value := getattr(rates, field))]  # fmt: skip
    rows += [(what, f"{value:g} bytes", f"{value * clock:.1f} GB/s")
             for field, what in _BYTES if (value := getattr(rates, field))]  # fmt: skip
    rows.append((f"to begin and join a parallel loop on {rates.cores} threads", "", f"{rates.launch:g} us"))
    yield table_text(("rate", "a cycle", f"at {clock:g} GHz"), rows)
