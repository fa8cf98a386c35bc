"""An operator of Relax that TVM has not: the recurrence of an RNN, GRU or LSTM over all steps, in all directions.

    y = tvm_ext.recurrence(x, r, ...)       h = h0; for t in steps: h = cell(x[t], h R^T, h); y[t] = h

    x (S, N, D * G * H): the input's part of all gates of each direction; r (D, G * H, H)
    result (finals + S, D, N, H): first the last h, then an LSTM's last c, as far as they are asked for; then all steps

S steps, N rows of a batch, D directions, H units, G gates: 1 of an RNN, 3 of a GRU (z r h), 4 of an LSTM (i o f c). TVM
knows the operator once this module is imported; its printer writes it, and its parser reads it, by :func:`recurrence`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.ir import Call

from .own_operators import register

NAME = "relax.tvm_ext.recurrence"
#: Kind of the cell -> its gates, and the activations of a direction if none are stated.
CELLS = {"RNN": (1, ("tanh",)), "GRU": (3, ("sigmoid", "tanh")), "LSTM": (4, ("sigmoid", "tanh", "tanh"))}
#: What operands can be, in the order of a call; the first two are always there. `bias`, (D, H), of the recurrent part
#: of a GRU's candidate, `hidden` and `cell`, (D, N, H), the first state, zeros without them, `peepholes`, (D, 3 * H),
#: of input, output and forget gate, `lengths`, (N), whole numbers: steps of each row.
ROLES = ("input", "recurrent", "bias", "hidden", "cell", "peepholes", "lengths")


@dataclass(frozen=True)
class Recurrence:
    """What a call of the operator says.

    Attributes:
        kind: of :data:`CELLS`.
        operands: what its operands are, of :data:`ROLES`.
        backwards: of each direction whether the last step comes first.
        activations: those of a direction, of each direction: (name, alpha, beta) (:mod:`.scalars.gates`).
        limit: what activations of gates get is clipped to -limit and limit; None if it is not.
        reset_behind: of a GRU, whether the reset gate multiplies the product (ONNX's `linear_before_reset`).
        coupled: of an LSTM, whether the forget gate is 1 - input gate.
        quantized: of an LSTM, whether products read the state as DynamicQuantizeLinear stores it: in 8 bits, of the
            range that it has in all rows.
        sequence: whether the result has all steps.
        finals: how many of the states after the last step it has.
    """

    kind: str
    operands: tuple[str, ...]
    backwards: tuple[bool, ...]
    activations: tuple[tuple[tuple[str, float, float], ...], ...]
    limit: float | None = None
    reset_behind: bool = False
    coupled: bool = False
    quantized: bool = False
    sequence: bool = True
    finals: int = 0

    @classmethod
    def of(cls, call: Call) -> Recurrence:
        """What a call says."""
        attrs = call.attrs
        own = tuple((str(name), float(alpha), float(beta)) for name, alpha, beta in attrs["activations"])
        each = len(CELLS[str(attrs["kind"])][1])
        return cls(
            str(attrs["kind"]), tuple(map(str, attrs["operands"])), tuple(map(bool, attrs["backwards"])),
            tuple(own[i : i + each] for i in range(0, len(own), each)),
            next(map(float, attrs["limit"]), None), bool(attrs["reset_behind"]), bool(attrs["coupled"]),
            bool(attrs["quantized"]), bool(attrs["sequence"]), int(attrs["finals"]),
        )  # fmt: skip

    @property
    def gates(self) -> int:
        """G."""
        return CELLS[self.kind][0]

    def call(self, operands: Mapping[str, Any]) -> Call:
        """A call that says this, on operands by what they are."""
        return recurrence(
            *(operands[role] for role in self.operands),
            kind=self.kind, operands=list(self.operands), backwards=list(self.backwards),
            activations=[list(activation) for direction in self.activations for activation in direction],
            limit=[] if self.limit is None else [self.limit], reset_behind=self.reset_behind, coupled=self.coupled,
            quantized=self.quantized, sequence=self.sequence, finals=self.finals,
        )  # fmt: skip


def _result_type(call: Call, _: Any) -> relax.TensorType:
    """(finals + S, D, N, H), of the input's type."""
    said, (x, r) = Recurrence.of(call), (operand.ty for operand in call.args[:2])
    (steps, batch, _), (directions, _, hidden) = x.shape.values, r.shape.values
    rows = steps + said.finals if said.sequence else said.finals
    return relax.TensorType((rows, directions, batch, hidden), x.dtype)


recurrence = register(NAME, "The recurrence of an RNN, GRU or LSTM over all steps.", _result_type)
