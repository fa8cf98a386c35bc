"""What the suite writes: table, JSON, and the generated part of the README."""

import json

import pytest
from _chart import Bar
from _measures import Outcome, Settings
from _page import BEGIN, END, README, document, insert, line, reason, table, write
from _rows import ROWS, SuiteRow

MACHINE = {
    "cpu": "Some CPU", "cores": 2, "memory_gib": 8, "system": "Linux", "python": "3.11", "packages": {"onnx": "1.17"},
    "isa": "avx2",
}  # fmt: skip


def row(key="a", bar=0.9, **more):
    return SuiteRow(key, f"Model {key}", bar, lambda settings: Outcome(), **more)


GOOD = (row("good"), Outcome(0.5, (0.45, 0.6), 1e-7, "1 / 2 ms", peers={"openvino": 0.75, "torch": "missing"}))
MISSED = (row("missed"), Outcome(0.95, (0.9, 1.0), 2e-7, "1.9 / 2 ms"))
NONE = (row("none"), Outcome(why="not available: no network | proxy"))
MORE = (row("more", 0.8, figure="bytes a second", at_least=True), Outcome(0.85))
RESULTS = [GOOD, MISSED, NONE, MORE]


def test_bars_hold_from_their_side():
    assert row().met(0.9) and not row().met(0.91) and not row().met(None)
    more = MORE[0]
    assert more.met(0.8) and more.met(2.0) and not more.met(0.79)


def test_the_table_has_a_line_a_row(monkeypatch):
    monkeypatch.setitem(__import__("_reasons").REASONS, "missed", "it waits for memory")
    lines = table(RESULTS, ("openvino", "torch"))
    cells = [text.strip("| ").split(" | ") for text in lines[2:6]]
    assert cells[0] == ["Model good", "0.500", "0.9 or less", "yes", "0.45 to 0.60", "1 / 2 ms", "1.0e-07", "0.75",
                        "missing"]  # fmt: skip
    assert [c[3] for c in cells] == ["yes", "NO", "-", "yes"] and cells[3][0] == "Model more: bytes a second"
    assert lines[-2:] == ["* Model missed: it waits for memory", "* Model none: not available: no network | proxy"]
    assert len({text.count("|") for text in lines[:6]}) == 1


def test_a_reason_is_told_only_where_the_bar_is_missed(monkeypatch):
    for key in ("good", "missed", "none"):
        monkeypatch.setitem(__import__("_reasons").REASONS, key, "because")
    assert [reason(*one) for one in (GOOD, MISSED, NONE)] == ["", "because", "not available: no network | proxy"]


def test_the_reasons_are_of_rows_that_exist():
    from _reasons import REASONS

    assert REASONS.keys() <= {one.key for one in ROWS}


def test_files_are_written_whole(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nbehind\n")
    write(RESULTS, Settings(tmp_path), MACHINE, readme, tmp_path / "results")
    text = readme.read_text()
    assert text.startswith("# Before") and text.endswith("behind\n") and "old" not in text
    assert "Some CPU" in text and "(results/suite.svg)" in text and "| Model good |" in text
    plain = json.loads((tmp_path / "results" / "suite.json").read_text())
    assert plain["machine"]["cpu"] == "Some CPU" and [r["met"] for r in plain["rows"]] == [True, False, False, True]
    svg = (tmp_path / "results" / "suite.svg").read_text()
    assert "Model good" in svg and "Model more" not in svg and "avx2" in svg
    write(RESULTS, Settings(tmp_path), MACHINE, readme, tmp_path / "results")
    assert readme.read_text() == text


@pytest.mark.parametrize("text", ["none", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}\n{END}\n{BEGIN}"])
def test_a_readme_without_marks_is_an_error(tmp_path, text):
    (tmp_path / "r.md").write_text(text)
    with pytest.raises(ValueError, match=r"r\.md"):
        insert(tmp_path / "r.md", ["x"])
    assert (tmp_path / "r.md").read_text() == text


def test_the_readme_in_the_tree_has_the_marks(tmp_path):
    (tmp_path / "r.md").write_text(README.read_text())
    insert(tmp_path / "r.md", ["new"])
    assert "new" in (tmp_path / "r.md").read_text()


def test_one_line_for_the_terminal():
    assert line(*GOOD) == "good: 0.500 (bar 0.9 or less, error 1.0e-07, 1 / 2 ms): met"
    assert line(*MISSED).endswith("MISSED") and line(*NONE).endswith("no network | proxy")
    assert "too noisy" in line(row(), Outcome(0.5, noisy=True))


def test_a_document_is_json():
    assert json.loads(json.dumps(document(RESULTS, Settings(README.parent), MACHINE), allow_nan=False))
    assert Bar("x", 0.9, 0.9).met
