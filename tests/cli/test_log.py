"""`tvm-ext log`."""

import json
import os

import pytest

from tests.core.log_rows import AUTOTVM, CONV, MACHINE, PICKLED, record, written
from tvm_ext.core.machine import Machine
from tvm_ext.core.records.record_book import RecordBook, Verdict, machine_fields
from tvm_ext.core.records.task_key import TaskKey

HERE = machine_fields(Machine.detect("skylake-avx512", 2))
FAST, SLOW = record(costs=(1e-4,), machine=HERE), record(costs=(2e-4,), machine=HERE, session="s2", config={"tile": 1})
FAILED = record(costs=(), error="wrong", detail="0.5 of its range", machine=HERE)
ELSEWHERE = record(costs=(5e-5,), machine={**MACHINE, "isa": "neon"}, session="pi")
POOL = TaskKey.of("relax.nn.max_pool2d", [["TENSOR", [1, 8, 9, 9], "float32"]])
CUT = FAST.to_row()[:80]


def verdict(config=None, recipe=None):
    return Verdict(CONV, recipe, config, HERE, "s1", 9.0, "no faster inside the model")


@pytest.fixture
def log(tmp_path):
    """Writes a log."""
    return lambda *rows, name="log.json": str(written(tmp_path / name, *rows))


def test_ls_counts_rows_by_task(cli, cli_json, log):
    path = log("# words", SLOW, FAST, FAILED, AUTOTVM[0], verdict(SLOW.config, "conv2d_nchwc"))
    code, out, err = cli("log", "ls", path)
    assert code == 0 and not err
    header, conv, autotvm, total = out.splitlines()
    assert header.split() == ["task", "rows", "failed", "best", "of", "recipe", "sessions", "verdict"]
    assert conv.startswith(CONV.short + " ")
    assert conv.split()[-8:] == ["3", "1", "100.0", "us", "conv2d_nchwc", "2", "use", "conv2d_nchwc"]
    assert "conv2d_NCHWc.x86" in autotvm and total == "2 tasks, 4 records, 1 verdicts"
    code, answer = cli_json("log", "ls", path)
    assert code == 0 and answer["ok"] and [t["rows"] for t in answer["tasks"]] == [3, 1]
    assert answer["tasks"][0]["best"]["seconds"] == 1e-4 and answer["tasks"][0]["sessions"] == ["s2", "s1"]
    assert answer["tasks"][0]["args"] == CONV.args and answer["tasks"][0]["verdict"]["config"] == SLOW.config


def test_ls_takes_several_logs_and_warns_of_bad_lines(cli, log):
    code, out, err = cli("log", "ls", log(FAST), log(CUT, PICKLED, name="two"))
    assert code == 0 and "1 tasks, 1 records" in out
    assert err.startswith("warning: 2 lines are no records and left out, the first: ") and "two:1: cut off" in err


def test_ls_of_an_empty_log(cli, cli_json, log):
    assert cli("log", "ls", log()) == (0, "0 tasks, 0 records, 0 verdicts\n", "")
    assert cli_json("log", "ls", log())[1]["tasks"] == []


def test_show_lists_rows_fastest_first(cli, cli_json, log):
    path = log(FAILED, SLOW, FAST, record(POOL, "pool2d"))
    code, out, _ = cli("log", "show", path, "--task", "conv2d")
    lines = out.splitlines()
    assert code == 0 and lines[0] == CONV.short and "max_pool" not in out
    assert [line.split()[0] for line in lines[2:]] == ["100.0", "200.0", "conv2d_nchwc"]
    assert "tile=1" in lines[3] and "wrong" in lines[4] and "2025-11-28 03:20:00" in lines[2]
    assert len(cli_json("log", "show", path)[1]["tasks"]) == 2
    (task,) = cli_json("log", "show", path, "--task", "pool2d")[1]["tasks"]
    assert [r["recipe"] for r in task["records"]] == ["pool2d"]


def test_show_of_no_such_task_names_those_there_are(refused, log):
    said = refused("log", "show", log(FAST), "--task", "lstm")
    assert "--task 'lstm'" in said and CONV.short in said


def test_best_is_what_a_compile_would_use(cli, cli_json, log):
    here = ("--target", "skylake-avx512", "--threads", "2")
    code, out, _ = cli("log", "best", log(FAST, SLOW, ELSEWHERE), *here)
    assert code == 0
    assert out.splitlines() == [
        CONV.short, "  100.0 us conv2d_nchwc tile_o=2 tile_p=7 order=['a', 'b'] of session s1",
        "  not used: record of conv2d_nchwc: made for instruction set neon, this is avx512",
        "1 of 1 tasks have a record for avx512 (skylake-avx512), 2 threads",
    ]  # fmt: skip
    out = cli("log", "best", log(FAST), *here[:3], "4")[1]
    assert "the default" in out and "made for number of threads 2, this is 4" in out and "0 of 1 tasks" in out
    (task,) = cli_json("log", "best", log(FAST, verdict()), *here)[1]["tasks"]
    assert task["record"] is None and task["refused"] == ["tuned, and left at the default: no faster inside the model"]
    (task,) = cli_json("log", "best", log(FAST, SLOW, verdict(SLOW.config, "conv2d_nchwc")), *here)[1]["tasks"]
    assert task["record"]["config"] == SLOW.config and task["refused"] == []


def test_validate_names_bad_lines_and_exits_1(cli, cli_json, log):
    good = log(FAST, verdict(), *AUTOTVM, name="good")
    assert cli("log", "validate", good) == (0, "4 records, 1 verdicts, 0 bad lines\n", "")
    bad = log(FAST, CUT, PICKLED, '{"a": 1}')
    code, out, err = cli("log", "validate", good, bad)
    assert code == 1 and not err
    assert [line.split(": ")[0] for line in out.splitlines()[:3]] == [f"{bad}:{n}" for n in (2, 3, 4)]
    assert "cut off" in out and "pickled" in out and out.endswith("5 records, 1 verdicts, 3 bad lines\n")
    code, answer = cli_json("log", "validate", bad)
    assert code == 1 and not answer["ok"] and [p["line"] for p in answer["bad"]] == [2, 3, 4]


def test_merge_writes_every_row_once(cli, cli_json, refused, log, tmp_path):
    one, two, out = log(FAST, CUT), log(SLOW, FAST, name="two"), str(tmp_path / "out")
    code, text, _ = cli("log", "merge", one, two, "-o", out)
    assert code == 0 and text.startswith(f"{out}: 2 of 3 records and 0 of 0 verdicts kept\nleft out: {one}:2: cut off")
    assert len(RecordBook.read([out]).records) == 2
    code, answer = cli_json("log", "merge", one, two, "-o", one)
    assert code == 0 and answer["records"] == {"read": 3, "written": 2} and len(answer["left_out"]) == 1
    assert "-o FILE" in refused("log", "merge", one, two)
    assert "would be lost" in refused("log", "merge", one, "-o", two) and len(RecordBook.read([two]).records) == 2


def test_prune_keeps_the_fastest(cli, cli_json, refused, log, tmp_path):
    path, out = log(SLOW, FAST, FAILED), str(tmp_path / "out")
    assert cli("log", "prune", path, "--keep", "1", "-o", out)[:2] == (
        0, f"{out}: 1 of 3 records and 0 of 0 verdicts kept\n")  # fmt: skip
    assert RecordBook.read([out]).records == [FAST] and len(RecordBook.read([path]).records) == 3
    assert cli_json("log", "prune", path)[1]["records"] == {"read": 3, "written": 2}
    assert len(RecordBook.read([path]).records) == 2
    assert cli("log", "prune", path, out)[0] == 2 and cli("log", "prune", path, "--keep", "-1")[0] == 2
    assert "cannot be written" in refused("log", "prune", path, "-o", str(tmp_path / "no" / "out"), code=1)


@pytest.mark.parametrize("action", ["ls", "show", "best", "validate", "prune"])
def test_a_missing_log_exits_2(refused, action, tmp_path):
    assert "cannot be read" in refused("log", action, str(tmp_path / "missing")) and os.listdir(tmp_path) == []


@pytest.mark.parametrize("argv", [["ls"], ["burn", "log"], ["prune", "log", "--keep", "few"]])
def test_usage(cli, argv):
    assert cli("log", *argv)[0] == 2


@pytest.mark.parametrize("argv", [["ls", "--task", "x"], ["validate", "-o", "x"], ["show", "--keep", "1"]])
def test_an_option_of_another_action_is_an_error(refused, log, argv):
    assert "no option of it" in refused("log", argv[0], log(FAST), *argv[1:])


def test_what_a_log_holds_cannot_write_to_the_terminal(cli, log):
    row = json.loads(FAST.to_row())
    row["input"][1] = "\x1b[2J\ud800" + "x" * 10_000
    row["tvm_ext"].update(session="\n\x07", op="a\u202e")
    path = log(json.dumps(row), "\x1b]0;title\x07")
    for action in ("ls", "show", "best", "validate"):
        code, out, err = cli("log", action, path)
        assert code == (1 if action == "validate" else 0)
        assert all(c.isprintable() or c == "\n" for c in out + err) and len(out) < 2000
