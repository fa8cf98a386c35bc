"""Code of layers as a plan has them, each by its best tiling; :mod:`.layer_code` writes the loops."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..config import Accelerator
from ..simulation.cost import block_of
from ..simulation.row_stationary import block_mapping
from .isa import Finish, Instruction, Sync
from .layer import GemmLayer
from .layer_code import LayerCode
from .plan import Part, Plan, plan
from .program import Layer, Program, Tensor
from .tiling import VECTOR


def lower(
    layers: Sequence[GemmLayer], tensors: Iterable[Tensor], accelerator: Accelerator, dataflow: str | None = None,
    fusion: bool = False,
) -> Program:  # fmt: skip
    """The program of layers, one after the other; each may read what those before it wrote.

    Args:
        layers: in order; they name the tensors.
        tensors: all of them; intermediate ones have role "scratch".
        accelerator: what it is for.
        dataflow: "ws", "os", "is" or "rs" for all layers; by default each has that of the first three with the least
            estimated cycles.
        fusion: whether intermediate tensors stay in the scratchpad where that pays; see :mod:`.plan`.

    Raises:
        ProgramError: a layer does not fit the accelerator (dtype, memory); names the layer.
    """
    return code_of(plan(layers, tensors, accelerator, dataflow, fusion), accelerator)


def code_of(planned: Plan, accelerator: Accelerator) -> Program:
    """The program of a plan."""
    builder = _Builder(planned.tensors)
    for at, part in enumerate(planned.parts):
        if at:
            builder.instructions.append(Sync())
        builder.add(part)
    return Program(
        accelerator, planned.tensors, tuple(builder.constants), (*builder.instructions, Finish()),
        tuple(builder.layers),
    )  # fmt: skip


class _Builder:
    """A program while it grows."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.indices = {tensor.name: at for at, tensor in enumerate(tensors)}
        self.constants: list[np.ndarray] = []
        self.instructions: list[Instruction] = []
        self.layers: list[Layer] = []
        self._known: dict[tuple[str, int, int], int] = {}

    def add(self, part: Part) -> None:
        """Appends the instructions of a part, and what reports show of it."""
        begin, layer = len(self.instructions), part.layer
        code = LayerCode(part.hardware, layer, part.problem, part.choices[0], self.indices, self._constant)
        self.instructions += code.instructions()
        self.layers.append(Layer(layer.name, begin, len(self.instructions), {**layer.facts, **facts_of(part)}))

    def _constant(self, values: np.ndarray) -> int:
        """Index of a constant; bands of a layer share theirs."""
        values = np.ascontiguousarray(values)
        key = str(values.dtype), values.size, zlib.crc32(values.data)
        at = self._known.setdefault(key, len(self.constants))
        if at == len(self.constants) or not np.array_equal(self.constants[at].view(np.uint8), values.view(np.uint8)):
            at = len(self.constants)
            self.constants.append(values)
        return at


def facts_of(part: Part) -> dict[str, Any]:
    """Sizes and tilings of a part, in JSON values."""
    best, layer, hardware = part.choices[0], part.layer, part.hardware
    block: dict[str, Any] = {}
    if part.problem.image is not None:
        each, mapping = block_mapping(part.problem.image.shape(best.m, best.k, best.n), hardware)
        block = {"mapping": {name: getattr(mapping, name) for name in "herqtp"}}
    elif best.dataflow != VECTOR:
        each = block_of(hardware, best.dataflow, best.m, part.problem.depth(best.k), best.n)
    if hardware.arrays > 1 and best.dataflow != VECTOR:
        block["block"] = list(each[1:])
    return {
        **block,
        **{size: getattr(layer, size) for size in ("batch", "m", "k", "n")},
        "dataflow": best.dataflow,
        "tile": [best.m, best.k, best.n],
        "order": best.order,
        "stays": best.stays,
        "local": sorted(part.problem.local),
        "estimated_cycles": best.cycles,
        "runners_up": [{"tiling": other.describe(), "cycles": other.cycles} for other in part.choices[1:]],
    }
