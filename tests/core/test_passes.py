"""The pass protocol: conditions, reports, errors that name the pass and the one before."""

from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule

from tests.passes.helpers import build
from tvm_ext.core.errors import PassError, UnsupportedError
from tvm_ext.core.machine import Machine
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult, run_passes


def has_main(mod: IRModule) -> str | None:
    return None if "main" in [g.name_hint for g in mod.get_global_vars()] else "there is no main"


class Fires(Pass):
    name = "fires"
    requires = (has_main,)

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return PassResult(mod, (Event("x", "done"),), (Event("y", "left"),))


class LosesMain(Pass):
    name = "loses-main"
    ensures = (has_main,)

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return PassResult(IRModule())


class Raises(Pass):
    name = "raises"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        raise self.error


@pytest.fixture
def mod() -> IRModule:
    return build(lambda emit, x: emit(relax.op.nn.relu(x)), (2,))


@pytest.fixture
def ctx() -> CompileContext:
    return CompileContext(Machine.detect(None, 1))


def test_a_pass_reports(mod: IRModule, ctx: CompileContext) -> None:
    run_passes([Fires()], mod, ctx)
    (report,) = ctx.reports
    assert report.as_dict()["fired"] == [["x", "done"]] and report.as_dict()["skipped"] == [["y", "left"]]


def test_a_module_that_breaks_a_condition_is_refused(ctx: CompileContext) -> None:
    with pytest.raises(PassError, match="'fires' needs: has_main, but there is no main"):
        Fires()(IRModule(), ctx)


def test_a_broken_promise_names_the_pass_and_the_one_before(mod: IRModule, ctx: CompileContext) -> None:
    with pytest.raises(PassError, match=r"'loses-main' \(after pass 'fires'\) promises: has_main"):
        run_passes([Fires(), LosesMain()], mod, ctx)


def test_an_exception_names_the_pass(mod: IRModule, ctx: CompileContext) -> None:
    with pytest.raises(PassError, match=r"'raises' \(after pass 'fires'\) failed: KeyError: 'k'"):
        run_passes([Fires(), Raises(KeyError("k"))], mod, ctx)


def test_an_error_of_the_library_passes_through(mod: IRModule, ctx: CompileContext) -> None:
    with pytest.raises(UnsupportedError, match="no such thing"):
        Raises(UnsupportedError("no such thing"))(mod, ctx)


def test_the_middle_of_a_schedule_error_is_left_out(mod: IRModule, ctx: CompileContext) -> None:
    error = ValueError("ScheduleError: in 'split'\n" + "IR\n" * 1000 + "Error message: the loop has no extent")
    with pytest.raises(PassError) as caught:
        Raises(error)(mod, ctx)
    assert "the loop has no extent" in str(caught.value) and len(str(caught.value)) < 800


def test_as_a_tvm_pass(mod: IRModule, ctx: CompileContext) -> None:
    sequence = tvm.transform.Sequential([Fires().as_tvm(ctx), relax.transform.Normalize()])
    assert has_main(sequence(mod)) is None and [r.name for r in ctx.reports] == ["fires"]


class FailsOnTanh(Pass):
    """Like one of TVM's own: it fails somewhere in the module, and does not say where."""

    name = "fails-on-tanh"

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        if "R.tanh" in mod.script():
            raise ValueError("no tanh")
        return PassResult(mod)


def test_a_pass_that_does_not_say_where_is_asked_again_with_less(ctx: CompileContext) -> None:
    def chain(emit: Any, value: Any) -> Any:
        for i in range(9):
            value = emit((relax.op.tanh if i in (4, 7) else relax.op.exp)(value), f"v{i}")
        return value

    with pytest.raises(PassError, match=r"pass 'fails-on-tanh' failed at 'v4': ValueError: no tanh") as info:
        FailsOnTanh()(build(chain, (2,)), ctx)
    assert str(info.value.__cause__) == "no tanh"
