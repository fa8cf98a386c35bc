"""Host and back ends at once: when each call of a run would begin and end if regions were asynchronous, by their times.

A compiled run makes its calls one after the other, and waits for each region. Here the host and each back end work by
themselves, with tokens between them: a call begins when its unit is free and the calls whose results it reads are done.
A unit takes the call that can begin first, of several that of the earlier run, then the first of the program; so the
host does what else there is while a region works, and what stands before the region of the next run. As many runs are
under way as have memory of their own: two; one where a run reads what the last one left, as decoders do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: The unit that all kernels run on which no back end has.
HOST = "host"
#: Runs that have memory of their own, of which one is filled while the other is computed on.
BUFFERS = 2


@dataclass(frozen=True)
class Call:
    """A call of a run: of a region its name, else of a kernel; the unit that runs it, and for how many seconds; and
    numbers of the calls before it whose results it reads."""

    name: str
    unit: str
    seconds: float
    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Span:
    """A call in time, in seconds from the begin of the first run; `token` is the call of another unit that it reads, of
    several the one that ended last, None if it reads none."""

    run: int
    call: int
    begin: float
    end: float
    token: int | None


@dataclass(frozen=True)
class Overlap:
    """Runs of the same calls, with the spans of all of them in the order they begin."""

    calls: tuple[Call, ...]
    runs: int
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, calls: Sequence[Call], runs: int = 1, buffers: int = BUFFERS) -> Overlap:
        """The schedule of so many runs, of which so many are under way at once."""
        return cls(tuple(calls), runs, tuple(_spans(calls, runs, buffers)))

    @property
    def seconds(self) -> float:
        """From the first call to the end of the last."""
        return max((span.end for span in self.spans), default=0.0)

    @property
    def serial_seconds(self) -> float:
        """Of all calls one after the other."""
        return self.runs * sum(call.seconds for call in self.calls)

    @property
    def units(self) -> tuple[str, ...]:
        """The host, and what else runs calls."""
        return tuple(dict.fromkeys((HOST, *(call.unit for call in self.calls))))

    def busy(self, unit: str) -> float:
        """Share of the time in which a unit works, 0 to 1."""
        work = self.runs * sum(call.seconds for call in self.calls if call.unit == unit)
        return work / self.seconds if self.seconds else 0.0

    def trace(self) -> dict[str, Any]:
        """Trace events, which ui.perfetto.dev draws: a track a unit, and an arrow for each token."""
        tracks = {unit: number for number, unit in enumerate(self.units)}
        names = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": track, "ts": 0, "args": {"name": unit}}
            for unit, track in tracks.items()
        ]
        return {"traceEvents": [*names, *self._events(tracks)], "displayTimeUnit": "ns"}

    def _events(self, tracks: dict[str, int]) -> Iterator[dict[str, Any]]:
        ends = {(span.run, span.call): span for span in self.spans}
        for number, span in enumerate(self.spans):
            call = self.calls[span.call]
            place = {"pid": 0, "tid": tracks[call.unit], "cat": call.unit}
            times = {"ts": 1e6 * span.begin, "dur": 1e6 * (span.end - span.begin)}
            yield {"name": call.name, "ph": "X", **place, **times, "args": {"run": span.run}}
            if span.token is not None:
                source, other = self.calls[span.token], ends[span.run, span.token]
                token = {"name": "token", "cat": "token", "id": number, "pid": 0}
                yield {**token, "ph": "s", "tid": tracks[source.unit], "ts": 1e6 * other.end}
                yield {**token, "ph": "f", "bp": "e", "tid": tracks[call.unit], "ts": 1e6 * span.begin}


def _spans(calls: Sequence[Call], runs: int, buffers: int) -> Iterator[Span]:
    """Spans in the order they begin: each turn takes, of the calls that can begin, the first."""
    readers: list[list[int]] = [[] for _ in calls]
    for number, call in enumerate(calls):
        for read in call.reads:
            readers[read].append(number)
    free = {call.unit: 0.0 for call in calls}
    ends: dict[tuple[int, int], float] = {}
    begun, gate, left = 0, [0.0] * buffers, [len(calls)] * runs
    ready: list[tuple[int, int]] = []
    for _ in range(runs * len(calls)):
        while begun < min(runs, len(gate)):
            ready += [(begun, number) for number, call in enumerate(calls) if not call.reads]
            begun += 1
        begin, run, number = min(
            (max(free[calls[at].unit], gate[run], *(ends[run, read] for read in calls[at].reads)), run, at)
            for run, at in ready
        )
        ready.remove((run, number))
        end = ends[run, number] = free[calls[number].unit] = begin + calls[number].seconds
        yield Span(run, number, begin, end, _token(calls, ends, run, number))
        ready += [(run, at) for at in readers[number] if all((run, read) in ends for read in calls[at].reads)]
        left[run] -= 1
        if not left[run]:
            gate.append(max(end for (of, _), end in ends.items() if of == run))


def _token(calls: Sequence[Call], ends: dict[tuple[int, int], float], run: int, number: int) -> int | None:
    """The call of another unit that a call reads and that ended last."""
    others = [read for read in calls[number].reads if calls[read].unit != calls[number].unit]
    return max(others, key=lambda read: ends[run, read], default=None)
