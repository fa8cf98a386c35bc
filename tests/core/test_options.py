"""Compile options check themselves and suggest what was meant; docstrings and documents list those there are."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tvm_ext.core.errors import OptionError
from tvm_ext.core.options import FLAGS, CompileOptions

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "options.md"
NAMES = [field.name for field in dataclasses.fields(CompileOptions)]


def test_shapes_are_kept_in_one_order() -> None:
    a = CompileOptions.of(shapes={"x": (1, 2), "a": [3]})
    b = CompileOptions.of(shapes={"a": (3,), "x": (1, 2)})
    assert a == b and a.shapes == (("a", (3,)), ("x", (1, 2)))


def test_numbers_of_numpy_are_those_of_python() -> None:
    ours = {"threads": 2, "dims": {"S": (1, 8)}, "specialize": {"S": (4,)}, "choose": "measure", "seconds": 2.0}
    theirs = {"threads": np.int64(2), "dims": {"S": np.array([1, 8])}, "specialize": {"S": np.array([4])}}
    options = CompileOptions.of(**{**ours, **theirs, "seconds": np.float32(2)})
    assert repr(options) == repr(CompileOptions.of(**ours))


def test_a_symbolic_batch_has_sizes_and_can_be_bound() -> None:
    options = CompileOptions.of(shapes={"x": ("N", 3), "mask": ("N",)}, specialize={"N": [8, 2, 8]})
    assert (options.symbol, options.sizes) == ("N", (2, 8))
    bound = options.bound(5)
    assert bound.shapes == (("mask", (5,)), ("x", (5, 3))) and bound.symbol is None and bound.sizes == ()
    assert CompileOptions.of(shapes={"x": ("N", 3)}).sizes == (1, 4, 16)


def test_several_symbols_or_bounds_are_one_program_for_all_sizes() -> None:
    options = CompileOptions.of(shapes={"ids": ("N", "S"), "x": (1, "W")}, dims={"S": (2, 64)})
    assert not options.by_rows and options.symbol is None
    assert [(s.name, s.low, s.high) for s in options.symbols] == [("N", 1, 8), ("S", 2, 64), ("W", 1, 512)]
    assert options.at({"N": 3, "S": 5, "W": 7}).shapes == (("ids", (3, 5)), ("x", (1, 7)))
    assert CompileOptions.of(shapes={"x": ("N", 3)}).by_rows
    assert not CompileOptions.of(shapes={"x": ("N", 3)}, dims={"N": (1, 4)}).by_rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thread": 2}, "did you mean 'threads'"), ({"threads": 0}, "threads=0"),
        ({"threads": True}, "threads=True"), ({"threads": "2"}, "threads='2'"), ({"threads": 5000}, "1024"),
        ({"shapes": {"x": (-1, 2)}}, "whole numbers"), ({"shapes": {"x": (1.5, 2)}}, "whole numbers"),
        ({"shapes": {"x": (None, 2)}}, "whole numbers"), ({"dims": {"S": (1, 1 << 31)}}, r"below 2\^31"),
        ({"shapes": {3: (1,)}}, "input name"),
        ({"shapes": {"x": "abc"}}, "whole numbers"), ({"shapes": [1, 2]}, "input name"),
        ({"dims": {"S": 5}}, "smallest and largest"), ({"dims": {"S": (6, 5)}}, "ascending"),
        ({"dims": {3: (1, 5)}}, "no name"), ({"shapes": {"x": ("1N", 2)}}, "whole numbers"),
        ({"dims": {"S": (2, 8)}, "specialize": {"S": (4, 9)}}, "S is 9, and dims has 2 to 8"),
        ({"dims": {"S": (2, 8)}, "specialize": {"S": (1,)}}, "S is 1, and dims has 2 to 8"),
        ({"dims": {"S": (0, 0)}}, "0 or more and 1 or more"),
        ({"dims": {"S": (-1, 4)}}, "0 or more and 1 or more"),
        ({"shapes": {"x": ("N", 2)}, "specialize": {"N": (0, 1)}}, "1 or more"),
        ({"shapes": {"x": ("N", 2)}, "specialize": {"N": ()}}, "1 or more"),
        ({"shapes": {"x": ("N", 2)}, "specialize": {"N": 4}}, "1 or more"),
        *(({"shapes": {"x": ("N", 2)}, "specialize": {"N": n}}, "1 or more") for n in (None, 3.5, "14", (10**30,))),
        ({"dims": {"S": (1, 8)}, "specialize": {"S": (1 << 31,)}}, "1 or more"),
        ({"shapes": {"x": ("N", 2)}, "specialize": (4, 1)}, "names of dimensions with sizes"),
        ({"target": ""}, "CPU name"), ({"target": 3}, "CPU name"), ({"fusion": "most"}, "'default' or 'none'"),
        ({"accuracy": "fast"}, "'default' or 'exact'"), ({"cache": 1}, "True or False"),
        ({"precision": "half"}, "one of 'float32', 'bf16', 'fp16'"),
        ({"choose": "best"}, "'estimate' or 'measure'"),
        ({"choose": None}, "'estimate' or 'measure'"),
        ({"seconds": 5}, "with choose='estimate'"),
        ({"choose": "measure", "seconds": 0}, "above 0"),
        ({"choose": "measure", "seconds": -1.0}, "above 0"),
        ({"choose": "measure", "seconds": float("nan")}, "above 0"),
        ({"choose": "measure", "seconds": float("inf")}, "above 0"),
        ({"choose": "measure", "seconds": "20"}, "above 0"),
        ({"choose": "measure", "seconds": True}, "above 0"),
        ({"precision": "bf16", "max_error": 0}, "above 0"),
        ({"precision": "bf16", "max_error": 1.5}, "at most 1"),
        ({"precision": "bf16", "max_error": "small"}, "share of an output's range"),
        ({"precision": "bf16", "max_error": float("nan")}, "share of an output's range"),
        *(({name: np.arange(2)}, f"{name} is an array") for name in NAMES if name != "freeze"),
        ({"max_error": 0.1}, "with precision='float32'"),
        ({"keep_float32": ["a"]}, "with precision='float32'"),
        ({"precision": "bf16", "keep_float32": "a"}, "names of ONNX nodes"),
        ({"precision": "bf16", "keep_float32": [3]}, "names of ONNX nodes"),
        ({"precision": "bf16", "keep_float32": {"a": 3}}, "names of ONNX nodes"),
    ],
)  # fmt: skip
def test_a_bad_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        CompileOptions.of(**options)


def test_measuring_takes_twenty_seconds_unless_told() -> None:
    assert CompileOptions.of().seconds is None and CompileOptions.of(choose="measure").seconds == 20.0
    assert CompileOptions.of(choose="measure", seconds=5).seconds == 5.0


def test_layers_kept_in_float32_are_names_with_reasons() -> None:
    names = CompileOptions.of(precision="bf16", keep_float32=["b", "a"])
    assert names.keep_float32 == (("a", "kept by hand"), ("b", "kept by hand"))
    options = CompileOptions.of(precision="bf16", keep_float32={"a": "kept by hand", "b": "it costs 1 %"}, max_error=1)
    assert options.keep_float32 == (("a", "kept by hand"), ("b", "it costs 1 %")) and options.max_error == 1.0
    assert CompileOptions.of(
        precision="bf16", keep_float32=[list(pair) for pair in options.keep_float32]
    ).keep_float32 == (options.keep_float32), "as a stage's manifest has it"


def test_every_option_has_its_place_on_the_command_line() -> None:
    assert list(FLAGS) == NAMES
    taken = [word for flag in FLAGS.values() for word in {flag.name, *flag.switches}]
    assert len(taken) == len(set(taken)) and all(word.startswith("--") for word in taken)
    for name, flag in FLAGS.items():
        assert flag.help and flag.name in flag.example.split() and (flag.form or flag.switches), name
        assert not flag.choices or f"(default: {getattr(CompileOptions(), name)})" in flag.help, name


def test_docstrings_have_every_option_and_no_other() -> None:
    attributes = (inspect.getdoc(CompileOptions) or "").partition("Attributes:")[2].partition("Raises:")[0]
    assert re.findall(r"^    (\w+): ", attributes, re.MULTILINE) == NAMES
    listed = (inspect.getdoc(tvm_ext.compile) or "").partition("**options:")[2].partition("Returns:")[0]
    assert re.findall(r"(?<!:)`(\w+)`", listed) == NAMES


def test_compile_takes_every_option_by_its_name() -> None:
    model, options = inspect.signature(tvm_ext.compile).parameters.values()
    assert (model.name, options.kind) == ("model", inspect.Parameter.VAR_KEYWORD)
    assert set(inspect.signature(CompileOptions).parameters) == set(NAMES)
    with pytest.raises(OptionError, match="unknown compile option 'speed'") as error:
        tvm_ext.compile("no.onnx", speed=1)
    assert error.value.fix.endswith("options: " + ", ".join(NAMES))


def test_the_document_lists_every_option() -> None:
    rows = []
    for name, flag in FLAGS.items():
        written = ([f"{flag.name} {flag.form}"] if flag.form else []) + list(flag.switches)
        rows.append(f"| `{name}` | {', '.join(f'`{name}`' for name in written)} | {flag.help} | `{flag.example}` |")
    assert re.findall(r"^\| `.*$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE) == rows


def test_the_command_line_of_options_leaves_out_defaults_and_what_has_no_text() -> None:
    assert CompileOptions.of().arguments() == []
    assert CompileOptions.of(fusion=lambda candidate: True, threads=2).arguments() == ["--threads", "2"]
    options = CompileOptions.of(
        shapes={"x": ("N", 3), "s": ()}, specialize={"N": (1, 8)}, freeze={"k": 3, "m": np.ones((2, 2))}, fusion="none",
        records=None, precision="bf16", keep_float32={"-a": "it costs 1 %"}, cache=False,
    )  # fmt: skip
    assert options.arguments() == [
        "--shape", "s=", "--shape", "x=N,3", "--specialize", "N=1,8", "--freeze", "k=3", "--freeze", "m=m.npy",
        "--fusion", "none", "--precision", "bf16", "--keep-float32=-a", "--records", "none", "--no-cache",
    ]  # fmt: skip


def test_threads_wait_is_checked_and_no_part_of_the_program():
    from tvm_ext.core.machine import Machine
    from tvm_ext.driver.cache import cache_key

    machine = Machine.detect(None, 1)
    keys = {cache_key("0" * 64, machine, CompileOptions.of(threads_wait=w), {}) for w in (None, "spin", "sleep", 0.01)}
    assert len(keys) == 1
    with pytest.raises(OptionError):
        CompileOptions.of(threads_wait="never")
