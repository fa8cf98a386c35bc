"""The accelerator that is simulated: its size, memories, transfers, clock and energies, in one frozen object.

The machine is the template that TPU, Gemmini (Genc et al., DAC 2021) and VTA (Moreau et al., IEEE Micro 2019) share::

    DRAM <=DMA=> scratchpad (operands) => rows x cols PEs => accumulator (partial sums) => vector unit => DRAM
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...core.errors import OptionError, check_choice, check_switch, check_whole, is_number
from .energy import EnergyTable

#: Closed forms by which an array's cycles are counted on this accelerator; :mod:`.simulation.cycles` knows two more, as
#: reference.
COMPUTE_MODELS = ("overlapped", "physical")
#: Dtype of the operands -> dtype of the accumulators.
ACCUMULATOR_DTYPES = {"int8": "int32", "bfloat16": "float32", "float32": "float32"}
#: Weights of an array: any, or two of each four rows that are not 0, as :mod:`.code.sparse` has them.
SPARSITIES = ("dense", "2:4")
#: What a driver runs a program on: the functional view, or the hardware in a simulator.
RUNS = ("functional", "rtl")
_ITEMSIZE = {"int8": 1, "bfloat16": 2, "int32": 4, "float32": 4}


class Dataflow(str, enum.Enum):
    """Which operand of C[m, n] = A[m, k] B[k, n] stays in the PEs while the others stream through.

    Row stationary is of convolutions (a GEMM is one of 1x1), by PEs with memories of their own; see
    :mod:`.simulation.row_stationary`. A member equals its string: `Dataflow.WS == "ws"`.
    """

    WS = "ws"  #: weight stationary: B stays, A streams
    OS = "os"  #: output stationary: C stays, A and B stream
    IS = "is"  #: input stationary: A stays, B streams
    RS = "rs"  #: row stationary: rows of filters stay, rows of the image slide past them

    def __str__(self) -> str:
        return self.value

    @classmethod
    def of(cls, value: str) -> Dataflow:
        """The dataflow of that name.

        Raises:
            OptionError: there is none.
        """
        try:
            return cls(value)
        except ValueError:
            raise cls.unknown(value) from None

    @classmethod
    def systolic(cls, value: str) -> Dataflow:
        """The dataflow of that name, of the three in which a systolic array multiplies matrices.

        Raises:
            OptionError: there is none, or it is row stationary.
        """
        if value == cls.RS:
            raise cls.unknown(value)
        return cls.of(value)

    @classmethod
    def unknown(cls, value: object) -> OptionError:
        """The error for a name that is none of them, or for row stationary where an array has only the others."""
        is_rows = value == cls.RS
        choices = ", ".join(repr(member.value) for member in (SYSTOLIC if is_rows else cls))
        what = "is not of a systolic array" if is_rows else "is unknown"
        return OptionError(f"dataflow={str(value)!r} {what}", fix=f"choose one of {choices}")


#: Those of a systolic array, among which a layer has the one of the fewest cycles unless one is asked for.
SYSTOLIC = (Dataflow.WS, Dataflow.OS, Dataflow.IS)


@dataclass(frozen=True)
class Accelerator:
    """What there is to know of the accelerator; every view (functional, timing, stepper) and the tiling read it.

    Attributes:
        rows, cols: processing elements (PEs) of an array; each does one multiply-add a cycle.
        dtype: of the operands: "int8" (accumulators are int32), "float32", or "bfloat16" (accumulators are float32).
            Tensors of an array of bfloat16 are float32, and rounded, ties to even, where they are loaded as operands.
        scratchpad_bytes: memory of operands; with double buffering a tile has half of it.
        accumulator_bytes: memory of partial sums, of 4 bytes each.
        dma_bytes_per_cycle: bandwidth between DRAM and the chip.
        dma_latency: cycles from the start of a transfer until its first byte is there.
        vector_lanes: elements that the vector unit finishes in a cycle.
        launch_cycles: what the host pays to start one region.
        frequency_hz: clock.
        compute_model: "overlapped" (weights of the next fold come in behind the stream) or "physical" (folds one after
            the other); see :func:`.simulation.cycles.gemm_cycles`.
        arrays: systolic arrays of rows x cols PEs, among which each GEMM is cut (:mod:`.simulation.partition`); they
            share both memories, the DMA channel and the vector unit.
        filter_spad, input_spad: operands of the two memories that a PE of a row-stationary array has, for its rows of
            filters and of the image, those of Eyeriss by default. There are two of each where what comes next arrives
            behind the work: of filters with "overlapped", of the image always.
        sparsity: "2:4": an array of int8 takes weights of which each column has at most two of each four rows
            compressed, in half of the cycles (:mod:`.code.sparse`), and others as they are; "dense": all as they are.
        energy: picojoules of operations and bytes: a table, a mapping of those of its figures that are to be others, or
            a model at a node, "hwcomponents:45nm" (:meth:`.energy.EnergyTable.of_model`), of these memories, whose
            ports are as wide as the longer side of an array, and as a row of its sums.

    Raises:
        OptionError: a value does not fit; the message says what would.
    """

    rows: int = 16
    cols: int = 16
    dtype: str = "int8"
    scratchpad_bytes: int = 256 * 1024
    accumulator_bytes: int = 64 * 1024
    dma_bytes_per_cycle: int = 16
    dma_latency: int = 100
    vector_lanes: int = 16
    launch_cycles: int = 1000
    frequency_hz: float = 1e9
    compute_model: str = "overlapped"
    arrays: int = 1
    filter_spad: int = 224
    input_spad: int = 12
    sparsity: str = "dense"
    energy: EnergyTable = field(default_factory=EnergyTable)

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            object.__setattr__(self, name, check_whole(name, getattr(self, name), least, most))
        check_choice("dtype", self.dtype, tuple(ACCUMULATOR_DTYPES))
        check_choice("compute_model", self.compute_model, COMPUTE_MODELS)
        check_choice("sparsity", self.sparsity, SPARSITIES)
        if self.sparsity != "dense" and self.dtype != "int8":
            raise OptionError(
                f"sparsity={self.sparsity!r} with dtype={self.dtype!r}: infinity times a weight of 0 that is not there "
                "would not be NaN",
                fix='give dtype="int8", or sparsity="dense"',
            )
        if not is_number(self.frequency_hz) or not 1 <= self.frequency_hz <= _MOST_HERTZ:
            raise OptionError(f"frequency_hz={self.frequency_hz!r:.80}: a number from 1 to {_MOST_HERTZ:g} is needed")
        if isinstance(self.energy, Mapping):
            energy = EnergyTable(**known_settings(EnergyTable, "energy table", self.energy))
            object.__setattr__(self, "energy", energy)
        elif isinstance(self.energy, str):
            ports = self.port_bytes, self.accumulator_itemsize * self.cols
            memories = zip((self.scratchpad_bytes, self.accumulator_bytes), ports, strict=True)
            object.__setattr__(self, "energy", EnergyTable.of_model(self.energy, *memories))
        if not isinstance(self.energy, EnergyTable):
            raise OptionError(f"energy={self.energy!r} is no EnergyTable", fix="give EnergyTable(dram_byte=100.0)")

    @property
    def accumulator_dtype(self) -> str:
        return ACCUMULATOR_DTYPES[self.dtype]

    @property
    def tensor_dtype(self) -> str:
        """Dtype in DRAM of what becomes an operand; where that is "int8", "uint8" is taken too."""
        return "float32" if self.dtype == "bfloat16" else self.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of one operand element."""
        return _ITEMSIZE[self.dtype]

    @property
    def tensor_itemsize(self) -> int:
        """Bytes in DRAM of an element that becomes an operand."""
        return _ITEMSIZE[self.tensor_dtype]

    @property
    def accumulator_itemsize(self) -> int:
        """Bytes of one partial sum."""
        return _ITEMSIZE[self.accumulator_dtype]

    @property
    def port_bytes(self) -> int:
        """Bytes of the scratchpad in a cycle by one port: operands of the longer side of an array; what stays in the
        scratchpad is stored and loaded by it."""
        return self.itemsize * max(self.rows, self.cols)

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-adds of a cycle in which every PE of every array works."""
        return self.arrays * self.rows * self.cols

    def seconds(self, cycles: int) -> float:
        """Time of so many cycles."""
        return cycles / self.frequency_hz

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Accelerator:
        """The accelerator of these settings; what is left out has its default.

        Raises:
            OptionError: an unknown name, or a value that does not fit.
        """
        return cls(**known_settings(cls, "accelerator", values))


_BOUNDS = {
    "rows": (1, 1024), "cols": (1, 1024), "scratchpad_bytes": (1, 1 << 40), "accumulator_bytes": (4, 1 << 40),
    "dma_bytes_per_cycle": (1, 1 << 20), "dma_latency": (0, 1 << 30), "vector_lanes": (1, 1 << 16),
    "launch_cycles": (0, 1 << 40), "arrays": (1, 1024), "filter_spad": (1, 1 << 16), "input_spad": (1, 1 << 16),
}  # fmt: skip


_MOST_HERTZ = 1e15
#: What Amaranth elaborates and simulates in reasonable time; one array.
_MOST_OF_HARDWARE = {
    "rows": 64, "cols": 64, "vector_lanes": 64, "dma_bytes_per_cycle": 64, "scratchpad_bytes": 1 << 20,
    "accumulator_bytes": 1 << 20, "arrays": 1,
}  # fmt: skip


def check_hardware(accelerator: Accelerator) -> None:
    """Raises OptionError where an accelerator has no hardware: one of float32, or beyond what Amaranth elaborates."""
    if accelerator.dtype != "int8":
        raise OptionError(f"dtype={accelerator.dtype!r}: the hardware has operands of int8", fix='give dtype="int8"')
    if accelerator.sparsity != "dense":
        raise OptionError(f"sparsity={accelerator.sparsity!r}: the hardware has dense weights")
    for name, most in _MOST_OF_HARDWARE.items():
        if getattr(accelerator, name) > most:
            raise OptionError(f"{name}={getattr(accelerator, name)}: the hardware has {most} at most")


def known_settings(kind: type, what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of a dataclass; raises OptionError for one that it has not, and names those that it has."""
    names = [f.name for f in fields(kind)]
    for name in values:
        if name not in names:
            raise OptionError(f"unknown setting {name!r} of the {what}", fix=f"choose of {', '.join(names)}")
    return dict(values)


# ------------------------------------------------------------ options of the back end
@dataclass(frozen=True)
class SystolicOptions(Accelerator):
    """What `offload_options` may say; all settings of :class:`.config.Accelerator`, with four differences.

    Attributes:
        dtype: "float32" by default, which most models are; "int8" takes quantized layers, "bfloat16" needs
            `precision="bf16"` of compile.
        dataflow: "ws", "os", "is" or "rs" for all layers; None: for each layer that of the first three with the least
            estimated cycles.
        fusion: whether results of layers stay in the scratchpad where that saves bytes of DRAM; see
            :mod:`.code.plan`.
        run: what runs programs, one of RUNS: "functional", numpy over tiles, or "rtl", the hardware, clock by clock; it
            is slow, takes int8, and needs the extra `rtl` wherever the model runs.

    Raises:
        OptionError: a value does not fit; the message says what would.
    """

    dtype: str = "float32"
    dataflow: str | None = None
    fusion: bool = True
    run: str = "functional"

    def __post_init__(self) -> None:
        check_choice("run", self.run, RUNS)
        if self.run == "rtl" and self.dtype != "int8":
            raise OptionError(f"run='rtl' with dtype={self.dtype!r}: hardware has int8", fix='give dtype="int8"')
        check_switch("fusion", self.fusion)
        if self.dataflow is not None:
            of = Dataflow.systolic if self.run == "rtl" else Dataflow.of
            object.__setattr__(self, "dataflow", str(of(self.dataflow)))
        super().__post_init__()
        if self.sparsity != "dense" and self.dataflow == Dataflow.RS:
            raise OptionError(f"sparsity={self.sparsity!r}: a row-stationary array has dense weights")
        if self.run == "rtl":
            check_hardware(self)

    @property
    def accelerator(self) -> Accelerator:
        """The settings without the dataflow."""
        return Accelerator(**{field.name: getattr(self, field.name) for field in fields(Accelerator)})
