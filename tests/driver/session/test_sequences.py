"""Sessions of models with sequences and optionals, against onnxruntime's."""

from typing import Any

import numpy as np
import pytest

from tests.nested_models import SEQUENCE, feeds, mixed, shapes_of, typed
from tests.onnx_graphs import model, node, random, value
from tests.oracles.compare import close, difference
from tvm_ext.core.errors import InputError

from .models import session_of, theirs


def present(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in inputs.items() if x is not None}


def agree(ours: list[Any], reference: list[Any]) -> None:
    assert difference(ours, reference, close(1e-5, 1e-5))[0] == ""


def test_each_set_of_lengths_has_a_program() -> None:
    ours, other = session_of(mixed(), on_miss="wait"), theirs(mixed())
    calls = [feeds(3, 1), feeds(2, more=None), feeds(3, 1), feeds(1, 1, opt=False, more=0)]
    for inputs in calls:
        agree(ours.run(None, inputs), other.run(None, present(inputs)))
        agree(ours.run(None, present(inputs)), other.run(None, present(inputs)))
    report = ours.report()
    assert report.compiled == 8 and report.onnxruntime == 0
    assert sorted(row.compiled for row in report.rows) == [2, 2, 4]
    assert report.any_size is None and any("seq[1] [1, 4]" in row.text for row in report.rows)
    assert [(a.name, a.type) for a in ours.get_inputs()] == [(a.name, a.type) for a in other.get_inputs()]
    assert [(a.name, a.type) for a in ours.get_outputs()] == [(a.name, a.type) for a in other.get_outputs()]


def test_onnxruntime_answers_until_there_is_one() -> None:
    ours, other, inputs = session_of(mixed()), theirs(mixed()), feeds(2, 2)
    for _ in range(3):
        agree(ours.run(None, inputs), other.run(None, present(inputs)))
        ours.wait_compiled()
    assert (ours.report().onnxruntime, ours.report().compiled) == (2, 1)


def test_shapes_that_are_stated_are_compiled_at_once() -> None:
    inputs = feeds(3, 1)
    ours, other = session_of(mixed(), shapes=shapes_of(inputs)), theirs(mixed())
    agree(ours.run(["whole", "parts"], inputs), other.run(["whole", "parts"], present(inputs)))
    assert [(a.name, a.type) for a in ours.get_inputs()] == [(a.name, a.type) for a in other.get_inputs()]
    assert [(a.name, a.type) for a in ours.get_outputs()] == [(a.name, a.type) for a in other.get_outputs()]
    with pytest.raises(InputError, match="'seq'"):
        ours.run(None, feeds(3))


def test_compile_for_lengths() -> None:
    ours, inputs = session_of(mixed(), on_miss="error"), feeds(3, 1, opt=False, more=None)
    with pytest.raises(InputError, match=r"seq\[0\] \[3, 4\]"):
        ours.run(None, inputs)
    program = ours.compile_for({"seq": [(3, 4), (1, 4)], "opt": None, "x": (2, 4)})
    agree(ours.run(None, inputs), list(program.run(inputs).values()))
    for wrong in ({"seq": (3, 4)}, {"seq": None}, {"opt": ("a",)}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            ours.compile_for({"seq": [(3, 4)], "x": (2, 4), **wrong})


@pytest.mark.parametrize(
    ("change", "words"), [({"seq": random(3, 4)}, "a list"), ({"seq": [np.zeros(3)]}, r"seq\[0\]"), ({"y": 1}, "'y'")]
)
def test_what_does_not_fit(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        session_of(mixed()).run(None, {**feeds(3), **change})


def test_bindings_hold_sequences() -> None:
    proto = model([node("SplitToSequence", "x", "s"), node("Neg", "x", "y")], [value("x", [2, 3])],
                  [*typed(s=SEQUENCE), value("y", [2, 3])], opset=18)  # fmt: skip
    ours, x = session_of(proto), random(2, 3)
    binding = ours.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("s")
    binding.bind_output("y")
    assert binding.copy_outputs_to_cpu() == []
    ours.run_with_iobinding(binding)
    copies = binding.copy_outputs_to_cpu()
    agree(copies, theirs(proto).run(None, {"x": x}))
    with pytest.raises(InputError, match="only tensors"):
        binding.get_outputs()
    memory = np.zeros((2, 3), np.float32)
    binding.bind_output("s", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
    with pytest.raises(InputError, match="'s' is bound to memory"):
        ours.run_with_iobinding(binding)
