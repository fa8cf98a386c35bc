"""`tvm-ext rtl`: Verilog to a file, to stdout and as JSON, cells, and what it refuses."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tvm_ext.byoc import systolic
from tvm_ext.byoc.systolic import Accelerator, Cells

SMALL = ("rtl", "--rows", "2", "--cols", "1", "--dataflow", "os")


def test_verilog(cli: Any, cli_json: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyosys")
    pytest.importorskip("amaranth")
    path = tmp_path / "array.v"
    code, document = cli_json(*SMALL, "-o", str(path))
    assert (code, document["output"]) == (0, str(path)) and document["lines"] == path.read_text().count("\n")
    code, out, _ = cli(*SMALL)
    assert code == 0 and out == path.read_text() + "\n"
    assert cli(*SMALL, "-o", str(tmp_path / "none" / "array.v"))[0] == 1


def test_cells(cli: Any, cli_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def fake(*arguments: Any) -> dict[str, Cells]:
        calls.append(arguments)
        return {"element": Cells(5, 2, 52)}

    monkeypatch.setattr(systolic, "cells", fake)
    code, document = cli_json(*SMALL, "--cells", "--setting", "compute_model=physical")
    assert (code, document["cells"]) == (0, {"element": {"gates": 5, "flip_flops": 2, "transistors": 52}})
    assert calls == [(Accelerator(2, 1, compute_model="physical"), "os")]
    code, out, _ = cli(*SMALL, "--cells")
    assert code == 0 and out.split()[-4:] == ["element", "5", "2", "52"]


@pytest.mark.parametrize(
    "wrong", [("--rows", "0"), ("--dataflow", "rs"), ("--setting", "x"), ("--setting", "dtype=float32")]
)
def test_refusals(refused: Any, wrong: tuple[str, ...]) -> None:
    assert any(words in refused(*SMALL, *wrong) for words in ("fix: ", "whole number"))


def test_without_the_extra(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amaranth", None)
    assert "tvm-ext[rtl]" in refused(*SMALL, code=1)
