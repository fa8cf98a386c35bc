"""Options of the back end: the accelerator's settings, and one dataflow for all layers if it is not to choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...core.errors import OptionError
from .config import Accelerator, Dataflow, EnergyTable


@dataclass(frozen=True)
class SystolicOptions(Accelerator):
    """What `offload_options` may say; all settings of :class:`.config.Accelerator`, with two differences.

    Attributes:
        dtype: "float32" by default, which most models are; "int8" takes quantized layers.
        energy: an EnergyTable, or a mapping of those of its figures that are to be others.
        dataflow: "ws", "os" or "is" for all layers; None: for each layer the one of least estimated cycles.

    Raises:
        OptionError: a value does not fit; the message says what would.
    """

    dtype: str = "float32"
    dataflow: str | None = None

    def __post_init__(self) -> None:
        if self.dataflow is not None:
            object.__setattr__(self, "dataflow", str(Dataflow.of(self.dataflow)))
        energy: Any = self.energy
        if isinstance(energy, Mapping):
            known = asdict(EnergyTable())
            if wrong := [name for name in energy if name not in known]:
                raise OptionError(f"energy has no figure {wrong[0]!r}", fix=f"choose of {', '.join(known)}")
            object.__setattr__(self, "energy", EnergyTable(**energy))
        super().__post_init__()

    @property
    def accelerator(self) -> Accelerator:
        """The settings without the dataflow."""
        values = self.as_dict()
        del values["dataflow"]
        return Accelerator.from_dict(values)
