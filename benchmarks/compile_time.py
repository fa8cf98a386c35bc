"""Compile time of large graphs: seconds a node of random ones, of sizes up to two thousand nodes.
Writes results/MACHINE/compile_time.*

    python benchmarks/compile_time.py                       # 300 graphs: an hour
    python benchmarks/compile_time.py --count 10 --start 40

The graphs are those of `tests/property`, grown further: elementwise operators, movement,
reductions, matmuls, convolutions, quantization, recurrences, branches and loops, of small tensors.
One after another they are compiled in one process, which has compiled before; nothing is cached.
"""

import itertools
import pathlib
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tvm_ext
from tests.property.cases import grown

from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, say, write_results
from benchmarks.common.rows import Row, prose

#: Wall seconds a node, of the worst graph.
MOST = 0.01
#: Nodes of the graphs: these in turn.
SIZES = (50, 100, 200, 500, 1000, 2000)
NOTE = prose("""
    Wall seconds of a compile on all cores, from the ONNX model in memory to the loaded program,
    over the nodes of the model. `tests.property.cases.grown(SEED, NODES)` is a graph.""")


@dataclass(frozen=True)
class Timing:
    """One compile.

    Attributes:
        seed: of the graph.
        nodes: of its model.
        kernels: of the program.
        seconds: wall time; processor: of all threads and children.
    """

    seed: int
    nodes: int
    kernels: int
    seconds: float
    processor: float

    @property
    def each(self) -> float:
        """Wall seconds a node."""
        return self.seconds / self.nodes


def main() -> int:
    """Compile, write the page; 1 if the bar is missed."""
    args = arguments.parser(
        __doc__, "compile_time.py --count 10", output=RESULTS, start=(0, "the first seed"),
        count=(300, "graphs"), sizes=(SIZES, "nodes of the graphs, in turn"),
    ).parse_args()  # fmt: skip
    timed(-1, 20)  # imports, and the machine's rates
    seeds = range(args.start, args.start + args.count)
    timings = [timed(seed, args.sizes[seed % len(args.sizes)]) for seed in seeds]
    extra = {"timings": [asdict(timing) for timing in timings]}
    return write_results(args.output, "compile_time", rows(timings, args.sizes), extra, NOTE)


def timed(seed: int, nodes: int) -> Timing:
    """The compile of a random graph of at least so many nodes."""
    proto = grown(seed, nodes)
    model, count = proto.SerializeToString(), len(proto.graph.node)
    start, cpu = time.perf_counter(), time.process_time()
    compiled = tvm_ext.compile(model, cache=False, records=None)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    timing = Timing(seed, count, len(compiled.report["kernels"]), seconds, cpu)
    say(f"seed {seed}: {count} nodes in {seconds:.2f} s, {timing.each:.4f} each")
    return timing


def rows(timings: Sequence[Timing], sizes: Sequence[int]) -> list[Row]:
    """A row for each size, and one of all."""
    worst = max(timings, key=lambda timing: timing.each)
    what, bar = f"worst seconds a node of {len(timings)} graphs", str(MOST)
    table = [Row(what, bar, _text(worst), worst.each <= MOST)]
    for low, high in itertools.pairwise([*sorted(sizes), sys.maxsize]):
        if some := [timing for timing in timings if low <= timing.nodes < high]:
            worst = max(some, key=lambda timing: timing.each)
            text = f"{_text(worst)}; median {statistics.median(timing.each for timing in some):.4f}"
            table.append(Row(f"of {low} nodes, {len(some)} graphs", bar, text, worst.each <= MOST))
    return table


def _text(worst: Timing) -> str:
    cpu = f"{worst.processor / worst.nodes:.4f} of processor time"
    size = f"{worst.nodes} nodes, {worst.kernels} kernels"
    return f"{worst.each:.4f} ({cpu}; seed {worst.seed}, {size})"


if __name__ == "__main__":
    sys.exit(main())
