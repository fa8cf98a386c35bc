"""The pipeline: its order, passes of other packages, and what the report keeps of each."""

import importlib.metadata
from typing import Any

import numpy as np
import pytest
from tvm.ir import IRModule

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.passes.stages import agrees
from tvm_ext.core.errors import OptionError
from tvm_ext.core.instruments import Instruments, Switches
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.driver.compile import compile_model
from tvm_ext.passes.conditions import well_formed
from tvm_ext.passes.lowering.lower_precision import LowerPrecision
from tvm_ext.passes.pipeline import LOWER, SIMPLIFY, entry_points, pipeline

RELU = model([node("Relu", "x", "y")], [value("x", (4, 6))], [value("y", (4, 6))])


class Counted(Pass):
    """Counts the functions of the module."""

    name = "count-functions"
    requires = (well_formed,)

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return PassResult(mod, (), (Event("main", f"{len(mod.functions)} functions"),))


def installed(monkeypatch: pytest.MonkeyPatch, package: Any) -> None:
    """As if a package offered this class as an entry point."""

    class Entry:
        value = "package.passes:Counted"

        @staticmethod
        def load() -> Any:
            return package

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Entry] if group == "tvm_ext.passes" else [])
    monkeypatch.setattr("tvm_ext.passes.pipeline.entry_points", entry_points.__wrapped__)  # they are kept otherwise


def test_simplification_comes_before_lowering() -> None:
    passes = pipeline().before("states").passes
    assert ([type(p) for p in passes[: len(SIMPLIFY)]], passes[len(SIMPLIFY) :]) == ([*SIMPLIFY], LOWER)
    assert [phase.name for phase in pipeline().phases] == [
        "simplify", "lower", "states", "loops", "memory", "code", "vm",
    ]  # fmt: skip
    assert [p.name for p in LOWER] == [
        "lower-precision", "prepare-storage", "group-operations", "fuse-expansions", "fuse-products", "choose-recipes",
        "assign-layouts", "schedule-kernels", "lift-group-constants", "dispatch-sampling", "dispatch-sort-scan",
        "legalize-rest", "annotate-patterns", "fuse-rest", "fuse-tir", "view-reshapes", "drop-unused", "lower-rest",
        "order-regions", "lift-weights",
    ]  # fmt: skip


def test_each_name_stands_for_one_class() -> None:
    classes = {*SIMPLIFY, *LOWER}
    assert len({p.name for p in classes}) == len(classes)


def test_a_pass_of_another_package_sees_the_simple_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Counted)
    names = [p.name for p in pipeline().passes]
    assert names.index("count-functions") == len(SIMPLIFY)
    reports = agrees(RELU).report["passes"]
    assert [r["name"] for r in reports] == names
    assert reports[len(SIMPLIFY)]["skipped"] == [["main", "1 functions"]], "no group is made yet"


def test_an_entry_point_that_is_no_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, dict)
    with pytest.raises(OptionError, match=r"'package\.passes:Counted' in tvm_ext\.passes gives dict, no Pass"):
        pipeline()


def test_the_report_has_every_pass_with_its_seconds() -> None:
    report = agrees(RELU).report
    assert [r["name"] for r in report["passes"]] == [p.name for p in pipeline().passes]
    assert all(set(r) == {"name", "seconds", "fired", "skipped"} for r in report["passes"])
    relax = report["passes"][: len(pipeline().before("states").passes)]
    assert sum(r["seconds"] for r in relax) <= report["timing"]["passes"] + 0.01


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_program_is_right_without_the_passes_behind_the_graph_that_may_be_off(precision: str) -> None:
    """Those over kernels, memory and the VM, all at once."""
    weights = {"w": random(16, 3, 3, 3, scale=0.2), "v": random(16, 5), "a": np.array(1)}
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r"), node("GlobalAveragePool", "r", "g"),
        node("Flatten", "g", "f"), node("MatMul", "f v", "m"), node("Softmax", "m", "s"), node("CumSum", "s a", "y"),
    ]  # fmt: skip
    proto = model(nodes, [value("x", (2, 3, 13, 15))], [value("y", (2, 5))], weights)
    known = [step for phase in pipeline().phases[2:] for step in phase.passes]
    off = frozenset(step.name for step in known if not step.needed)
    compiled = compile_model(
        proto, CompileOptions(cache=False, threads=2, precision=precision), Instruments(switches=Switches(passes=off))
    )
    assert {"insert-prefetches", "simplify-statements", "end-lifetimes"} <= off
    assert not off & {report["name"] for report in compiled.report["passes"]}
    assert (report := tvm_ext.verify(compiled, proto)).ok, str(report)


def test_whoever_watches_sees_every_pass_once_and_in_order() -> None:
    seen: list[str] = []
    watch = Instruments(watch=lambda step, mod, ctx: seen.append(step))
    report = compile_model(RELU, CompileOptions(cache=False, threads=1), watch).report
    names = [step.name for step in pipeline().passes]
    assert seen == ["import", *names] and [step["name"] for step in report["passes"]] == names


def test_parts_of_a_pipeline() -> None:
    whole = pipeline()
    rest = whole.after("drop-unused").before("states").passes
    assert [step.name for step in rest] == ["lower-rest", "order-regions", "lift-weights"]
    assert whole.through("import").passes == () and whole.through("fold-constants").passes[-1].name == "fold-constants"
    assert whole.before(LowerPrecision).passes[-1].name == "eliminate-dead-code"
    assert [phase.name for phase in whole.after("lift-weights").phases] == ["states", "loops", "memory", "code", "vm"]
