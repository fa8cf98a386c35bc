"""The page of all machines, from folders made up, and as it is committed."""

import json
import pathlib

import pytest

from benchmarks import machines
from benchmarks.asked.rows import ROWS
from benchmarks.common.results import ALL_RESULTS

FACTS = {"cpu": "A CPU", "cores": 2, "processor": "znver4", "isa": "avx512", "features": "avx512f", "l2": 1 << 20}
KEY = ROWS[0].key


def suite_row(value: float | None) -> dict[str, object]:
    return {
        "key": KEY,
        "title": "Model",
        "figure": "time / onnxruntime's",
        "value": value,
        "noisy": False,
        "details": {},
    }


def row(what: str, measured: str, met: bool | None) -> dict[str, object]:
    return {"what": what, "bar": "1 or less", "measured": measured, "met": met, "details": {}}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Machine a has the suite and a script's rows, b the same in parts, c a document of another kind."""
    documents = {
        "a/suite": {"machine": {**FACTS, "roofs": {"flops": 2e11}}, "rows": [suite_row(ROWS[0].bar)]},
        "b/suite": {"machine": FACTS, "rows": [suite_row(ROWS[0].bar + 1)]},
        "a/precision": {"machine": FACTS, "rows": [row("bf16", "0.5 (rounds)", True), row("alone", "2; more", None)]},
        "b/precision": {"parts": {"x": {"machine": FACTS, "rows": [row("bf16", "1.5 (rounds)", False)]}}},
        "c/tuning": {"rate": {"machine": {"cpu": "Other CPU"}, "rows": [{"tuner": "xgb"}]}},
    }
    for name, document in documents.items():
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document))
    (tmp_path / "a" / "suite.md").write_text("page")
    return tmp_path


def cells(page: str, first: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return [line[1:] for line in lines if line[0] == first]


def test_machines_stand_beside_each_other(folder: pathlib.Path) -> None:
    page = machines.write(folder).read_text()
    assert cells(page, "CPU") == [["A CPU", "A CPU", "Other CPU"]]
    assert cells(page, "float32 multiply-adds, GFLOP/s") == [["200.0", "-", "-"]]
    assert cells(page, "pages")[0][0] == "[suite](a/suite.md)"
    bar = ROWS[0].bar
    assert cells(page, "Model") == [[f"{bar:g} or less", f"{bar:.3f}", f"**{bar + 1:.3f}**"]]
    assert cells(page, "bars met") == [["", "1 of 1", "0 of 1"]]


def test_scripts_with_bars_have_a_table_where_two_machines_have_them(folder: pathlib.Path) -> None:
    page = machines.markdown(machines.read(folder))
    assert cells(page, "bf16") == [["1 or less", "0.5", "**1.5**"]] and cells(page, "alone")[0][1:] == ["2", "-"]
    assert "## tuning" not in page
    (folder / "b" / "precision.json").unlink()
    assert "## precision" not in machines.markdown(machines.read(folder))


def test_the_page_is_that_of_the_files() -> None:
    """python benchmarks/machines.py writes it."""
    assert (ALL_RESULTS / "README.md").read_text().strip() == machines.markdown(machines.read()).strip()


def test_every_result_lies_in_the_folder_of_its_machine() -> None:
    for results in machines.read():
        assert results.machine["name"] == results.name and results.pages
