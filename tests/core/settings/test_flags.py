"""Options on a command line: from text to value and back, and texts that are none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.core.options import FLAGS, CompileOptions
from tvm_ext.core.settings import flags


@pytest.mark.parametrize(
    ("option", "texts", "value"),
    [
        ("shapes", ["x=1,3", "a=b=N,2", "s="], {"x": (1, 3), "a=b": ("N", 2), "s": ()}),
        ("specialize", ["N=1,4"], {"N": (1, 4)}),
        ("freeze", ["k=3", "axes=0,-2", "scales=1,0.5", "p=a/b.npy"],
         {"k": 3, "axes": [0, -2], "scales": [1, 0.5], "p": Path("a/b.npy")}),
        ("state", ["a=b=N", "c=d"], (("a=b", "N"), ("c", "d"))),
        ("state", ["auto"], "auto"), ("threads", ["1", "2"], 2), ("threads", ["two"], "two"),
        ("max_error", ["1e-3"], 1e-3), ("keep_float32", ["a", "b"], ("a", "b")), ("records", ["none"], None),
        ("records", ["auto"], "auto"),
        ("records", ["a.json", "b.json"], ("a.json", "b.json")),
        ("offload_options", ["skip=a,Conv", "skip=b", "rows=16", "flow=weight", 'text="16"', "on=true"],
         {"skip": ("a", "Conv", "b"), "rows": 16, "flow": "weight", "text": "16", "on": True}),
        ("cache", [False], False),
    ],
)  # fmt: skip
def test_texts_become_the_value(option: str, texts: list[Any], value: Any) -> None:
    assert FLAGS[option].value(texts) == value


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("shapes", "x"), ("shapes", "=1"), ("shapes", "x=1,a b"), ("specialize", "N"), ("freeze", "axes"),
        ("freeze", "axes="), ("freeze", "axes=1,x"), ("freeze", "a=b.txt"), ("offload_options", "rows"),
        ("state", "=b"), ("state", "a="),
        ("offload_options", "a b=3"),
    ],
)  # fmt: skip
def test_a_text_of_another_form_names_flag_and_form(option: str, text: str) -> None:
    flag = FLAGS[option]
    with pytest.raises(OptionError) as error:
        flag.value([text])
    assert error.value.message == f"{flag.name} {text}: {flag.form} is needed" and flag.example in error.value.fix


@pytest.mark.parametrize(
    ("option", "texts"),
    [
        ("records", ["a.json", "none"]),
        ("offload_options", ["rows=1", "rows=2"]),
        ("shapes", ["x=1,2", "x=3,4"]),
        ("dims", ["S=1,2", "S=1,4"]),
        ("specialize", ["S=1", "S=2"]),
        ("freeze", ["k=1", "k=2"]),
        ("state", ["a=b", "auto"]),
        ("state", ["all"]),
    ],
)
def test_texts_that_do_not_go_together(option: str, texts: list[str]) -> None:
    with pytest.raises(OptionError, match=FLAGS[option].name):
        FLAGS[option].value(texts)


@pytest.mark.parametrize(
    "settings",
    [
        {"shapes": {"x": ("N", 3), "a=b": (), "y": (0, 7)}, "specialize": {"N": (2, 5)}},
        {"freeze": {"k": 3, "axes": [0, -2], "scales": np.array([0.1, -1e30, np.inf]), "f": np.float32(0.1)}},
        {"target": "haswell", "threads": 3, "fusion": "none", "accuracy": "exact", "cache": False},
        {"precision": "bf16", "max_error": 0.1, "keep_float32": ["b", "-a"]},
        {"state": {"b": "y", "a=": "x"}},
        {"state": "auto", "records": None},
        {"records": ["a.json", "b c.json"]},
        {"offload": "systolic", "offload_options": {"skip": ("a", "b"), "rows": 16, "on": True, "text": "16",
                                                    "equals": "a=b", "energy": {"mac": 0.5}, "nothing": None}},
    ],
)  # fmt: skip
def test_what_is_written_is_read_back(settings: dict[str, Any]) -> None:
    options = CompileOptions.of(**settings)
    read: dict[str, list[Any]] = {}
    words = iter(options.arguments())
    for word in words:
        name, equals, text = word.partition("=")
        option = next(flag_name for flag_name, flag in FLAGS.items() if name in (flag.name, *flag.switches))
        flag = FLAGS[option]
        read.setdefault(option, []).append(
            flag.switches[name] if name in flag.switches else text if equals else next(words)
        )
    again = CompileOptions.of(**{name: FLAGS[name].value(entries) for name, entries in read.items()})
    assert {weight.name: weight.array().tolist() for weight in again.freeze} == {
        weight.name: weight.array().tolist() for weight in options.freeze
    }
    assert again.arguments() == options.arguments()
    assert all(getattr(again, name) == getattr(options, name) for name in FLAGS if name != "freeze")


def test_a_switch_stands_for_a_value_beside_a_text() -> None:
    flag = flags.Flag("--wait", "HOW", "how to wait", "--wait 2", parse=flags.number, switches={"--spin": "spin"})
    assert (flag.value(["2", "spin"]), flag.value(["spin", "0.5"])) == ("spin", 0.5)
    assert (flag.arguments("spin"), flag.arguments(2)) == (["--spin"], ["--wait", "2"])
