"""Runs random graphs as programs of any size: python -m tests.property.symbolic [--start 0] [--count 1000]

Prints what neither passes nor has no other size, and how many there are of each kind; 1 if any is wrong or crashes.
"""

import sys
from collections.abc import Sequence

from tests.oracles.symbolic import told
from tests.oracles.table import parser_of

from .any_size import SERVICE
from .cases import seeded


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print; 1 if anything is wrong or crashes."""
    parser = parser_of("tests.property.symbolic", __doc__)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1000, help="how many seeds")
    args = parser.parse_args(argv)
    cases = [seeded(seed) for seed in range(args.start, args.start + args.count)]
    return told(SERVICE, {case.name: case for case in cases}, args.workers)


if __name__ == "__main__":
    sys.exit(main())
