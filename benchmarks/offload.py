"""What offloading to the simulated accelerator must show, each figure with its bar. Writes results/MACHINE/offload*.

cycles       closed form against SCALE-Sim's printed cycles; stepper against the two other views, 300 random GEMMs
int8         quantized layers against onnxruntime, graph optimizations off and on: elements that differ
float32      MLP, ResNet-18, BERT block against onnxruntime
speed        ResNet-18 offloaded: functional view and timing of one image; design sweeps of 12 settings
artifact     ResNet-18 offloaded, run by a fresh process without a compiler; size
report       ResNet-18, MobileNetV2, BERT block: nodes of the model without a place or a reason
damage       artifacts with a changed byte; programs with 1,000 mutations
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import _offload_int8
import _offload_models
import _offload_views
from _common import FOLDER, RESULTS, Row, fresh, markdown_table, say, table, write_text
from _machine import machine_text, this_machine
from _offload_speed import MEMORIES
from _sweep_chart import sweep_chart

import tvm_ext
from tvm_ext.byoc.systolic import Accelerator, roofline_svg
from tvm_ext.byoc.systolic.results import sweep
from tvm_ext.driver.regions import regions_of

STORED = RESULTS / "offload.json"
Part = tuple[list[Row], dict[str, Any]]


def main() -> int:
    """Measure the parts asked for; the others keep their stored results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/offload.py --only cycles speed",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts (default: all)")
    args = parser.parse_args()
    results = json.loads(STORED.read_text()) if STORED.exists() else {}
    for name in args.only:
        say(f"{name} ...")
        rows, more = PARTS[name]()
        results[name] = {"machine": this_machine(), "rows": [asdict(row) for row in rows], **more}
        write_text(STORED, json.dumps(results, indent=1))
    page = _page(results)
    write_text(RESULTS / "offload.md", page)
    print(page)
    return 0


def cycles() -> Part:
    """The closed form against SCALE-Sim, and the three views against each other."""
    printed, stepped = _offload_views.scalesim(), _offload_views.stepper()
    equal = not stepped["other cycles"] and not stepped["other bits"]
    told = (
        f"{stepped['runs']} runs: {stepped['other cycles']} with other cycles, {stepped['other bits']} other bits; "
        f"float32 at most {stepped['of_bound']:.2f} of the bound"
    )
    return [
        Row("`gemm_cycles(model=\"scalesim\") - 1` against SCALE-Sim's printed cycles", "all 96 rows",
            f"{printed['equal']} of {printed['rows']}", printed["equal"] == printed["rows"] == 96, printed),
        Row("stepper against event model and functional view: 300 random GEMMs, 3 dataflows, arrays 1x1 to 8x8",
            "equal cycles; equal bits, float32 within k 2^-24 of the sum of absolute products", told,
            equal and stepped["of_bound"] <= 1, stepped),
    ], {}  # fmt: skip


def int8() -> Part:
    """Every case of :mod:`_offload_int8`."""
    found = [_offload_int8.measure(case) for case in _offload_int8.cases()]
    kept = sum(not row["offloaded"] for row in found)
    rows = []
    for exact, what in ((True, "scales of powers of two"), (False, "any scales")):
        some = [row for row in found if row["exact"] == exact]
        for key, setting in (("off", "graph optimizations off"), ("default", "as it is by default")):
            count, elements, largest = _sums(some, key)
            bar = "0 differ" if key == "off" else "counted"
            text = f"{count} of {elements:,} differ" + (f", by {largest}" if count else "")
            met = not kept and (count == 0 or key == "default")
            rows.append(Row(f"int8 against onnxruntime, {setting}; {what}", bar, text, met))
    return rows, {"cases": found}


def float32() -> Part:
    """Errors of the range, over all outputs and three seeds."""
    rows = []
    for row in _offload_models.float32():
        text = f"{row['error']:.1e}; {row['there']} of {row['nodes']} nodes in {row['regions']} regions"
        rows.append(Row(f"float32, {row['model']}: error", "1e-5 of the range", text, row["error"] <= 1e-5, row))
    return rows, {}


def speed() -> Part:
    """Seconds of the simulator, in processes of their own, and the pictures of the sweep."""
    one, sweeps = (_apart(name) for name in ("resnet18", "sweep"))
    both = f"{one['seconds']:.2f} s ({min(one['functional']):.2f} functional, {min(one['timing']):.2f} timing at best)"
    rows = [
        Row(
            "ResNet-18, everything offloaded: functional view and timing, one image",
            "2 s",
            both,
            one["seconds"] <= 2,
            one,
        )
    ]
    for memory, found in sweeps.items():
        what = f"design sweep of ResNet-18: 12 settings, timing only; {_memory(memory)}"
        rows.append(Row(what, "5 s", f"{found['seconds']:.2f} s", found["seconds"] <= 5))
    about = f"float32; {_memory('large')}; 45 nm energies; one image"
    write_text(RESULTS / "offload_sweep.svg", sweep_chart("ResNet-18: design sweep", about, sweeps["large"]["rows"]))
    (point,) = sweep(regions_of(tvm_ext.zoo.resnet18()), [{"rows": 32, "cols": 32, **MEMORIES["large"]}])
    picture = roofline_svg(point.layers, point.options, "ResNet-18, layers on the roofline")
    write_text(RESULTS / "offload_roofline.svg", picture)
    return rows, {"sweeps": sweeps}


def artifact() -> Part:
    """An artifact on its own."""
    found = _offload_models.artifact()
    beyond = found["file_bytes"] - found["weight_bytes"]
    runs = found["same_bits"] and not found["compilers"] and not found["imported"]
    text = (
        "the same bits" if found["same_bits"] else "OTHER BITS"
    ) + f"; imported: {found['imported'] or 'runtime only'}"
    return [
        Row("ResNet-18 exported, in a fresh process without a compiler on PATH", "runs, same bits", text, runs, found),
        Row("its file, less the weights", "1 MB", f"{beyond / 1e6:.2f} MB of {found['file_bytes'] / 1e6:.1f}",
            beyond <= 1e6),
    ], {}  # fmt: skip


def report() -> Part:
    """Nodes that the report says nothing of."""
    rows = []
    for row in _offload_models.coverage():
        text = (
            f"{row['silent']} of {row['nodes']} ({row['offloaded']} offloaded, {row['cpu']} on the CPU, "
            f"{row['compile time']} at compile time)"
        )
        what = f"report of {row['model']}: nodes without a place or a reason"
        rows.append(Row(what, "0", text, row["silent"] == 0, row))
    return rows, {}


def damage() -> Part:
    """Changed bytes, and changed programs under a checksum that fits."""
    found, mutated = _offload_views.changed(), _mutations()
    refused = [found.get(key, 0) for key in ("artifacts", "programs")]
    text = f"{refused[0]} and {refused[1]} of {found['places']} refused"
    told = mutated.get("hang") or (
        f"{mutated['errors']} errors, {mutated['equal']} with equal values, {mutated['different']} with others"
    )
    return [
        Row("a bit flipped at 200 random places, in an artifact and in a program", "refused", text,
            refused == [found["places"]] * 2, found),
        Row("programs with 1,000 mutations under a checksum that fits", "an error, or equal values; no hang", told,
            not mutated.get("hang") and not mutated["different"], mutated),
    ], {}  # fmt: skip


PARTS: Mapping[str, Callable[[], Part]] = {
    "cycles": cycles, "int8": int8, "float32": float32, "speed": speed, "artifact": artifact, "report": report,
    "damage": damage,
}  # fmt: skip


def _apart(name: str) -> dict[str, Any]:
    """What a part of _offload_speed.py finds in a fresh process."""
    return fresh([sys.executable, str(FOLDER / "_offload_speed.py"), name], {})[1]


def _mutations(seconds: float = 300.0) -> dict[str, Any]:
    """What becomes of mutated programs; "hang" if there is no end."""
    command = [sys.executable, str(FOLDER / "_offload_views.py"), "mutations"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"hang": f"no end after {seconds:.0f} s"}
    if done.returncode:
        return {"hang": f"the process ended with {done.returncode}: {done.stderr[-300:]}"}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _sums(rows: list[dict[str, Any]], key: str) -> tuple[int, int, int]:
    """Mismatches, elements, largest difference."""
    found = [row[key] for row in rows]
    return (
        sum(f["mismatches"] for f in found), sum(r["elements"] for r in rows), max(f["largest"] for f in found)
    )  # fmt: skip


def _memory(name: str) -> str:
    hardware = Accelerator(**MEMORIES[name])
    sizes = f"{hardware.scratchpad_bytes >> 10} KiB scratchpad, {hardware.accumulator_bytes >> 10} KiB accumulators"
    return f"{sizes}, {hardware.dma_bytes_per_cycle} bytes a cycle"


def main_table(results: Mapping[str, Any]) -> list[str]:
    """The rows of all parts as Markdown."""
    return table([Row(**row) for name in PARTS if name in results for row in results[name]["rows"]])


def _page(results: Mapping[str, Any]) -> str:
    """The results as Markdown."""
    machine = next(iter(results.values()))["machine"]
    parts = ["# Offload", "", "`python benchmarks/offload.py` writes this page.", "", machine_text(machine), ""]
    parts += [*main_table(results), ""]
    if "int8" in results:
        parts += ["## int8, by kind", "", _INT8_NOTE, "", *markdown_table(_int8_cells(results["int8"]["cases"])), ""]
    for memory, found in results.get("speed", {}).get("sweeps", {}).items():
        parts += [f"## Design sweep, {_memory(memory)}", "", *markdown_table(_sweep_cells(found["rows"])), ""]
        if memory == "large":
            parts += ["![time and energy](offload_sweep.svg)", "", "32x32, each layer's best dataflow:", "",
                      "![roofline](offload_roofline.svg)", ""]  # fmt: skip
    return "\n".join(parts)


_INT8_NOTE = """\
With scales of powers of two, every value that onnxruntime computes on the way is exact, so both must agree in each bit;
half-way cases occur all the time. With any scales onnxruntime, its graph optimizations off, multiplies the dequantized
numbers in float32, and those sums round; the accelerator sums integers. A value next to a half-way case may then differ
by one step: the one that does is -33.4999926 in float64; the accelerator says -33, onnxruntime -34. A product of two
computed tensors is taken with zero points of 0."""


def _int8_cells(found: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """A line a kind: elements that differ with optimizations off, and by default."""
    cells = [("layer", "scales", "powers of two", "elements", "differ, optimizations off", "differ, default")]
    for key in dict.fromkeys((r["kind"], r["scales"], r["exact"]) for r in found):
        some = [row for row in found if (row["kind"], row["scales"], row["exact"]) == key]
        counts = [f"{count}" + (f" (by {largest})" if count else "") for count, _, largest in
                  (_sums(some, name) for name in ("off", "default"))]  # fmt: skip
        cells.append((key[0], key[1], "yes" if key[2] else "no", f"{_sums(some, 'off')[1]:,}", *counts))
    return cells


def _sweep_cells(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    cells = [("array", "dataflow", "cycles", "ms", "utilization", "DRAM MB", "mJ", "of which DRAM")]
    for row in rows:
        energy = sum(row["energy"].values())
        cells.append((
            f"{row['rows']}x{row['cols']}", row["dataflow"], f"{row['cycles']:,}", f"{1e3 * row['seconds']:.2f}",
            f"{row['utilization']:.1%}", f"{row['dram_bytes'] / 1e6:.0f}", f"{energy / 1e3:.1f}",
            f"{row['energy']['dram'] / energy:.0%}",
        ))  # fmt: skip
    return cells


if __name__ == "__main__":
    raise SystemExit(main())
