"""Logs that are appended to by several, killed at any moment, merged and pruned: no record is lost, none is doubled."""

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.log_rows import AUTOTVM, CONV, MACHINE, record, written
from tvm_ext.core.errors import OptionError, ToolError
from tvm_ext.core.machine import Machine
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import RecordBook, Verdict, lines_of, machine_fields
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.tuning.log import TuningLog, merge, prune

ROOT = Path(__file__).parents[2]
HERE = Machine.detect("skylake-avx512", threads=2)

# Appends records numbered from argv[2] to argv[3]; says each number once its row is written. Rows are of some pages,
# so that a kill may fall into the middle of one.
APPEND = """
import sys
from tests.core.log_rows import CONV, record
from tvm_ext.core.records.task_key import TaskKey
from tvm_ext.tuning.log import TuningLog

path, first, last, name = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
log = TuningLog(path)
print("ready", flush=True)
sys.stdin.readline()
for number in range(first, last):
    task = TaskKey.of(CONV.op, [*CONV.args, "x" * (number % 7) * 3000])
    log.append(record(task, session=name, index=number))
    print(number, flush=True)
"""


def start(path: Path, first: int, last: int, name: str) -> subprocess.Popen[str]:
    """A process that appends, ready to begin."""
    command = [sys.executable, "-c", APPEND, str(path), str(first), str(last), name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def verdict(config: Any = None, recipe: str | None = None, time: float = 50.0, **changes: Any) -> Verdict:
    return Verdict(CONV, recipe, config, **{"machine": MACHINE, "session": "s1", "timestamp": time, **changes})


def costing(seconds: float, **changes: Any) -> Record:
    config = {"tile": round(1000 * seconds)}
    return record(costs=(seconds,), timestamp=1000 * seconds, config=config, kinds={}, **changes)


# ------------------------------------------------------------------------------------------------ appending
def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    log = TuningLog(tmp_path / "log.json")
    log.begin("s1", HERE, {"model": "m", "seed": 0})
    log.append(record())
    log.verdict(verdict())
    lines = list(lines_of(log.path))
    assert [line.entry for line in lines[1:]] == [record(), verdict()]
    header = lines[0].entry
    assert isinstance(header, dict) and header["session"] == "s1" and header["machine"]["isa"] == "avx512"
    row = json.loads(lines[1].text)
    assert row["input"][0] == "llvm -mcpu=skylake-avx512 -num-cores=2" and row["tvm_version"].startswith("0.27")


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(record().to_row() + "\n" + record().to_row()[:99])
    TuningLog(path).append(record(index=8))
    book = RecordBook.read([path])
    assert book.records == [record(), record(index=8)] and [p.line for p in book.problems] == [2]


def test_a_place_that_takes_no_file_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "log.json"):
        with pytest.raises(ToolError, match="no file can be written"):
            TuningLog(path)
    os.symlink(tmp_path / "no" / "log.json", tmp_path / "dangling")
    with pytest.raises(ToolError, match="cannot be written"):
        TuningLog(tmp_path / "dangling").append(record())


def test_two_processes_share_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    processes = [start(path, 0, 500, name) for name in ("one", "two")]
    for process in processes:
        go(process)
    assert [process.communicate(timeout=60)[0].split() for process in processes] == [[str(n) for n in range(500)]] * 2
    book = RecordBook.read([path])
    assert not book.problems and len(book.records) == 1000
    for name in ("one", "two"):
        assert [r.index for r in book.records if r.session == name] == list(range(500))


@pytest.mark.long
def test_killed_at_any_moment_it_loses_no_finished_record(tmp_path: Path) -> None:
    path, rng, told, begun = tmp_path / "log.json", random.Random(0), 0, 0
    for kill in range(8):
        process = start(path, begun, begun + 10_000, str(kill))
        go(process)
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 40)):  # by its own clock, so that each kill falls somewhere into its work
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read().split()  # what it told before it died
        process.wait()
        book = RecordBook.read([path])
        assert len(book.problems) <= kill + 1 and all("cut off" in p.reason for p in book.problems)
        numbers = [r.index for r in book.records]
        assert numbers == list(range(len(numbers)))  # none is missing, none is there twice
        told = int(said[-1]) if said else told
        assert numbers[-1] >= told
        begun = len(numbers)  # as a session goes on: what the log has is not measured again
    assert begun > 60


def test_nothing_is_lost_that_is_appended_while_the_log_is_pruned(tmp_path: Path) -> None:
    """The writer waits for the new file: it never writes into the one that was replaced."""
    path = tmp_path / "log.json"
    process = start(path, 0, 300, "one")
    go(process)
    while process.poll() is None:
        if path.exists():
            prune(path, 10_000)
    assert sorted(r.index for r in RecordBook.read([path]).records) == list(range(300))


# ------------------------------------------------------------------------------------------------ merging
def test_merge_keeps_every_line_once_in_order_of_time(tmp_path: Path) -> None:
    header = '# {"kind":"session","session":"s1","time":0.5,"machine":{}}'
    one = written(tmp_path / "one", header, costing(3.0), verdict(time=9000.0), "# words", costing(1.0), verdict())
    two = written(tmp_path / "two", costing(2.0), costing(1.0), '{"cut', verdict(), "", AUTOTVM[0])
    merged = merge([one, two], tmp_path / "out")
    assert (merged.records, merged.verdicts) == ((6 - 1, 4), (3, 2))
    assert len(merged.problems) == 1 and f"{two}:3: cut off" in merged.problems[0]
    assert "4 of 5 records and 2 of 3 verdicts kept\nleft out: " in str(merged)
    texts = (tmp_path / "out").read_text().splitlines()
    assert texts[0] == "# words" and texts[1] == header and texts[-1] == AUTOTVM[0]  # as they were, word for word
    rows = [line.entry for line in lines_of(tmp_path / "out") if isinstance(line.entry, Record | Verdict)]
    assert [r.timestamp for r in rows] == [50.0, 1000.0, 2000.0, 3000.0, 9000.0, 1593458012.1]


def test_merge_into_one_of_them_or_a_new_file_only(tmp_path: Path) -> None:
    one, two, other = (written(tmp_path / name, costing(i + 1.0)) for i, name in enumerate(("one", "two", "other")))
    with pytest.raises(OptionError, match="would be lost"):
        merge([one, two], other)
    assert RecordBook.read([other]).records == [costing(3.0)]
    merge([one, two], one)
    assert RecordBook.read([one]).records == [costing(1.0), costing(2.0)]
    merge([one, two], one)
    assert len(RecordBook.read([one]).records) == 2


def test_the_output_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = written(tmp_path / "one", costing(2.0), costing(1.0))
    before = one.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ToolError, match="No space left"):
            prune(one, 1)
    assert one.read_text() == before and os.listdir(tmp_path) == ["one"]
    with open(one, encoding="utf-8") as reader:  # who reads the old one reads all of it
        prune(one, 1)
        assert reader.read() == before
    assert RecordBook.read([one]).records == [costing(1.0)] and os.listdir(tmp_path) == ["one"]


def test_missing_logs_and_folders_are_errors(tmp_path: Path) -> None:
    one = written(tmp_path / "one", costing(1.0))
    with pytest.raises(OptionError, match="cannot be read"):
        merge([one, tmp_path / "missing"], tmp_path / "out")
    with pytest.raises(OptionError, match="cannot be read"):
        prune(tmp_path / "missing", 1)
    with pytest.raises(ToolError, match="cannot be written"):
        prune(one, 1, tmp_path / "no" / "out")
    with pytest.raises(OptionError, match="keep=-1"):
        prune(one, -1)
    assert os.listdir(tmp_path) == ["one"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    one = written(tmp_path / "one", costing(2.0), costing(1.0))
    os.symlink(one, tmp_path / "link")
    prune(tmp_path / "link", 1)
    assert (tmp_path / "link").is_symlink() and RecordBook.read([one]).records == [costing(1.0)]


# ------------------------------------------------------------------------------------------------ pruning
def test_prune_keeps_the_fastest_of_each_task_recipe_and_machine(tmp_path: Path) -> None:
    other = TaskKey.of("other", [])
    groups = [
        {}, {"recipe": "winograd"}, {"task": other}, {"machine": {**MACHINE, "threads": 4}},
        {"machine": {**MACHINE, "cpu": "another"}},
    ]  # fmt: skip
    rows = [costing(seconds, **group) for group in groups for seconds in (3.0, 1.0, 2.0)]
    bad = [record(costs=(), error="wrong"), replace(costing(0.5), discarded=True)]
    path = written(tmp_path / "log", *rows, *bad)
    assert prune(path, 2, tmp_path / "two").records == (17, 10)
    kept = RecordBook.read([tmp_path / "two"]).records
    assert sorted(r.cost for r in kept) == [1.0] * 5 + [2.0] * 5 and all(r in rows for r in kept)
    assert prune(path, 1).records == (17, 5) and {r.cost for r in RecordBook.read([path]).records} == {1.0}


def test_prune_keeps_what_the_newest_verdict_names_whatever_its_time(tmp_path: Path) -> None:
    here = machine_fields(HERE)
    rows = [costing(seconds, machine=here) for seconds in (1.0, 2.0, 3.0, 4.0)]
    new, old = (verdict({"tile": t}, "conv2d_nchwc", at, machine=here) for t, at in ((4000, 60.0), (3000, 40.0)))
    path = written(tmp_path / "log", *rows, new, old)
    before = RecordBook.read([path]).best(CONV, HERE, {"conv2d_nchwc": 1})
    assert prune(path, 1).verdicts == (2, 1)
    book = RecordBook.read([path])
    assert [r.cost for r in book.records] == [1.0, 4.0] and book.verdicts == [new]
    assert book.best(CONV, HERE, {"conv2d_nchwc": 1}) == before and before.record == rows[3]
    assert prune(path, 0).records == (2, 1)


def test_prune_keeps_the_verdict_to_use_none(tmp_path: Path) -> None:
    path = written(tmp_path / "log", costing(1.0), verdict(), verdict(machine={**MACHINE, "threads": 4}))
    prune(path, 1)
    book = RecordBook.read([path])
    assert len(book.verdicts) == 2 and book.best(CONV, HERE, {"conv2d_nchwc": 1}).record is None


def test_prune_leaves_sessions_that_still_have_rows_and_rows_of_autotvm_by_target(tmp_path: Path) -> None:
    headers = [f'# {{"kind":"session","session":"{name}","time":{i}.0}}' for i, name in enumerate("ab", 1)]
    slower = AUTOTVM[1].replace("0.0312", "0.5")
    elsewhere = slower.replace("-keys=cpu", "-mcpu=haswell")
    path = written(tmp_path / "log", *headers, costing(1.0, session="b"), costing(2.0, session="a"), slower, elsewhere,
                   AUTOTVM[1])  # fmt: skip
    prune(path, 1)
    texts = path.read_text().splitlines()
    assert headers[0] not in texts and headers[1] in texts
    assert AUTOTVM[1] in texts and elsewhere in texts and slower not in texts
