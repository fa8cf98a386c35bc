"""Figures of a table against values worked out by hand."""

import json

import pytest

from tvm_ext.benchmarking.noise import calibrate, noise_warnings, quartiles, spread
from tvm_ext.benchmarking.table import BenchmarkRow, BenchmarkTable

MACHINE = {"cpu": "Some CPU", "cores": 2, "isa": "avx2", "python": "3.11.7", "packages": {"onnxruntime": "1.32.0"}}
OURS = BenchmarkRow("tvm_ext", "tvm-ext 1", ((0.002, 0.003), (0.004, 0.006), (0.001, 0.009)), 1e-7)
OTHER = BenchmarkRow("onnxruntime", "onnxruntime 1", ((0.004, 0.004), (0.004, 0.004), (0.004, 0.004)), 0.0)
BAD = BenchmarkRow("tvm", "tvm 1", reason="outputs disagree: y | z")


def table(*rows, warnings=()):
    return BenchmarkTable("m.onnx", MACHINE, 2, rows, warnings, (0.01, 0.02), "onnxruntime 1")


def test_the_figure_is_the_median_of_ratios_of_minima():
    t = table(OURS, OTHER)
    assert t.round_ratios("onnxruntime") == [0.5, 1.0, 0.25]
    assert t.ratio("onnxruntime") == 0.5


def test_scattering_ratios_are_too_noisy():
    assert table(OURS, OTHER).too_noisy("onnxruntime")
    steady = BenchmarkRow("tvm_ext", "tvm-ext 1", ((0.0020,), (0.0021,), (0.0020,)), 0.0)
    assert not table(steady, OTHER).too_noisy("onnxruntime") and not table(OURS, BAD).too_noisy("tvm")


def test_statistics_are_over_all_samples():
    stats = OURS.statistics()  # sorted: 1 2 3 4 6 9 ms
    assert stats["min"] == 0.001 and stats["median"] == pytest.approx(0.0035)
    assert stats["iqr"] == pytest.approx(0.0055 - 0.00225)


def test_a_row_without_a_time_has_no_ratio_and_makes_the_table_not_ok():
    t = table(OURS, OTHER, BAD)
    assert t.ratio("tvm") is None and not t.ok and table(OURS, OTHER).ok
    assert BAD.statistics() == {}
    assert table(BenchmarkRow("tvm_ext", reason="crashed"), OTHER).ratio("onnxruntime") is None


def test_renderings_name_machine_figure_and_warnings():
    t = table(OURS, OTHER, BAD, warnings=("too noisy to tell: x",))
    for text in (str(t), t.markdown()):
        for part in ("Some CPU", "2 cores, avx2", "onnxruntime 1.32.0", "0.500", "outputs disagree", "too noisy"):
            assert part in text
    lines = [line for line in t.markdown().splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1 and len(lines) == 5


def test_as_dict_is_json():
    plain = json.loads(json.dumps(table(OURS, OTHER, BAD).as_dict(), allow_nan=False))
    ours, other, bad = plain["rows"]
    assert other["ratio"] == 0.5 and other["round_ratios"] == [0.5, 1.0, 0.25] and ours["ratio"] is None
    assert ours["round_minima_ms"] == [2.0, 4.0, 1.0] and ours["min_ms"] == 1.0 and ours["samples"] == 6
    assert bad["reason"] and "min_ms" not in bad and not bad["ok"]


def test_unknown_rows_are_an_error():
    with pytest.raises(KeyError, match="rows"):
        table(OURS).row("other")


def test_quartiles_and_spread():
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert spread([1.0]) == spread([2.0, 2.0, 2.0]) == 0.0


def test_noise_is_warned_of():
    steady, wild = [1.0, 1.01, 0.99, 1.0], [1.0, 1.4, 0.8, 1.2]
    assert noise_warnings({"onnxruntime": steady}, steady) == []
    assert "too noisy to tell: the ratio to onnxruntime" in noise_warnings({"onnxruntime": wild}, steady)[0]
    assert "own speed" in noise_warnings({"onnxruntime": steady}, wild)[0]


def test_calibration_takes_some_time():
    assert calibrate(2, repeats=1) > 0.0
