"""`tvm-ext scalesim`: cycles of layers as SCALE-Sim 3 counts them: with prefetch, in all, and stalls of its buffers."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, OptionError
from ...core.settings.flags import join_named
from ..shared.common import model_of, print_result, setting_argument
from ..shared.options import add_compile_arguments, compile_options

if TYPE_CHECKING:
    from ...byoc.systolic import ScaleSimLayer
    from ...byoc.systolic.config import SystolicOptions

EXAMPLE = """\
  tvm-ext scalesim topology.csv --offload-option rows=32 --offload-option cols=32 --memory words_per_cycle=8
  tvm-ext scalesim resnet18.onnx --offload-option dataflow=os --memory filter_bytes=131072 --sparsity 2:4

A topology is SCALE-Sim's: a head, then lines of Layer, M, N, K, or of Layer, height, width, filter height, filter
width, channels, filters, stride; behind them perhaps N:M. Of a model these are the GEMMs that the array gets."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("layers", metavar="LAYERS", help="ONNX file, zoo:NAME, or a topology file (.csv)")
    parser.add_argument(
        "--memory", action="append", default=[], metavar="KEY=VALUE", help="a setting of SCALE-Sim's three buffers"
    )
    parser.add_argument("--sparsity", metavar="N:M", help="of a model: N of each M rows of weights are kept")
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Count, and print the lines of SCALE-Sim's COMPUTE_REPORT.csv."""
    args.option_offload = args.option_offload or ["systolic"]
    options = compile_options(args)
    from ...byoc.settings import offloading_of
    from ...byoc.systolic import Memories, report_csv
    from ...byoc.systolic.config import known_settings
    from ...byoc.systolic.results.scale_sim_report import SCALE_SIM_COLUMNS, one_array

    if options["offload"] != "systolic":
        raise OptionError(f"--offload {options['offload']}: SCALE-Sim counts arrays", fix="--offload systolic")
    offloading = offloading_of("systolic", options.get("offload_options", {}))
    assert offloading is not None
    array = offloading.options
    settings = join_named("--memory", (setting_argument("--memory", text) for text in args.memory))
    memories = Memories(**known_settings(Memories, "memories", settings))
    shape = one_array(array)
    lines = [layer.counted(*shape, memories) for layer in _layers(args, options, array)]
    rows = [dict(zip(SCALE_SIM_COLUMNS, (number, *line), strict=True)) for number, line in enumerate(lines)]
    return print_result(args, {"ok": True, "layers": rows}, report_csv(lines).rstrip("\n"))


def _layers(args: argparse.Namespace, options: dict[str, Any], array: SystolicOptions) -> list[ScaleSimLayer]:
    from ...byoc.systolic import ScaleSimLayer, read_topology, sweep
    from ...driver.regions import regions_of

    array = replace(array, fusion=False)  # it counts whole layers
    if not args.layers.endswith(".csv"):
        sparsity = _sparsity(args.sparsity or "1:1")
        (point,) = sweep(regions_of(model_of(args.layers), **options), [array])
        return [ScaleSimLayer.of(row, sparsity) for row in point.layers if row.array_cycles]
    if args.sparsity:
        raise OptionError("--sparsity is of a model", fix="write N:M behind the lines of the topology")
    try:
        return read_topology(Path(args.layers).read_text(encoding="utf-8"), array.dataflow or "ws")
    except (OSError, UnicodeError) as error:
        raise InputError(f"{args.layers}: cannot be read ({error})", fix="give a topology file of SCALE-Sim") from None


def _sparsity(text: str) -> tuple[int, int]:
    try:
        kept, block = map(int, text.split(":"))
    except ValueError:
        raise OptionError(f"--sparsity {text}: N:M is needed", fix="as in --sparsity 2:4") from None
    return kept, block
