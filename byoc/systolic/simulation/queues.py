"""The three queues and their tokens: which instruction may start, what it waits for, and when nothing can go on.

Both the functional and the timing view go through here, so that they agree on what a program may do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from ....core.errors import ProgramError
from ..code.isa import POP_NEXT, POP_PREV, PUSH_NEXT, PUSH_PREV, QUEUES, Instruction, error_at

#: From one queue to a neighbour, as (from, to).
Channel = tuple[str, str]
CHANNELS: tuple[Channel, ...] = (("load", "compute"), ("compute", "load"), ("compute", "store"), ("store", "compute"))


@lru_cache(maxsize=64)
def channels_of(queue: str, tokens: int) -> tuple[tuple[Channel, ...], tuple[Channel, ...]]:
    """The channels that an instruction of this queue pops before it starts, and pushes to when it is done."""
    if queue == "all":
        return (), ()
    at = QUEUES.index(queue)
    pops = [(QUEUES[at + step], queue) for bit, step in ((POP_PREV, -1), (POP_NEXT, 1)) if tokens & bit]
    pushes = [(queue, QUEUES[at + step]) for bit, step in ((PUSH_PREV, -1), (PUSH_NEXT, 1)) if tokens & bit]
    return tuple(pops), tuple(pushes)


class Streams:
    """The state of the queues: how far each has come, and the tokens under way with the time each was pushed.

    Args:
        instructions: of one program; SYNC and FINISH stand in all three queues.
    """

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._instructions = instructions
        self._tokens: dict[Channel, deque[int]] = {channel: deque() for channel in CHANNELS}
        self._streams = {
            queue: deque(i for i, instruction in enumerate(instructions) if instruction.queue in (queue, "all"))
            for queue in QUEUES
        }

    def head(self, queue: str) -> int | None:
        """Index of the next instruction of that queue."""
        stream = self._streams[queue]
        return stream[0] if stream else None

    def missing(self, queue: str) -> str:
        """What the head of that queue still waits for; empty when it may start."""
        index = self._streams[queue][0]
        instruction = self._instructions[index]
        if instruction.queue == "all":
            late = [other for other in QUEUES if self.head(other) != index]
            return f"the {' and '.join(late)} queue to come here" if late else ""
        for channel in channels_of(queue, instruction.tokens)[0]:
            if not self._tokens[channel]:
                return f"a token from the {channel[0]} queue"
        return ""

    def available(self, queue: str) -> tuple[int, Channel | None]:
        """When the last of the tokens that the head pops was pushed, and on which channel that was."""
        pops = channels_of(queue, self._instructions[self._streams[queue][0]].tokens)[0]
        return max(((self._tokens[channel][0], channel) for channel in pops), default=(0, None))

    def complete(self, queue: str, time: int) -> None:
        """The head of that queue is done at `time`: its tokens are popped and pushed."""
        index = self._streams[queue][0]
        instruction = self._instructions[index]
        for each in QUEUES if instruction.queue == "all" else (queue,):
            self._streams[each].popleft()
        pops, pushes = channels_of(instruction.queue, instruction.tokens)
        for channel in pops:
            self._tokens[channel].popleft()
        for channel in pushes:
            self._tokens[channel].append(time)

    def waiting(self) -> list[tuple[int, str]]:
        """(index, queue) of the heads, in the order of the program."""
        return sorted([(stream[0], queue) for queue, stream in self._streams.items() if stream])

    def deadlock(self) -> ProgramError:
        """The error that names every instruction that waits, and for what; the first of the program is first."""
        index, queue = self.waiting()[0]
        others = [f"instruction {i} waits for {self.missing(q)}" for i, q in self.waiting()[1:] if i != index]
        problem = f"deadlock: it waits for {self.missing(queue)}, which none will push"
        return error_at(
            index,
            self._instructions[index],
            "; ".join([problem, *others]),
            fix="give an instruction of that queue, which does not itself wait for this one, a push token",
        )


def execution_order(instructions: Sequence[Instruction]) -> list[int]:
    """Indices in an order that the tokens allow: of those that may start, always the first of the program.

    Raises:
        ProgramError: deadlock; names the instruction that waits and for what.
    """
    streams = Streams(instructions)
    order = []
    for _ in instructions:
        for index, queue in streams.waiting():
            if not streams.missing(queue):
                order.append(index)
                streams.complete(queue, 0)
                break
        else:
            raise streams.deadlock()
    return order
