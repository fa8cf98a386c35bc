"""The pipeline: its order, passes of other packages, and what the report keeps of each."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pytest
from tvm.ir import IRModule

from tests.onnx_graphs import model, node, value
from tests.passes.stages import agrees
from tvm_ext.core.errors import OptionError
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.passes.conditions import well_formed
from tvm_ext.passes.pipeline import LOWER, SIMPLIFY, pipeline

RELU = model([node("Relu", "x", "y")], [value("x", (4, 6))], [value("y", (4, 6))])


class Counted(Pass):
    """Counts the functions of the module."""

    name = "count-functions"
    requires = (well_formed,)

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        return PassResult(mod, (), (Event("main", f"{len(mod.functions)} functions"),))


def installed(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    """As if a package offered this class as an entry point."""

    class Entry:
        value = "package.passes:Counted"

        @staticmethod
        def load() -> Any:
            return made

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Entry] if group == "tvm_ext.passes" else [])


def test_simplification_comes_before_lowering() -> None:
    assert [type(p) for p in pipeline()] == [*SIMPLIFY, *LOWER]
    assert [p.name for p in LOWER] == [
        "lower-precision", "prepare-storage", "group-operations", "fuse-expansions", "choose-recipes", "assign-layouts",
        "schedule-kernels", "lower-rest", "lift-weights",
    ]  # fmt: skip


def test_each_name_stands_for_one_class() -> None:
    classes = {*SIMPLIFY, *LOWER}
    assert len({p.name for p in classes}) == len(classes)


def test_a_pass_of_another_package_sees_the_simple_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, Counted)
    names = [p.name for p in pipeline()]
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
    assert [r["name"] for r in report["passes"]] == [p.name for p in pipeline()]
    assert all(set(r) == {"name", "seconds", "fired", "skipped"} for r in report["passes"])
    assert sum(r["seconds"] for r in report["passes"]) <= report["timing"]["passes"] + 0.01
