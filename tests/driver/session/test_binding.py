"""io_binding against onnxruntime's: the same calls on both sessions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.onnx_graphs import random
from tvm_ext.core.errors import InputError

from .models import affine, agree, feed, session_of, theirs


@pytest.fixture(scope="module")
def both() -> list[Any]:
    """Ours, which compiles in the call, and onnxruntime's."""
    return [session_of(affine(), on_miss="wait"), theirs(affine())]


def ort_value(array: np.ndarray) -> Any:
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def bind_feed(binding: Any, feeds: dict[str, np.ndarray]) -> None:
    """A way of binding for each input."""
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_ortvalue_input("b", ort_value(feeds["b"]))
    binding.bind_input("k", "cpu", 0, np.int64, feeds["k"].shape, feeds["k"].ctypes.data)


def run_both(both: list[Any], bind: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    """(binding after a run, what `bind` gave) of both."""
    results = []
    for session in both:
        binding = session.io_binding()
        memory = bind(binding)
        session.run_with_iobinding(binding)
        results.append((binding, memory))
    return results


def test_outputs_in_the_order_of_binding(both: list[Any]) -> None:
    feeds = feed(3)

    def bind(binding: Any) -> None:
        bind_feed(binding, feeds)
        binding.bind_output("z")
        binding.bind_output("y", "cpu")

    (mine, _), (other, _) = run_both(both, bind)
    agree(mine.copy_outputs_to_cpu(), other.copy_outputs_to_cpu())
    agree([value.numpy() for value in mine.get_outputs()], [value.numpy() for value in other.get_outputs()])
    assert all(isinstance(value, onnxruntime.OrtValue) for value in mine.get_outputs())
    for session, binding in zip(both, (mine, other), strict=True):
        binding.clear_binding_outputs()
        assert binding.get_outputs() == [] == binding.copy_outputs_to_cpu()
        with pytest.raises(Exception, match=r"[Nn]o output is bound|At least one output"):
            session.run_with_iobinding(binding)
        binding.bind_output("z")
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        assert np.array_equal(binding.copy_outputs_to_cpu()[0], -feeds["k"])


def test_outputs_in_memory_of_the_caller(both: list[Any]) -> None:
    feeds = feed(4)

    def bind(binding: Any) -> tuple[np.ndarray, Any]:
        array, value = np.zeros((4, 4), np.float32), ort_value(np.zeros((1, 2), np.int64))
        bind_feed(binding, feeds)
        binding.bind_output("y", "cpu", 0, np.float32, array.shape, array.ctypes.data)
        binding.bind_ortvalue_output("z", value)
        return array, value

    (mine, (array, value)), (_, (wanted, _)) = run_both(both, bind)
    agree([array], [wanted])
    assert np.array_equal(value.numpy(), -feeds["k"]) and mine.get_outputs()[1] is value


def test_inputs_are_read_when_it_runs(both: list[Any]) -> None:
    for session in both:
        feeds = feed(2)
        binding = session.io_binding()
        bind_feed(binding, feeds)
        binding.bind_output("y")
        feeds["x"][:] = 0
        session.run_with_iobinding(binding)
        agree(binding.copy_outputs_to_cpu(), [feeds["b"]])
        binding.clear_binding_inputs()
        bind_feed(binding, feed(2))
        session.run_with_iobinding(binding)
        agree(binding.copy_outputs_to_cpu(), both[1].run(["y"], feed(2)))


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        (lambda b: b.bind_cpu_input("q", random(1)), r"no input 'q'\n.*'x', 'b', 'k'"),
        (lambda b: b.bind_output("q"), r"no output 'q'\n.*'y', 'z'"),
        (lambda b: b.bind_cpu_input("x", [1.0]), "input 'x' is list"),
        (lambda b: b.bind_output("y", "cuda"), "'y' on device 'cuda'"),
        (lambda b: b.bind_output("y", "cpu", 0, None, (1,), 64), "without dtype or shape"),
        (lambda b: b.bind_output("y", "cpu", 0, "floaty", (1,), 64), "do not say"),
        (lambda b: b.bind_output("y", "cpu", 0, 999, (1,), 64), "do not say"),
        (lambda b: b.bind_output("y", "cpu", 0, object, (1,), 64), "do not say"),
        (lambda b: b.bind_output("y", "cpu", 0, np.float32, (-1,), 64), "do not say"),
        (lambda b: b.bind_output("y", "cpu", 0, np.float32, (1,), 1 << 80), "do not say"),
        (lambda b: b.bind_output("y", "cpu", 0, np.float32, (1,), 0), "no memory lies at address 0"),
        (lambda b: b.bind_ortvalue_output("y", random(1)), "'y' is ndarray; an OrtValue"),
        (lambda b: b.bind_ortvalue_output("y", ort_value(np.zeros((1, 4), "f4"))), r"'y' is bound to float32\[1, 4\]"),
        (lambda b: b.bind_cpu_input("x", random(3)), "'x' has 1 dimensions"),
        (lambda b: b.bind_cpu_input("x", random(2, 8).astype(np.float64)), "'x' has dtype float64"),
        (lambda b: b.clear_binding_inputs(), r"missing \['x', 'b', 'k'\]"),
    ],
)
def test_what_does_not_fit(both: list[Any], bind: Callable[[Any], None], message: str) -> None:
    binding = both[0].io_binding()
    bind_feed(binding, feed(2))
    binding.bind_output("y")
    with pytest.raises(InputError, match=message):
        bind(binding)
        both[0].run_with_iobinding(binding)


def test_a_binding_of_onnxruntimes_is_not_ours(both: list[Any]) -> None:
    with pytest.raises(InputError, match=r"session\.io_binding"):
        both[0].run_with_iobinding(both[1].io_binding())


def test_values_in_and_out(both: list[Any]) -> None:
    values = {name: ort_value(array) for name, array in feed(3).items()}
    mine, other = (session.run_with_ort_values(["z", "y"], values) for session in both)
    assert all(isinstance(value, onnxruntime.OrtValue) for value in mine)
    agree([value.numpy() for value in mine], [value.numpy() for value in other])
