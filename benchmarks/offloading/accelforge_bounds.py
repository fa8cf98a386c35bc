"""The best mappings of each layer of :mod:`.layers`, by accelforge's mapper, which is optimal:

    python3.12 -m venv bounds && bounds/bin/pip install accelforge==1.0.467
    data=tests/byoc/systolic/data/accelforge_1_0_467
    bounds/bin/python benchmarks/offloading/accelforge_bounds.py dram ${data}_dram.csv
    bounds/bin/python benchmarks/offloading/accelforge_bounds.py energy ${data}_energy.csv

Its memories are those of the array: operands go through the scratchpad and sums through the
accumulator, in any order of loops and any sizes of tiles, those that divide nothing included. It
has the whole of each memory, where the array loads the next tile behind the work on the last one.
Sums are not spilled: they have 32 bits, results 8. "dram" is for the fewest bytes of DRAM, of any
array; "energy" for the least that the memories take by the accelerator's own figures: PEs in rows
and columns, with a register for the operand that stays, which costs nothing, as for us. Cycles
are not looked at.
"""

import csv
import importlib
import pathlib
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tvm_ext.byoc.systolic import Accelerator

from benchmarks.offloading.layers import BUFFERS, LAYERS

COLUMNS = ("layer", "batch", "m", "k", "n", "scratchpad_bytes", "accumulator_bytes")
#: What is minimized -> further columns.
MORE = {"dram": ("dram_bytes", "mapping"), "energy": ("dataflow", "picojoules", "mapping")}
#: Dataflow -> operand that stays in a PE; those that rows and columns of PEs share.
FLOWS = {
    "ws": ("weight", "output", "input"),
    "os": ("output", "weight", "input"),
    "is": ("input", "output", "weight"),
}
_MEMORY = """
  - !Memory
    name: {name}
    size: {size}
    leak_power: 0
    area: 0
    tensors: {{{tensors}}}
    actions:
    - {{name: read, energy: {energy}, throughput: inf}}
    - {{name: write, energy: {energy}, throughput: inf}}"""
_ARRAY = """
  - !Container
    name: Array
    spatial:
    - {{name: rows, fanout: {rows}, may_reuse: {along}, reuse: {along}}}
    - {{name: cols, fanout: {cols}, may_reuse: {across}, reuse: {across}}}"""
_REST = """
  - !Compute
    name: PE
    leak_power: 0
    area: 0
    actions:
    - {{name: compute, energy: 0, throughput: 1}}
workload:
  iteration_space_shape: {{b: 0 <= b < {batch}, m: 0 <= m < {m}, k: 0 <= k < {k}, n: 0 <= n < {n}}}
  bits_per_value: {{All: 8}}
  einsums:
  - name: gemm
    tensor_accesses:
    - {{name: A, projection: [b, m, k]}}
    - {{name: B, projection: [b, k, n]}}
    - {{name: C, projection: [b, m, n], output: True}}
    renames: {{input: A, weight: B, output: C}}
"""


def main() -> int:
    """Writes the table of what is minimized to the path that is given."""
    importlib.import_module("accelforge").set_n_parallel_jobs(1)
    _keep_registers_innermost()
    best = {"dram": fewest_bytes, "energy": least_energy}[sys.argv[1]]
    with pathlib.Path(sys.argv[2]).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *MORE[sys.argv[1]]])
        for name, sizes in LAYERS.items():
            for memories in BUFFERS:
                hardware = Accelerator(scratchpad_bytes=memories[0], accumulator_bytes=memories[1])
                writer.writerow((name, *sizes, *memories, *best(sizes, hardware)))
                file.flush()
    return 0


def fewest_bytes(sizes: tuple[int, int, int, int], hardware: Accelerator) -> tuple[int, str]:
    """Bytes of DRAM of the mapping that moves the fewest, and that mapping."""
    bits, mapping = _best(sizes, hardware, {"DRAM": 1.0})
    return round(bits) // 8, mapping


def least_energy(sizes: tuple[int, int, int, int], hardware: Accelerator) -> tuple[str, int, str]:
    """Dataflow, picojoules of memories, and mapping of that which takes the least."""
    table = hardware.energy
    sums = table.accumulator_byte * hardware.accumulator_itemsize  # of a value, which has 8 bits
    prices = {"DRAM": table.dram_byte, "Scratchpad": table.scratchpad_byte, "Accumulator": sums}
    bits = {name: price / 8 for name, price in prices.items()}
    mappings = ((flow, *_best(sizes, hardware, bits, flow)) for flow in FLOWS)
    flow, picojoules, mapping = min(mappings, key=lambda row: row[1])
    return flow, round(picojoules), mapping


def _best(
    sizes: tuple[int, int, int, int],
    hardware: Accelerator,
    prices: dict[str, float],
    flow: str = "",
) -> tuple[float, str]:
    """Cost and mapping of the best, of those whose tiles divide the sizes and of the others."""
    mappings = []
    for imperfect in (False, True):
        spec = _spec(sizes, hardware, prices, flow)
        spec.mapper.explore_imperfect_temporal_loops = imperfect
        spec.mapper.force_memory_hierarchy_order = False
        main = importlib.import_module("accelforge.mapper.FFM.main")
        best = main.map_workload_to_arch(
            spec, print_progress=False, eval_in_detail=False
        ).data.iloc[0]
        nodes = best["Total<SEP>mapping"]().nodes
        mappings.append((float(best["Total<SEP>energy"]), _text(nodes)))
    return min(mappings)


def _keep_registers_innermost() -> None:
    """No mapping in which a register, of which there is one a PE, is above a memory of all PEs:
    with memories in any order the mapper would try them, and stop at the first."""
    place = "accelforge.mapper.FFM._make_pmappings.make_pmapping_templates.make_storage_order"
    module = importlib.import_module(place)
    accepted = module.valid_tensor_holder_order

    def check(mapping: Any, *others: Any) -> tuple[bool, str]:
        below = [*mapping, *others[-1]]
        if "Register" in [node.component for node in mapping if node is not below[-1]]:
            return False, "a register above a memory of all PEs"
        return accepted(mapping, *others)  # type: ignore[no-any-return]

    module.valid_tensor_holder_order = check


def _spec(
    sizes: tuple[int, int, int, int], hardware: Accelerator, prices: dict[str, float], flow: str
) -> Any:
    """The array and one GEMM; a bit that is moved at a memory costs what `prices` has of it."""
    sums = hardware.accumulator_bytes // hardware.accumulator_itemsize
    memories = [
        ("DRAM", "inf", "keep: All, may_keep: All"),
        ("Scratchpad", 8 * hardware.scratchpad_bytes, "keep: input | weight"),
        ("Accumulator", 8 * sums, "keep: output, no_refetch_from_above: output"),
    ]
    text = "arch:\n  nodes:" + "".join(_memory(*each, prices) for each in memories)
    if flow:
        stays, along, across = FLOWS[flow]
        text += _ARRAY.format(rows=hardware.rows, cols=hardware.cols, along=along, across=across)
        text += _memory("Register", 8, f"keep: {stays}", prices)
    text += _REST.format(**dict(zip(("batch", "m", "k", "n"), sizes, strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "array.yaml")
        path.write_text(text, encoding="utf-8")
        return importlib.import_module("accelforge").Spec.from_yaml(str(path))


def _memory(name: str, size: int | str, tensors: str, prices: dict[str, float]) -> str:
    return _MEMORY.format(name=name, size=size, tensors=tensors, energy=prices.get(name, 0))


def _text(nodes: list[Any]) -> str:
    """Loops with the sizes of their tiles, and what is kept where below them."""
    texts = {
        "Storage": lambda node: f"[{node.component}: {' '.join(node.tensors)}]",
        "Temporal": lambda node: f"for {node.rank_variable} by {node.tile_shape}",
        "Spatial": lambda node: f"{node.name}: {node.rank_variable} by {node.tile_shape}",
    }
    named = ((type(node).__name__, node) for node in nodes)
    return " ".join(texts[kind](node) for kind, node in named if kind in texts)


if __name__ == "__main__":
    sys.exit(main())
