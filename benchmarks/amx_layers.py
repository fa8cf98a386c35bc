"""Each convolution of ResNet-18 alone on AMX tile registers, bf16 and int8, beside the rates of the tile instructions.

A line says microseconds with weights that the caches have and with cold ones (copies that fill more than L2), TFLOP/s
(TOP/s) of the layer's own operations with cold weights, and how much of the warm time products alone would take, and
tile loads if all came out of L1, or out of L2. Alternatives follow: threads that share pixels or outputs, each chunk of
channels, each operand streamed past L1; with --ablate kernels with a part left out instead. Exits with 3 where there is
no AMX.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from _amx_ablations import ABLATIONS, without
from _amx_kernels import COLD_BYTES, KINDS, LAYERS, Call, Layer, Work, group_of, layer_calls, rate_call
from _common import machine_text, markdown_table, say, write_text

from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config
from tvm_ext.runtime.cpu import cpu_flags
from tvm_ext.runtime.tiles import why_no_tiles
from tvm_ext.schedules.amx.recipe import TileMatch
from tvm_ext.schedules.recipes.convolution.conv2d_amx import Conv2dAmx
from tvm_ext.verification.environment import describe_machine

_UNSUPPORTED = 3
#: Seconds of a figure, and of all of them: later alternatives are left out.
_EACH, _LIMIT = 0.06, 110.0


@dataclass(frozen=True)
class Rates:
    """Of all threads: products a second, bytes a second of tile loads out of 16 KiB and out of 512 KiB a thread."""

    products: float
    l1: float
    l2: float


@dataclass(frozen=True)
class Figure:
    """A kernel's seconds, with warm and with cold weights, of so much work; `ablation` is what it lacks."""

    layer: str
    kind: str
    config: Config
    estimate: float
    warm: float
    cold: float
    work: Work
    ablation: str = ""


def main() -> int:
    """Measure and print; 3 where there are no tile registers."""
    args = _arguments()
    machine, why = machine_with_tiles(args.target, args.threads)
    if machine is None:
        say(f"no AMX tile registers here: {why}")
        return _UNSUPPORTED
    end = time.perf_counter() + args.limit
    rates = {kind: measured_rates(machine, kind, args.seconds) for kind in args.kinds}
    layers = [layer for layer in LAYERS if not args.only or any(text in layer.name for text in args.only)]
    chosen = [figure_of(layer, kind, machine, args.seconds) for kind in args.kinds for layer in layers]
    further = _ablations if args.ablate else _alternatives
    others = list(further(chosen, layers, machine, args.seconds, end))
    print(_page(machine, rates, chosen, others))
    if args.json:
        figures = [asdict(f) for f in (*chosen, *others)]
        write_text(args.json, json.dumps({"rates": {k: asdict(r) for k, r in rates.items()}, "figures": figures}))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", help="LLVM's name of the CPU, where its own hides AMX (default: found out)")
    parser.add_argument("--threads", type=int, help="threads (default: all cores)")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="types (default: all)")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="layers whose name has one of the texts")
    parser.add_argument("--ablate", action="store_true", help="leave parts of the chosen kernels out, one by one")
    parser.add_argument("--seconds", type=float, default=_EACH, help=f"of a figure (default: {_EACH})")
    parser.add_argument("--limit", type=float, default=_LIMIT, help=f"seconds of all figures (default: {_LIMIT:.0f})")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    return parser.parse_args()


def machine_with_tiles(target: str | None, threads: int | None) -> tuple[Machine | None, str]:
    """The machine with its tile registers, also where a masked model number hides them from LLVM; or None and why."""
    if "amx_tile" not in cpu_flags():
        return None, "this CPU has no amx-tile"
    if why := why_no_tiles():
        return None, why
    for name in (target, None if target else "sapphirerapids"):
        machine = Machine.detect(name, threads)
        if not (why := machine.why_no_tiles()):
            return machine, ""
    return None, why


# ------------------------------------------------------------ measuring
def measured_rates(machine: Machine, kind: str, seconds: float) -> Rates:
    """Rates of the tile instructions, on all threads."""
    say(f"tile instructions of {kind}")
    steps = 16 * 1024

    def a_second(size: int, loads: bool, products: bool, each: float) -> float:
        passes = max(1, steps * 4096 // size)
        call = rate_call(machine, kind, size, loads, products, passes)
        return each * machine.threads * passes * (size // 4096) / least([call], seconds)

    products = a_second(4096, loads=False, products=True, each=4)
    l1, l2 = (a_second(size, loads=True, products=False, each=4096) for size in (16 << 10, 512 << 10))
    return Rates(products, l1, l2)


def least(calls: Sequence[Call], seconds: float) -> float:
    """The least mean seconds of a call, over passes through all calls within about so many seconds."""
    for call in calls:
        call()
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        begin = time.perf_counter()
        for call in calls:
            call()
        now = time.perf_counter()
        best = min(best, (now - begin) / len(calls))
        if now >= end:
            return best


def figure_of(
    layer: Layer,
    kind: str,
    machine: Machine,
    seconds: float,
    config: Config | None = None,
    cold_bytes: int = COLD_BYTES,
) -> Figure:
    """Seconds of a layer's kernel, of the configuration that a compile takes or of another one."""
    match = _match(layer, kind, machine)
    recipe = Conv2dAmx()
    config = config or recipe.default(match, machine)
    say(f"{kind} {layer.name}: {_text(config)}")
    warm, cold = layer_calls(match, config, machine, cold_bytes)
    estimate = recipe.cost(match, config, machine)
    return Figure(
        layer.name, kind, config, estimate, least([warm], seconds), least(cold, seconds), Work.of(match, config)
    )  # fmt: skip


def _match(layer: Layer, kind: str, machine: Machine) -> TileMatch:
    match = Conv2dAmx().match(group_of(layer, kind), machine)
    assert isinstance(match, TileMatch), match
    return match


def _ablations(
    chosen: Sequence[Figure], layers: Sequence[Layer], machine: Machine, seconds: float, end: float
) -> Iterator[Figure]:  # fmt: skip
    """The chosen kernels with each part left out in turn, until the time is over."""
    by_name = {layer.name: layer for layer in layers}
    for what, figure in itertools.product(ABLATIONS, chosen):
        if _is_over(end):
            return
        say(what)
        with without(what):
            other = figure_of(by_name[figure.layer], figure.kind, machine, seconds, figure.config)
        yield replace(other, ablation=what)


def _alternatives(
    chosen: Sequence[Figure], layers: Sequence[Layer], machine: Machine, seconds: float, end: float
) -> Iterator[Figure]:  # fmt: skip
    """Other configurations of each layer, those of a rank in turn, until the time is over."""
    by_name = {layer.name: layer for layer in layers}
    queues = [(figure, alternatives(by_name[figure.layer], figure, machine)) for figure in chosen]
    for rank in range(max((len(configs) for _, configs in queues), default=0)):
        for figure, configs in (queue for queue in queues if rank < len(queue[1])):
            if _is_over(end):
                return
            yield figure_of(by_name[figure.layer], figure.kind, machine, seconds, configs[rank])


def _is_over(end: float) -> bool:
    if over := time.perf_counter() > end:
        say("the time is over: other kernels are left out")
    return over


def alternatives(layer: Layer, figure: Figure, machine: Machine) -> list[Config]:
    """The best of each way to share, of each operand streamed, of each chunk, of each number of parts by estimate."""
    recipe, match = Conv2dAmx(), _match(layer, figure.kind, machine)
    points = [p for p in recipe.points(match, machine) if p["image"] == figure.config["image"]]
    configs: list[Config] = []
    for knob in ("share", "stream", "chunk", "parts"):
        for value in sorted({p[knob] for p in points} - {figure.config[knob]}, reverse=True):
            alike = [p for p in points if p[knob] == value]
            best = min(alike, key=lambda p: (_changes(p, figure.config), recipe.cost(match, p, machine)))
            configs += [best] if best not in configs else []
    return configs


def _changes(config: Config, other: Config) -> int:
    return sum(config[knob] != value for knob, value in other.items())


# ------------------------------------------------------------ the page
def _page(machine: Machine, rates: dict[str, Rates], chosen: Sequence[Figure], others: Sequence[Figure]) -> str:
    lines = [f"{machine_text(describe_machine())}; {machine.threads} threads, compiled for {machine.mcpu}", ""]
    for kind, rate in rates.items():
        loads = f"tile loads out of L1 {rate.l1 / 1e9:.0f} GB/s, out of L2 {rate.l2 / 1e9:.0f} GB/s"
        lines.append(f"* {kind}: products {rate.products * _flops(kind) / 1e12:.2f} TFLOP/s; {loads}")
    for kind, rate in rates.items():
        rows = [_row(f, rate) for f in chosen if f.kind == kind]
        lines += ["", f"## {kind}, as a compile chooses", "", *markdown_table([_HEADER, *rows])]
        rows = [_row(f, rate, _best(chosen, f)) for f in others if f.kind == kind]
        head = [*_HEADER, "warm / chosen", "cold / chosen"]
        lines += ["", f"## {kind}, other kernels", "", *markdown_table([head, *rows])]
    return "\n".join(lines)


_HEADER = [
    "layer", "configuration", "estimate us", "warm us", "cold us", "TFLOP/s cold", "products", "loads, L1", "loads, L2",
]  # fmt: skip


def _flops(kind: str) -> int:
    return 2 * 16 * 16 * (32 if kind == "bf16" else 64)


def _best(chosen: Sequence[Figure], figure: Figure) -> Figure:
    return next(f for f in chosen if (f.layer, f.kind) == (figure.layer, figure.kind))


def _row(figure: Figure, rate: Rates, beside: Figure | None = None) -> list[str]:
    work, warm, cold = figure.work, figure.warm, figure.cold
    times = [f"{1e6 * t:.1f}" for t in (figure.estimate, warm, cold)]
    shares = [work.products / rate.products, work.load_bytes / rate.l1, work.load_bytes / rate.l2]
    row = [figure.layer, figure.ablation or _text(figure.config), *times, f"{work.operations / cold / 1e12:.2f}"]
    row += [f"{100 * share / warm:.0f} %" for share in shares]
    return row + ([f"{warm / beside.warm:.2f}", f"{cold / beside.cold:.2f}"] if beside else [])


def _text(config: Config) -> str:
    return ", ".join(f"{knob} {value}" for knob, value in config.items() if knob != "threads")


if __name__ == "__main__":
    sys.exit(main())
