"""onnxruntime as the stand-in for programs that are not there."""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...byoc.onnxruntime.driver import session_of
from ...core.errors import InputError, RunError, essence, failure
from ...runtime.pool.forks import renew_after_fork
from .node_args import NodeArg, dtype_of
from .ort_values import array_of, has_arrays, ort_value_of


class StandIn:
    """A session of onnxruntime, whose threads sleep between calls.

    Args:
        model: serialized, or the path of its file.
        threads: of a call, unless `options` say how many.
        options: the caller's `onnxruntime.SessionOptions`, or None.
        frozen: values of inputs that the caller does not pass in.

    Attributes:
        inputs, outputs, overridable: as onnxruntime describes them, without the frozen ones.

    Raises:
        ProgramError: onnxruntime does not take the model.
    """

    def __init__(
        self, model: bytes | str, threads: int, options: Any = None, frozen: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self._how = model, threads, options
        self._session = session_of(*self._how)
        stated = {arg.name: arg for arg in (*self._session.get_inputs(), *self._session.get_overridable_initializers())}
        self._frozen = {name: _as_stated(value, stated[name]) for name, value in (frozen or {}).items()}
        kept = [NodeArg.of_onnxruntime(arg) for arg in self._session.get_inputs() if arg.name not in self._frozen]
        self.inputs = tuple(kept)
        self.outputs = tuple(map(NodeArg.of_onnxruntime, self._session.get_outputs()))
        replaceable = [arg for arg in self._session.get_overridable_initializers() if arg.name not in self._frozen]
        self.overridable = tuple(map(NodeArg.of_onnxruntime, replaceable))
        dtypes = (dtype_of(arg.type) for arg in (*self.inputs, *self.outputs, *self.overridable))
        self._arrays_only = all(map(has_arrays, dtypes))
        renew_after_fork(self, StandIn._forked)

    def run(self, names: Sequence[str], arrays: Mapping[str, Any], run_options: Any = None) -> list[Any]:
        """Outputs of a call, in the order of `names`.

        Args:
            names: of outputs.
            arrays: input name -> array, or list of arrays; None for an optional that is absent.
            run_options: `onnxruntime.RunOptions`, or None.

        Raises:
            InputError: onnxruntime finds that the inputs do not fit.
            RunError: it stopped.
        """
        session = self._session = self._session or session_of(*self._how)
        values = {**{name: value for name, value in arrays.items() if value is not None}, **self._frozen}
        try:
            if self._arrays_only:
                return list(session.run(list(names), values, run_options))
            held = {name: ort_value_of(array) for name, array in values.items()}
            results = session.run_with_ort_values(list(names), held, run_options)
        except Exception as error:
            if type(error).__name__ == "InvalidArgument":
                raise InputError(f"onnxruntime does not take the inputs: {essence(error)}") from error
            fix = "onnxruntime runs shapes without a program; its message says what it cannot do"
            raise failure(RunError, "onnxruntime stopped", error, fix) from error
        return [array_of(value, f"output {name!r}") for name, value in zip(names, results, strict=True)]

    def _forked(self) -> None:
        """In a forked process a session has no threads, and waits for them for ever, even to be deleted."""
        if self._session is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))
            self._session = None


def _as_stated(value: np.ndarray, arg: Any) -> np.ndarray:
    """A frozen value in the dtype of its input; a plain number stands for one element, as in a compile."""
    dtype = dtype_of(arg.type) or value.dtype
    return value.astype(dtype).reshape(value.shape or (1,) * len(arg.shape))
