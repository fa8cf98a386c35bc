"""Reports: a table for people, strict JSON for programs."""

import json
import math

import pytest

from tvm_ext.tuning.in_model import Ratio
from tvm_ext.tuning.report import INTERRUPTED, INTERRUPTED_LATE, TaskRow, TuneReport

CONV = TaskRow(
    "conv2d 1x64x56x56", 2, 12_345, 30, 4, 1, 2e-3, 1e-3, (9e-4, 1.8e-3), "conv2d_nchwc", {"tile": [4, 2]}, True, 1e6,
    ((1, 2e-3), (7, 1e-3)), known=10,
)  # fmt: skip
NOTHING = TaskRow("dense 1x512", 1, 7)
BROKEN = TaskRow("softmax", 1, 2, unusable="the unscheduled function: no finite number")
RATIO = Ratio(0.8, 0.75, 0.85, 15, (4e-3, 5e-3))


def report(*rows, **changes):
    return TuneReport("m", "s1", "m.tuning.json", rows or (CONV, NOTHING), **changes)


def strict(document):
    return json.loads(json.dumps(document.as_dict(), allow_nan=False))


def test_the_table_has_a_row_a_task():
    head, rule, conv, dense, broken = report(CONV, NOTHING, BROKEN).markdown().partition("\n\n")[0].splitlines()
    assert {line.count("|") for line in (head, rule, conv, dense, broken)} == {11}
    assert [c.strip() for c in head.split("|")[1:-1]][:6] == [
        "task", "calls", "space", "trials", "before us", "after us",
    ]  # fmt: skip
    cells = [c.strip() for c in conv.split("|")[1:-1]]
    assert cells == ["conv2d 1x64x56x56", "2", "12,345", "30 (4 failed)", "2000.0", "1000.0", "1.0", "0.50",
                     "conv2d_nchwc", "yes"]  # fmt: skip
    assert [c.strip() for c in dense.split("|")[4:-1]] == ["0", "", "", "", "", "", ""]
    assert broken.rstrip(" |").endswith("unusable")


def test_the_words_below_say_how_it_went():
    text = str(report(seconds=10.0, stopped="20 trials are done", ratio=RATIO, error=1.5e-7, notes=("a note",)))
    assert "20 trials in 10 s (2.0 a second); 20 trials are done" in text  # 10 of the 30 were known
    assert "tuned / untuned: 0.800 (0.750 to 0.850, 15 rounds); 4.000 ms and 5.000 ms" in text
    assert "1.5e-07 of the range" in text and text.endswith("a note")
    assert "softmax: cannot be measured: the unscheduled function" in str(report(CONV, BROKEN))


@pytest.mark.parametrize("error", [None, 0.0, math.nan, math.inf])
def test_it_is_strict_json(error):
    plain = strict(report(CONV, NOTHING, BROKEN, ratio=RATIO, error=error, seconds=1.0))
    assert plain["error"] == (error if error == 0.0 else None) and plain["ratio"]["seconds"] == [4e-3, 5e-3]
    conv, dense, broken = plain["tasks"]
    assert conv["config"] == {"tile": [4, 2]} and conv["in_model"] == [9e-4, 1.8e-3] and conv["known"] == 10
    assert conv["curve"] == [[1, 2e-3], [7, 1e-3]] and conv["kept"] is True
    assert dense["seconds_before"] is None is dense["in_model"]
    assert broken["unusable"].startswith("the unscheduled")
    failed_default = TaskRow("d", 1, 1, 2, 1, 0, math.inf, math.inf)
    assert strict(report(failed_default))["tasks"][0]["seconds_before"] is None
    assert strict(report())["ratio"] is None


def test_it_knows_whether_all_is_well():
    assert report().ok and report(CONV, BROKEN).ok and not report(BROKEN).ok
    wrong = report(failed="the tuned model disagrees")
    assert not wrong.ok and "FAILED: the tuned model disagrees" in str(wrong) and not strict(wrong)["ok"]
    assert report(stopped=INTERRUPTED).interrupted and report(stopped=INTERRUPTED_LATE).interrupted
    assert not report(stopped="all measured").interrupted
