"""Each convolution of ResNet-18 alone on AMX tile registers, bf16 and int8, beside the rates of the
tile instructions.

A line says microseconds with weights that the caches have and with cold ones (copies that fill
more than L2), TFLOP/s (TOP/s) of the layer's own operations with cold weights, and how much of the
warm time products alone would take, and tile loads if all came out of L1, or out of L2.
Alternatives follow: threads that share pixels or outputs, each chunk of channels, each operand
streamed past L1; with --ablate kernels with a part left out instead. Exits with 3 where there is no
AMX.
"""

import argparse
import itertools
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tvm_ext.core.machine import Machine
from tvm_ext.core.recipe import Config
from tvm_ext.rates.instructions import PRODUCTS
from tvm_ext.rates.loops import round_minimum
from tvm_ext.rates.measure import Caches, measure
from tvm_ext.runtime.cpu import cpu_flags
from tvm_ext.runtime.pool.threads import dispatcher
from tvm_ext.runtime.tiles import why_no_tiles
from tvm_ext.schedules.amx.recipe import TileMatch
from tvm_ext.schedules.recipes.convolution.conv2d_amx import Conv2dAmx
from tvm_ext.verification.environment import describe_machine

from benchmarks.common import arguments
from benchmarks.common.machine import machine_text
from benchmarks.common.results import say, write_json
from benchmarks.common.rows import table
from benchmarks.tiles.ablations import ABLATIONS, without
from benchmarks.tiles.kernels import KINDS, LAYERS, Call, Layer, Work, group_of, layer_calls

_UNSUPPORTED = 3
#: Seconds of a figure, and of all of them: later alternatives are left out.
_EACH, _LIMIT = 0.06, 110.0
#: Weights that are read once before the first ones are read again: more than L2, as in a whole
#: model.
COLD_BYTES = 64 << 20


@dataclass(frozen=True)
class Rates:
    """Of all threads: products a second, bytes a second of tile loads out of 16 KiB and out of 512
    KiB a thread."""

    products: float
    l1: float
    l2: float


@dataclass(frozen=True)
class Figure:
    """A kernel's seconds, with warm and with cold weights, of so much work; `ablation` is what it
    lacks."""

    layer: Layer
    kind: str
    config: Config
    estimate: float
    warm: float
    cold: float
    work: Work
    ablation: str = ""


@dataclass(frozen=True)
class Bench:
    """How figures are measured: on which machine, in how many seconds each, until when (by
    `time.perf_counter`)."""

    machine: Machine
    seconds: float
    end: float = float("inf")


def main() -> int:
    """Measure and print; 3 where there are no tile registers."""
    args = _arguments()
    machine, why = machine_with_tiles(args.target, args.threads)
    if machine is None:
        say(f"no AMX tile registers here: {why}")
        return _UNSUPPORTED
    bench = Bench(machine, args.seconds, time.perf_counter() + args.limit)
    measured = measured_rates(machine)
    rates = {kind: measured[kind] for kind in args.kinds}
    layers = [
        layer for layer in LAYERS if not args.only or any(text in layer.name for text in args.only)
    ]
    chosen = [figure_of(layer, kind, bench) for kind in args.kinds for layer in layers]
    others = list(_others(chosen, bench, args.ablate))
    print(_page(machine, rates, chosen, others))
    if args.json:
        figures = [{**asdict(figure), "layer": figure.layer.name} for figure in (*chosen, *others)]
        plain = {kind: asdict(rate) for kind, rate in rates.items()}
        write_json(args.json, {"rates": plain, "figures": figures})
    return 0


def _arguments() -> argparse.Namespace:
    parser = arguments.parser(
        __doc__, seconds=_EACH, limit=(_LIMIT, "seconds of all figures"),
        ablate=(False, "leave parts of the chosen kernels out, one by one"),
    )  # fmt: skip
    target = "LLVM's name of the CPU, where its own hides AMX (default: found out)"
    only = {"nargs": "+", "default": [], "metavar": "TEXT"}
    kinds = {"nargs": "+", "choices": list(KINDS), "default": list(KINDS)}
    parser.add_argument("--target", help=target)
    parser.add_argument("--threads", type=int, help="threads (default: all cores)")
    parser.add_argument("--kinds", **kinds, help="types (default: all)")
    parser.add_argument("--only", **only, help="layers whose name has one of the texts")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    return parser.parse_args()


def machine_with_tiles(target: str | None, threads: int | None) -> tuple[Machine | None, str]:
    """The machine with its tile registers, also where a masked model number hides them from LLVM;
    or None and why."""
    if "amx_tile" not in cpu_flags():
        return None, "this CPU has no amx-tile"
    if why := why_no_tiles():
        return None, why
    for name in (target, None if target else "sapphirerapids"):
        machine = Machine.detect(name, threads)
        if not (why := machine.why_no_tiles()):
            return machine, ""
    return None, why


def measured_rates(machine: Machine) -> dict[str, Rates]:
    """Rates of the tile instructions on all threads, by the kind of numbers; the library measures
    those of a core."""
    say("tile instructions")
    sizes = Caches(machine.l1d, machine.l2, machine.l3)
    rates = dispatcher.call(measure, machine, sizes, machine.rates)
    cycles = machine.threads * rates.hertz
    loads = cycles * rates.tile_l1, cycles * rates.tile_l2
    tiles = {kind: getattr(rates, PRODUCTS[dtypes].rate) for kind, dtypes in KINDS.items()}
    return {kind: Rates(cycles / tile, *loads) for kind, tile in tiles.items()}


def least(calls: Sequence[Call], seconds: float) -> float:
    """The least mean seconds of a call, over passes through all calls within about so many
    seconds."""

    def all_calls() -> None:
        for call in calls:
            call()

    all_calls()
    return round_minimum(all_calls, seconds) / len(calls)


def figure_of(
    layer: Layer,
    kind: str,
    bench: Bench,
    config: Config | None = None,
    cold_bytes: int = COLD_BYTES,
) -> Figure:
    """Seconds of a layer's kernel, of the configuration that a compile takes or of another one."""
    match, recipe, machine = _match(layer, kind, bench.machine), Conv2dAmx(), bench.machine
    config = config or recipe.default(match, machine)
    say(f"{kind} {layer.name}: {_text(config)}")
    warm, cold = layer_calls(match, config, machine, cold_bytes)
    times = least([warm], bench.seconds), least(cold, bench.seconds)
    estimate = recipe.cost(match, config, machine)
    return Figure(layer, kind, config, estimate, *times, Work.of(match, config))


def _match(layer: Layer, kind: str, machine: Machine) -> TileMatch:
    match = Conv2dAmx().match(group_of(layer, kind), machine)
    assert isinstance(match, TileMatch), match
    return match


def _others(chosen: Sequence[Figure], bench: Bench, ablate: bool) -> Iterator[Figure]:
    """Other configurations of each layer, those of a rank in turn, or the chosen kernels with each
    part left out in turn; until the time is over."""
    jobs = [(figure, figure.config, what) for what in ABLATIONS for figure in chosen]
    if not ablate:
        queues = [[(f, c, "") for c in alternatives(f, bench.machine)] for f in chosen]
        jobs = [job for rank in itertools.zip_longest(*queues) for job in rank if job]
    for figure, config, what in jobs:
        if time.perf_counter() > bench.end:
            say("the time is over: other kernels are left out")
            return
        with without(what):
            other = figure_of(figure.layer, figure.kind, bench, config)
        yield replace(other, ablation=what)


def alternatives(figure: Figure, machine: Machine) -> list[Config]:
    """The best of each way to share, of each operand streamed, of each chunk, of each number of
    parts by estimate."""
    recipe, match, own = Conv2dAmx(), _match(figure.layer, figure.kind, machine), figure.config
    points = [p for p in recipe.points(match, machine) if p["image"] == own["image"]]
    configs: list[Config] = []

    def rank(config: Config) -> tuple[int, float]:
        changes = sum(config[knob] != value for knob, value in own.items())
        return changes, recipe.cost(match, config, machine)

    for knob in ("share", "stream", "chunk", "parts"):
        for value in sorted({p[knob] for p in points} - {own[knob]}, reverse=True):
            best = min((p for p in points if p[knob] == value), key=rank)
            configs += [best] if best not in configs else []
    return configs


def _page(
    machine: Machine, rates: dict[str, Rates], chosen: Sequence[Figure], others: Sequence[Figure]
) -> str:
    threads = f"{machine.threads} threads, compiled for {machine.mcpu}"
    lines = [f"{machine_text(describe_machine())}; {threads}", ""]
    for kind, rate in rates.items():
        loads = f"out of L1 {rate.l1 / 1e9:.0f} GB/s, out of L2 {rate.l2 / 1e9:.0f} GB/s"
        products = f"products {rate.products * _flops(kind) / 1e12:.2f} TFLOP/s"
        lines.append(f"* {kind}: {products}; tile loads {loads}")
    for kind, rate in rates.items():
        own = {figure.layer: figure for figure in chosen if figure.kind == kind}
        rows = [_row(figure, rate) for figure in own.values()]
        lines += ["", f"## {kind}, as a compile chooses", "", table([_HEAD, *rows])]
        rows = [_row(f, rate, own[f.layer]) for f in others if f.kind == kind]
        head = [*_HEAD, "warm / chosen", "cold / chosen"]
        lines += ["", f"## {kind}, other kernels", "", table([head, *rows])]
    return "\n".join(lines)


_HEAD = [
    "layer", "configuration", "estimate us", "warm us", "cold us", "TFLOP/s cold", "products",
    "loads, L1", "loads, L2",
]  # fmt: skip


def _flops(kind: str) -> int:
    return 2 * 16 * 16 * (32 if kind == "bf16" else 64)


def _row(figure: Figure, rate: Rates, beside: Figure | None = None) -> list[str]:
    work, warm, cold = figure.work, figure.warm, figure.cold
    times = [f"{1e6 * t:.1f}" for t in (figure.estimate, warm, cold)]
    parts = [work.products / rate.products, work.load_bytes / rate.l1, work.load_bytes / rate.l2]
    rates = [f"{work.operations / cold / 1e12:.2f}", *(f"{100 * p / warm:.0f} %" for p in parts)]
    ratios = [f"{warm / beside.warm:.2f}", f"{cold / beside.cold:.2f}"] if beside else []
    return [figure.layer.name, figure.ablation or _text(figure.config), *times, *rates, *ratios]


def _text(config: Config) -> str:
    return ", ".join(f"{knob} {value}" for knob, value in config.items() if knob != "threads")


if __name__ == "__main__":
    sys.exit(main())
