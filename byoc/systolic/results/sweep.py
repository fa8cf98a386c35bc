"""Design sweeps: how regions of a model would run on other accelerators, by timing alone.

The parts of a plan do not overlap, for SYNC stands between them. So each is timed by itself, equal ones once, and the
cycles are those of the whole program; no weight is computed with, and nothing is compiled.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...region import Region
from ..code.codegen import code_of, facts_of
from ..code.layer import Matrix, Windows
from ..code.plan import Part, Plan
from ..config import SystolicOptions
from ..lowering.regions import plan_of
from ..simulation.timing import simulate
from .report import LayerRow, layer_rows


@dataclass(frozen=True)
class DesignPoint:
    """What one setting gives.

    Attributes:
        options: the setting.
        launches: regions, each started once by the host.
        layers: a row a layer of all regions, in order; `begin` counts from the begin of the layer.
    """

    options: SystolicOptions
    launches: int
    layers: tuple[LayerRow, ...]

    @property
    def cycles(self) -> int:
        """Of all regions, without their launches."""
        return sum(row.cycles for row in self.layers)

    @property
    def seconds(self) -> float:
        """Of all regions, with their launches."""
        return self.options.seconds(self.cycles + self.launches * self.options.launch_cycles)

    @property
    def utilization(self) -> float:
        """Multiply-adds done, of those that all PEs could do in these cycles; 0 to 1."""
        macs = sum(row.macs for row in self.layers)
        return macs / (self.cycles * self.options.macs_per_cycle) if self.cycles else 0.0

    @property
    def dram_bytes(self) -> int:
        """Bytes between DRAM and the chip."""
        return sum(row.dram_bytes for row in self.layers)

    @property
    def energy(self) -> dict[str, float]:
        """Level -> picojoules."""
        total: Counter[str] = Counter()
        for row in self.layers:
            total.update(row.energy)
        return dict(total)


def sweep(
    regions: Sequence[Region], settings: Iterable[Mapping[str, Any] | SystolicOptions]
) -> tuple[DesignPoint, ...]:
    """How regions run on each of several accelerators.

    Args:
        regions: what to run, as `tvm_ext.driver.regions.regions_of(model)` gives them.
        settings: each as in `offload_options`; what is left out has its default, but `fusion`, which is off: to plan
            what stays in the scratchpad takes two to three times as long as all else.

    Raises:
        OptionError: a setting does not fit.
        ProgramError: a layer does not fit an accelerator; names the layer.
    """
    points = []
    for setting in settings:
        options = setting if isinstance(setting, SystolicOptions) else SystolicOptions(**{"fusion": False, **setting})
        known: dict[Hashable, LayerRow] = {}
        plans = [plan_of(region, options) for region in regions]
        rows = [_row(part, planned, options, known) for planned in plans for part in planned.parts]
        points.append(DesignPoint(options, len(regions), tuple(rows)))
    return tuple(points)


def _row(part: Part, planned: Plan, options: SystolicOptions, known: dict[Hashable, LayerRow]) -> LayerRow:
    """The row of a part; timed, unless an equal one is known."""
    layer, key = part.layer, _key(part)
    if key not in known:
        alone = dataclasses.replace(planned, parts=(part,))
        (known[key],) = layer_rows(simulate(code_of(alone, options.accelerator)))
    row = known[key]
    return dataclasses.replace(row, name=layer.name, facts={**layer.facts, **facts_of(part)})


def _key(part: Part) -> Hashable:
    """All that the code of a part depends on, but for names, offsets in memory and the values of constants."""
    layer = part.layer
    b = _anonymous(layer.b) if isinstance(layer.b, Matrix) else layer.b is not None and layer.b.shape
    tiles = [None if step.tile is None else _anonymous(step.tile) for step in layer.steps]
    steps = tuple((step.op, step.dtype, step.source, tile) for step, tile in zip(layer.steps, tiles, strict=True))
    return _anonymous(layer.a), b, part.problem, part.choices[0], steps


def _anonymous(operand: Matrix | Windows) -> Matrix | Windows:
    """A matrix or windows without the name of its tensor, and where in it they begin."""
    if isinstance(operand, Matrix):
        return dataclasses.replace(operand, tensor="", offset=0)
    return dataclasses.replace(operand, tensor="", row=0)
