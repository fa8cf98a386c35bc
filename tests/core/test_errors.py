"""What others raise: the line that is kept of it, and the error of this library that it becomes."""

import math

import numpy as np
import pytest
from tvm import relax

from tvm_ext.core.errors import (
    BuildError,
    InputError,
    OptionError,
    UnsupportedError,
    at_nodes,
    check_choice,
    check_switch,
    check_whole,
    essence,
    failure,
    is_number,
    listener,
    names_of,
    naming,
)  # fmt: skip


def raised(action) -> BaseException:
    with pytest.raises(Exception) as info:
        action()
    return info.value


def test_an_operator_that_tvm_prints_is_its_name() -> None:
    x, y = (relax.Var(name, relax.TensorType((n, 2), "float32")) for name, n in (("x", 3), ("y", 4)))
    error = raised(lambda: relax.BlockBuilder().normalize(relax.op.add(x, y)))
    assert "ir.Op(" in str(error)
    assert essence(error).startswith(f"{type(error).__name__}: relax.add: ") and "ir." not in essence(error)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('Traceback (most recent call last):\n  File "a.cc", line 3\n\nInternalError: no\n', "InternalError: no"),
        ("from tvm.script import ir as I\n@I.ir_module\nError message: too few axes\n", "too few axes"),
        ("shapes are R.shape([1, 2]) and T.int64(3) of T.float32", "shapes are [1, 2] and 3 of float32"),
        ('Cannot parse attribute: \nname: "axes"\ntype: INTS\n', 'Cannot parse attribute: name: "axes"'),
        ("x" * 5000, "x" * 300),
    ],
)
def test_the_line_that_says_something(text: str, line: str) -> None:
    assert essence(ValueError(text)) == f"ValueError: {line}"


def test_an_exception_without_a_word_is_told_by_its_place() -> None:
    def fails() -> None:
        assert len("ab") == 3

    error = raised(fails)
    error.args = ()
    assert essence(error) == 'AssertionError: in fails: assert len("ab") == 3'


def test_errors_of_others_are_chained_and_ours_stay() -> None:
    with pytest.raises(BuildError, match=r"^kernel 'k': KeyError: 'x'\n  fix: drop it$") as info:  # noqa: SIM117
        with naming(BuildError, lambda: "kernel 'k'", "drop it"):
            raise KeyError("x")
    assert isinstance(info.value.__cause__, KeyError) and isinstance(info.value, RuntimeError)
    ours = InputError("no")
    with pytest.raises(InputError) as other, naming(BuildError, lambda: "never asked"):
        raise ours
    assert other.value is ours
    with pytest.raises(KeyboardInterrupt), naming(BuildError, lambda: "never asked"):
        raise KeyboardInterrupt
    assert "defect of tvm-ext" in failure(UnsupportedError, "it", ValueError("v")).fix


def test_nodes_in_words() -> None:
    assert at_nodes((), {}) == "" and at_nodes(("a",), {"a": "Relu"}) == " at node 'a' (Relu)"
    assert at_nodes("abcde", {}) == " at nodes 'a', 'b', 'c' and 2 more"


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_a_whole_number_of_numpy_is_one_of_python(value: object) -> None:
    assert type(number := check_whole("n", value, 1, 3)) is int and number == 3


@pytest.mark.parametrize("value", [0, 4, 2.0, True, np.True_, "3", None, [3], np.array([3]), float("nan"), 10**400])
def test_another_value_names_the_option_and_its_bounds(value: object) -> None:
    with pytest.raises(OptionError, match=r"n=.*from 1 to 3"):
        check_whole("n", value, 1, 3)


def test_numbers_are_finite_and_real() -> None:
    assert all(map(is_number, (0, -1.5, np.float32(2), np.int8(1))))
    assert not any(
        map(is_number, (True, np.True_, "1", None, 1j, math.nan, math.inf, -math.inf, 10**400, [1.0], np.ones(2)))
    )


@pytest.mark.parametrize("value", ["C", None, 1, True, np.ones(2), [], ["a"], {"a"}])
def test_a_choice_is_one_of_several(value: object) -> None:
    check_choice("o", "b", ("a", "b"))
    with pytest.raises(OptionError, match=r"o=.*: choose 'a' or 'b'"):
        check_choice("o", value, ("a", "b"))
    with pytest.raises(OptionError, match=r"choose one of 'ab', 'b', 'c'.*\n.*did you mean 'ab'"):
        check_choice("o", "abc", ("ab", "b", "c"))


def test_a_choice_of_whole_numbers_is_no_float() -> None:
    check_choice("o", np.int64(64), (32, 64))
    for value in (64.0, np.float32(64)):
        with pytest.raises(OptionError, match=r"o=.*: choose 32 or 64"):
            check_choice("o", value, (32, 64))


def test_a_switch_is_a_boolean() -> None:
    check_switch("o", False)
    for value in (0, 1, None, "yes", np.True_, np.ones(2)):
        with pytest.raises(OptionError, match="o="):
            check_switch("o", value)


def test_names_may_stand_alone() -> None:
    assert names_of("o", "a") == names_of("o", ["a"]) == ("a",) and names_of("o", ()) == ()
    for value in (3, None, "", b"a", [""], ["a", 3], np.ones(2), np.array("a")):
        with pytest.raises(OptionError, match="o="):
            names_of("o", value)


def test_a_listener_is_a_function_or_none() -> None:
    events: list[object] = []
    listener(events.append)(1)
    listener(None)(2)
    assert events == [1]
    for value in (0, "", "print", {}):
        with pytest.raises(OptionError, match="on_event="):
            listener(value)
