"""Recurrences as tasks of a kernel: groups, operands, and what they compute in float64."""

from typing import Any

import numpy as np

from tests.oracles.recurrent import recurrence
from tvm_ext.core.machine import Machine
from tvm_ext.ops.recurrence import CELLS, NAME, Recurrence
from tvm_ext.schedules.recipes.recurrent import Recurrent

from .kernels import make_group, run_kernel

Shape = tuple[int, ...]


class Case:
    """A recurrence, its group and its operands.

    Args:
        sizes: steps, batch, units.
        roles: of the operands beside input and weight.
    """

    def __init__(
        self, kind: str, sizes: Shape, rng: np.random.Generator, roles: str = "",
        backwards: tuple[bool, ...] = (False,), dtype: str = "float32", **attributes: Any,
    ) -> None:  # fmt: skip
        self.kind, (steps, batch, hidden), own = kind, sizes, tuple(roles.split())
        gates, d = CELLS[kind][0], len(backwards)
        shapes = {"input": (steps, batch, d * gates * hidden), "recurrent": (d, gates * hidden, hidden),
                  "bias": (d, hidden), "hidden": (d, batch, hidden), "cell": (d, batch, hidden),
                  "peepholes": (d, 3 * hidden), "lengths": (batch,)}  # fmt: skip
        activations = tuple((name, 0.0, 0.0) for name in CELLS[kind][1])
        attributes = {"finals": 2 if kind == "LSTM" else 1, **attributes}
        self.says = Recurrence(kind, ("input", "recurrent", *own), backwards, (activations,) * d, **attributes)
        self.shapes = {role: shapes[role] for role in self.says.operands}
        self.arrays = {role: rng.standard_normal(shape).astype(dtype) for role, shape in self.shapes.items()}
        self.arrays["recurrent"] *= np.asarray(hidden**-0.5, dtype)
        if "lengths" in own:
            self.arrays["lengths"] = rng.integers(1, steps + 1, batch).astype("int32")
        dtypes = ["int32" if role == "lengths" else dtype for role in self.shapes]
        self.group = make_group(NAME, list(self.shapes.values()), self.body, [1], dtypes)

    def body(self, *params: Any) -> Any:
        """The operator on the parameters of a group, for :func:`.kernels.make_group`."""
        yield self.says.call(dict(zip(self.says.operands, params, strict=True)))

    def wanted(self, **arrays: np.ndarray) -> np.ndarray:
        """(finals + S, D, N, H) in float64."""
        each = []
        arrays = {**self.arrays, **arrays}
        for number, backwards in enumerate(self.says.backwards):
            own = {role: a if role == "lengths" else a[number] for role, a in arrays.items() if role != "input"}
            x = np.split(arrays["input"], len(self.says.backwards), axis=2)[number]
            steps, states = recurrence(
                self.kind, x, own.pop("recurrent"), backwards=backwards, behind=self.says.reset_behind, **own
            )
            finals = [state[None] for state in states[: self.says.finals]]
            each.append(np.concatenate([*finals, *([steps] if self.says.sequence else [])]))
        return np.stack(each, axis=1)

    def check(self, machine: Machine, atol: float = 2e-6, **run: Any) -> None:
        """Run the kernel and compare."""
        got = run_kernel(Recurrent(), self.group, list(self.arrays.values()), machine, **run)
        np.testing.assert_allclose(got, self.wanted(), rtol=0, atol=atol)
