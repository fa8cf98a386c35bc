"""The search: statuses, several culprits, what is said, and errors."""

import itertools
import json
import shlex
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import Call, GenericConst

import tvm_ext
from tvm_ext.cli.verify import switch_argument
from tvm_ext.core.errors import InputError, ModelError, OptionError
from tvm_ext.core.instruments import Instruments
from tvm_ext.driver.compile import compile_model
from tvm_ext.verification.bisect import Bisection, bisect
from tvm_ext.verification.bisect.suspects import switches_of

from . import models
from .planted import BUGS, from_package
from .user_passes import DropRelu, MaximumAsMinimum, ReluAsMaximum

OPTIONS: dict[str, Any] = {"threads": 1, "records": None}


def names(bisection: Bisection) -> list[str]:
    return [culprit.name for culprit in bisection.culprits]


def test_nothing_is_wrong() -> None:
    bisection = tvm_ext.bisect(models.softmax(), **OPTIONS)
    assert bisection.ok and bisection.status == "agrees" and len(bisection.trials) == 1 and not bisection.commands
    assert "nothing is wrong" in str(bisection)


def test_a_culprit_with_all_that_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["packing"].plant(monkeypatch)
    events: list[dict[str, Any]] = []
    bisection = tvm_ext.bisect(models.two_dense(), "layer", on_event=lambda e: events.append(dict(e)), **OPTIONS)
    (culprit,) = bisection.culprits
    assert culprit.nodes == ("fc2",) and culprit.recipe == "dense" and "tile_o" in culprit.config
    assert [e["kind"] for e in events] == ["start", "trial"] * len(bisection.trials)
    text = str(bisection)
    assert "the error comes from layer fused_matmul_add" in text and f"{len(bisection.trials)} compiles" in text
    assert all(f"\n{trial.number:5}  " in text for trial in bisection.trials) and "y: error" in text
    assert str(bisection.trials[0]).startswith("trial 0: everything on: y: error")
    plain = json.loads(json.dumps(bisection.as_dict(), allow_nan=False))
    assert plain["culprits"][0]["name"] == culprit.name and plain["compiles"] == len(bisection.trials)


@pytest.mark.long
def test_the_command_shows_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["packing"].plant(monkeypatch)
    bisection = bisect(models.two_dense(), "layer", **OPTIONS)
    words = shlex.split(bisection.commands[-1])
    off = [switch_argument(word) for flag, word in itertools.pairwise(words) if flag == "--off"]
    for switches, right in (([], False), (off, True)):
        proto, looked = models.two_dense(), Instruments(switches=switches_of(switches))
        compiled = compile_model(proto, instruments=looked, **OPTIONS)
        assert tvm_ext.verify(compiled, proto).ok is right


@pytest.mark.long
def test_another_kind_is_not_to_blame_and_says_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["packing"].plant(monkeypatch)
    for kind, reason in (("pass", "all passes are right"), ("record", "there is none"), ("offload", "there is none")):
        bisection = bisect(models.two_dense(), kind, **OPTIONS)
        assert (
            bisection.status == "elsewhere"
            and reason in bisection.verdict
            and "recipe" in bisection.hint
            and not bisection.ok
        )
    assert "always on: lower-rest" in str(bisect(models.two_dense(), "pass", **OPTIONS))


@pytest.mark.long
def test_a_wrong_pass_is_no_recipe_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["shift"].plant(monkeypatch)
    bisection = bisect(models.conv_bn(), "recipe", **OPTIONS)
    assert bisection.status == "elsewhere" and "every pass on" in bisection.verdict and "pass" in bisection.hint


@pytest.mark.long
def test_two_wrong_passes_have_to_be_off_both(monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["folding"].plant(monkeypatch)
    from_package(DropRelu)(monkeypatch)
    bisection = bisect(models.two_dense(), "pass", **OPTIONS)
    assert sorted(names(bisection)) == ["drop-relu", "fold-constants"] and "depends on several" in bisection.verdict


@pytest.mark.long
def test_a_pass_that_spoils_what_another_made_takes_both(monkeypatch: pytest.MonkeyPatch) -> None:
    from_package(ReluAsMaximum, MaximumAsMinimum)(monkeypatch)
    bisection = bisect(models.two_dense(), "pass", **OPTIONS)
    both = {suspect.name for finding in bisection.findings for suspect in (*finding.culprits, *finding.also)}
    assert both == {"relu-as-maximum", "maximum-as-minimum"} and "it takes" in bisection.verdict


@pytest.mark.long
def test_a_batch_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.onnx_graphs import model, node, random, value

    nodes = [node("MatMul", "x w", "h", "fc"), node("Relu", "h", "y", "relu")]
    proto = model(nodes, [value("x", ("n", 7))], [value("y", ("n", 5))], {"w": random(7, 5)})
    from_package(DropRelu)(monkeypatch)
    bisection = bisect(proto, "pass", shapes={"x": ("n", 7)}, specialize={"n": (1, 2)}, **OPTIONS)
    assert names(bisection) == ["drop-relu"]


def test_refusals(tmp_path: Any) -> None:
    with pytest.raises(OptionError, match=r"by='kernel'.*'offload', 'record'"):
        tvm_ext.bisect(models.softmax(), "kernel")
    with pytest.raises(ModelError, match="no file"):
        tvm_ext.bisect(tmp_path / "missing.onnx")
    with pytest.raises(OptionError, match=r"no recipe.*\n.*dense"):
        switches_of([("recipe", "dens")])
    with pytest.raises(OptionError, match="always on: it makes a kernel"):
        switches_of([("pass", "lower-rest")])
    with pytest.raises(OptionError, match="FILE:LINE"):
        switches_of([("record", "nowhere")])


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"seed": -1}, OptionError), ({"seed": "x"}, OptionError), ({"tolerance": -1}, OptionError),
        ({"tolerance": float("nan")}, OptionError), ({"on_event": 3}, OptionError), ({"inputs": 3}, InputError),
        ({"inputs": {}}, InputError), ({"inputs": {"x": np.ones((1, 1), "f8")}}, InputError),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_no_culprits(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        tvm_ext.bisect(models.softmax(), **wrong, **OPTIONS)


@pytest.mark.long
def test_a_wrong_pass_that_works_for_one_recipe_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the recipe off the pass does nothing, so the recipe could be taken for the culprit."""
    from tests.passes.lowering.test_fuse_expansions import inverted
    from tvm_ext.passes.lowering import merging

    right = merging.Merger.merged

    def merged(*pair: Any) -> Any:
        if (call := right(*pair)) is None:
            return None
        doubled = [relax.const(a.value.numpy() * 2, "float32") if isinstance(a, GenericConst) else a for a in call.args]
        return Call(call.op, doubled)

    monkeypatch.setattr(merging, "WORTH", 1e9)
    assert bisect(inverted(6), **OPTIONS).ok
    monkeypatch.setattr(merging.Merger, "merged", merged)
    bisection = bisect(inverted(6), **OPTIONS)
    assert names(bisection) == ["fuse-expansions"] and bisection.culprits[0].kind == "pass", str(bisection)
