"""What a compiled model carries for the accelerator: its programs, timed anew, as rows of all layers.

timings = timings_of(tvm_ext.compile(model, offload="systolic"))
"""

from __future__ import annotations

from typing import Any

from ...core.errors import OptionError
from .code.program import Program, program_from_bytes
from .results.report import LayerRow, layer_rows
from .simulation.timing import Timing, simulate


def programs_of(compiled: Any) -> dict[str, Program]:
    """Region -> its program.

    Args:
        compiled: what `tvm_ext.compile(model, offload="systolic")` or `tvm_ext.load` gives.

    Raises:
        OptionError: nothing of the model was offloaded.
        ProgramError: it was, to another back end.
    """
    programs = compiled.offload_programs()
    if not programs:
        raise OptionError(
            "nothing of this model runs on the systolic array",
            fix='compile(..., offload="systolic", offload_options={"when": "always"}); offload_report() says why',
        )
    return {region: program_from_bytes(data) for region, data in programs.items()}


def timings_of(compiled: Any) -> dict[str, Timing]:
    """Region -> when each of its instructions runs; raises as :func:`programs_of`."""
    return {region: simulate(program) for region, program in programs_of(compiled).items()}


def rows_of(compiled: Any) -> list[LayerRow]:
    """A row a layer, over all regions; raises as :func:`programs_of`."""
    return [row for timing in timings_of(compiled).values() for row in layer_rows(timing)]
