"""Every level of the tiled matmul computes the product, and the script writes its own table."""

import argparse
import pathlib

import pytest

from benchmarks import matmul_levels


@pytest.mark.parametrize("level", matmul_levels.LEVELS)
def test_every_level_is_a_matmul(level: str) -> None:
    answer = matmul_levels.measured(level, 64, 0.001)
    assert answer["error"] <= 64 * 2.0**-24 and answer["gflops"] > 0


def test_a_wrong_result_has_no_figure(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = {level: [{"gflops": 10.0, "error": 1e-7}] for level in matmul_levels.LEVELS}
    answers["cache"][0]["error"] = 1.0
    args = argparse.Namespace(size=64, rounds=1, output=tmp_path)
    assert matmul_levels._write(answers, args) == 1
    text = (tmp_path / "matmul_levels.md").read_text()
    assert "| cache | blocks for the caches, vectors | wrong result |" in text and text == capsys.readouterr().out
    answers["cache"][0]["error"] = 0.0
    assert matmul_levels._write(answers, args) == 0
