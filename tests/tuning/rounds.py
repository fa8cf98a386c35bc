"""Sessions that measure for a moment only: no test looks at their times."""

import functools
from collections.abc import Callable
from typing import Any

from tvm_ext.rates.loops import round_minimum
from tvm_ext.tuning import choose, in_model, tune
from tvm_ext.tuning.measure import LocalMeasurer
from tvm_ext.tuning.metaschedule import tune as metaschedule

#: Memory that weights are rotated through, in units of L3: where that is large, twice of it takes a second a process.
COLD = 0.1


def shorten(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Make programs that are compared run for ten milliseconds a round, not 200, and weights be less cold."""
    put(in_model, "round_minimum", lambda call, seconds: round_minimum(call, min(seconds, 0.01)))
    for module in (choose, tune, metaschedule):
        put(module, "LocalMeasurer", functools.partial(LocalMeasurer, cold=COLD))
