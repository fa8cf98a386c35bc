"""Convolutions and matmuls with a constant weight as linear maps: scaled on either side, and answering a shift."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.ir import Call, GenericConst

from ...core.graph.relax_graph import attrs_of, dtype_of, op_name
from ...ops.table import of
from .constants import constant, view_of


@dataclass(frozen=True)
class Linear:
    """A convolution or a matmul with a constant weight on the right.

    Attributes:
        call: the operator call.
        weight: its weight, read-only.
        rank: dimensions of data and result.
        inputs, outputs: (dimension of the channels, how many) of data and result.
    """

    call: Call
    weight: np.ndarray
    rank: int
    inputs: tuple[int, int]
    outputs: tuple[int, int]

    @property
    def name(self) -> str:
        return op_name(self.call).removeprefix("relax.").removeprefix("nn.")

    def with_weight(self, weight: GenericConst, data: Any = None) -> Call:
        """The call with another weight (and other data)."""
        operand = self.call.args[0] if data is None else data
        return Call(self.call.op, [operand, weight], self.call.attrs, self.call.ty_args)

    def scaled_outputs(self, scale: np.ndarray) -> GenericConst | str:
        """The weight whose result is `scale` times this one's, per output channel; or why there is none."""
        return self._scaled(output_factor(self.call, scale, self.weight.shape))

    def scaled_inputs(self, scale: np.ndarray) -> GenericConst | str:
        """The weight that does with x what this one does with `scale` * x, per input channel; or why there is none."""
        return self._scaled(self._input_factor(scale))

    def response(self, shift: np.ndarray) -> np.ndarray | str:
        """What is added to every result, per output channel, if `shift` is added to the data, per input channel."""
        if op_name(self.call) == "relax.matmul":
            return shift @ self.weight.astype(np.float64)
        if op_name(self.call).endswith("_transpose"):
            return "a transposed convolution answers a shift differently at each place"
        if any(attrs_of(self.call, ["padding"])["padding"]):
            return "a shift before a padded convolution does not reach the padding"
        product = self.weight * self._input_factor(shift)
        kernel = str(self.call.attrs.kernel_layout)
        return product.sum(axis=tuple(i for i, name in enumerate(kernel) if name != "O"))

    def _scaled(self, factor: np.ndarray) -> GenericConst | str:
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.empty_like(self.weight)
            np.multiply(self.weight, factor, out=scaled, dtype=np.float64, casting="same_kind")
        return constant(scaled) if np.isfinite(scaled).all() else "the scaled weight is not finite"

    def _input_factor(self, vector: np.ndarray) -> np.ndarray:
        """float64 vector over input channels, shaped to multiply the weight."""
        if op_name(self.call) == "relax.matmul":
            return vector.reshape(-1, 1)
        kernel, groups = str(self.call.attrs.kernel_layout), int(self.call.attrs.groups)
        rank, where = self.rank, kernel.index("I")
        if op_name(self.call).endswith("_transpose") or groups == 1:
            return vector.reshape([-1 if i == where else 1 for i in range(rank)])
        # Output channel o of group g = o // (O / groups) reads input channels g * I .. (g + 1) * I.
        out, extents = kernel.index("O"), [1] * rank
        extents[out], extents[where] = self.weight.shape[out], self.weight.shape[where]
        by_output = np.repeat(vector.reshape(groups, -1), extents[out] // groups, axis=0)
        return (by_output if out < where else by_output.T).reshape(extents)


def linear_of(call: Any) -> Linear | None:
    """A convolution or matmul as a linear map; None for anything else, a computed weight, or a layout not known."""
    name = op_name(call)
    weight = view_of(call.args[1]) if of(name).is_linear else None
    if weight is None or weight.dtype.kind != "f" or {dtype_of(a) for a in call.args} != {str(weight.dtype)}:
        return None
    rank = int(call.args[0].ty.ndim)
    if str(call.attrs.out_dtype) not in ("", "void", "None", str(weight.dtype)):
        return None
    if name == "relax.matmul":
        if weight.ndim != 2 or rank < 1:
            return None
        return Linear(call, weight, rank, (rank - 1, weight.shape[0]), (rank - 1, weight.shape[1]))
    return _convolution(call, weight, rank)


def _convolution(call: Call, weight: np.ndarray, rank: int) -> Linear | None:
    attrs, transposed = call.attrs, op_name(call).endswith("_transpose")
    kernel, data = str(attrs.kernel_layout), str(attrs.data_layout)
    out = str(attrs.out_layout) or data
    if not len(kernel) == len(data) == len(out) == rank or (transposed and kernel[:2] != "IO"):
        return None
    if any(layout.find(c) < 0 for layout, c in ((kernel, "O"), (kernel, "I"), (data, "C"), (out, "C"))):
        return None
    groups, extents = int(attrs.groups), (weight.shape[kernel.index("I")], weight.shape[kernel.index("O")])
    inputs, outputs = (extents[0], extents[1] * groups) if transposed else (extents[0] * groups, extents[1])
    return Linear(call, weight, rank, (data.index("C"), inputs), (out.index("C"), outputs))


def output_factor(call: Call, scale: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A vector over output channels, shaped to multiply a weight of `shape`."""
    if op_name(call) == "relax.matmul":
        return scale
    kernel = str(call.attrs.kernel_layout)
    where, rank = kernel.index("O"), len(shape)
    if not op_name(call).endswith("_transpose"):
        return scale.reshape([-1 if i == where else 1 for i in range(rank)])
    # Weight (I, O / groups, ...): input channel i serves the output channels of its group only.
    groups = int(call.attrs.groups)
    by_group = np.repeat(scale.reshape(groups, -1), shape[0] // groups, axis=0)
    return by_group.reshape(shape[0], shape[1], *[1] * (rank - 2))
