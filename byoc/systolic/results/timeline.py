"""A timing as Chrome trace events, which https://ui.perfetto.dev and chrome://tracing open: one track a queue.

The format: "Trace Event Format", Google, 2016; times are microseconds.
"""

from __future__ import annotations

import json
from typing import Any

from ..code.isa import QUEUES, text_of
from ..simulation.timing import Event, Timing

_STALL_TRACK = 10  # track numbers of stalls, behind those of the queues


def chrome_trace(timing: Timing) -> str:
    """JSON text with every instruction on the track of its queue, and its waiting on a track below."""
    names = [_track(at, queue) for at, queue in enumerate(QUEUES)]
    names += [_track(at + _STALL_TRACK, f"{queue} waits") for at, queue in enumerate(QUEUES)]
    spans = [span for event in timing.events if event.queue != "all" for span in _spans(timing, event)]
    return json.dumps({"traceEvents": names + spans, "displayTimeUnit": "ns"})


def _spans(timing: Timing, event: Event) -> list[dict[str, Any]]:
    instruction = timing.program.instructions[event.index]
    track = QUEUES.index(event.queue)
    facts = {"index": event.index, "instruction": text_of(instruction), "cycles": event.end - event.start}
    spans = [_span(timing, instruction.mnemonic, track, event.start, event.end, facts)]
    if event.start > event.begin:
        spans.append(_span(timing, event.cause, track + _STALL_TRACK, event.begin, event.start, {"index": event.index}))
    return spans


def _span(timing: Timing, name: str, track: int, start: int, end: int, facts: dict[str, Any]) -> dict[str, Any]:
    micro = 1e6 / timing.program.accelerator.frequency_hz
    return {
        "name": name,
        "ph": "X",
        "pid": 0,
        "tid": track,
        "ts": start * micro,
        "dur": (end - start) * micro,
        "args": facts,
    }


def _track(number: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": name}}
