"""Mutated files are refused, or compile and agree with onnxruntime: the committed run, and a part of it made again."""

import pathlib

import pytest

from tests.oracles.outcome import Outcome

from .mutants import Mutant, mutant
from .run import SERVICE, Task, judged
from .table import BAD, LETTERS, OPEN, Table, letter_of, read_table, summary, write_table

TABLE = read_table()
#: Mutants of the quick test, and of the long one: every n-th of the committed run.
QUICK, LONG = range(7, 20_000, 500), range(11, 20_000, 400)


def findings(numbers: range) -> list[str]:
    """What is wrong with mutants of the committed series, in words."""
    results = judged(mutant(TABLE.series, number) for number in numbers)
    return [f"{m.number} {m.seed} {m.how}: {outcome}" for m, outcome in results if letter_of(outcome.kind) in BAD]


def test_the_committed_run_is_whole_and_has_no_findings() -> None:
    assert len(TABLE.outcomes) == 20_000 and OPEN not in TABLE.outcomes
    assert TABLE.findings == {} and not set(TABLE.outcomes) & set(BAD)
    compiled = sum(letter in "pab" for letter in TABLE.outcomes)
    assert compiled > 2000  # what is only refused says little
    assert TABLE.about["machine"] and summary(TABLE) == pathlib.Path(__file__).with_name("results.md").read_text()


def test_some_mutants() -> None:
    assert findings(QUICK) == []


@pytest.mark.long
def test_many_mutants() -> None:
    assert len(LONG) == 50
    assert findings(LONG) == []


def test_a_crash_is_tried_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool gives every mutant an outcome, and what is lost with a worker is no more than that mutant."""
    broken = Mutant(0, "none", ("none",), b"\x08")
    calls: list[str] = []

    def pool(service: object, tasks: list[Task], workers: int):
        assert service is SERVICE
        for task in tasks:
            calls.append(task[0])
            yield task, Outcome("crash", "SIGSEGV")

    monkeypatch.setattr("tests.fuzz.run.outcomes", pool)
    ((_, outcome),) = judged([broken])
    assert str(outcome).startswith("crash: SIGSEGV; by itself: refused: ModelError")
    assert calls == ["compile"]


def test_a_table_survives_a_file(tmp_path: pathlib.Path) -> None:
    table = Table(3, about={"machine": "here"})
    for number, outcome in enumerate(["refused: ModelError: why", "agrees", "wrong: output 0", "alone: why"]):
        table.note(number, ("flip", "cut"), outcome)
    assert table.note(2, ("flip", "cut"), "wrong: once more") == "w"
    assert table.findings == {"2": "wrong: once more"} and table.mutators["flip"]["w"] == 1
    write_table(table, tmp_path / "t.json")
    assert read_table(tmp_path / "t.json") == table
    table.note(2, ("flip", "cut"), "agrees")
    assert not table.findings and table.mutators["cut"]["p"] == 2


def test_every_letter_stands_for_one_kind() -> None:
    for letter, (kind, _) in LETTERS.items():
        assert letter_of(f"{kind}: text") == letter
