"""Kills tuning sessions at random moments, each going on with the log of the one before, and counts
what that cost."""

import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from tvm_ext.core.records.record_book import RecordBook, lines_of

from benchmarks.common.results import say

COMMAND = (sys.executable, "-m", "tvm_ext.cli", "tune", "zoo:resnet18", "--json", "--trials")


def kill_sessions(count: int) -> dict[str, Any]:
    """What is in the log after so many sessions that were killed, and one that ended by itself.

    A record counts as finished when its session told of it: it is in the log before that.
    """
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder, "log.json")
        told = lost = 0
        for turn in range(count):
            before = _records(log)
            told = _killed(log, rng.randint(1, 30), rng.uniform(0, 0.3), resume=turn > 0)
            lost += max(0, told - (_records(log) - before))
            say(f"kill {turn + 1}: {_records(log)} records")
        last = [*COMMAND, "20", "--log", str(log), "--resume"]
        text = subprocess.run(last, stdout=subprocess.PIPE, text=True, check=True).stdout
        rows = [
            (r.task, r.recipe, json.dumps(r.config, sort_keys=True))
            for r in RecordBook.read([log]).records
        ]
        known = json.loads(text.splitlines()[0])["known"]
        counts = {"kills": count, "records": len(rows), "known": known, "lost": lost}
        cut = sum(bool(line.problem) for line in lines_of(log))
        return {**counts, "duplicates": len(rows) - len(set(rows)), "cut": cut}


def _killed(log: pathlib.Path, trials: int, wait: float, *, resume: bool) -> int:
    """Start a session, kill it some time after so many trials; how many it told of."""
    command = [*COMMAND, "500", "--log", str(log), *(["--resume"] if resume else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = 0
    for line in process.stdout:
        told += json.loads(line)["event"] == "trial"
        if told >= trials:
            break
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().splitlines()
    process.wait()
    return told + sum('"event": "trial"' in line for line in rest if line.endswith("}"))


def _records(log: pathlib.Path) -> int:
    return len(RecordBook.read([log]).records) if log.exists() else 0
