"""What a session tells: each trial while it runs, and at its end what became of each kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Trial:
    """One candidate, for a progress callback.

    Attributes:
        kernel: its name.
        number: of the trial in this session, from 1.
        seconds: its time; infinite if it failed.
        best: the least time of the kernel so far, earlier sessions included.
        error: "" or one of the names of errors; "wrong" if its result is.
        detail: the message.
    """

    kernel: str
    number: int
    seconds: float
    best: float
    error: str = ""
    detail: str = ""


@dataclass
class KernelSummary:
    """What became of one kernel.

    Attributes:
        trials: measured in this session.
        errors: name of an error -> how many.
        known: records of earlier sessions.
        best: least seconds of a right candidate, earlier sessions included; infinite if there is none.
        flops: floating-point operations of one run.
        space: "recipes" or "rules".
    """

    trials: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    known: int = 0
    best: float = math.inf
    flops: float = 0.0
    space: str = "rules"


@dataclass(frozen=True)
class TuneSummary:
    """What a session did.

    Attributes:
        kernels: by name.
        seconds: of the whole session; measuring: the part in which the pool built, checked and timed.
        repaired: lines of the database that an earlier session left unfinished, and that were cut off.
    """

    kernels: Mapping[str, KernelSummary]
    seconds: float
    measuring: float
    repaired: int = 0

    @property
    def trials(self) -> int:
        return sum(one.trials for one in self.kernels.values())
