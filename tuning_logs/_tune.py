"""What the scripts of this folder share: tune a model of the zoo, and keep of the log what a compile reads.

The whole log of a session has thousands of rows and stays in .cache/; shipped are the best few of each task, and the
verdicts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm_ext
from tvm_ext.core.machine import Machine
from tvm_ext.tuning.log import prune

FOLDER = Path(__file__).resolve().parent
#: Rows of each task that are kept: the one to use, and others for those who want to look.
KEPT = 3


def main(model: str) -> None:
    """Tune for the minutes of the command line (10 by default), going on where the last run stopped; the log that is
    shipped is MODEL.CPU-tTHREADS.json beside this."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    machine = Machine.detect()
    shipped = FOLDER / f"{model}.{machine.mcpu}-t{machine.threads}.json"
    full = FOLDER / ".cache" / shipped.name
    full.parent.mkdir(exist_ok=True)
    proto = tvm_ext.zoo.MODELS[model]()
    print(tvm_ext.tune(proto, minutes=minutes, log=full, resume=full.exists(), on_event=_say))
    print(prune(full, KEPT, shipped))


def _say(event: Mapping[str, Any]) -> None:
    if event["event"] == "trial" and event["better"]:
        best = f"{event['task']}: {event['best'] * 1e6:.1f} us"
        print(f"{event['elapsed']:6.0f} s {event['trial']:5d} {best}", file=sys.stderr)
    elif event["event"] == "end":
        print(event["step"], "...", file=sys.stderr)
