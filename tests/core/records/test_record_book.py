"""Logs as a whole: what is read, what is left out and why, and which record a compile gets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.log_rows import AUTOTVM, CONV, MACHINE, PICKLED, record
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.core.records.record import Record, RecordError
from tvm_ext.core.records.record_book import MAX_LINE, REMOTE, RecordBook, Verdict, machine_fields, read_line
from tvm_ext.core.records.task_key import TaskKey

HERE = Machine.detect("skylake-avx512", threads=2)
OWN = machine_fields(HERE)
VERSIONS = {"conv2d_nchwc": 1, "conv2d_winograd": 3}
GOOD = record().to_row()


def verdict(config: Any = None, recipe: str | None = None, **changes: Any) -> Verdict:
    fields = {"machine": OWN, "session": "s1", "timestamp": 5.0, "reason": "no faster inside the model"}
    return Verdict(CONV, recipe, config, **{**fields, **changes})


def own(*args: Any, **changes: Any) -> Record:
    """A record of this machine."""
    return record(*args, **{"machine": OWN, **changes})


def written(tmp_path: Path, *lines: str | bytes, name: str = "log.json") -> Path:
    path = tmp_path / name
    path.write_bytes(b"".join(line if isinstance(line, bytes) else (line + "\n").encode() for line in lines))
    return path


# ------------------------------------------------------------------------------------------------ reading
@pytest.mark.parametrize(
    "row",
    [
        verdict(),
        verdict({"a": [1, "x"]}, "conv2d_nchwc", reason="faster ü\n"),
        verdict(facts={"measured": 3, "candidates": 5, "seconds": 1e-5}),
    ],
)
def test_a_verdict_is_a_comment_and_reads_back(row: Verdict) -> None:
    line = row.to_line()
    assert line.startswith("# ") and "\n" not in line and read_line(line) == row


def test_bad_lines_are_named_and_cost_no_other(tmp_path: Path) -> None:
    later = record(timestamp=9.0).to_row()
    path = written(
        tmp_path, "# a comment in words", "", GOOD, GOOD[:150], PICKLED, b"\x00\xff\xfe\x80 garbage\n", "[" * 100_000,
        '{"a": "' + "x" * (2 << 20) + '"}', '{"workload": [], "trace": []}', GOOD + "\r", AUTOTVM[0],
        verdict().to_line(), '# {"kind": "session", "session": "s1"}', verdict().to_line()[:80],
        '# {"kind": "verdict"}', " " * MAX_LINE + GOOD, later.encode(),
    )  # fmt: skip
    book = RecordBook.read([path])
    assert book.records == [record(), record(), Record.from_row(AUTOTVM[0]), record(timestamp=9.0)]
    assert book.verdicts == [verdict()] and book.comments == [{"kind": "session", "session": "s1"}]
    named = {p.line: p.reason for p in book.problems}
    assert sorted(named) == [4, 5, 6, 7, 8, 9, 14, 15, 16]
    for line, why in {4: "cut off", 5: "pickled", 6: "not JSON", 7: "nested", 8: "longer than", 9: "version None",
                      14: "cut off", 15: "no verdict", 16: "longer than"}.items():  # fmt: skip
        assert why in named[line]
    assert str(book.problems[0]).startswith(f"{path}:4: cut off")


@pytest.mark.parametrize("size", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, MAX_LINE + 2, MAX_LINE + 3, 2 * MAX_LINE + 4])
def test_a_line_behind_a_long_one_is_read(tmp_path: Path, size: int) -> None:
    book = RecordBook.read([written(tmp_path, "x" * size, GOOD)])
    assert book.records == [record()] and [p.line for p in book.problems] == [1]


@pytest.mark.parametrize(
    "change",
    [{"config": [1]}, {"config": "x"}, {"config": None}, {"recipe": 5}, {"recipe": None}, {"args": "ab"}, {"op": None},
     {"machine": []}, {"timestamp": "now"}, {"timestamp": 10**400}, {"session": []}, {"reason": 1},
     {"facts": []}, {"facts": {"measured": "3"}}, {"facts": {"measured": True}}],
)  # fmt: skip
def test_a_verdict_of_wrong_types_is_a_problem(change: dict[str, Any]) -> None:
    fields = json.loads(verdict({"a": 1}, "conv2d_nchwc").to_line()[1:])
    with pytest.raises(RecordError):
        read_line("# " + json.dumps({**fields, **change}))


def test_a_verdict_has_no_nan() -> None:
    with pytest.raises(RecordError, match="NaN"):
        read_line(verdict().to_line().replace("5.0", "NaN"))


def test_several_logs_are_one_book(tmp_path: Path) -> None:
    one = written(tmp_path, GOOD, name="one")
    two = written(tmp_path, AUTOTVM[1], "bad", name="two")
    book = RecordBook.read([one, str(two)])
    assert len(book.records) == 2 and str(book.problems[0]).startswith(f"{two}:2: ")
    assert book.of(CONV) == [record()] and book.of(TaskKey.of("a", [])) == []


def test_the_fingerprint_follows_what_is_read(tmp_path: Path) -> None:
    texts = [(GOOD,), (GOOD, GOOD), (AUTOTVM[0],), (GOOD, verdict().to_line()), (verdict().to_line(),)]
    prints = {RecordBook.read([written(tmp_path, *lines)]).fingerprint for lines in texts}
    assert len(prints) == 5 and "" not in prints
    assert RecordBook.read([written(tmp_path, GOOD)]).fingerprint in prints
    assert RecordBook.read([written(tmp_path, "# words", "bad")]).fingerprint == "" == RecordBook.read([]).fingerprint


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(OptionError, match="cannot be read"):
            RecordBook.read([path])


# ------------------------------------------------------------------------------------------------ choosing
def best(*records: Record, verdicts: list[Verdict] | None = None) -> tuple[Record | None, tuple[str, ...]]:
    choice = RecordBook(list(records), verdicts or []).best(CONV, HERE, VERSIONS)
    return choice.record, choice.reasons


def test_the_fastest_usable_record_is_taken() -> None:
    fast, slow = own(costs=(1e-4,)), own(costs=(2e-4,))
    others = [own(costs=(), error="wrong"), own(costs=(1e-9,), discarded=True), own(costs=())]
    assert best(slow, *others, fast) == (fast, ())
    assert best() == (None, ()) == best(*others)
    assert best(own(TaskKey.of("other", []))) == (None, ())


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (own(machine={**OWN, "isa": "avx2"}), "made for instruction set avx2, this is avx512"),
        (own(machine={**OWN, "threads": 8}), "made for number of threads 8, this is 2"),
        (own(machine={}), "made for instruction set unknown"),
        (own(machine={**OWN, "threads": "2" * 500}), "made for number of threads 222"),
        (own(version=2), "made for version 2 of the recipe, this is version 1"),
        (own(recipe="conv2d_magic"), "no recipe 'conv2d_magic' may be used here"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_with_the_reason(other: Record, why: str) -> None:
    choice, reasons = best(other, other)
    assert choice is None and len(reasons) == 1 and why in reasons[0] and other.recipe in reasons[0]
    assert len(reasons[0]) < 200
    fitting = own(costs=(1.0,))
    assert best(other, fitting) == (fitting, reasons)


ELSEWHERE: list[dict[str, Any]] = [
    MACHINE, {**OWN, "cpu": "GenuineIntel 6 143 8 Xeon, 1f6a09c2, 2 cores"}, {**OWN, "cpu": ""}, {**OWN, "l3": 1 << 29},
    {**OWN, "mcpu": "znver4"}, {**OWN, "mcpu": "znver4", "cpu": REMOTE}, {**OWN, "cpu": ["x" * 500]},
]  # fmt: skip


@pytest.mark.parametrize("machine", ELSEWHERE)
def test_what_was_recorded_on_another_machine_is_a_candidate_only(machine: dict[str, Any]) -> None:
    other = own(machine=machine)
    choice, reasons = best(other)
    assert choice is None and len(reasons) == 1 and "a candidate for choose='measure'" in reasons[0]
    assert len(reasons[0]) < 200
    book = RecordBook([other, own(), own(version=2), own(costs=(), error="wrong")], [verdict(machine=machine)])
    assert book.candidates(CONV, HERE, VERSIONS) == [other, own()]
    assert book.verdict(CONV, HERE) is None and book.best(CONV, HERE, VERSIONS).record == own()


def test_what_servers_of_the_named_cpu_measured_is_followed() -> None:
    remote = own(machine=machine_fields(HERE, REMOTE))
    assert remote.machine["cpu"] == REMOTE and best(remote) == (remote, ())


def test_candidates_of_verdicts_come_first_then_the_fastest() -> None:
    slow, fast = own(config={"tile_o": 1}, costs=(2e-4,)), own(costs=(1e-4,))
    book = RecordBook([fast, slow], [verdict({"tile_o": 1}, "conv2d_nchwc")])
    assert book.candidates(CONV, HERE, VERSIONS) == [slow, fast]
    assert RecordBook([slow, fast]).candidates(CONV, HERE, VERSIONS) == [fast, slow]


def test_the_newest_verdict_decides() -> None:
    fast, slow = own(costs=(1e-4,)), own(config={"tile_o": 1}, costs=(2e-4,))
    keep = verdict({"tile_o": 1}, "conv2d_nchwc", timestamp=6.0)
    left = "tuned, and left at the default: no faster inside the model"
    assert best(fast, slow, verdicts=[verdict()]) == (None, (left,))
    for order in ([verdict(), keep], [keep, verdict()]):
        assert best(fast, slow, verdicts=order) == (slow, ())
    assert best(fast, slow, verdicts=[keep, verdict(timestamp=7.0)])[0] is None


def test_a_verdict_of_another_machine_or_task_says_nothing() -> None:
    others = [verdict(machine={**OWN, "threads": 4}), verdict(machine={})]
    others.append(replace(verdict(), task=TaskKey.of("a", [])))
    assert best(own(), verdicts=others) == (own(), ())


def test_a_verdict_without_its_record_is_told() -> None:
    choice, reasons = best(own(), verdicts=[verdict({"tile_o": 9}, "conv2d_nchwc")])
    assert choice == own() and "no record that fits has what the verdict names: conv2d_nchwc" in reasons[0]
