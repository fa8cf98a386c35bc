"""The table of ONNX's node cases survives a file, and counts."""

from .table import read_table, summary, write_table


def test_a_table_survives_a_file(tmp_path):
    rows = {"b": {"ours": "pass"}, "a_expanded": {"ours": 'wrong: "x" | y', "onnxruntime": "pass"}}
    write_table(rows, tmp_path / "t.json")
    assert read_table(tmp_path / "t.json") == rows
    assert (tmp_path / "t.json").read_text().count("\n") == 4
    assert summary(rows) == (tmp_path / "t.md").read_text() and "| ours | 1 | 0" in summary(rows)
