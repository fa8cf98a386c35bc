"""A row of the table of operators: all that passes, recipes, importer and comparisons know of one.

    Operator("relax.exp Exp", Kind.ELEMENTWISE, numpy=on_floats(np.exp), tir="functions:exp", vector_work=7)

A row is plain data: what needs TVM is named, and imported when it is asked for.
"""

import enum
import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .evaluators import Evaluator
from .flops import FlopCount, elements, nothing
from .row_rules import Rule, aligned


class Kind(enum.Enum):
    """What an operator does with elements."""

    ELEMENTWISE = "computes each element of those at its place in the operands, which broadcast"
    VIEW = "hands on the same memory in another shape"
    MOVE = "brings elements to another place, or repeats them, as they are"
    PICK = "moves elements by indices, or puts others beside them"
    PRODUCT = "sums products of its operands' elements"
    REDUCTION = "makes one element of several: of an axis or a window"
    CREATE = "makes elements of a shape and a number"
    OTHER = "anything else"


#: Operators that compute with no number.
MOVING = frozenset({Kind.VIEW, Kind.MOVE, Kind.PICK, Kind.CREATE})


@dataclass(frozen=True)
class Operator:
    """One operator, or several of the same facts such as pooling of one, two and three dimensions.

    Attributes:
        names: in Relax and in ONNX, or onnxruntime, separated by blanks; each stands in one row only.
        kind: what it does with elements.
        composed: of ONNX operands and attributes (as keywords) the Relax expression that it is, or "module:function";
            None: a converter of the frontend or of TVM has it, or else it is the Relax operator of the row.
        numpy: what it computes, for constants (:mod:`.evaluators`).
        tir: its scalar expression: of scalar operands, and of `attributes` by keyword; or "module:function", a module
            without a dot being one of `tvm_ext.ops.scalars`. With it an operator is part of elementwise kernels.
        types: what the scalar expression takes: "floats" (one of float32 and float64), "numbers" (integers too),
            "comparison" and "logic" (any computed types), "conversion" and "quantization" (stored types too).
        wraps: whether results of integers leave their width, which the scalar expression then takes modulo.
        attributes: of its scalar expression -> how Relax's value is read, such as `float`.
        vector_work: of its scalar expression on a vector, in units of loading or storing one; measured on AVX-512.
        flops: its operations by operands and result; None: one an element, and none where elements are only moved.
        rows: whether it works on each row of a batch by itself (:mod:`.row_rules`); None: not known, or elementwise.
        uniform: of operands that have no rows it makes equal ones, however many its arguments ask for.
        sized: its arguments hold sizes of its result.
        first_result: its further results are its parameters again.
        multiplied: which operands a product multiplies; a mask, a bias or an initial state is none.
        integers: recipes compute sums of integers, of operands stored in 8 bits.
        part_read: of its first operand it reads no more than it returns.
        shape_read: of its first operand only the shape counts.
        selects: a reduction over small windows whose result is one of their elements.
        jump: in what a rounding before it can make a step: "whole" (a whole number), "quantized" (one of a scale, whose
            neighbour is as right), "step" (an order, a place, a truth value), "angle" (a place or an angle, which turns
            a relative error of a large operand into any other); "" for none.
        non_expansive: its result differs no more than its operand, of the result's size; moves need not say so.
        not_negative: no element of its result is below 0.
        rounding: how its roundings add up (:mod:`tvm_ext.verification.magnitude`): "exact", "once", "twice",
            "convolution", "transposed", "product", "window", "image", "axis", "whole", or "function" of a library.
        magnitude: how large what it sums may be, by its operands (there too): "operands", "sum", "factors", "quotient",
            "linear", "matmul", "batch norm", "normalized" or "whole sum".
        random: equal calls have different results.
        own_type: it says itself which type it makes, or hands on the one that it gets.
        shape_operands: ONNX inputs whose values decide the shape of its result: number -> what it is.
        shape_arithmetic: how large its result is, of an operator that exporters compute shapes with: "elementwise" or
            "not larger" than its operands together; "" for one that the importer evaluates by its own rule, or never.
        int8: its part in a model of 8 bits: "anchor" (what 8 bits are for), "moved", "between" anchors,
            "only" (no float model has it), or "".
        neutral: the second operand that changes nothing.
        left_out: what an element counts as that a reduction over axes leaves out; infinite: the end of the type.
        involution: the second of two undoes the first.
        idempotent: the second of two does nothing.
        idle: it does nothing where its result has the shape and the type of its only operand.
    """

    names: str = ""
    kind: Kind = Kind.OTHER
    composed: Callable[..., Any] | str | None = None
    numpy: Evaluator | None = None
    tir: Callable[..., Any] | str | None = None
    types: str = "floats"
    wraps: bool = False
    attributes: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    vector_work: int = 1
    flops: FlopCount | None = None
    rows: Rule | None = None
    uniform: bool = False
    sized: bool = False
    first_result: bool = False
    multiplied: tuple[int, ...] = ()
    integers: bool = False
    part_read: bool = False
    shape_read: bool = False
    selects: bool = False
    jump: str = ""
    non_expansive: bool = False
    not_negative: bool = False
    rounding: str = "function"
    magnitude: str = "operands"
    random: bool = False
    own_type: bool = False
    shape_operands: Mapping[int, str] = field(default_factory=dict)
    shape_arithmetic: str = ""
    int8: str = ""
    neutral: float | None = None
    left_out: float | None = None
    involution: bool = False
    idempotent: bool = False
    idle: bool = False

    @property
    def relax(self) -> tuple[str, ...]:
        """Its names in Relax, such as "relax.nn.relu"; none of an operator that becomes others."""
        return tuple(name for name in self.names.split() if name.startswith("relax."))

    @property
    def onnx(self) -> tuple[str, ...]:
        """Its names in ONNX, such as "Relu"."""
        return tuple(name for name in self.names.split() if not name.startswith("relax."))

    @property
    def is_elementwise(self) -> bool:
        """Whether it can be part of an elementwise kernel."""
        return self.tir is not None

    @property
    def is_conversion(self) -> bool:
        """Whether it changes the type a value is stored in (:mod:`tvm_ext.core.numbers.storage`)."""
        return self.types in ("conversion", "quantization")

    @property
    def per_axis(self) -> bool:
        """Whether its operands but the first may be vectors along an axis."""
        return self.types == "quantization"

    @property
    def keeps_elements(self) -> bool:
        """Whether its result consists of elements of its operands, as they were; few of many rows do not count."""
        return self.kind in (Kind.VIEW, Kind.MOVE) or self.selects

    @property
    def passes_rounding(self) -> bool:
        """Whether it makes a rounding of its operand no larger than it is, of the result's size."""
        return self.non_expansive or self.keeps_elements

    @property
    def is_linear(self) -> bool:
        """Whether it is a convolution or a matmul: a linear map of one operand by another, its weight."""
        return self.kind is Kind.PRODUCT and len(self.multiplied) == 2

    @functools.cached_property
    def scalar(self) -> Callable[..., Any]:
        """The scalar expression."""
        return imported(self.tir, "tvm_ext.ops.scalars")

    @property
    def row_rule(self) -> Rule | None:
        """The rule that says whether it works row by row; None if none does."""
        return aligned if self.rows is None and self.kind is Kind.ELEMENTWISE else self.rows

    @property
    def count(self) -> FlopCount:
        """Counts its operations."""
        return self.flops or (nothing if self.kind in MOVING else elements)


def imported(function: Callable[..., Any] | str | None, package: str = "") -> Callable[..., Any]:
    """A function, or the one of "module:function".

    Args:
        package: of modules without a dot.
    """
    if not isinstance(function, str):
        assert function is not None
        return function
    module, _, name = function.partition(":")
    loaded = importlib.import_module(module if "." in module else f"{package}.{module}")
    return getattr(loaded, name)
