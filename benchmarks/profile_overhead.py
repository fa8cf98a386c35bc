"""Whether a profile is true: its kernels together, over a run nobody looks at.

Writes results/MACHINE/profile_overhead.*
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from _common import RESULTS, Row, say, write_results

import tvm_ext
from tvm_ext.inspection.profile import Profile, profile_text

#: Of the sum of the kernels' times, without what looking costs, over the undisturbed run of the same round.
LOW, HIGH = 0.9, 1.1
#: Models of the zoo with a bar; the others are told.
WITH_BAR = ("resnet18",)
MODELS = ("resnet18", "resnet50", "mobilenet_v2", "bert", "mlp")


def main() -> int:
    """Profile; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python benchmarks/profile_overhead.py --only resnet18",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS, help="models of the zoo (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each side in a round (default: 0.3)")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="folder of the two result files")
    args = parser.parse_args()
    profiles = {name: _profile(name, args) for name in args.only}
    rows = [_row(name, profile) for name, profile in profiles.items()]
    first = next(iter(profiles.values()))
    notes = "\n".join(
        [
            "The figure is the median over rounds of (sum of the kernels' times / undisturbed run); in brackets the "
            "interval that holds it with 95 %. What looking costs is measured on kernels that do nothing, and "
            "subtracted. Nothing is tuned, no record is used. A small model spends more of its time outside kernels.",
            "", "```text", profile_text(first), "```",
        ]
    )  # fmt: skip
    write_results(args.output, "profile_overhead", rows, {"threads": args.threads, "seconds": args.seconds}, notes)
    return 0 if all(row.met for row in rows) else 1


def _profile(name: str, args: argparse.Namespace) -> Profile:
    say(f"{name} ...")
    return tvm_ext.profile(
        tvm_ext.zoo.MODELS[name](), rounds=args.rounds, seconds=args.seconds, threads=args.threads, records=None,
        code=False,
    )  # fmt: skip


def _row(name: str, profile: Profile) -> Row:
    ratio, bar = profile.coverage, name in WITH_BAR
    per_call = profile.overhead.per_call * 1e6
    measured = f"{ratio}; {profile.seconds * 1e3:.3f} ms, {len(profile.launches)} launches; {per_call:.1f} us a look"
    details = {
        "ratio": ratio.median, "low": ratio.low, "high": ratio.high, "rounds": ratio.rounds,
        "seconds": list(profile.whole), "in_kernels": profile.in_kernels, "launches": len(profile.launches),
        "roofs": profile.roofs.as_dict(), "overhead": vars(profile.overhead),
    }  # fmt: skip
    what = f"{name}: kernels of the profile / undisturbed run"
    return Row(what, f"{LOW} to {HIGH}" if bar else "(told)", measured, not bar or LOW <= ratio.median <= HIGH, details)


if __name__ == "__main__":
    sys.exit(main())
