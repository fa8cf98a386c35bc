"""Options of `compile` on the command line: the same for every verb that compiles."""

import argparse
import json

import numpy as np
import pytest

from tests.onnx_graphs import model as make_model
from tests.onnx_graphs import node, random, saved, value
from tvm_ext.cli.app import VERBS, make_parser
from tvm_ext.cli.shared.options import compile_options
from tvm_ext.core.options import FLAGS, CompileOptions

#: These compile no model: quantize gives another ONNX model, doctor has its own, machine says what is compiled for, rtl
#: what programs run on.
OTHERS = {"log", "quantize", "zoo", "new", "doctor", "cache", "machine", "rtl"}
COMPILING = sorted(set(VERBS) - OTHERS)


def parsed(verb: str, *flags: str) -> argparse.Namespace:
    output = ("-o", "page.html") if verb == "report" else ()
    return make_parser().parse_args([verb, "model.onnx", *output, *flags])


@pytest.mark.parametrize("verb", COMPILING)
def test_every_verb_that_compiles_takes_every_option(verb: str) -> None:
    assert compile_options(parsed(verb)) == {}
    for name, flag in FLAGS.items():
        options = CompileOptions.of(**compile_options(parsed(verb, *flag.example.split())))
        assert getattr(options, name) != getattr(CompileOptions(), name), name
        again = CompileOptions.of(**compile_options(parsed(verb, *options.arguments())))
        assert again == options, name


@pytest.mark.parametrize("verb", sorted(OTHERS))
def test_the_other_verbs_take_none_but_a_machine(cli, verb: str) -> None:
    usage = cli(verb, "--help")[1].partition("example:")[0]
    allowed = {"--threads", "--target"} if verb == "log" else set()
    assert {flag.name for flag in FLAGS.values() if f"{flag.name} " in usage} == allowed


@pytest.mark.parametrize("verb", COMPILING)
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--accuracy", "fast"), "accuracy='fast': choose 'default' or 'exact'"),
        (("--threads", "two"), "threads='two': a whole number from 1 to 1024"),
        (("--max-error", "0.1"), "with precision='float32'"),
        (("--shape", "x=1,a b"), "--shape x=1,a b: NAME=1,3,224,224 is needed"),
        (("--shape", "x=N,3", "--specialize", "N=one"), "sizes are whole numbers"),
    ],
)
def test_a_bad_value_is_one_error_and_exit_code_2(cli, fake, model, verb, flags, message) -> None:
    output = ("-o", "page.html") if verb == "report" else ()
    code, out, err = cli(verb, model, *output, *flags, "--json")
    assert code == 2 and message in err and "Traceback" not in err and not fake.calls
    assert json.loads(out)["error"]["type"] == "OptionError"


def test_arrays_that_no_text_holds_are_given_again_as_files(cli, tmp_path) -> None:
    """bisect's command has the paths, not the values, of frozen arrays."""
    from tvm_ext.cli.bisect import _command

    np.save(tmp_path / "m.npy", np.ones((2, 2)))
    args = parsed("bisect", "--freeze", f"m={tmp_path}/m.npy", "--freeze", "k=3")
    command = " ".join(["tvm-ext", "verify", "x", *CompileOptions.of(**compile_options(args)).arguments()])
    assert _command(args, command) == f"tvm-ext verify model.onnx --freeze k=3 --freeze m={tmp_path}/m.npy"


def test_accuracy_decides_which_recipes_there_are(cli, tmp_path) -> None:
    nodes = [node("Conv", "x w", "y", pads=[1, 1, 1, 1])]
    proto = make_model(nodes, [value("x", (1, 64, 56, 56))], [value("y", (1, 64, 56, 56))], {"w": random(64, 64, 3, 3)})
    path = saved(proto, tmp_path / "conv.onnx")
    for flags, winograd in (((), True), (("--accuracy", "exact"), False)):
        code, out, _ = cli("analyze", path, "--threads", "1", "--records", "none", "--json", *flags)
        assert code == 0 and ("conv2d_winograd" in out) is winograd
