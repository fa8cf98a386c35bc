"""Call sites: the calls of kernels in a compiled program, in the order they run, and which ONNX values they write.

Plain data, kept in the report of a compiled model, so that what runs can be compared with another run of the model.
"""

from dataclasses import dataclass
from typing import Any

from ...runtime.plain import row
from ...runtime.table import Plain
from ..layout import Layout
from .provenance import Held


@dataclass(frozen=True)
class Written:
    """A tensor that a call writes.

    Attributes:
        variable: of `main`.
        shape: logical.
        dtype: as TVM names it.
        held: ONNX values that it is; none if no value of the model is.
        layout: how it lies in memory; None as ONNX has it.
    """

    variable: str
    shape: tuple[int, ...]
    dtype: str
    held: tuple[Held, ...] = ()
    layout: Layout | None = None

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The shape of the memory."""
        return self.layout.physical_shape(self.shape) if self.layout else self.shape

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which :func:`tvm_ext.runtime.plain.read` reads."""
        return {name: row(value) for name, value in vars(self).items() if name not in ("held", "layout") or value}


@dataclass(frozen=True)
class CallSite(Plain):
    """One call of a kernel.

    Attributes:
        order: number of the call in its program.
        nodes: ONNX nodes it computes.
        reads: numbers of the calls whose results it reads.
        writes: its results, in order.
    """

    order: int
    nodes: tuple[str, ...]
    reads: tuple[int, ...]
    writes: tuple[Written, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the nodes stand in the kernel's `call_sites`."""
        return {"order": self.order, "reads": list(self.reads), "writes": [tensor.as_dict() for tensor in self.writes]}
