"""Options of language models: the functions that take them have these defaults, and the command line all of them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tvm_ext import Scheduler, generate
from tvm_ext.cli.app import make_parser
from tvm_ext.frontend.zoo import gguf, llama
from tvm_ext.runtime.language.options import CALLS, MODEL, TEXT, Option


@pytest.mark.parametrize(
    ("function", "known", "others"),
    [
        (gguf, MODEL, {"path", "every"}),
        (generate, {**TEXT, "speculate": CALLS["speculate"]}, {"compiled", "tokens", "prompt_cache", "draft"}),
        (Scheduler.submit, TEXT, {"self", "tokens"}),
        (Scheduler, CALLS, {"compiled"}),
    ],
)
def test_arguments_of_a_function(function: Callable[..., Any], known: Mapping[str, Option], others: set[str]) -> None:
    arguments = inspect.signature(function).parameters
    assert arguments.keys() - others == known.keys()
    assert {name: arguments[name].default for name in known} == {name: known[name].default for name in known}


def test_caches_of_both_models_are_alike() -> None:
    assert inspect.signature(llama).parameters["cache"].default == MODEL["cache"].default in MODEL["cache"].choices


def test_chat_has_all_of_them() -> None:
    args = vars(make_parser().parse_args(["chat", "m.gguf"]))
    defaults = {name: option.default for name, option in {**MODEL, **CALLS, **TEXT}.items()}
    assert {name: args[name] for name in defaults} == {**defaults, "sequences": 8, "stop": []}
    words = ["--cache", "float16", "--exact", "--stop", "3", "--stop", "4"]
    args = vars(make_parser().parse_args(["chat", "m.gguf", *words]))
    assert (args["cache"], args["exact"], args["stop"]) == ("float16", True, [3, 4])
