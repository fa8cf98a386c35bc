"""Runs the node cases as programs of any size.

    python -m tests.onnx_backend.symbolic [--only OP|CASE ...] [--nth 9] [--workers 2]

Prints what neither passes nor has no other size, and how many there are of each kind; 1 if any is wrong or crashes.
"""

import sys
from collections.abc import Sequence

from tests.oracles.symbolic import told
from tests.oracles.table import parser_of

from .any_size import SERVICE, tasks_of
from .cases import all_cases


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print; 1 if anything is wrong or crashes."""
    parser = parser_of("tests.onnx_backend.symbolic", __doc__)
    parser.add_argument("--only", nargs="+", default=[], help="operators, or cases")
    parser.add_argument("--nth", type=int, default=1, help="every so manieth case")
    args = parser.parse_args(argv)
    cases = [case for case in all_cases().values() if not args.only or {case.name, case.operator} & {*args.only}]
    tasks = list(tasks_of(cases))[:: args.nth]
    return told(SERVICE, {f"{case.operator} {case.name} {axes}": (case, axes) for case, axes in tasks}, args.workers)


if __name__ == "__main__":
    sys.exit(main())
