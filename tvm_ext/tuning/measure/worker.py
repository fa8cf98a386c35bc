"""A worker process: reads a JSON object a line, answers with one. Started by :mod:`.pool`; it imports once.

    {"do": "start", "machine": {...}, "plugins": [...], "cold": 2.0, "repeats": [10, 0.02], ...}     the first one
    {"do": "reference", "task": key, "describe": {...}, "path": ...}           save what the unscheduled function gives
    {"do": "build", "task": key, "describe": {...}, "trial": 7, "batch": 1, "candidate": {...}}
    {"do": "run", "trial": 7, "path": ..., "best": 1e-3, "again": false}             "again": it may be run once more

"describe" comes with the first message about a task. An answer has "error" ("", one of a record's, or BAD_TASK where
the description is of no use) and "detail", that of a run also "costs", "check" and "discarded".
"""

import importlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

from ...benchmarking.worker import die_with
from ...core.errors import OptionError, essence
from ...core.machine import Machine
from ...runtime.cpu import why_not_here
from .measurement import BAD_TASK
from .programs import add_recipes
from .timing import Repeats
from .workbench import Failed, Workbench


def main() -> None:
    """Answer messages until the pipe is closed. The argument is the parent's process number."""
    die_with(int(sys.argv[1]))
    messages, answers = _channel()
    bench: Workbench | None = None
    batch = 0
    for line in messages:
        message = json.loads(line)
        if bench is None:
            bench = _start(message)
            answer: dict[str, Any] = {"error": "", "detail": ""}
        else:
            if message.get("batch", batch) != batch:  # the caller gave up what is left of the one before
                batch = message["batch"]
                bench.forget()
            answer = _answer(bench, message)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _channel() -> tuple[BinaryIO, BinaryIO]:
    """The pipes, out of reach of whatever prints or reads: standard output goes where errors go."""
    messages, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return messages, answers


def _start(message: Mapping[str, Any]) -> Workbench:
    for name in message["plugins"]:
        add_recipes(getattr(importlib.import_module(name), "RECIPES", ()))
    machine, repeats = Machine.of(message["machine"]), Repeats(*message["repeats"])
    if "rpc" not in message:
        if why := why_not_here(message["machine"]):  # asks for the permission that a kernel with tiles needs
            raise OptionError(f"nothing can be measured here: {why}")
        return Workbench(machine, message["cold"], repeats)
    from .remote import Fleet, RemoteWorkbench

    return RemoteWorkbench(machine, message["cold"], repeats, Fleet(*message["rpc"]), message["folder"])


def _answer(bench: Workbench, message: Mapping[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"error": "", "detail": ""}
    try:
        if "describe" in message:
            _load(bench, message)
        if message["do"] == "reference":
            bench.save_reference(message["task"], message["path"])
        elif message["do"] == "build":
            bench.build(message["trial"], message["task"], message["candidate"])
        else:
            answer.update(bench.run(message["trial"], message["path"], message["best"], message["again"]))
    except Failed as failed:
        answer.update(error=failed.error, detail=failed.detail, check=failed.check)
    except Exception as error:
        answer.update(error="unknown", detail=essence(error))
    return answer


def _load(bench: Workbench, message: Mapping[str, Any]) -> None:
    try:
        bench.load(message["task"], message["describe"])
    except Exception as error:
        raise Failed(BAD_TASK, essence(error)) from error


if __name__ == "__main__":
    main()
