"""What the suite writes: a document, and from it the table, the page and the chart."""

import json
import pathlib

from benchmarks.asked.measures import Outcome
from benchmarks.asked.rows import SuiteRow
from benchmarks.asked.settings import Settings
from benchmarks.measuring.reasons import NOT_PROFILED
from benchmarks.pages.charts import Bar
from benchmarks.pages.suite_page import document, line, markdown, plain, write

MACHINE = {
    "name": "some-avx2-2c", "cpu": "Some CPU", "cores": 2, "memory_gib": 8, "system": "Linux", "python": "3.11",
    "packages": {"onnx": "1.17"}, "isa": "avx2",
}  # fmt: skip


def row(key="a", bar=0.9, **more):
    return SuiteRow(key, f"Model {key}", bar, lambda settings: Outcome(), **more)


GOOD = (row("good"), Outcome(0.5, (0.45, 0.6), 1e-7, "1 / 2 ms", peers={"openvino": 0.75, "torch": "missing"}))
MISSED = (row("missed"), Outcome(0.95, (0.9, 1.0), 2e-7, "1.9 / 2 ms", reason="it waits for memory"))
NONE = (row("none"), Outcome(why="not available: no network | proxy"))
MORE = (row("more", 0.8, figure="bytes a second", at_least=True), Outcome(0.85))
RESULTS = [GOOD, MISSED, NONE, MORE]


def test_bars_hold_from_their_side():
    assert row().met(0.9) and not row().met(0.91) and not row().met(None)
    more = MORE[0]
    assert more.met(0.8) and more.met(2.0) and not more.met(0.79)


def page_of(*peers):
    return document(RESULTS, Settings(pathlib.Path(), peers=peers), MACHINE)


def test_the_table_has_a_line_a_row():
    lines = markdown(page_of("openvino", "torch")).splitlines()
    cells = [text.strip("| ").split(" | ") for text in lines[2:6]]
    assert cells[0] == ["Model good", "0.500", "0.9 or less", "yes", "0.45 to 0.60", "1 / 2 ms", "1.0e-07", "0.75",
                        "missing"]  # fmt: skip
    assert [c[3] for c in cells] == ["yes", "NO", "-", "yes"] and cells[3][0] == "Model more: bytes a second"
    assert lines[-2:] == ["* Model missed: it waits for memory", "* Model none: not available: no network | proxy"]
    assert len({text.count("|") for text in lines[:6]}) == 1


def test_a_reason_is_told_only_where_the_bar_is_missed():
    assert [plain(*case)["reason"] for case in (GOOD, MISSED, NONE)] == ["", "it waits for memory", NONE[1].why]
    assert plain(row("good"), Outcome(0.5, reason="because"))["reason"] == ""
    assert plain(row("bad"), Outcome(0.95))["reason"] == NOT_PROFILED


def test_files_are_written_whole(tmp_path):
    write(page_of(), tmp_path / "results")
    text = (tmp_path / "results" / "suite.md").read_text()
    assert "some-avx2-2c: Some CPU" in text and "(suite.svg)" in text and "| Model good |" in text
    read = json.loads((tmp_path / "results" / "suite.json").read_text())
    assert read["machine"]["cpu"] == "Some CPU" and [r["met"] for r in read["rows"]] == [True, False, False, True]
    svg = (tmp_path / "results" / "suite.svg").read_text()
    assert "Model good" in svg and "Model more" not in svg and "avx2" in svg
    write(read, tmp_path / "again")  # from the JSON alone
    assert (tmp_path / "again" / "suite.md").read_text() == text


def test_one_line_for_the_terminal():
    good, missed, none = (line(plain(*case)) for case in (GOOD, MISSED, NONE))
    assert good == "good: 0.500 (bar 0.9 or less, error 1.0e-07, 1 / 2 ms): met"
    assert missed.endswith("MISSED") and none.endswith("no network | proxy")
    assert "too noisy" in line(plain(row(), Outcome(0.5, noisy=True)))


def test_a_document_is_json():
    assert json.loads(json.dumps(page_of(), allow_nan=False))
    assert Bar("x", 0.9, 0.9).met
