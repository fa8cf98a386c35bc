"""Runs as trace events, which chrome://tracing and ui.perfetto.dev draw.

One process a run, all from time 0, so that runs stand below each other; in it a track of the host (the whole call, and
what the VM itself does), one of the kernels, and one for each back end. The format is Google's "Trace Event Format":
complete events (ph "X") with `ts` and `dur` in microseconds, and metadata events (ph "M") that name the tracks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core.errors import check_whole
from ...runtime.table import knobs_text
from .clock import Span
from .launch import Launch
from .measure import Timeline

if TYPE_CHECKING:
    from .profile import Profile

_HOST, _KERNELS = 1, 2


def trace_of(profile: Profile, runs: int = 1) -> dict[str, Any]:
    """The least runs under observation, of different rounds, as one JSON object.

    Raises:
        OptionError: the profile has not so many runs.
    """
    check_whole("runs", runs, 1, len(profile.timelines), fix="the profile has one a round")
    least = sorted(profile.timelines, key=lambda run: run.seconds)[:runs]
    events = [event for number, timeline in enumerate(least, start=1) for event in _run(profile, timeline, number)]
    return {
        "traceEvents": events, "displayTimeUnit": "ms",
        "otherData": {
            "model": profile.model, "cpu": str(profile.machine.get("cpu", "")), "threads": str(profile.threads),
            "note": "times include what looking costs, about "
            f"{profile.overhead.per_call * 1e6:.1f} us a call; that of kernels is in their args",
        },
    }  # fmt: skip


def _run(profile: Profile, timeline: Timeline, number: int) -> Iterator[dict[str, Any]]:
    """The events of one run."""
    backends = sorted({launch.backend for launch in profile.launches if launch.backend})
    tracks = {"": _KERNELS, **{name: _KERNELS + 1 + at for at, name in enumerate(backends)}}
    yield _name("process_name", number, 0, f"{profile.model}, run {number}")
    yield {**_name("process_sort_index", number, 0, ""), "args": {"sort_index": number}}
    yield _name("thread_name", number, _HOST, "host")
    for backend, track in tracks.items():
        yield _name("thread_name", number, track, backend or "kernels")
    yield _event(Span("run", 0.0, timeline.seconds), "host", number, _HOST, {})
    launches = iter(profile.launches)
    kernels = {launch.kernel for launch in profile.launches}
    for span in timeline.spans:
        if span.name not in kernels:
            yield _event(span, "vm", number, _HOST, {})
            continue
        launch = next(launches)
        category, track = "offload" if launch.backend else "kernel", tracks[launch.backend]
        yield _event(span, category, number, track, _args(profile, launch, span.end - span.start))


def _event(span: Span, category: str, process: int, track: int, args: dict[str, Any]) -> dict[str, Any]:
    """A complete event; times in whole nanoseconds, so that what lies in another one does so in the file too."""
    first, last = round(span.start * 1e9), round(span.end * 1e9)
    return {
        "name": span.name, "cat": category, "ph": "X", "ts": first / 1e3, "dur": (last - first) / 1e3, "pid": process,
        "tid": track, "args": args,
    }  # fmt: skip


def _name(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "ts": 0, "args": {"name": name}}


def _args(profile: Profile, launch: Launch, seconds: float) -> dict[str, Any]:
    """What is shown of a kernel that is clicked on: its nodes, its figures in this run, how it was made."""
    taken = seconds - profile.overhead.within(launch.arguments)
    args: dict[str, Any] = {
        "nodes": ", ".join(launch.nodes), "recipe": launch.recipe, "launch": launch.number,
        "us without looking": round(taken * 1e6, 3),
        "median us": round(launch.median * 1e6, 3),
    }  # fmt: skip
    for name, amount in (("GFLOP/s", launch.flops), ("GB/s", launch.bytes)):
        if amount is not None and taken > 0:
            args[name] = round(amount / taken / 1e9, 2)
    more = {
        "config": knobs_text(launch.config), "record": launch.record,
        "region": launch.region, "code": str(launch.code or ""),
    }  # fmt: skip
    return {**args, **{name: text for name, text in more.items() if text}}
