"""Queues, tokens and the DMA channel; :mod:`..simulation.queues` and :mod:`..simulation.timing` say what they do.

Each queue is a FIFO that the host fills. Its head works, holds its place until it is done, and then hands out its
tokens, which count from the next clock on. SYNC takes no clock: the host counts them, as the `epoch` of each
instruction, and a head waits until no queue is in an earlier epoch. FINISH, in the last epoch, ends each queue.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from ..code.isa import POP_NEXT, POP_PREV, PUSH_NEXT, PUSH_PREV, QUEUES, RECORD_BYTES

INDEX_BITS, TOKEN_BITS = 32, 16
_DEPTH = 4  #: the host adds one a clock, and an instruction takes one or more
_BIT = {mask: mask.bit_length() - 1 for mask in (POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT)}
#: How the elements of a tensor lie in memory: 4 bytes, int8, uint8.
WORDS, INT8, UINT8 = range(3)
#: An instruction, its index in the program, how many SYNCs are before it, the elements of the tensor that it moves, and
#: whether this lies in the scratchpad, from `base` on.
ENTRY = data.StructLayout(
    {"record": 8 * RECORD_BYTES, "index": INDEX_BITS, "epoch": INDEX_BITS, "elements": 2, "is_local": 1, "base": 32}
)
FINISH_EPOCH = (1 << INDEX_BITS) - 1


class Queues(wiring.Component):
    """The three queues, as load, compute, store.

    Inputs:
        go: whether heads may work: the host fills the queues first.
        *_entries: a stream of instructions from the host.
        *_done: the head is done in this clock.

    Outputs:
        *_head, *_active: the instruction, and whether it works in this clock.
        finished: all queues have come to FINISH.
    """

    def __init__(self) -> None:
        members: dict[str, Any] = {"go": In(1), "finished": Out(1)}
        for name in QUEUES:
            members[f"{name}_entries"] = In(stream.Signature(ENTRY))
            members |= {f"{name}_head": Out(ENTRY), f"{name}_active": Out(1), f"{name}_done": In(1)}
        super().__init__(members)

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        present, epochs = [], []
        for name in QUEUES:
            fifo = m.submodules[name] = SyncFIFO(width=ENTRY.size, depth=_DEPTH)
            entries = getattr(self, f"{name}_entries")
            m.d.comb += [
                fifo.w_data.eq(entries.payload),
                fifo.w_en.eq(entries.valid),
                entries.ready.eq(fifo.w_rdy),
                fifo.r_en.eq(getattr(self, f"{name}_done")),
                self._head(name).eq(fifo.r_data),
            ]
            present.append(fifo.r_rdy)
            epochs.append(Signal(INDEX_BITS, name=f"{name}_epoch"))
            m.d.comb += epochs[-1].eq(Mux(fifo.r_rdy, self._head(name).epoch, 0))
        m.d.comb += self.finished.eq(1)
        for at, name in enumerate(QUEUES):
            has_tokens = self._tokens(m, at)
            may_begin = present[at] & (epochs[at] != FINISH_EPOCH) & has_tokens
            for other in epochs:
                may_begin &= other >= epochs[at]
            m.d.comb += getattr(self, f"{name}_active").eq(self.go & may_begin)
            with m.If(epochs[at] != FINISH_EPOCH):
                m.d.comb += self.finished.eq(0)
        return m

    def _head(self, name: str) -> Any:
        return getattr(self, f"{name}_head")

    def _flag(self, name: str, mask: int) -> Any:
        """A bit of the tokens of a head: they are the second byte of its record."""
        return self._head(name).record[8 + _BIT[mask]]

    def _tokens(self, m: Module, at: int) -> Any:
        """Counts what its neighbours push to a queue; whether the tokens that its head pops are there."""
        name, enough = QUEUES[at], 1
        for step, pop, push in ((-1, POP_PREV, PUSH_NEXT), (1, POP_NEXT, PUSH_PREV)):
            if not 0 <= at + step < len(QUEUES):
                continue
            other = QUEUES[at + step]
            count = Signal(TOKEN_BITS, name=f"tokens_{other}_to_{name}")
            pushed = getattr(self, f"{other}_done") & self._flag(other, push)
            popped = getattr(self, f"{name}_done") & self._flag(name, pop)
            m.d.sync += count.eq(count + pushed - popped)
            enough &= ~self._flag(name, pop) | (count != 0)
        return enough


class Transfer(wiring.Component):
    """A transfer of the head of a queue: waits out the latency, asks for the channel, and moves `width` bytes a clock.

    Outputs:
        requests: it wants the channel; `granted` answers in the same clock.
        holds: it has begun, and keeps the channel.
        offset: of the first byte that moves in this clock.
        done: its last byte moves in this clock.
    """

    def __init__(self, latency: int, width: int) -> None:
        self._latency, self._width = latency, width
        head = {"active": In(1), "nbytes": In(32), "granted": In(1)}
        super().__init__(
            {**head, "requests": Out(1), "holds": Out(1), "waits": Out(1), "offset": Out(32), "done": Out(1)}
        )

    def elaborate(self, _platform: Any) -> Module:
        m = Module()
        waited = Signal(range(self._latency + 1))
        m.d.comb += [
            self.requests.eq(self.active & (waited == self._latency)),
            self.holds.eq(self.offset != 0),
            self.done.eq(self.granted & (self.offset + self._width >= self.nbytes)),
        ]
        m.d.sync += self.waits.eq(self.requests & ~self.granted)
        with m.If(self.active & (waited != self._latency)):
            m.d.sync += waited.eq(waited + 1)
        with m.If(self.granted):
            m.d.sync += self.offset.eq(self.offset + self._width)
        with m.If(self.done):
            m.d.sync += waited.eq(0), self.offset.eq(0)
        return m


def arbitrate(m: Module, load: Transfer, store: Transfer, load_is_earlier: Any) -> None:
    """One channel for both: who holds it keeps it, then who waits, then, of two that ask at once, the earlier."""
    load_first = Mux(load.holds | store.holds, load.holds, Mux(load.waits | store.waits, load.waits, load_is_earlier))
    m.d.comb += [
        load.granted.eq(load.requests & (load_first | ~store.requests)),
        store.granted.eq(store.requests & (~load_first | ~load.requests)),
    ]
