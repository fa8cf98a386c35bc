"""The manifest of a back end: what it takes, how a region becomes a program, and what runs the program.

    BACKEND = Backend(
        name="npu",
        patterns=(Pattern("dense", ("relax.matmul",), epilogue=("relax.add", "relax.nn.relu"), check=check),),
        lower=lower,        # (Region, options) -> Lowered: bytes, and facts for reports
        driver=driver,      # bytes -> a function that runs them on numpy arrays; needs no compiler
    )
    register(BACKEND)

A manifest is frozen and checks itself. The module that holds it should import nothing heavy: a process that only runs
exported models imports it for its driver.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.errors import OptionError, ProgramError, did_you_mean
from .region import Composite, NodeRegion, Region, Value

Runner = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]
"""Runs a program: reads the region's inputs, writes its outputs, both in order. Several threads may call it at once."""


@dataclass(frozen=True)
class Lowered:
    """A region as a program.

    Attributes:
        program: what the driver gets; it has the region's constants in it.
        facts: JSON values for the report; "layers" is a list of rows, if there is one. The report shows those with
            "energy", picojoules by level, "name", "cycles" and "dram_bytes"; "energy_source" says where these are from.
    """

    program: bytes
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pattern:
    """What a back end takes: an anchor, with what it can compute on the way into it and behind it.

    Attributes:
        name: lower case with underscores; unique among the back end's patterns.
        anchors: operator names, such as "relax.matmul".
        prologue: operators on the anchor's operands that come along, such as "relax.dequantize".
        epilogue: operators behind it that come along while each is the only reader of the one before.
        check: is given a composite and the back end's options; returns "" if the back end takes it, else why not. It
            is asked for each length of the epilogue, and the longest it takes is offloaded.
    """

    name: str
    anchors: tuple[str, ...]
    prologue: tuple[str, ...] = ()
    epilogue: tuple[str, ...] = ()
    check: Callable[[Composite, Any], str] = lambda composite, options: ""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.isidentifier()):
            raise OptionError(f"pattern name {self.name!r}: letters, digits and underscores are needed")
        for role in ("anchors", "prologue", "epilogue"):
            _check_operators(self.name, role, getattr(self, role))
        if not self.anchors:
            raise OptionError(f"pattern {self.name!r} has no anchor", fix='for example anchors=("relax.matmul",)')
        if not callable(self.check):
            raise OptionError(f"pattern {self.name!r}: check={self.check!r} is no function of (composite, options)")


@dataclass(frozen=True)
class Limits:
    """What no region may go beyond, whatever the checks say.

    Attributes:
        dtypes: of all tensors that a composite reads or computes; numbers, constants without axes, may have any.
        tensor_bytes: of one tensor.
        program_bytes: of one program; 0 is no limit.
    """

    dtypes: tuple[str, ...] = ("float32",)
    tensor_bytes: int = 1 << 30
    program_bytes: int = 0

    def refuse(self, composite: Composite) -> str:
        """Why a composite is beyond the limits; "" if it is not."""
        for operation in composite.operations:
            for tensor in (*operation.operands, operation.result):
                if isinstance(tensor, np.ndarray) and not tensor.shape:
                    continue  # a number, such as a bound of clip, which TVM writes in 64 bits
                dtype = str(tensor.dtype)
                name = tensor.name if isinstance(tensor, Value) else "a constant"
                if dtype not in self.dtypes:
                    return f"{name} is {dtype}; the back end takes {', '.join(self.dtypes)}"
                if tensor.nbytes > self.tensor_bytes:
                    return f"{name} has {tensor.nbytes} bytes; {self.tensor_bytes} is the limit"
        return ""


@dataclass(frozen=True)
class NoOptions:
    """The options of a back end that has none."""


@dataclass(frozen=True)
class Backend:
    """All that tvm-ext needs to know of an accelerator.

    Attributes:
        name: lower case; what users write in `offload=`.
        patterns: what it takes, the preferred first.
        lower: (region, options) -> :class:`Lowered`; raises ProgramError for a region it cannot take after all: it then
            stays on the CPU, with the error as reason. Of a fallback it is given a :class:`.region.NodeRegion`.
        driver: (bytes of a program) -> :data:`Runner`.
        options: frozen dataclass of its settings, all with defaults; they come from `offload_options`.
        cost: (region, options) -> seconds of one run, transfers and launch included; None: whatever matches pays.
        precision: options -> the `precision` of compile whose roundings the programs do; "float32": none.
        limits: see :class:`Limits`.
        disassemble: bytes of a program -> text.
        assemble: (text that `disassemble` gave and somebody changed, bytes that it was made of) -> bytes; raises
            ProgramError, which begins with "line N" of the text, for what is no program. The old bytes are for what the
            text leaves out, such as constants.
        fallback: whether it gets the ONNX nodes that no converter takes: it has no patterns then, and `fallback=`
            names it, not `offload=`.

    Raises:
        OptionError: something is missing or does not fit; names it.
    """

    name: str
    patterns: tuple[Pattern, ...]
    lower: Callable[[Any, Any], Lowered]
    driver: Callable[[bytes], Runner]
    options: type = NoOptions
    cost: Callable[[Region, Any], float] | None = None
    precision: Callable[[Any], str] = lambda options: "float32"
    limits: Limits = Limits()
    disassemble: Callable[[bytes], str] | None = None
    assemble: Callable[[str, bytes], bytes] | None = None
    fallback: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.isidentifier() and self.name.islower()):
            raise OptionError(f"back end name {self.name!r}: lower case letters, digits and underscores are needed")
        if bool(self.patterns) == self.fallback or not all(isinstance(pattern, Pattern) for pattern in self.patterns):
            needed = "a fallback takes nodes, and has none" if self.fallback else "a tuple of Pattern is needed"
            raise OptionError(f"back end {self.name!r}: patterns={self.patterns!r}: {needed}")
        names = [pattern.name for pattern in self.patterns]
        if twice := {name for name in names if names.count(name) > 1}:
            raise OptionError(f"back end {self.name!r}: patterns with one name: {', '.join(sorted(twice))}")
        for role in ("lower", "driver", "precision", "cost", "disassemble", "assemble"):
            value = getattr(self, role)
            if not callable(value) and not (value is None and role in ("cost", "disassemble", "assemble")):
                raise OptionError(f"back end {self.name!r}: {role}={value!r} is no function")
        _check_options_type(self.name, self.options)

    @property
    def module(self) -> str:
        """The module whose import registers its driver."""
        return str(self.driver.__module__)

    def make_options(self, settings: Mapping[str, Any]) -> Any:
        """The options object of these settings.

        Raises:
            OptionError: an unknown setting, or a value that the options refuse.
        """
        known = [field.name for field in dataclasses.fields(self.options)]
        for name in settings:
            if name not in known:
                raise OptionError(
                    f"back end {self.name!r} has no option {name!r}",
                    fix=f"{did_you_mean(name, known)}options: {', '.join(known) or 'none'}",
                )
        return self.options(**settings)

    def lowered(self, region: Region | NodeRegion, options: Any) -> Lowered:
        """:attr:`lower`, checked.

        Raises:
            ProgramError: it refuses the region, or the program is beyond the limits.
        """
        result = self.lower(region, options)
        if not isinstance(result, Lowered) or not isinstance(result.program, bytes):
            raise OptionError(f"back end {self.name!r}: lower gave {type(result).__name__}, no Lowered(program=bytes)")
        if 0 < self.limits.program_bytes < len(result.program):
            raise ProgramError(f"its program has {len(result.program)} bytes; {self.limits.program_bytes} is the limit")
        return result


def _check_operators(pattern: str, role: str, names: Iterable[Any]) -> None:
    if isinstance(names, str) or not all(isinstance(n, str) and n.startswith("relax.") for n in names):
        wrong = f"pattern {pattern!r}: {role}={names!r}: a tuple of operator names is needed"
        raise OptionError(wrong, fix='as TVM spells them: ("relax.matmul", "relax.nn.relu")')


def _check_options_type(name: str, options: Any) -> None:
    parameters = getattr(options, "__dataclass_params__", None)
    if not isinstance(options, type) or parameters is None or not parameters.frozen:
        raise OptionError(f"back end {name!r}: options={options!r}: a frozen dataclass is needed")
    try:
        options()
    except TypeError as error:
        raise OptionError(f"back end {name!r}: each of its options needs a default: {error}") from None
