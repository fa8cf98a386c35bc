"""`tvm-ext tune`: search configurations of a model's kernels by measuring them; writes a log of records."""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from ..core import tuner_names
from ..core.errors import OptionError
from .shared.common import model_of
from .shared.options import add_compile_arguments, compile_options

EXAMPLE = """\
  tvm-ext tune resnet18.onnx --minutes 10 --log resnet18.tuning.json
  tvm-ext tune resnet18.onnx --log resnet18.tuning.json --resume --minutes 5
  tvm-ext tune zoo:mobilenet_v2 --tasks conv2d --trials 500 --tuner ga
  tvm-ext tune resnet18.onnx --dry-run
  tvm-ext tune resnet18.onnx --rpc 10.0.0.1:9190 --key zen4 --target znver4 --threads 8
  tvm-ext compile resnet18.onnx --records resnet18.tuning.json -o resnet18.so

Ctrl-C ends it; what was measured is in the log, and --resume goes on. With --json every event is a line of JSON,
the last one the report."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("model", metavar="MODEL", help="path of an ONNX file, or zoo:NAME")
    parser.add_argument("--log", metavar="FILE", help="the log, appended to (default: MODEL.tuning.json)")
    parser.add_argument("--resume", action="store_true", help="go on: what the log has is not measured again")
    parser.add_argument("--trials", type=int, metavar="N", help="candidates to measure in all")
    parser.add_argument("--minutes", type=float, metavar="M", help="time to measure (default: 10, if no --trials)")
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="only tasks whose name, recipe or ONNX node contains this",
    )
    parser.add_argument(
        "--tuner", choices=tuner_names.NAMES, default=tuner_names.DEFAULT,
        help="how candidates are chosen (default: %(default)s); for metaschedule --log is the folder of its database",
    )  # fmt: skip
    parser.add_argument("--patience", type=int, default=128, help="trials without progress that end a task")
    parser.add_argument("--goal", type=float, default=0.0, metavar="R", help="stop at tuned / untuned time R")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tuners (default: 0)")
    parser.add_argument("--dry-run", action="store_true", help="list tasks and spaces; measure nothing")
    parser.add_argument("--rpc", metavar="HOST:PORT", help="measure on all servers of this RPC tracker")
    parser.add_argument("--key", metavar="KEY", help="the key of the servers at the tracker")
    add_compile_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Tune and print the report; 130 after Ctrl-C, 1 if the tuned model is wrong or no task can be measured."""
    from .. import tune

    progress = _Lines()
    report = tune(
        model_of(args.model), log=args.log, trials=args.trials, minutes=args.minutes, tasks=args.tasks,
        tuner=args.tuner, patience=args.patience, goal=args.goal, seed=args.seed, resume=args.resume,
        dry_run=args.dry_run, rpc=_tracker(args), on_event=_print_event if args.json else progress,
        **compile_options(args),
    )  # fmt: skip
    if not args.json:
        progress.close()
    print(json.dumps({"event": "report", **report.as_dict()}) if args.json else report)
    return 130 if report.interrupted else 0 if report.ok else 1


def _tracker(args: argparse.Namespace) -> tuple[str, int, str] | None:
    if args.rpc is None and args.key is None:
        return None
    host, _, port = (args.rpc or "").rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 1 << 16 and args.key):
        wrong = f"--rpc {args.rpc} --key {args.key}"
        raise OptionError(f"{wrong}: both are needed, as --rpc HOST:PORT --key KEY")
    return host, int(port), args.key


def _print_event(event: Mapping[str, Any]) -> None:
    """An event as a line of JSON on stdout."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in event.items()}
    print(json.dumps(plain), flush=True)


class _Lines:
    """Progress on stderr: one line that is rewritten on a terminal, elsewhere a line now and then."""

    interval = 5.0

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._peak = 0.0
        self._shown = 0.0
        self._tasks = 0

    def __call__(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "start":
            known = f"; {event['known']} candidates of it are known" if event.get("known") else ""
            self._say(f"{len(event['tasks'])} tasks; records go to {event['log']}{known}", final=True)
        elif kind == "peak":
            self._peak = event["flops"]
            self._say(f"measured peak of multiply-adds: {self._peak / 1e9:.0f} GFLOP/s", final=True)
        elif kind == "trial":
            self._trial(event)
        elif kind == "unusable":
            self._say(f"left out: {event['reason']}", final=True)
        elif kind == "end":
            self._say(f"{event['step']} ...", final=True)

    def close(self) -> None:
        """Clear the line."""
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _trial(self, event: Mapping[str, Any]) -> None:
        if event["error"] == "wrong":
            self._say(f"wrong answer, never chosen: {event['task']} {event['config']}: {event['detail']}", final=True)
        now = time.monotonic()
        if now - self._shown < (0.1 if self._terminal else self.interval):
            return
        self._shown = now
        of = f"/{event['of']}" if event["of"] else ""
        rate = event["flops"] / event["best"] / 1e9 if math.isfinite(event["best"]) else 0.0
        share = f" ({100e9 * rate / self._peak:.0f} % of peak)" if self._peak else ""
        gain = event["best"] / event["default"] if math.isfinite(event["default"]) else math.nan
        better = f", {gain:.2f} of the default's time" if math.isfinite(gain) else ""
        left = f", {event['left']:.0f} s left" if event["left"] is not None else ""
        best = f"{rate:.1f} GFLOP/s{share}" if rate else f"{1e6 * event['best']:.1f} us"  # inf: none yet
        self._say(f"{event['trial']}{of} {event['task']}: best {best}{better}{left}")

    def _say(self, text: str, final: bool = False) -> None:
        if self._terminal:
            print(f"\r\033[K{text}", end="\n" if final else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)
