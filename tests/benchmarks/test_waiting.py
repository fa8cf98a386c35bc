"""The benchmark of waiting: ratios by round, bars, and rows that are kept; the processes are replaced."""

import json
import sys

import pytest

from benchmarks import waiting


class FakeWorker:
    """Answers as a contender whose calls take `latency`, and whose threads take `share` of the pause."""

    def __init__(self, share: float, latency: float) -> None:
        self.share, self.latency = share, latency

    def ask(self, message, timeout):
        calls, pause = message["paused"]["calls"], message["paused"]["pause"]
        return {"samples": [self.latency] * calls, "cpu": 0.02 + self.share * pause, "work": 0.02}


@pytest.mark.parametrize(
    ("share", "latency", "met"), [(0.0, 0.01, [True, True]), (0.2, 0.01, [False, True]), (0.0, 0.02, [True, False])]
)
def test_rows_and_exit_code(share, latency, met, monkeypatch, tmp_path, capsys):
    workers = {"default": FakeWorker(share, latency), "spinning": FakeWorker(1, 0.01), "onnxruntime": FakeWorker(1, 1)}
    monkeypatch.setattr(waiting, "_prepared", lambda *_: workers)
    arguments = ["waiting.py", "--rounds", "3", "--output", str(tmp_path), "--pauses"]
    monkeypatch.setattr(sys, "argv", [*arguments, "0.05"])
    assert waiting.main() == (0 if all(met) else 1)
    rows = json.loads((tmp_path / "waiting.json").read_text())["rows"]
    assert [row["met"] for row in rows] == [*met, True, True]
    assert [row["what"].split("nice ")[1][:2] for row in rows[2:]] == ["0:", "19"]
    monkeypatch.setattr(sys, "argv", [*arguments, "0.2", "--add"])
    waiting.main()
    document = json.loads((tmp_path / "waiting.json").read_text())
    assert document["rows"][:2] == rows[:2] and len(document["rows"]) == 6
