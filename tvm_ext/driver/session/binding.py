"""IOBinding: inputs and outputs in memory that the caller names once, and uses again for every call."""

import copy
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.errors import InputError
from ...runtime.memory.arrays import memory_at
from .ort_values import memory_of, ort_value_of


@dataclass
class _Output:
    """A bound output: memory to write to, if the caller gave any, and its value after a run: an array, list or None."""

    place: np.ndarray | None = None
    owner: Any = None
    value: Any = None
    written: bool = False


class IOBinding:
    """Inputs and outputs bound to memory, as of `onnxruntime.IOBinding`; a session's `io_binding` makes it.

    Everything lies in the memory of the CPU. An input is read when the session runs: what was written to its memory
    meanwhile counts. An output without memory of its own gets a new array in each run.

    Args:
        inputs, outputs: names that may be bound.
    """

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._names = {"input": list(inputs), "output": list(outputs)}
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, _Output] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Bind an array.

        Raises:
            InputError: no such input, or no array.
        """
        if not isinstance(arr_on_cpu, np.ndarray):
            raise InputError(f"input {name!r} is {type(arr_on_cpu).__name__}", fix="bind a numpy array")
        self._inputs[self._known("input", name)] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind memory by its address.

        Args:
            name: of the input.
            device_type, device_id: "cpu", 0.
            element_type: numpy's dtype, or ONNX's code of one.
            shape: of the array.
            buffer_ptr: its address; the memory must stay.

        Raises:
            InputError: no such input, or memory of another device.
        """
        self._inputs[self._known("input", name)] = _buffer(name, device_type, element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Bind an `onnxruntime.OrtValue`.

        Raises:
            InputError: no such input, or no value on the CPU.
        """
        self._inputs[self._known("input", name)] = memory_of(ortvalue, f"input {name!r}")

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Bind an output to memory by its address, as :meth:`bind_input`; or without one to a new array in each run.

        Raises:
            InputError: no such output, memory of another device, or an address without dtype and shape.
        """
        self._known("output", name)
        if buffer_ptr is None:
            _check_device(name, device_type)
            self._outputs[name] = _Output()
        else:
            self._outputs[name] = _Output(_buffer(name, device_type, element_type, shape, buffer_ptr))

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Bind an output to the memory of an `onnxruntime.OrtValue`.

        Raises:
            InputError: no such output, or no value on the CPU.
        """
        self._outputs[self._known("output", name)] = _Output(memory_of(ortvalue, f"output {name!r}"), ortvalue)

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: all memory is the CPU's."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: all memory is the CPU's."""

    def get_outputs(self) -> list[Any]:
        """The outputs of the last run as `onnxruntime.OrtValue`, in the order of binding."""
        return [ort_value_of(value) if owner is None else owner for value, owner in self._written()]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Copies of the outputs of the last run, in the order of binding: arrays, lists of them, or None."""
        return [copy.deepcopy(value) for value, _ in self._written()]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()

    def feed(self) -> tuple[list[str], Mapping[str, Any]]:
        """Names of the bound outputs, and the bound inputs: what a session runs.

        Raises:
            InputError: no output is bound.
        """
        if not self._outputs:
            raise InputError("no output is bound", fix=f"bind_output of one of {self._names['output']}")
        return list(self._outputs), self._inputs

    def store(self, results: Sequence[Any]) -> None:
        """Put the outputs of a run where they belong.

        Raises:
            InputError: the memory that is bound has another shape or dtype.
        """
        for (name, output), result in zip(self._outputs.items(), results, strict=True):
            output.written = True
            if output.place is None:
                output.value = result
                continue
            if not isinstance(result, np.ndarray):
                wrong = f"output {name!r} is bound to memory, and is {type(result).__name__}, no tensor"
                raise InputError(wrong, fix="bind_output without memory")
            if (output.place.shape, output.place.dtype) != (result.shape, result.dtype):
                bound, computed = (f"{a.dtype}{list(a.shape)}" for a in (output.place, result))
                raise InputError(f"output {name!r} is bound to {bound}, and is {computed}", fix="bind fitting memory")
            np.copyto(output.place, result)
            output.value = output.place

    def _written(self) -> list[tuple[Any, Any]]:
        return [(output.value, output.owner) for output in self._outputs.values() if output.written]

    def _known(self, side: str, name: str) -> str:
        if name not in self._names[side]:
            raise InputError(f"no {side} {name!r}", fix=f"choose of {self._names[side]}")
        return name


def _check_device(name: str, device_type: str) -> None:
    if str(device_type).lower() != "cpu":
        raise InputError(f"{name!r} on device {device_type!r}: programs run on the CPU", fix="device_type='cpu'")


def _buffer(name: str, device_type: str, element_type: Any, shape: Sequence[int] | None, address: int) -> np.ndarray:
    """Memory at an address as an array."""
    _check_device(name, device_type)
    if element_type is None or shape is None:
        raise InputError(f"{name!r} is bound to an address without dtype or shape", fix="give element_type and shape")
    try:
        dtype = np.dtype(_of_code(element_type) if isinstance(element_type, int) else element_type)
        if dtype.hasobject:
            raise TypeError("Python objects")
        array = memory_at(operator.index(address), [operator.index(size) for size in shape], dtype)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name!r}: dtype {element_type!r} and shape {shape!r} do not say what lies there") from error
    if array.size and address < 1:
        raise InputError(f"{name!r}: no memory lies at address {address}", fix="give array.ctypes.data")
    return array


def _of_code(element_type: int) -> np.dtype[Any]:
    """The dtype of ONNX's code of one; KeyError if there is none."""
    import onnx

    return onnx.helper.tensor_dtype_to_np_dtype(element_type)
