"""Charts of results: bars are as long as their values, goals and peers stand where they belong, texts are escaped."""

from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.pages.charts import LEVELS, LONGEST, Bar, bars_chart, svg_file, sweep_chart
from tvm_ext.core.pages.charts import INK, Chart

BARS = [
    Bar("a < b & c", 0.5, 0.65), Bar("missed", 0.9, 0.85, peers={"openvino": 0.75, "torch": 1.1, "tvm": 90.0}),
    Bar("none", None, 0.8, "not available: no network"), Bar("far off", 5.0, 1.0),
]  # fmt: skip


@pytest.fixture(scope="module")
def chart() -> Chart:
    return bars_chart("Time <", "some CPU", BARS)


def test_bars_are_as_long_as_their_values(chart: Chart) -> None:
    (axes,) = chart.axes
    assert axes.get_xlim() == (0, LONGEST) and [bar.get_width() for bar in axes.patches] == [0.5, 0.9, LONGEST]
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert colours[0] != colours[1] == colours[2]
    assert bars_chart("", "", BARS[:1]).axes[0].get_xlim() == (0, pytest.approx(1.2 * 1.02))


def test_goals_and_peers_stand_where_they_belong(chart: Chart) -> None:
    lines: list[Any] = [line for line in chart.axes[0].lines if len(line.get_xdata())]
    goals = [line.get_xdata()[0] for line in lines if line.get_linewidth() == 2.5]
    assert goals == [0.65, 0.85, 1.0]
    peers = [line for line in lines if line.get_marker() in "osD"]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in peers] == [(0.75, 1), (1.1, 1), (LONGEST, 1)]
    assert len({line.get_marker() for line in peers}) == 3


def test_texts_are_escaped_and_figures_are_told(chart: Chart) -> None:
    text = svg_file(chart)
    drawn = "".join(ElementTree.fromstring(text).itertext())
    for part in ("a < b & c", "0.50", "5.00", "not available: no network", "Time <", "openvino", "bar missed"):
        assert part in drawn
    assert "prefers-color-scheme: dark" in text and text.count(INK) == 1  # its own ink is the reader's


def test_a_sweep_has_times_and_energy_by_level() -> None:
    setting = {"rows": 8, "cols": 4, "utilization": 0.5}
    rows = [
        {**setting, "seconds": 0.002, "dataflow": "ws", "energy": {"array": 1000, "dram": 3000}},
        {**setting, "seconds": 0.001, "dataflow": "os", "energy": {"dram": 2000}},
    ]
    chart = sweep_chart("A < B", "about", rows)
    times, energies = chart.axes
    assert [bar.get_width() for bar in times.patches] == [2.0, 1.0]
    dram = energies.containers[list(LEVELS).index("dram")]
    assert [(bar.get_x(), bar.get_width()) for bar in dram] == [(1.0, 3.0), (0.0, 2.0)]
    drawn = "".join(ElementTree.fromstring(svg_file(chart)).itertext())
    assert all(part in drawn for part in ("A < B", "8x4 ws", "2.00 (50%)", "4.0", "scratchpad"))
