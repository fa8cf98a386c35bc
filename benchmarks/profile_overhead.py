"""Whether a profile is true: its kernels together, over a run nobody looks at.

Writes results/MACHINE/profile_overhead.*
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tvm_ext
from tvm_ext.inspection.profile import Profile, profile_text

from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, say, write_results
from benchmarks.common.rows import Row, prose

#: Of the sum of the kernels' times, without what looking costs, over the undisturbed run of the
#: same round.
LOW, HIGH = 0.9, 1.1
#: Models of the zoo with a bar; the others are told.
WITH_BAR = ("resnet18",)
MODELS = ("resnet18", "resnet50", "mobilenet_v2", "bert", "mlp")
_NOTES = prose("""
    The figure is the median over rounds of (sum of the kernels' times / undisturbed run); in
    brackets the interval that holds it with 95 %. What looking costs is measured on kernels
    that do nothing, and subtracted. Nothing is tuned, no record is used. A small model spends
    more of its time outside kernels.""")


def main() -> int:
    """Profile; 1 if a bar was missed."""
    args = arguments.parser(
        __doc__, "profile_overhead.py --only resnet18", only=MODELS, what="models of the zoo",
        threads=2, rounds=7, seconds=0.3, output=RESULTS,
    ).parse_args()  # fmt: skip
    profiles = {name: _profile(name, args) for name in args.only}
    rows = [_row(name, profile) for name, profile in profiles.items()]
    first = next(iter(profiles.values()))
    notes = f"{_NOTES}\n\n```text\n{profile_text(first)}\n```"
    extra = {"threads": args.threads, "seconds": args.seconds}
    return write_results(args.output, "profile_overhead", rows, extra, notes)


def _profile(name: str, args: argparse.Namespace) -> Profile:
    say(f"{name} ...")
    how = {"rounds": args.rounds, "seconds": args.seconds, "threads": args.threads}
    return tvm_ext.profile(tvm_ext.zoo.MODELS[name](), **how, records=None, code=False)


def _row(name: str, profile: Profile) -> Row:
    ratio, bar, launches = profile.coverage, name in WITH_BAR, len(profile.launches)
    look = f"{profile.overhead.per_call * 1e6:.1f} us a look"
    text = f"{ratio}; {profile.seconds * 1e3:.3f} ms, {launches} launches; {look}"
    details = {
        "ratio": ratio.median, "low": ratio.low, "high": ratio.high, "rounds": ratio.rounds,
        "seconds": list(profile.whole), "in_kernels": profile.in_kernels, "launches": launches,
        "roofs": profile.roofs.as_dict(), "overhead": vars(profile.overhead),
    }  # fmt: skip
    what, met = f"{name}: kernels of the profile / undisturbed run", LOW <= ratio.median <= HIGH
    return Row(what, f"{LOW} to {HIGH}" if bar else "(told)", text, not bar or met, details)


if __name__ == "__main__":
    sys.exit(main())
