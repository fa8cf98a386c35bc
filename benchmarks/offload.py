"""What offloading to the simulated accelerator must show, each figure with its bar. Writes
results/MACHINE/offload*.

mapping     bytes of DRAM of 20 layers with three sizes of buffers against accelforge's optimum
cycles      closed form against SCALE-Sim's printed cycles; stepper against the other views, 300
            random GEMMs
int8        quantized layers against onnxruntime, graph optimizations off and on: what differs
float32     MLP, ResNet-18, BERT block against onnxruntime
speed       ResNet-18 offloaded: functional view and timing of one image; sweeps of 12 settings
artifact    ResNet-18 offloaded, run by a fresh process without a compiler; size
report      ResNet-18 and MobileNetV2, float32 and int8, BERT block: nodes of the model without a
            place or a reason; regions
damage      artifacts with a changed byte; programs with 1,000 mutations
"""

import pathlib
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tvm_ext
from tvm_ext.byoc.systolic import Accelerator, roofline_svg, sweep
from tvm_ext.driver.regions import regions_of

from benchmarks.common import arguments
from benchmarks.common.machine import machine_text
from benchmarks.common.results import RESULTS, write_parts, write_text
from benchmarks.common.rows import Row, filled, rows_table, table
from benchmarks.measuring.processes import fresh
from benchmarks.offloading import int8, mapping, models, views
from benchmarks.offloading.speed import MEMORIES
from benchmarks.pages.charts import svg_file, sweep_chart


def main() -> int:
    """Measure the parts asked for; the others keep their stored results."""
    parser = arguments.parser(__doc__, "offload.py --only cycles speed", only=list(PARTS))
    write_parts("offload", PARTS, parser.parse_args().only, page)
    return 0


def _part(*rows: Row, **more: Any) -> dict[str, Any]:
    return {"rows": [asdict(row) for row in rows], **more}


def cycles() -> dict[str, Any]:
    """The closed form against SCALE-Sim, and the three views against each other."""
    printed, stepped, stalls = views.scalesim(), views.stepper(), views.scalesim_memories()
    equal = not stepped["other cycles"] and not stepped["other bits"]
    told = (
        f"{stepped['runs']} runs: {stepped['other cycles']} with other cycles, "
        f"{stepped['other bits']} other bits; "
        f"float32 at most {stepped['of_bound']:.2f} of the bound"
    )
    return _part(
        Row("`gemm_cycles(model=\"scalesim\") - 1` against SCALE-Sim's printed cycles",
            "all 96 rows", f"{printed['equal']} of {printed['rows']}",
            printed["equal"] == printed["rows"] == 96, printed),
        Row("`scale_sim_cycles` against SCALE-Sim's total cycles with prefetch, total and stall "
            "cycles: 28 layers, 8 of them sparse; 3 bandwidths and calculated",
            "all 112 rows", f"{stalls['equal']} of {stalls['rows']}, {stalls['stalled']} stall",
            stalls["equal"] == stalls["rows"] == 112, stalls),
        Row("stepper against event model and functional view: 300 random GEMMs, 3 dataflows, "
            "arrays 1x1 to 8x8",
            "equal cycles; equal bits, float32 within k 2^-24 of the sum of absolute products",
            told, equal and stepped["of_bound"] <= 1, stepped),
    )  # fmt: skip


def mapping_bytes() -> dict[str, Any]:
    """Bytes that programs of layers move, against the optimum of a mapper that is not ours."""
    layers = mapping.measure()
    ratios = [row["bytes"] / row["bound"] for row in layers]
    mean = statistics.geometric_mean(ratios)
    above = f"{sum(r > 1.1 for r in ratios)} of {len(ratios)} above 1.10"
    text = f"{mean:.3f}; at most {max(ratios):.2f}; {above}"
    what = "bytes of DRAM / accelforge's optimum: 20 layers, 3 buffers; geometric mean"
    return _part(Row(what, "1.10", text, mean <= 1.1 and len(layers) == 60), layers=layers)


def int8_layers() -> dict[str, Any]:
    """Every case of :mod:`.offloading.int8`."""
    cases = [int8.measure(case) for case in int8.cases()]
    kept = sum(not row["offloaded"] for row in cases)
    settings = {"off": "graph optimizations off", "default": "as it is by default"}
    rows = []
    for exact, what in ((True, "scales of powers of two"), (False, "any scales")):
        some = [row for row in cases if row["exact"] == exact]
        for key, setting in settings.items():
            count, elements, largest = _sums(some, key)
            bar = "0 differ" if key == "off" else "counted"
            text = f"{count} of {elements:,} differ" + (f", by {largest}" if count else "")
            met = not kept and (count == 0 or key == "default")
            rows.append(Row(f"int8 against onnxruntime, {setting}; {what}", bar, text, met))
    return _part(*rows, cases=cases)


def float32() -> dict[str, Any]:
    """Errors of the range, over all outputs and three seeds."""
    rows = []
    for row in models.float32():
        nodes = f"{row['there']} of {row['nodes']} nodes in {row['regions']} regions"
        what, text = f"float32, {row['model']}: error", f"{row['error']:.1e}; {nodes}"
        rows.append(Row(what, "1e-5 of the range", text, row["error"] <= 1e-5, row))
    return _part(*rows)


def speed() -> dict[str, Any]:
    """Seconds of the simulator, in processes of their own, and the pictures of the sweep."""
    module = "benchmarks.offloading.speed"
    one, sweeps = (fresh(module, name)[1] for name in ("resnet18", "sweeps"))
    best = f"{min(one['functional']):.2f} functional, {min(one['timing']):.2f} timing at best"
    what = "ResNet-18, everything offloaded: functional view and timing, one image"
    rows = [Row(what, "2 s", f"{one['seconds']:.2f} s ({best})", one["seconds"] <= 2, one)]
    for memory, swept in sweeps.items():
        what = f"design sweep of ResNet-18: 12 settings, timing only; {_memory(memory)}"
        rows.append(Row(what, "5 s", f"{swept['seconds']:.2f} s", swept["seconds"] <= 5))
    about = f"float32; {_memory('large')}; 45 nm energies; one image"
    picture = sweep_chart("ResNet-18: design sweep", about, sweeps["large"]["rows"])
    write_text(RESULTS / "offload_sweep.svg", svg_file(picture))
    setting = {"rows": 32, "cols": 32, **MEMORIES["large"]}
    (point,) = sweep(regions_of(tvm_ext.zoo.resnet18()), [setting])
    picture = roofline_svg(point.layers, point.options, "ResNet-18, layers on the roofline")
    write_text(RESULTS / "offload_roofline.svg", picture)
    return _part(*rows, sweeps=sweeps)


def artifact() -> dict[str, Any]:
    """An artifact on its own."""
    answer = models.artifact()
    beyond, size = answer["file_bytes"] - answer["weight_bytes"], answer["file_bytes"] / 1e6
    runs = answer["same_bits"] and not answer["compilers"] and not answer["imported"]
    bits = "the same bits" if answer["same_bits"] else "OTHER BITS"
    text = f"{bits}; imported: {answer['imported'] or 'runtime only'}"
    what = "ResNet-18 exported, in a fresh process without a compiler on PATH"
    weight = f"{beyond / 1e6:.2f} MB of {size:.1f}"
    return _part(
        Row(what, "runs, same bits", text, runs, answer),
        Row("its file, less the weights", "1 MB", weight, beyond <= 1e6),
    )


def report() -> dict[str, Any]:
    """Nodes that the report says nothing of."""
    rows = []
    for row in models.coverage():
        places = f"{row['cpu']} on the CPU, {row['compile time']} at compile time"
        text = f"{row['silent']} of {row['nodes']} ({row['offloaded']} offloaded, {places})"
        what = f"report of {row['model']}: nodes without a place or a reason"
        rows.append(Row(what, "0", text, row["silent"] == 0, row))
        if row["model"] in ONE_PROGRAM:
            text = f"{row['regions']}; on the CPU: {', '.join(row['on the cpu']) or 'nothing'}"
            rows.append(Row(f"{row['model']}: regions", "3 or fewer", text, row["regions"] <= 3))
    return _part(*rows)


def damage() -> dict[str, Any]:
    """Changed bytes, and changed programs under a checksum that fits."""
    counts = views.changed()
    refused = [counts.get(key, 0) for key in ("artifacts", "programs")]
    text = f"{refused[0]} and {refused[1]} of {counts['places']} refused"
    what = "a bit flipped at 200 random places, in an artifact and in a program"
    rows = [Row(what, "refused", text, refused == [counts["places"]] * 2, counts)]
    what = "programs with 1,000 mutations under a checksum that fits"
    try:
        seen = fresh("benchmarks.offloading.views", "mutations", timeout=300.0)[1]
        met = not seen["different"]
        told = f"{seen['errors']} errors, {seen['equal']} with equal values"
        told += f", {seen['different']} with others"
    except RuntimeError as hang:
        met, told, seen = False, str(hang), {"hang": str(hang)}
    return _part(*rows, Row(what, "an error, or equal values; no hang", told, met, seen))


#: Models of which the array is to run nearly everything.
ONE_PROGRAM = ("MobileNetV2", "ResNet-18, int8", "MobileNetV2, int8")
PARTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "mapping": mapping_bytes, "cycles": cycles, "int8": int8_layers, "float32": float32,
    "speed": speed, "artifact": artifact, "report": report, "damage": damage,
}  # fmt: skip


def _sums(rows: list[dict[str, Any]], key: str) -> tuple[int, int, int]:
    """Mismatches, elements, largest difference."""
    wrong, elements = sum(r[key]["mismatches"] for r in rows), sum(r["elements"] for r in rows)
    return wrong, elements, max(r[key]["largest"] for r in rows)


def _memory(name: str) -> str:
    hardware = Accelerator(**MEMORIES[name])
    sizes = f"{hardware.scratchpad_bytes >> 10} KiB scratchpad"
    sizes += f", {hardware.accumulator_bytes >> 10} KiB accumulators"
    return f"{sizes}, {hardware.dma_bytes_per_cycle} bytes a cycle"


def main_table(results: Mapping[str, Any]) -> str:
    """The rows of all parts as Markdown."""
    parts = [results[name]["rows"] for name in PARTS if name in results]
    return rows_table(Row(**row) for rows in parts for row in rows)


def page(results: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    machine = next(iter(results.values()))["machine"]
    parts = ["# Offload", "`python benchmarks/offload.py` writes this page.", machine_text(machine)]
    parts.append(main_table(results))
    if "mapping" in results:
        parts += ["## Distance from the best mapping", filled(_MAPPING)]
        parts.append(table(mapping.cells(results["mapping"]["layers"])))
    if "int8" in results:
        parts += ["## int8, by kind", filled(_INT8), table(_int8_cells(results["int8"]["cases"]))]
    for memory, swept in results.get("speed", {}).get("sweeps", {}).items():
        parts += [f"## Design sweep, {_memory(memory)}", table(_sweep_cells(swept["rows"]))]
        if memory == "large":
            parts += ["![time and energy](offload_sweep.svg)", "32x32, each layer's best dataflow:"]
            parts.append("![roofline](offload_roofline.svg)")
    return "\n\n".join(parts)


_MAPPING = """
    Bytes between DRAM and the chip of one layer as a GEMM of int8 (of a convolution: of its im2col
    matrix), results of int8 included, as the timing view counts them of the program, over the
    fewest that accelforge 1.0.467 finds. Its mappings have the whole of each memory; those of the
    array load and store behind the work, for which each operand has a second buffer, and take at
    most 2 % more cycles than the fastest that fits. Where the ratio is above 1.10, what moves fewer
    bytes has no room beside those buffers, or has tiles so narrow that it takes longer.
    Cycles are those of the array, 16x16, beside those of multiply-adds alone."""


_INT8 = """
    With scales of powers of two, every value that onnxruntime computes on the way is exact, so
    both must agree in each bit; half-way cases occur all the time. With any scales onnxruntime,
    its graph optimizations off, multiplies the dequantized numbers in float32, and those sums
    round; the accelerator sums integers. A value next to a half-way case may then differ by one
    step: the one that does is -33.4999926 in float64; the accelerator says -33, onnxruntime
    -34. A product of two computed tensors is taken with zero points of 0."""


def _int8_cells(cases: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A line a kind: elements that differ with optimizations off, and by default."""
    kinds: dict[tuple[str, str, bool], list[dict[str, Any]]] = {}
    for row in cases:
        kinds.setdefault((row["kind"], row["scales"], row["exact"]), []).append(row)
    cells = [("layer", "scales", "powers of two", "elements", "differ, optimizations off",
              "differ, default")]  # fmt: skip
    for (kind, scales, exact), some in kinds.items():
        sums = [_sums(some, name) for name in ("off", "default")]
        counts = [f"{count}" + (f" (by {most})" if count else "") for count, _, most in sums]
        cells.append((kind, scales, "yes" if exact else "no", f"{sums[0][1]:,}", *counts))
    return cells


def _sweep_cells(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    cells = [("array", "dataflow", "cycles", "ms", "utilization", "DRAM MB", "mJ", "of which DRAM")]
    for row in rows:
        energy = sum(row["energy"].values())
        cells.append((
            f"{row['rows']}x{row['cols']}", row["dataflow"], f"{row['cycles']:,}",
            f"{1e3 * row['seconds']:.2f}", f"{row['utilization']:.1%}",
            f"{row['dram_bytes'] / 1e6:.0f}", f"{energy / 1e3:.1f}",
            f"{row['energy']['dram'] / energy:.0%}",
        ))  # fmt: skip
    return cells


if __name__ == "__main__":
    sys.exit(main())
