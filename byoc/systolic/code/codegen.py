"""Code of layers: for each the tiling of least estimated cycles, then its loops; :mod:`.layer_code` writes those."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....core.errors import ProgramError
from ..config import Accelerator
from ..simulation.cost import block_of
from .isa import Finish, Instruction, Sync
from .layer import GemmLayer
from .layer_check import check_layer
from .layer_code import LayerCode
from .program import Layer, Program, Tensor
from .tiling import VECTOR, Tiling, search


def lower(
    layers: Sequence[GemmLayer], tensors: Iterable[Tensor], accelerator: Accelerator, dataflow: str | None = None
) -> Program:
    """The program of layers, one after the other; each may read what those before it wrote.

    Args:
        layers: in order; they name the tensors.
        tensors: all of them; intermediate ones have role "scratch".
        accelerator: what it is for.
        dataflow: "ws", "os" or "is" for all layers; by default each has the one of least estimated cycles.

    Raises:
        ProgramError: a layer does not fit the accelerator (dtype, memory); names the layer.
    """
    builder = _Builder(accelerator, tuple(tensors))
    for at, layer in enumerate(layers):
        if at:
            builder.instructions.append(Sync())
        builder.add(layer, dataflow)
    return Program(
        accelerator, builder.tensors, tuple(builder.constants), (*builder.instructions, Finish()),
        tuple(builder.layers),
    )  # fmt: skip


class _Builder:
    """A program while it grows."""

    def __init__(self, accelerator: Accelerator, tensors: tuple[Tensor, ...]) -> None:
        self.accelerator, self.tensors = accelerator, tensors
        self.indices = {tensor.name: at for at, tensor in enumerate(tensors)}
        self.constants: list[np.ndarray] = []
        self.instructions: list[Instruction] = []
        self.layers: list[Layer] = []

    def add(self, layer: GemmLayer, dataflow: str | None) -> None:
        """Appends the instructions of a layer, and what reports show of it."""
        check_layer(layer, {tensor.name: tensor for tensor in self.tensors}, self.accelerator)
        problem = layer.problem(self.tensors[self.indices[layer.out.tensor]].dtype)
        try:
            choices = search(problem, self.accelerator, dataflow)
        except ProgramError as error:
            raise ProgramError(f"layer {layer.name}: {error.message}", fix=error.fix) from None
        begin = len(self.instructions)
        code = LayerCode(self.accelerator, layer, problem, choices[0], self.indices, self._constant)
        self.instructions += code.instructions()
        facts = {**layer.facts, **_facts(layer, choices, self.accelerator)}
        self.layers.append(Layer(layer.name, begin, len(self.instructions), facts))

    def _constant(self, values: np.ndarray) -> int:
        """Index of a new constant."""
        self.constants.append(np.ascontiguousarray(values))
        return len(self.constants) - 1


def _facts(layer: GemmLayer, choices: tuple[Tiling, ...], hardware: Accelerator) -> dict[str, Any]:
    best, block = choices[0], {}
    if hardware.arrays > 1 and best.dataflow != VECTOR:
        block = {"block": list(block_of(hardware, best.dataflow, best.m, best.k, best.n)[1:])}
    return {
        **block,
        **{size: getattr(layer, size) for size in ("batch", "m", "k", "n")},
        "dataflow": best.dataflow,
        "tile": [best.m, best.k, best.n],
        "order": best.order,
        "stays": best.stays,
        "estimated_cycles": best.cycles,
        "runners_up": [{"tiling": other.describe(), "cycles": other.cycles} for other in choices[1:]],
    }
