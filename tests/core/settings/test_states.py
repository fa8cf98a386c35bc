"""Which outputs are inputs of the next call: as stated, or as their names tell."""

from typing import Any

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.settings.states import growing_axes, state_pairs
from tvm_ext.runtime.spec import TensorSpec


def specs(text: str) -> list[TensorSpec]:
    """ "a b:3 c:float16" -> tensors of shape (2,), or of another size, or another dtype."""
    shapes = []
    for word in text.split():
        name, _, how = word.partition(":")
        shapes.append(
            TensorSpec(name, (int(how),) if how.isdigit() else (2,), how if how and not how.isdigit() else "float32")
        )
    return shapes


def paired(state: Any, inputs: str, outputs: str) -> dict[str, str]:
    ins, outs = specs(inputs), specs(outputs)
    pairs = state_pairs(CompileOptions.of(state=state).state, ins, outs, "m")
    return {outs[output].name: ins[taken].name for output, taken in pairs}


@pytest.mark.parametrize(
    ("inputs", "outputs", "pairs"),
    [
        ("x past.0.key past.0.value", "y present.0.key present.0.value",
         {"present.0.key": "past.0.key", "present.0.value": "past.0.value"}),
        ("past_key_values.11.key", "present.11.key", {"present.11.key": "past_key_values.11.key"}),
        ("past_k past_v", "present_k present_v", {"present_k": "past_k", "present_v": "past_v"}),
        ("past", "present", {"present": "past"}),
        ("input state sr", "output stateN", {"stateN": "state"}),
        ("x h0 c0", "y hn cn", {"hn": "h0", "cn": "c0"}),
        ("x h c", "y hn cn", {"hn": "h", "cn": "c"}),
        ("a b_in", "a_out b_out", {"a_out": "a", "b_out": "b_in"}),
        ("a b:3 c:float16", "a_n b_n c_n", {"a_n": "a"}),
    ],
)  # fmt: skip
def test_names_tell_pairs_of_one_shape_and_dtype(inputs: str, outputs: str, pairs: dict[str, str]) -> None:
    assert paired("auto", inputs, outputs) == pairs


@pytest.mark.parametrize(
    ("state", "outputs", "words"),
    [
        ("auto", "y z", ("no output is a state", "outputs: y, z", "inputs: x, h, d")),
        ("auto", "h_out:3", ("output 'h_out' is float32[3]", "input 'h' is float32[2]")),
        ("auto", "hn h_out", ("'hn'", "'h_out'", "'h'")),
        ({"b_new": "h"}, "b c:3", ("no output 'b_new'", "outputs: b, c")),
        ({"b": "xx"}, "b c:3", ("no input 'xx'", "did you mean 'x'", "inputs: x, h, d")),
        ({"c": "h"}, "b c:3", ("output 'c' is float32[3]", "input 'h' is float32[2]")),
        ({"b": "d"}, "b c:3", ("output 'b' is float32[2]", "input 'd' is int64[2]")),
    ],
)
def test_names_and_pairs_that_do_not_fit_the_model(state: Any, outputs: str, words: tuple[str, ...]) -> None:
    with pytest.raises(OptionError) as error:
        paired(state, "x h d:int64", outputs)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("state", ["a", 3, ["ab"], {"a": 3}, {"": "a"}, [("a", "b", "c")]])
def test_what_is_no_state(state: Any) -> None:
    with pytest.raises(OptionError, match="names of outputs with names of inputs"):
        CompileOptions.of(state=state)


@pytest.mark.parametrize("state", [{"a": "x", "b": "x"}, [("a", "x"), ("a", "y")]])
def test_a_name_is_paired_once(state: Any) -> None:
    with pytest.raises(OptionError, match="is paired with"):
        CompileOptions.of(state=state)


def test_states_are_kept_in_one_order() -> None:
    assert CompileOptions.of(state={"b": "y", "a": "x"}) == CompileOptions.of(state=[["a", "x"], ["b", "y"]])
    assert CompileOptions.of(state=None) == CompileOptions.of(state={}) == CompileOptions()


def test_a_state_grows_along_a_symbolic_axis_only() -> None:
    free, past = (TensorSpec("past", (2, size, 4), "float32") for size in ("P", 5))
    grows = growing_axes([free, TensorSpec("x", (3,), "float32")])
    assert grows == {("past", 1)} and not growing_axes([TensorSpec("past", (2, 0), "float32")])
    for shape, axis in (((2, 8, 4), 1), ((2, 5, 6), 2), ((3, 8, 4), None), ((2, 5), None), ((2, 5, 4), None)):
        present = TensorSpec("present", shape, "float32")
        assert past.axis_of_growth(present) == axis
        for state in ("auto", (("present", "past"),)):
            if axis == 1 or shape == past.shape:
                assert state_pairs(state, [past], [present], "m", grows) == ((0, 0),)
                continue
            with pytest.raises(OptionError, match=r"output 'present' is .* input 'past' is"):
                state_pairs(state, [past], [present], "m", grows)
