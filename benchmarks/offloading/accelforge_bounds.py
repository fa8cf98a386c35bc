"""Fewest bytes of DRAM for each layer of :mod:`.layers`, by accelforge's mapper, which is optimal:

    python3.12 -m venv bounds && bounds/bin/pip install accelforge==1.0.467
    bounds/bin/python benchmarks/offloading/accelforge_bounds.py \\
        tests/byoc/systolic/data/accelforge_1_0_467_dram.csv

Its memories are those of the array: operands go through the scratchpad and sums through the
accumulator, in any order of loops and any sizes of tiles, those that divide nothing included. It
has the whole of each memory, where the array loads the next tile behind the work on the last one.
Sums are not spilled: they have 32 bits, results 8. Only bytes of DRAM cost.
"""

import csv
import importlib
import pathlib
import sys
import tempfile
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.offloading.layers import BUFFERS, LAYERS

COLUMNS = (
    "layer",
    "batch",
    "m",
    "k",
    "n",
    "scratchpad_bytes",
    "accumulator_bytes",
    "dram_bytes",
    "mapping",
)
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
    """Writes the table to the path that is given."""
    rows = [
        (name, *sizes, scratchpad, accumulator, *bound(sizes, scratchpad, accumulator))
        for name, sizes in LAYERS.items()
        for scratchpad, accumulator in BUFFERS
    ]
    with pathlib.Path(sys.argv[1]).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    return 0


def bound(sizes: tuple[int, int, int, int], scratchpad: int, accumulator: int) -> tuple[int, str]:
    """(bytes, mapping) of the best, of those whose tiles divide the sizes and of the others."""
    mappings = []
    for imperfect in (False, True):
        spec = _spec(sizes, 8 * scratchpad, 8 * accumulator // 4)
        spec.mapper.explore_imperfect_temporal_loops = imperfect
        spec.mapper.force_memory_hierarchy_order = False
        main = importlib.import_module("accelforge.mapper.FFM.main")
        best = main.map_workload_to_arch(
            spec, print_progress=False, eval_in_detail=False
        ).data.iloc[0]
        nodes = best["Total<SEP>mapping"]().nodes
        mappings.append((int(best["Total<SEP>energy"]) // 8, _text(nodes)))
    return min(mappings)


def _spec(sizes: tuple[int, int, int, int], scratchpad: int, accumulator: int) -> Any:
    """The array and one GEMM, of which a bit that is moved from or to DRAM costs 1."""
    memories = (
        ("DRAM", "inf", "keep: All, may_keep: All", 1),
        ("Scratchpad", scratchpad, "keep: input | weight", 0),
        ("Accumulator", accumulator, "keep: output, no_refetch_from_above: output", 0),
    )
    text = "arch:\n  nodes:" + "".join(
        _MEMORY.format(name=name, size=size, tensors=tensors, energy=energy)
        for name, size, tensors, energy in memories
    )
    text += _REST.format(**dict(zip(("batch", "m", "k", "n"), sizes, strict=True)))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "array.yaml")
        path.write_text(text, encoding="utf-8")
        return importlib.import_module("accelforge").Spec.from_yaml(str(path))


def _text(nodes: list[Any]) -> str:
    """Loops with the sizes of their tiles, and what is kept where below them."""
    texts = {
        "Storage": lambda node: f"[{node.component}: {' '.join(node.tensors)}]",
        "Temporal": lambda node: f"for {node.rank_variable} by {node.tile_shape}",
    }
    named = ((type(node).__name__, node) for node in nodes)
    return " ".join(texts[kind](node) for kind, node in named if kind in texts)


if __name__ == "__main__":
    sys.exit(main())
