"""Graphs drawn from ONNX's schemas, compiled and compared, for some minutes; or one again, in this process.

    python -m tests.schema_graphs.run --minutes 5 --seed 1000
    python -m tests.schema_graphs.run --repro 1017

Seeds are run one after the other from --seed on; what is not right is printed, with the command that runs it again.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import onnx

from tests.oracles.outcome import Outcome
from tests.oracles.pool import outcomes

from .graphs import seeded
from .judge import SERVICE, Task, answer

_MOST = 100_000
#: Outcomes that are as they should be: see `judge.outcome`.
FINE = ("right", "unchecked", "invalid", "refused")


def judged(draws: Iterable[tuple[int, str]], workers: int = 1) -> Iterator[tuple[int, str, Outcome]]:
    """(seed, operator, outcome) of draws as they finish; what crashed or hung is tried again without onnxruntime.

    Args:
        draws: seed and operator, "" for one that the seed draws.
    """
    tasks: list[Task] = [(seed, operator, True) for seed, operator in draws]
    for (seed, operator, _), outcome in outcomes(SERVICE, tasks, workers):
        if outcome.kind in ("crash", "hang"):
            outcome = next(again for _, again in outcomes(SERVICE, [(seed, operator, False)], 1))
        yield seed, str(outcome.facts.get("operator", operator or "?")), outcome


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 1 if an outcome is not fine."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.schema_graphs.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--op", default="", help="of one operator only, such as Conv")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--refusals", action="store_true", help="print what is refused though others run it, too")
    parser.add_argument(
        "--repro", type=int, metavar="SEED", help="print the graph of a seed, and run it in this process"
    )
    args = parser.parse_args(argv)
    if args.repro is not None:
        return _again(args.repro, args.op)
    end, counts = time.monotonic() + 60 * args.minutes, Counter[str]()
    shown = {"refused"} if args.refusals else set()
    draws = [(seed, args.op) for seed in range(args.seed, args.seed + _MOST)]
    for done, (seed, name, outcome) in enumerate(judged(draws, args.workers), 1):
        kind = outcome.kind
        counts[kind] += 1
        if kind not in FINE or kind in shown:
            print(f"--repro {seed}{' --op ' + args.op if args.op else ''}  {name} {outcome}", flush=True)
        late = time.monotonic() > end
        if done % 50 == 0 or late:
            print(f"seeds {args.seed} to {seed}: {dict(counts.most_common())}", file=sys.stderr, flush=True)
        if late:
            break
    return int(any(kind not in FINE for kind in counts))


def _again(seed: int, operator: str) -> int:
    case = seeded(seed, operator)
    print(onnx.printer.to_text(onnx.ModelProto.FromString(case.model)))
    for x in case.inputs:
        print(f"{x.dtype}{list(x.shape)}\n{x}")
    outcome = answer((seed, operator, True))
    print(case.operator, outcome)
    return int(outcome.kind not in FINE)


if __name__ == "__main__":
    sys.exit(main())
