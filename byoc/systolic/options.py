"""Options of the back end: the accelerator's settings, and one dataflow for all layers if it is not to choose."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .config import Accelerator, Dataflow


@dataclass(frozen=True)
class SystolicOptions(Accelerator):
    """What `offload_options` may say; all settings of :class:`.config.Accelerator`, with two differences.

    Attributes:
        dtype: "float32" by default, which most models are; "int8" takes quantized layers.
        dataflow: "ws", "os" or "is" for all layers; None: for each layer the one of least estimated cycles.

    Raises:
        OptionError: a value does not fit; the message says what would.
    """

    dtype: str = "float32"
    dataflow: str | None = None

    def __post_init__(self) -> None:
        if self.dataflow is not None:
            object.__setattr__(self, "dataflow", str(Dataflow.of(self.dataflow)))
        super().__post_init__()

    @property
    def accelerator(self) -> Accelerator:
        """The settings without the dataflow."""
        return Accelerator(**{field.name: getattr(self, field.name) for field in fields(Accelerator)})
