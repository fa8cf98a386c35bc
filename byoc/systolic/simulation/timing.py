"""The timing view: when each instruction runs, event by event over the three queues, and where the cycles go.

The next event is always the start of the instruction that can start first, so that causes come before effects. Load and
store share one DMA channel: a transfer waits out its latency, then takes the channel when it is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..code.isa import QUEUES
from ..code.program import Layer, Program
from ..config import Accelerator
from .cost import Cost, CostModel
from .queues import Streams


@dataclass(frozen=True, slots=True)
class Event:
    """One instruction in time, in cycles: it waits from `begin`, runs from `start` to `end`; `cause` says for what.

    `channel_wait` are cycles between `start` and `end` in which it waits for the DMA channel. `queue` is "all" for SYNC
    and FINISH.
    """

    index: int
    queue: str
    begin: int
    start: int
    end: int
    cause: str
    channel_wait: int = 0


@dataclass(frozen=True)
class Totals:
    """Sums over instructions.

    Attributes:
        macs, vector_ops: multiply-adds; elements of the vector unit.
        compute_cycles, transfer_cycles: what compute queue and DMA channel need at least.
        serial_cycles: all instructions one after the other.
        traffic: (memory, operand) -> bytes read or written.
        energy: level (array, vector, scratchpad, accumulator, dram; spad and network where PEs have memories) ->
            picojoules.
    """

    macs: int
    vector_ops: int
    compute_cycles: int
    transfer_cycles: int
    serial_cycles: int
    traffic: Mapping[tuple[str, str], int]
    energy: Mapping[str, float]

    @classmethod
    def of(cls, costs: Iterable[Cost], hardware: Accelerator) -> Totals:
        """The sums of these costs."""
        counts = Counter(costs)
        traffic: Counter[tuple[str, str]] = Counter()
        for cost, count in counts.items():
            for memory, operand, nbytes in cost.traffic:
                traffic[memory, operand] += nbytes * count
        macs, vector_ops, transfers, serial = (
            sum(getattr(cost, name) * count for cost, count in counts.items())
            for name in ("macs", "vector_ops", "transfer", "cycles")
        )
        compute = sum(cost.cycles * count for cost, count in counts.items() if cost.macs or cost.vector_ops)
        energy = _energy(hardware, macs, vector_ops, traffic)
        return cls(macs, vector_ops, compute, transfers, serial, dict(traffic), energy)

    def bytes_at(self, memory: str) -> int:
        """Bytes read or written at "dram", "scratchpad", "accumulator", "spad", "network" or "register"."""
        return sum(count for (where, _), count in self.traffic.items() if where == memory)


@dataclass(frozen=True)
class Timing:
    """What the timing view found.

    Attributes:
        cycles: from the first instruction to FINISH, without the launch by the host.
        events: one an instruction, in the order of the program.
        busy: unit -> cycles; units are the three queues and "dma", the channel.
        stalls: queue -> cause -> cycles; busy and stalls of a queue sum up to `cycles`.
        totals: of the whole program.
    """

    program: Program
    cycles: int
    events: tuple[Event, ...]
    busy: Mapping[str, int]
    stalls: Mapping[str, Mapping[str, int]]
    totals: Totals
    costs: tuple[Cost, ...]

    @property
    def utilization(self) -> float:
        """Multiply-adds done, of those that all PEs could do in these cycles; 0 to 1."""
        return self.totals.macs / (self.cycles * self.program.accelerator.macs_per_cycle) if self.cycles else 0.0

    @property
    def overlap(self) -> float:
        """Cycles of work a cycle: 1 is one unit after the other, 3 would be all queues always busy."""
        return sum(self.busy[queue] for queue in QUEUES) / self.cycles if self.cycles else 0.0

    def layer_cycles(self, layer: Layer) -> tuple[int, int]:
        """When the first instruction of a layer starts and its last one ends."""
        events = self.events[layer.begin : layer.end]
        return min((e.start for e in events), default=0), max((e.end for e in events), default=0)

    def layer_totals(self, layer: Layer) -> Totals:
        """The sums over the instructions of a layer."""
        return Totals.of(self.costs[layer.begin : layer.end], self.program.accelerator)


def simulate(program: Program) -> Timing:
    """Times a program; no value is computed.

    Raises:
        ProgramError: deadlock; names the instruction that waits, and for what.
    """
    model = CostModel(program)
    costs = tuple(model.cost(instruction) for instruction in program.instructions)
    events = _events(program, costs)
    busy: Counter[str] = Counter(dict.fromkeys((*QUEUES, "dma"), 0))
    stalls: dict[str, Counter[str]] = {queue: Counter() for queue in QUEUES}
    arrived = dict.fromkeys(QUEUES, 0)
    for event in events:
        for queue in QUEUES if event.queue == "all" else (event.queue,):
            stalls[queue][event.cause] += event.start - arrived[queue]
            stalls[queue]["DMA channel"] += event.channel_wait
            busy[queue] += event.end - event.start - event.channel_wait
            arrived[queue] = event.end
        busy["dma"] += costs[event.index].transfer
    totals = Totals.of(costs, program.accelerator)
    waits = {queue: {cause: n for cause, n in causes.items() if n} for queue, causes in stalls.items()}
    return Timing(program, events[-1].end, tuple(events), dict(busy), waits, totals, costs)


def _events(program: Program, costs: tuple[Cost, ...]) -> list[Event]:
    """Events in the order of the program. Bounded: each turn completes an instruction, or is the deadlock."""
    streams = Streams(program.instructions)
    free = dict.fromkeys(QUEUES, 0)
    channel_free = 0
    events: list[Event | None] = [None] * len(program.instructions)
    for _ in program.instructions:
        start, index, queue, cause = _next(program, streams, free)
        cost, end, wait = costs[index], start + costs[index].cycles, 0
        if cost.transfer:
            wait = max(0, channel_free - (start + program.accelerator.dma_latency))
            channel_free = end = end + wait
        kind = program.instructions[index].queue
        events[index] = Event(index, kind, free[queue], start, end, cause, wait)
        for each in QUEUES if kind == "all" else (queue,):
            free[each] = end
        streams.complete(queue, end)
    return [event for event in events if event is not None]


def _next(program: Program, streams: Streams, free: Mapping[str, int]) -> tuple[int, int, str, str]:
    """(start, index, queue, cause) of the instruction that can start first."""
    ready = []
    for index, queue in streams.waiting():
        if streams.missing(queue):
            continue
        if program.instructions[index].queue == "all":
            ready.append((max(free.values()), index, queue, program.instructions[index].mnemonic))
        else:
            pushed, channel = streams.available(queue)
            cause = f"token from {channel[0]}" if channel and pushed > free[queue] else ""
            ready.append((max(pushed, free[queue]), index, queue, cause))
    if not ready:
        raise streams.deadlock()
    return min(ready)


def _energy(
    hardware: Accelerator, macs: int, vector_ops: int, traffic: Mapping[tuple[str, str], int]
) -> dict[str, float]:
    table = hardware.energy
    energy = {"array": macs * table.mac(hardware.dtype), "vector": vector_ops * table.vector_op}
    for memory in ("scratchpad", "accumulator", "dram", "spad", "network"):
        moved = sum(nbytes for (where, _), nbytes in traffic.items() if where == memory)
        if moved or memory not in ("spad", "network"):
            energy[memory] = moved * getattr(table, f"{memory}_byte")
    return energy
