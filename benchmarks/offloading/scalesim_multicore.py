"""Cycles of the layers of :mod:`.layers` on several cores, by SCALE-Sim 3's model of them, the file
`multi-core/analytical.py` of its commit 01d1b71:

    python benchmarks/offloading/scalesim_multicore.py analytical.py \\
        tests/byoc/systolic/data/scalesim_3_multicore.csv

Of each way to cut a GEMM it has the cores in the rectangle of the fewest cycles.
"""

import ast
import csv
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from benchmarks.offloading.layers import LAYERS

#: Rows and columns of PEs of a core; cores.
ARRAYS, CORES = ((16, 16), (8, 32)), (4, 6, 16)
PARTITIONS = ("spatial", "spatio-temporal1", "spatio-temporal2")


def main() -> int:
    """Reads the functions of the file, leaves out what it runs, and writes the table."""
    tree = ast.parse(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    names: dict[str, Any] = {"math": __import__("math")}
    exec(compile(ast.Module(functions, []), sys.argv[1], "exec"), names)
    with pathlib.Path(sys.argv[2]).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("layer", "m", "k", "n", "rows", "cols", "arrays", "dataflow", *PARTITIONS))
        for name, (_, m, k, n) in LAYERS.items():
            for (rows, cols), cores in ((array, cores) for array in ARRAYS for cores in CORES):
                for flow in ("ws", "os", "is"):
                    # Its M lies along the columns in "ws", as n does here: A and B change places.
                    sizes = (m, n, k) if flow == "os" else (n, m, k)
                    case = (*sizes, cores, rows, cols, flow)
                    ways = names["find_factors"](cores)
                    cycles = [names["calculate_metrics"](*case, way, ways)[1] for way in PARTITIONS]
                    writer.writerow((name, m, k, n, rows, cols, cores, flow, *cycles))
    return 0


if __name__ == "__main__":
    sys.exit(main())
