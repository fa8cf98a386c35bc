"""Which records of a log spare a trial, and that the others are not passed over in silence."""

from dataclasses import replace

import pytest

from tests.core.log_rows import written
from tests.tuning.fakes import FakeTask
from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine
from tvm_ext.core.records.record import Record
from tvm_ext.core.records.record_book import machine_fields
from tvm_ext.tuning.resume import known_of

MACHINE = Machine.detect(threads=2)
TASK = FakeTask("one")


def record(config, task=TASK, **changes):
    fields = {"machine": machine_fields(MACHINE), **changes}
    return Record(task.key, task.recipe, task.version, config, (1e-3,), **fields)


def test_records_of_these_tasks_are_known_once(tmp_path):
    newest = replace(record({"a": 1, "b": 2}), costs=(2e-3,))
    rows = record({"a": 1, "b": 2}), record({"a": 1, "b": 2}, FakeTask("another")), newest, record({"a": 2, "b": 2})
    known = known_of(written(tmp_path / "log.json", *rows, '{"cut', "# words"), [TASK], MACHINE)
    assert known.records == (newest, record({"a": 2, "b": 2})) and not known.notes


def test_what_does_not_count_is_said(tmp_path):
    rows = [
        record({"a": 1, "b": 2}, machine=machine_fields(MACHINE.with_threads(7))),
        record({"a": 2, "b": 2}, machine={**machine_fields(MACHINE), "isa": "neon"}),
        record({"a": 99, "b": 2}), record({"c": 1}), replace(record({"a": 3, "b": 3}), version=5),
        replace(record({"a": 3, "b": 3}), recipe="gone"),
    ]  # fmt: skip
    known = known_of(written(tmp_path / "log.json", *rows), [TASK], MACHINE)
    assert known.records == () and sum(known.refused.values()) == 6
    text = "\n".join(known.notes)
    for reason in ("number of threads 7, this is 2", "instruction set neon", "not in the space of fake",
                   "version 5 of the recipe", "'gone'"):  # fmt: skip
        assert reason in text
    assert "2 records of these tasks do not count: its configuration is not in the space" in text


def test_a_log_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(OptionError, match="there is no log"):
        known_of(tmp_path / "none.json", [TASK], MACHINE)
    with pytest.raises(OptionError, match="cannot be read"):
        known_of(tmp_path, [TASK], MACHINE)
